"""Opening is recovering: the only way to a store, and where it is put together.

The steps stand in `Opening.run`. Nothing old is ever written to: what is recovered goes into new files, so
a crash at any moment of it costs nothing but the work.
"""

from __future__ import annotations

import secrets
import time
import uuid
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from recovery import founding, indexing
from recovery.founding import Layout
from recovery.leftovers import remove_drafts, remove_leftover_logs, unknown_names
from recovery.replay import Replay
from recovery.replaying import Replaying, check_finished
from recovery.torn import save_torn_tails
from storage import filenames, forks
from storage.adding import Adding
from storage.alone import Alone
from storage.checkpoint import Checkpointer
from storage.commit import Committer
from storage.config import ReadMode, StoreConfig
from storage.entrance import Limits
from storage.entry_logs import EntryLogs
from storage.journals import Journals, JournalShape, journal_ids
from storage.lastmark import LastMark, newest_named
from storage.latch import Latch
from storage.lmdb_place import LmdbPlace
from storage.location_cache import LocationCache
from storage.log_shelf import LogShelf
from storage.mapped_file import open_mapped
from storage.memtable import Memtable, Slot, Tables
from storage.parts import Parts
from storage.posix_files import PosixDirectory
from storage.reading import Reading
from storage.registry import Registry
from storage.report import IndexFound, OpenReport, ReplayProgress
from storage.scanning import Scanning
from storage.store import Store
from storage.tail import Tails
from storage.turnstile import new_lock
from storage.warden import Warden
from storage.worker import ThreadWorker

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from recovery.indexing import Foundation
    from storage.codec.mark import Mark
    from storage.files import Directory, Lock, ReadFile
    from storage.index import Index, IndexPlace
    from storage.position import JournalPosition
    from storage.row import LedgerRow
    from storage.worker import Hire

JOURNALS_MAX = 3
"""More of them from the mark on, and opening makes a checkpoint: crash loops must not pile them up."""

_MEMORY_OF_A_STRETCH = 64
"""What one takes while it is noted, rather more than less: together never more than a table."""

_STRETCHES_MIN = 1024


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a store takes from the world beside its files; a simulation brings its own."""

    hire: Hire
    new_lock: Callable[[], AbstractContextManager[object]] = new_lock
    new_salt: Callable[[], int] = lambda: secrets.randbits(64)
    new_id: Callable[[], str] = lambda: uuid.uuid4().hex
    clock: Callable[[], float] = time.monotonic
    open_log: Callable[[Directory, str], ReadFile] = lambda directory, name: directory.open(name)
    """How the entry log of that name is opened for reading."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a recovery leaves: a store without workers, and nobody who adds to it yet."""

    parts: Parts
    index: Index
    report: OpenReport
    lock: Lock


def _nowhere(_: ReplayProgress) -> None:
    """Progress that nobody watches."""


def open_store(
    path: str | os.PathLike[str],
    config: StoreConfig = StoreConfig(),  # noqa: B008 - frozen
    progress: Callable[[ReplayProgress], None] = _nowhere,
) -> Store:
    """The store at `path`: made if there is none, recovered if a crash has left it. Close it, or use `with`.

    Every entry that was ever acknowledged is there when this returns. `progress` is told how far a long
    replay has come. `StoreLocked` while another process has it open; `CorruptionError` when something
    acknowledged is damaged, with nothing changed.
    """
    root = PosixDirectory(path)
    parent = PosixDirectory(Path(path).absolute().parent)
    root.make()
    layout = Layout(root)
    place = LmdbPlace(layout.ledgers, Path(layout.ledgers.path), config.index_size_max)
    surroundings = Surroundings(ThreadWorker)
    if config.read_mode is ReadMode.MMAP:
        surroundings = replace(surroundings, open_log=_open_mapped)
    opening = Opening(layout, place, config, surroundings, progress, parent)
    store = opening.run()
    forks.watch(store)
    return store


def _open_mapped(directory: Directory, name: str) -> ReadFile:
    return open_mapped(f"{directory.path}/{name}")


class Opening:
    """One opening of one directory."""

    def __init__(
        self,
        layout: Layout,
        place: IndexPlace,
        config: StoreConfig,
        surroundings: Surroundings,
        progress: Callable[[ReplayProgress], None] = _nowhere,
        parent: Directory | None = None,
    ) -> None:
        self._layout = layout
        self._place = place
        self._config = config
        self._surroundings = surroundings
        self._progress = progress
        self._parent = layout.root if parent is None else parent

    def run(self) -> Store:
        """The store, recovered."""
        with ExitStack() as held:
            recovered = self.recover(held)
            release = held.pop_all()
            return Store(
                recovered.parts,
                recovered.report,
                release.close,
                recovered.lock.close,
                self._surroundings.hire,
            )

    def recover(self, held: ExitStack) -> Recovered:
        """Every step of the recovery, in its order. Whatever it opens is `held`, the lock first."""
        started = self._surroundings.clock()
        founding.check_may_be_a_store(self._layout)
        lock = held.enter_context(self._layout.root.lock(filenames.LOCK))
        created = self._found()
        store_id = founding.store_id(self._layout)
        foundation = indexing.lay(self._layout, self._place, store_id, held)
        index, mark = foundation.index, foundation.mark
        # Before anything is removed: a store that is refused stays as it was found.
        replay = Replay(
            self._layout.journal,
            mark.position,
            newest_named(mark),
            foundation.rows.rows,
            max(_STRETCHES_MIN, self._config.memtable_size_max // _MEMORY_OF_A_STRETCH),
        )
        removed = remove_drafts(self._layout) + remove_leftover_logs(
            self._layout.ledgers, index.state(), store_id
        )
        torn = tuple(save_torn_tails(replay.verdict, self._layout.journal, self._layout.quarantine))
        parts = self._assemble(foundation, store_id, replay)
        held.callback(parts.slot.close)
        held.callback(parts.reading.close)
        held.callback(parts.journals.close)
        held.callback(parts.logs.abandon)
        replayed = Replaying(replay, parts, self._progress)
        replayed.run()
        self._write_again(replayed.carried, parts)
        self._bound_journals(mark, parts)
        report = OpenReport(
            created=created,
            index=IndexFound.MADE if created else foundation.how,
            seconds=self._surroundings.clock() - started,
            journals_read=len(replay.verdict.standings),
            records_replayed=replayed.records,
            bytes_replayed=replayed.size,
            records_carried=len(replayed.carried),
            torn=torn,
            removed=removed,
            unknown=unknown_names(self._layout),
            findings=foundation.findings,
        )
        return Recovered(parts, index, report, lock)

    def _found(self) -> bool:
        """Whether the store had to be made."""
        if founding.is_complete(self._layout):
            return False
        founding.found(self._layout, self._place, self._surroundings.new_id)
        # Before anything is acknowledged: a power cut must not take the whole store away.
        self._parent.sync()
        return True

    # ── putting it together ──────────────────────────────────────────────────────────────────────────

    def _assemble(self, foundation: Foundation, store_id: bytes, replay: Replay) -> Parts:
        config, layout, surroundings = self._config, self._layout, self._surroundings
        index = foundation.index
        state = index.state()
        durable_up_to = replay.durable_up_to
        known = (newest_named(foundation.mark), durable_up_to.journal_id)
        latch = Latch(layout.root.path)
        slot = Slot(Tables(_first_table(state.mark, foundation.rows.rows)))
        last_mark = LastMark(layout.ledgers, foundation.mark, surroundings.new_lock())
        journals = Journals(
            layout.journal,
            JournalShape(config.journal_alignment, config.journal_size),
            max([*known, *journal_ids(layout.journal)]),
            surroundings.new_salt,
            surroundings.new_lock(),
            last_mark.announcing,
            durable_up_to,
        )
        cache = LocationCache(index, config.index_cache_size_max)
        shelf = LogShelf(partial(surroundings.open_log, layout.ledgers))
        reading = Reading(slot, index, cache, shelf)
        registry = Registry(foundation.rows, index, cache, slot, surroundings.new_lock)
        tails = Tails(lambda ledger_id: reading.end(ledger_id, registry.digester(ledger_id)), registry.of)
        limits = Limits(config.group_size_max, config.memtable_size_max, config.throttle_timeout_s)
        committer = Committer(journals, slot, tails, registry, latch, limits)
        alone = Alone(committer, journals, slot, latch, limits)
        logs = EntryLogs(layout.ledgers, store_id, config.entry_log_size_max, state.last_log)
        checkpointer = Checkpointer(
            committer,
            slot,
            logs,
            index,
            registry,
            cache,
            last_mark,
            layout.journal,
            latch,
            config.journal_max_backups,
        )
        return Parts(
            path=layout.root.path,
            config=config,
            latch=latch,
            slot=slot,
            tails=tails,
            journals=journals,
            committer=committer,
            adding=Adding(committer, alone, tails, latch, config.group_size_max),
            logs=logs,
            checkpointer=checkpointer,
            reading=reading,
            registry=registry,
            warden=Warden(committer, tails, registry, latch),
            scanning=Scanning(slot, cache, shelf, reading),
        )

    def _write_again(self, carried: list[bytes], parts: Parts) -> None:
        """What was only read may not be durable: it goes into a new journal before anybody sees it."""
        if carried:
            parts.committer.carry_over(carried)

    def _bound_journals(self, mark: Mark, parts: Parts) -> None:
        """Crash loops must not pile up journals: some are enough for a checkpoint."""
        marked = [one for one in journal_ids(self._layout.journal) if one >= mark.position.journal_id]
        # What waits in them is on its way, and was counted where it was left there.
        if len(marked) > JOURNALS_MAX and parts.slot.tables.frozen is None:
            parts.checkpointer.finish()
            check_finished(parts)


def _first_table(mark: JournalPosition, rows: Mapping[int, LedgerRow]) -> Memtable:
    """An empty table, but for deletes behind which no checkpoint has frozen yet: the next one has to know."""
    table = Memtable(mark)
    for row in rows.values():
        if row.tombstone is not None and row.tombstone.log is None:
            table.put_row(row)
    return table
