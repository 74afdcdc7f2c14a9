"""One opening of the store on real files and real LMDB, small and without chance: milliseconds to recover.

Nothing of it is replaced but its surroundings: workers are hands that step in the caller's thread, salts
and ids are counted, the clock stands still.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from recovery.founding import Layout
from recovery.opening import Opening, Surroundings
from recovery.proving.crew import Crew
from storage.config import StoreConfig
from storage.journal_writer import NOTHING
from storage.lmdb_place import LmdbPlace
from storage.posix_files import PosixDirectory
from storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from storage.files import Directory

STORE = "store"
"""The store's directory below the root: made by the opening, so that its name, too, must be made durable."""

STORE_ID = "5" * 32

CONFIG = StoreConfig(
    memtable_size_max=5 << 10,
    entry_size_max=1 << 10,
    group_size_max=6 << 10,
    journal_size=32 << 10,
    entry_log_size_max=12 << 10,
    index_size_max=1 << 20,
    journal_max_backups=0,
    throttle_timeout_s=0.0,
    checkpoint_interval_s=None,
    idle_seal_s=1.0,
)
"""Everything is small; tables, journals and logs are full after a few entries."""


_SMALL_ADDS = 700
"""A few entries that a workload adds at once."""


def layout_of(root: Path, directory_at: Callable[[Path], Directory] = PosixDirectory) -> Layout:
    """Where the store below a root has its files."""
    return Layout(directory_at(root / STORE))


def place_of(layout: Layout) -> LmdbPlace:
    """Where its index lies."""
    return LmdbPlace(layout.ledgers, Path(layout.ledgers.path), CONFIG.index_size_max)


class Opened:
    """The store below a root, made if there is none. For one thread.

    When its `with` ends nothing is open any more in this process, and nothing was written for that: to the
    files it is as if the process had been killed. `store.close()` before that ends it in order.
    """

    def __init__(
        self,
        root: Path,
        numbers: Iterator[int],
        directory_at: Callable[[Path], Directory] = PosixDirectory,
    ) -> None:
        self.crew = Crew()
        self.layout = layout_of(root, directory_at)
        self.layout.root.make()
        self._held = ExitStack()
        surroundings = Surroundings(
            self.crew.hire,
            new_salt=lambda: next(numbers),
            new_id=lambda: STORE_ID,
            clock=lambda: 0.0,
        )
        opening = Opening(
            self.layout, place_of(self.layout), CONFIG, surroundings, parent=PosixDirectory(root)
        )
        with ExitStack() as unless_open:
            unless_open.push(self._held)
            recovered = opening.recover(self._held)
            unless_open.pop_all()
        self.parts = recovered.parts
        self.store = Store(
            recovered.parts, recovered.report, self._held.close, recovered.lock.close, self.crew.hire
        )

    @property
    def is_full(self) -> bool:
        """Whether an add might find no room before the checkpoint under way has ended."""
        return self.parts.slot.tables.active.size > CONFIG.memtable_size_max - _SMALL_ADDS

    @property
    def must_roll(self) -> bool:
        """Whether an add might need another journal: it waits for whoever is storing the mark."""
        journal, waiting = self.parts.journals.active, self.parts.committer.turnstile.open.load.size
        return journal is None or not journal.has_room(NOTHING, waiting + _SMALL_ADDS)

    def request_checkpoint(self) -> None:
        """Asks for a checkpoint; the crew's steps make it."""
        self.parts.checkpointer.request()
        self.crew.hands["ledgerstore-checkpoint"].wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._held.close()
