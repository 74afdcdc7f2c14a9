"""A simulated disk that loses everything that the ports do not promise to keep.

It has two layers: the cache, which reads see, and the platter, which survives a power cut. It enforces
exactly what `storage.disk.files` promises: a write is durable after the `sync` of its file, a name is durable
after the `sync` of its directory, and neither implies the other. A power cut may lose the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.crashlab.model.directory import SimulatedDirectory
from recovery.crashlab.model.edge_case_fates import edge_case_fates, exhaustive_fates
from recovery.crashlab.model.fates import ATOM
from recovery.crashlab.model.machine import SimulatedMachine
from recovery.crashlab.model.platter import Platter

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.crashlab.model.disk_errors import Fault
    from recovery.crashlab.model.fates import Exactly, Fate
    from recovery.crashlab.model.operations import Operation
    from recovery.crashlab.model.pending import PendingUnits
    from storage.disk.files import Directory


class SimulatedDisk:
    """A simulated machine with one disk. The program under test uses only `root()`."""

    def __init__(self, *, sector_size: int = 512, capacity: int | None = None) -> None:
        if sector_size <= 0 or sector_size % ATOM:
            raise ValueError(f"sector_size must be a multiple of {ATOM}, not {sector_size}")
        self._machine = SimulatedMachine(Platter(sector_size), [], capacity)

    def root(self) -> Directory:
        """Return the root directory for a process of the current boot. It exists and is durable."""
        return SimulatedDirectory(self._machine, ())

    @property
    def sector_size(self) -> int:
        return self._machine.platter.sector_size

    @property
    def trace(self) -> tuple[Operation, ...]:
        """Every numbered operation so far, over all boots."""
        return tuple(self._machine.trace)

    def copy(self) -> SimulatedDisk:
        """Return another machine with the same disk, without process, faults or stop. Cheap."""
        twin = SimulatedDisk(sector_size=self.sector_size)
        machine = self._machine
        twin._machine = SimulatedMachine(machine.platter.copy(), machine.trace.copy(), machine.capacity)
        return twin

    def image(self) -> str:
        """Return a hash of all names and bytes that reads see. It is the same in every process."""
        return self._machine.platter.image()

    # --- the end of a process -------------------------------------------------------------------------

    def kill(self) -> None:
        """Kill the process. Reads still see what it wrote, but no more of it is durable than before."""
        self._machine.reboot(self._machine.platter)

    def power_cut(self, fate: Fate) -> None:
        """Cut the power. Reads then see what was synced, and of the rest what the fate leaves."""
        platter = self._machine.platter
        self._machine.reboot(platter.after_cut(fate.survivors(platter.pending())))

    @property
    def has_stopped(self) -> bool:
        """Whether a stop has struck. A program under test may have turned `Stopped` into its own error."""
        return self._machine.has_stopped

    def stop_before(self, number: int) -> None:
        """Raise `Stopped` instead of doing the operation with that number, and at every later access."""
        self._machine.stop_before(number)

    def stop_within(self, number: int) -> None:
        """Like `stop_before`, but of a write the first half of the bytes reaches the cache."""
        self._machine.stop_within(number)

    def watch(self, watcher: Callable[[Operation], None]) -> None:
        """Call the watcher with each numbered operation before it happens, for example to copy the disk."""
        self._machine.watchers.append(watcher)

    # --- the effects of a power cut -------------------------------------------------------------------

    def pending(self) -> PendingUnits:
        """Return every unit that a power cut could lose now."""
        return self._machine.platter.pending()

    def fates(self, *, exhaustive_up_to: int = 8) -> list[Exactly]:
        """Return the edge-case fates of this moment, and every subset of the units if they are few."""
        pending = self.pending()
        fates = dict.fromkeys(edge_case_fates(pending))
        if len(pending.units) <= exhaustive_up_to:
            fates |= dict.fromkeys(exhaustive_fates(pending))
        return list(fates)

    # --- faults ---------------------------------------------------------------------------------------

    def plant(self, fault: Fault) -> None:
        """Make later operations fail as the fault says."""
        self._machine.faults.plant(fault)

    def mend(self) -> None:
        """Remove every planted fault. Its effects remain."""
        self._machine.faults.mend()

    def limit(self, capacity: int | None) -> None:
        """Set how many bytes files may occupy, in whole sectors. A larger limit frees space."""
        self._machine.capacity = capacity
