"""The store on real files and real LMDB, small and deterministic: it recovers within milliseconds.

Only its platform is replaced: workers step in the caller's thread, salts and ids are counted, the clock
stands still.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from recovery.directory.layout import Layout
from recovery.opening.assembly import Platform
from recovery.opening.open_store import Opening
from recovery.proving.stepped_workers import SteppedWorkers
from storage.config import StoreConfig
from storage.disk.posix import PosixDirectory
from storage.entrylog.log_set import age_of
from storage.index.lmdb.directory import LmdbIndexDirectory
from storage.journal.writer import NOTHING
from storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from storage.disk.files import Directory

# The laboratory breaks stores on purpose, so their failures are not for the terminal.
logging.getLogger("ledgerstore").addHandler(logging.NullHandler())

STORE = "store"
"""The store's directory below the root. The opening makes it, so that its name must be made durable too."""

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
    space_reserve=8 << 10,
    space_min_free=0,
)
"""Everything is small: tables, journals and logs are full after a few entries."""


_SMALL_ADDS = 700
"""The size of a few entries that a workload adds at once."""


def layout_of(root: Path, directory_at: Callable[[Path], Directory] = PosixDirectory) -> Layout:
    """Return the layout of the store below a root."""
    return Layout(directory_at(root / STORE))


def place_of(layout: Layout) -> LmdbIndexDirectory:
    """Return the directory of its index."""
    return LmdbIndexDirectory(layout.ledgers, Path(layout.ledgers.path), CONFIG.index_size_max)


class StoreUnderTest:
    """The store below a root, which is made if there is none. Use it from one thread.

    When the `with` block ends, everything is closed without writing anything, so that the files are as after
    a kill. Call `store.close()` before that to close the store properly.
    """

    def __init__(
        self,
        root: Path,
        numbers: Iterator[int],
        directory_at: Callable[[Path], Directory] = PosixDirectory,
    ) -> None:
        self.workers = SteppedWorkers()
        self.layout = layout_of(root, directory_at)
        self.layout.root.make()
        self._held = ExitStack()
        platform = Platform(
            self.workers.new_worker,
            new_salt=lambda: next(numbers),
            new_id=lambda: STORE_ID,
            clock=lambda: 0.0,
        )
        opening = Opening(self.layout, place_of(self.layout), CONFIG, platform, parent=PosixDirectory(root))
        with ExitStack() as unless_open:
            unless_open.push(self._held)
            recovered = opening.recover(self._held)
            unless_open.pop_all()
        self.engine = recovered.engine
        self.store = Store(
            recovered.engine,
            recovered.report,
            self._held.close,
            recovered.lock.close,
            self.workers.new_worker,
        )

    @property
    def is_full(self) -> bool:
        """Return whether an add might find no room before the present checkpoint ends."""
        return self.engine.slot.tables.active.size > CONFIG.memtable_size_max - _SMALL_ADDS

    @property
    def must_roll(self) -> bool:
        """Return whether an add might need a new journal, for which it waits until the mark is stored."""
        journal, waiting = self.engine.journals.active, self.engine.committer.waiting_size
        return journal is None or not journal.has_room(NOTHING, waiting + _SMALL_ADDS)

    def request_checkpoint(self) -> None:
        """Ask for a checkpoint, which the steps of the workers make."""
        self.engine.checkpointer.request()
        self.workers.by_name["ledgerstore-checkpoint"].wake()

    @property
    def log_ids(self) -> list[int]:
        """The committed entry logs, in the order in which they were written."""
        state = self.engine.checkpointer.state
        return [] if state.last_log is None else sorted(state.log_ends, key=age_of(state.last_log))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._held.close()
