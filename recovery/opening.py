"""Opening is recovering: the only way to a store, and where it is put together.

The steps stand in `Opening.run`. Nothing old is ever written to: what is recovered goes into new files, so
a crash at any moment of it costs nothing but the work.
"""

from __future__ import annotations

import secrets
import time
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from recovery import founding
from recovery.founding import Layout
from recovery.leftovers import check_logs, remove_drafts, remove_leftover_logs, unknown_names
from recovery.rebuild import rebuild
from recovery.replay import Replay
from recovery.torn import save_torn_tails
from storage import filenames, forks, lastmark
from storage.checkpoint import Checkpointer, mark_of
from storage.commit import Committer, Limits
from storage.config import StoreConfig
from storage.entry_logs import EntryLogs
from storage.errors import CorruptionError, DiskFull, NewerFormat
from storage.index import NoIndex
from storage.journals import Journals, JournalShape, journal_ids
from storage.latch import Latch
from storage.lmdb_index import LmdbPlace
from storage.location_cache import LocationCache
from storage.memtable import Memtable, Slot, Tables
from storage.outcome import Damaged, Flaw
from storage.parts import Parts
from storage.posix_files import PosixDirectory
from storage.reading import LogShelf, Reading
from storage.report import IndexFound, OpenReport, ReplayProgress
from storage.scanning import Scanning
from storage.store import Store
from storage.tail import Tails
from storage.turnstile import new_lock
from storage.worker import ThreadWorker

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from storage.codec.mark import Mark
    from storage.files import Directory
    from storage.index import Index, IndexPlace
    from storage.index_state import IndexState
    from storage.worker import Hire

JOURNALS_MAX = 3
"""More of them from the mark on, and opening makes a checkpoint: crash loops must not pile them up."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a store takes from the world beside its files; a simulation brings its own."""

    hire: Hire
    new_lock: Callable[[], AbstractContextManager[object]] = new_lock
    new_salt: Callable[[], int] = lambda: secrets.randbits(64)
    new_id: Callable[[], str] = lambda: uuid.uuid4().hex
    clock: Callable[[], float] = time.monotonic


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
    opening = Opening(layout, place, config, Surroundings(ThreadWorker), progress, parent)
    store = opening.run()
    forks.watch(store)
    return store


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
        self._findings: list[str] = []

    def run(self) -> Store:
        """Every step of the recovery, in its order."""
        started = self._surroundings.clock()
        founding.check_may_be_a_store(self._layout)
        with ExitStack() as held:
            lock = held.enter_context(self._layout.root.lock(filenames.LOCK))
            created = self._found()
            store_id = founding.store_id(self._layout)
            index, how, mark = self._open_index(store_id, held)
            # Before anything is removed: a store that is refused stays as it was found.
            replay = Replay(self._layout.journal, mark.position, _newest_named(mark))
            removed = remove_drafts(self._layout) + remove_leftover_logs(
                self._layout.ledgers, index.state(), store_id
            )
            torn = tuple(save_torn_tails(replay.verdict, self._layout.journal, self._layout.quarantine))
            parts = self._assemble(index, store_id, replay, _newest_named(mark))
            held.callback(parts.reading.close)
            held.callback(parts.journals.close)
            held.callback(parts.logs.abandon)
            replayed = _Replaying(replay, parts, self._progress)
            replayed.run()
            self._write_again(replayed.carried, parts)
            self._bound_journals(mark, parts)
            report = OpenReport(
                created=created,
                index=IndexFound.MADE if created else how,
                seconds=self._surroundings.clock() - started,
                journals_read=len(replay.verdict.standings),
                records_replayed=replayed.records,
                bytes_replayed=replayed.size,
                records_carried=len(replayed.carried),
                torn=torn,
                removed=removed,
                unknown=unknown_names(self._layout),
                findings=tuple(self._findings),
            )
            release = held.pop_all()
            return Store(parts, report, release.close, lock.close, self._surroundings.hire)

    def _found(self) -> bool:
        """Whether the store had to be made."""
        if founding.is_complete(self._layout):
            return False
        founding.found(self._layout, self._place, self._surroundings.new_id)
        # Before anything is acknowledged: a power cut must not take the whole store away.
        self._parent.sync()
        return True

    # ── the index and the mark ───────────────────────────────────────────────────────────────────────

    def _open_index(self, store_id: bytes, held: ExitStack) -> tuple[Index, IndexFound, Mark]:
        mark = founding.load_mark(self._layout)
        index = self._place.open()
        if isinstance(index, Damaged) and index.flaw is Flaw.FUTURE_VERSION:
            raise NewerFormat(self._layout.ledgers.path, f"{filenames.INDEX}: {index}")
        if isinstance(index, NoIndex | Damaged):
            return self._rebuild(mark, store_id, index, held)
        held.callback(index.close)
        state = index.state()
        if mark is not None and not _may_be_of(mark, state):
            index.close()
            return self._rebuild(mark, store_id, NoIndex(), held)
        check_logs(self._layout.ledgers, state)
        if mark is not None and _generation(mark) == state.generation:
            return index, IndexFound.GOOD, mark
        # A checkpoint ended between its last two steps, or the mark is damaged: the index says the same.
        return index, IndexFound.AHEAD, self._take_mark_from(index, _newest_named(mark))

    def _take_mark_from(self, index: Index, newest_journal: int) -> Mark:
        # What is read of it may still be in the memory of the system: durable first, then believed.
        index.sync()
        state = index.state()
        mark = mark_of(state, max(newest_journal, state.mark.journal_id))
        lastmark.write_draft(self._layout.ledgers, mark)
        lastmark.publish(self._layout.ledgers)
        return mark

    def _rebuild(
        self, mark: Mark | None, store_id: bytes, index: NoIndex | Damaged, held: ExitStack
    ) -> tuple[Index, IndexFound, Mark]:
        if mark is None:
            raise CorruptionError(
                filenames.LAST_MARK, 0, "damaged, and the index cannot stand in for it", "MRK-001"
            )
        if isinstance(index, Damaged):
            self._findings.append(f"IDX-004 {filenames.INDEX}: {index}")
        rebuilt = rebuild(self._place, self._layout.ledgers, mark, store_id)
        held.callback(rebuilt.index.close)
        self._findings += rebuilt.findings
        return rebuilt.index, IndexFound.REBUILT, mark

    # ── putting it together ──────────────────────────────────────────────────────────────────────────

    def _assemble(self, index: Index, store_id: bytes, replay: Replay, newest_named: int) -> Parts:
        config, layout, surroundings = self._config, self._layout, self._surroundings
        state = index.state()
        durable_up_to = replay.durable_up_to
        newest_journal = max(newest_named, durable_up_to.journal_id)
        latch = Latch(layout.root.path)
        slot = Slot(Tables(Memtable(state.mark)))
        journals = Journals(
            layout.journal,
            JournalShape(config.journal_alignment, config.journal_size),
            max([newest_journal, *journal_ids(layout.journal)]),
            surroundings.new_salt,
            surroundings.new_lock(),
        )
        cache = LocationCache(index, config.index_cache_size_max)
        shelf = LogShelf(layout.ledgers)
        reading = Reading(slot, index, cache, shelf)
        tails = Tails(reading.end)
        limits = Limits(config.group_size_max, config.memtable_size_max, config.throttle_timeout_s)
        committer = Committer(journals, slot, tails, latch, limits, durable_up_to, newest_journal)
        logs = EntryLogs(layout.ledgers, store_id, config.entry_log_size_max, state.last_log)
        checkpointer = Checkpointer(
            committer,
            slot,
            logs,
            index,
            cache,
            layout.journal,
            layout.ledgers,
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
            logs=logs,
            checkpointer=checkpointer,
            reading=reading,
            scanning=Scanning(slot, index, shelf, reading),
        )

    def _write_again(self, carried: list[bytes], parts: Parts) -> None:
        """What was only read may not be durable: it goes into a new journal before anybody sees it."""
        if carried:
            parts.committer.carry_over(carried)

    def _bound_journals(self, mark: Mark, parts: Parts) -> None:
        """Crash loops must not pile up journals: some are enough for a checkpoint."""
        marked = [one for one in journal_ids(self._layout.journal) if one >= mark.position.journal_id]
        if len(marked) > JOURNALS_MAX:
            parts.checkpointer.finish()
            _check_finished(parts)


class _Replaying:
    """Fills the table with what the journals hold, and checkpoints it whenever it is full."""

    def __init__(self, replay: Replay, parts: Parts, progress: Callable[[ReplayProgress], None]) -> None:
        self.records = 0
        self.size = 0
        self.carried: list[bytes] = []
        """Records that nothing proved durable."""
        self._replay = replay
        self._parts = parts
        self._progress = progress

    def run(self) -> None:
        total = self._replay.size
        for replayed in self._replay.batches():
            batch = replayed.batch
            table = self._parts.slot.tables.active
            for ledger_id, first_id, records in batch.runs():
                table.insert(ledger_id, first_id, records)
            self.records += len(batch.records)
            self.size += sum(map(len, batch.records))
            if not replayed.is_proven:
                self.carried += batch.records
            elif batch.ends_group:
                # Only at the end of a group can a later replay begin; only what is proven may it pass over.
                table.covers_until = replayed.end
            # Of a group that nothing proves, all of it or nothing: until it is written again a power cut may
            # take the journal's copy, and what was checkpointed would be half of what was added at once.
            is_whole = replayed.is_proven or batch.ends_group
            if is_whole and table.size >= self._parts.config.memtable_size_max:
                self._checkpoint()
            self._progress(ReplayProgress(min(self.size, total), total, self.records))
        # Behind the last record there may be empty groups: they are passed over too.
        active = self._parts.slot.tables.active
        active.covers_until = max(active.covers_until, self._replay.durable_up_to)

    def _checkpoint(self) -> None:
        tables = self._parts.slot.tables
        self._parts.slot.tables = Tables(Memtable(tables.active.covers_until), tables.active)
        self._parts.checkpointer.finish()
        _check_finished(self._parts)


def _check_finished(parts: Parts) -> None:
    if parts.latch.failure is not None:
        raise parts.latch.failure
    if parts.slot.tables.frozen is not None:
        raise DiskFull(parts.path)


def _newest_named(mark: Mark | None) -> int:
    return 0 if mark is None or mark.trailer is None else mark.trailer.newest_journal


def _may_be_of(mark: Mark, state: IndexState) -> bool:
    """Whether an index in this state can have been committed before the mark was stored, or right behind it.

    One of the same generation says the same; else it is of another past, as a copy brings one back.
    """
    if _generation(mark) != state.generation:
        return _generation(mark) < state.generation
    return mark == mark_of(state, _newest_named(mark))


def _generation(mark: Mark) -> int:
    assert mark.trailer is not None, "a mark of ours has a trailer"
    return mark.trailer.generation
