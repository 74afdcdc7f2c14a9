"""A simulated disk that forgets whatever the ports do not promise.

It has two layers: the cache, which reads see, and the platter, which survives. It enforces exactly the
sentences of `storage.files`: a write is durable after that file's `sync`, a name after its directory's
`sync`, and neither says anything of the other. Until then a power cut may take it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.crashlab.corners import corner_fates, exhaustive_fates
from recovery.crashlab.directory import SimulatedDirectory
from recovery.crashlab.fates import ATOM
from recovery.crashlab.machine import Machine
from recovery.crashlab.platter import Platter

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.crashlab.fates import Exactly, Fate
    from recovery.crashlab.faults import Fault
    from recovery.crashlab.pending import Pending
    from recovery.crashlab.trace import Operation
    from storage.files import Directory


class SimulatedDisk:
    """A machine with one disk, seen from the laboratory: what runs on it sees `root()` only."""

    def __init__(self, *, sector_size: int = 512, capacity: int | None = None) -> None:
        if sector_size <= 0 or sector_size % ATOM:
            raise ValueError(f"sector_size must be a multiple of {ATOM}, not {sector_size}")
        self._machine = Machine(Platter(sector_size), [], capacity)

    def root(self) -> Directory:
        """The topmost directory, for a process of this boot; it exists and is durable."""
        return SimulatedDirectory(self._machine, ())

    @property
    def sector_size(self) -> int:
        return self._machine.platter.sector_size

    @property
    def trace(self) -> tuple[Operation, ...]:
        """Every numbered operation so far, over all boots."""
        return tuple(self._machine.trace)

    def copy(self) -> SimulatedDisk:
        """Another machine with the same cache and platter, no process, no fault and no stop; cheap."""
        twin = SimulatedDisk(sector_size=self.sector_size)
        machine = self._machine
        twin._machine = Machine(machine.platter.copy(), machine.trace.copy(), machine.capacity)
        return twin

    def image(self) -> str:
        """A hash of all names and bytes that reads see, the same for the same content in any process."""
        return self._machine.platter.image()

    # --- the end of a process -------------------------------------------------------------------------

    def kill(self) -> None:
        """Ends the process: what it wrote stays readable and stays as little durable as it was."""
        self._machine.reboot(self._machine.platter)

    def power_cut(self, fate: Fate) -> None:
        """Ends the machine: reads see what was synced, and of the rest what the fate leaves."""
        platter = self._machine.platter
        self._machine.reboot(platter.after_cut(fate.survivors(platter.pending())))

    def stop_before(self, number: int) -> None:
        """Raises `Stopped` instead of the operation with that number, and for all that is asked later."""
        self._machine.stop_before(number)

    def stop_within(self, number: int) -> None:
        """As `stop_before`, but if it is a write, the first half of its bytes has reached the cache."""
        self._machine.stop_within(number)

    def watch(self, watcher: Callable[[Operation], None]) -> None:
        """Calls with each numbered operation before it happens: the moment to copy the disk."""
        self._machine.watchers.append(watcher)

    # --- what a cut may do ----------------------------------------------------------------------------

    def pending(self) -> Pending:
        """Every unit that a power cut could take now."""
        return self._machine.platter.pending()

    def fates(self, *, exhaustive_up_to: int = 8) -> list[Exactly]:
        """The corner fates of this moment, and every subset of the units when they are so few."""
        pending = self.pending()
        fates = dict.fromkeys(corner_fates(pending))
        if len(pending.units) <= exhaustive_up_to:
            fates |= dict.fromkeys(exhaustive_fates(pending))
        return list(fates)

    # --- faults ---------------------------------------------------------------------------------------

    def plant(self, fault: Fault) -> None:
        """Makes later operations fail as the fault says."""
        self._machine.faults.plant(fault)

    def mend(self) -> None:
        """Takes out every planted fault. What they did stays done."""
        self._machine.faults.mend()

    def limit(self, capacity: int | None) -> None:
        """Sets the bytes that files may occupy, in whole sectors: more of them is space given back."""
        self._machine.capacity = capacity
