"""Looking at a store without opening it, also beside the process that has it open and writes.

The order, which never misses what was acknowledged before:

    mark      everything before it is in entry logs and index, since before it was stored
    rows      what the index has of them with it: a ledger that was deleted must not come back
    journals  from the mark on, judged as an opening would
    index     last: what a checkpoint has moved out of the journals meanwhile, and trimmed, is in it

A checkpoint may trim a journal under the reading, and a group may be half written when it is read: then all
of it begins again. What is really damaged is found in the same place again.

Where a bookie has written last, and where there is no index, one is made in memory: nothing is ever written.
"""

from __future__ import annotations

import errno
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from recovery import founding, indexing
from recovery.adoption import adopt
from recovery.founding import Layout
from recovery.leftovers import check_logs, has_foreign_logs, newest_foreign_journal
from recovery.memory_index import MemoryPlace
from recovery.overlay import Overlay
from recovery.past import latest_rows
from recovery.rebuild import rebuild
from recovery.remaking import check_may_be_remade
from recovery.replay import Replay
from recovery.replaying import revision
from recovery.view import View
from storage import filenames, lastmark, ledger_rows
from storage.codec.mark import EmptyMark, Mark
from storage.entry import NO_ENTRY
from storage.errors import CorruptionError, NewerFormat
from storage.index import NoIndex
from storage.lastmark import NoMark, mark_of, newest_named
from storage.ledger_rows import LedgerRows
from storage.lmdb_place import LmdbPlace
from storage.location_cache import LocationCache
from storage.log_shelf import LogShelf
from storage.memtable import Memtable, Slot, Tables
from storage.outcome import Damaged, Flaw
from storage.posix_files import PosixDirectory
from storage.reading import Reading
from storage.registry import Registry
from storage.report import IndexFound, RebuildProgress, ReplayProgress
from storage.turnstile import new_lock

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from recovery.replay import Replayed
    from storage.codec.journal import Record
    from storage.index import Index
    from storage.index_state import IndexState
    from storage.row import LedgerRow

    Progress = Callable[[ReplayProgress | RebuildProgress], None]
    OpenIndex = Callable[[], Index | NoIndex | Damaged]

_ATTEMPTS = 50


def _nowhere(_: ReplayProgress | RebuildProgress) -> None:
    """Progress that nobody watches."""


def open_view(path: str | os.PathLike[str], progress: Progress = _nowhere) -> View:
    """The store at `path`, a bookie's directory too, for looking: takes no lock, and writes nothing.

    Beside another process that has it open what that one has acknowledged is there; not in the process that
    has it open itself. `NotAStore` where nothing is; `CorruptionError` where an opening would refuse.
    """
    layout = Layout(PosixDirectory(path))
    place = LmdbPlace(layout.ledgers, Path(layout.ledgers.path))
    return Viewing(layout, place.view, progress).run()


class _Moved(Exception):
    """The store has gone on in a way that what was read does not fit together."""


@dataclass(frozen=True, slots=True)
class _Ground:
    """From where the journals are read, and what is known of ledgers there."""

    mark: Mark
    rows: Mapping[int, LedgerRow]


@dataclass(frozen=True, slots=True)
class _Found:
    """An index that can be read, and the rows in it."""

    index: Index
    rows: Mapping[int, LedgerRow]


@dataclass(slots=True)
class _Journaled:
    """What the journals hold from the mark on."""

    table: Memtable
    said: list[Record] = field(default_factory=list)
    newest: dict[int, tuple[int, int]] = field(default_factory=dict)

    def take(self, replayed: Replayed) -> None:
        batch = replayed.batch
        for ledger_id, first_id, records in batch.runs():
            self.table.insert(ledger_id, first_id, records)
            last_id = first_id + len(records) - 1
            if last_id >= self.newest.get(ledger_id, (NO_ENTRY, 0))[0]:
                self.newest[ledger_id] = last_id, replayed.journal_id
        self.said += (record for _, record in batch.special)


class Viewing:
    """One look at one directory. Nothing that it does changes anything."""

    def __init__(self, layout: Layout, open_index: OpenIndex, progress: Progress = _nowhere) -> None:
        self._layout = layout
        self._open_index = open_index
        self._progress = progress

    def run(self) -> View:
        """The view. Tried again as long as what was in the way is something else each time."""
        before: Exception | None = None
        for _ in range(_ATTEMPTS):
            try:
                return self._look()
            except (CorruptionError, OSError, _Moved) as error:
                if not isinstance(error, _Moved) and str(error) == str(before):
                    raise
                before = error
        raise OSError(errno.EAGAIN, "it changes faster than it can be read", self._layout.root.path)

    def _look(self) -> View:
        check_may_be_remade(self._layout)
        with ExitStack() as unless_seen:
            ground = None if self._is_marked_by_a_bookie() else self._ground()
            view = (
                self._look_at_a_bookie_s(unless_seen)
                if ground is None
                else self._look_at_ours(ground, unless_seen)
            )
            unless_seen.pop_all()
            return view

    def _is_marked_by_a_bookie(self) -> bool:
        match lastmark.load(self._layout.ledgers):
            case Mark(trailer=trailer):
                return trailer is None
            case EmptyMark():
                return True
            case Damaged():
                return False
            case NoMark() if founding.was_ours(self._layout):
                raise CorruptionError(filenames.LAST_MARK, 0, "missing", "MRK-001")
        return not founding.was_ours(self._layout)

    # ── a store of ours ──────────────────────────────────────────────────────────────────────────────

    def _ground(self) -> _Ground | None:
        """What an opening would begin with; `None` where a bookie has written behind us."""
        mark = founding.load_mark(self._layout)
        indexed: Mapping[int, LedgerRow] = {}
        with ExitStack() as looked:
            found = self._good_index(mark, looked)
            if found is not None:
                if has_foreign_logs(self._layout.ledgers, found.index.state()):
                    return None
                mark, indexed = _later(mark, found.index.state()), found.rows
        if mark is None or mark.trailer is None:
            why = "damaged, and the index cannot stand in for it"
            raise CorruptionError(filenames.LAST_MARK, 0, why, "MRK-001")
        newest = mark.trailer.newest_journal
        if newest_foreign_journal(self._layout.journal, newest) > newest:
            return None
        loaded = ledger_rows.load(self._layout.ledgers, mark.trailer.rows_sequence)
        return _Ground(mark, latest_rows(loaded.rows, indexed))

    def _good_index(self, mark: Mark | None, held: ExitStack) -> _Found | None:
        """The index as it is now, if it is not older than the mark and can be read."""
        index = self._open_index()
        if isinstance(index, Damaged) and index.flaw is Flaw.FUTURE_VERSION:
            raise NewerFormat(self._layout.ledgers.path, f"{filenames.INDEX}: {index}")
        if isinstance(index, NoIndex | Damaged):
            return None
        held.callback(index.close)
        if mark is not None and not indexing.may_be_of(mark, index.state()):
            return None
        try:
            return _Found(index, {row.ledger_id: row for row in index.rows()})
        except OSError:
            return None

    def _look_at_ours(self, ground: _Ground, unless_seen: ExitStack) -> View:
        store_id = founding.store_id(self._layout)
        journaled = self._read_journals(ground)
        # Behind the journals: what was trimmed under the reading had its place before.
        found = self._good_index(ground.mark, unless_seen)
        if found is None:
            return self._with_made_index(ground, journaled, store_id)
        rows = latest_rows(ground.rows, found.rows)
        if any(indexing.is_deleted_since(row, ground.rows) for row in rows.values()):
            # Deleted while the journals were read: its entries from there are in the table.
            raise _Moved
        return self._view(IndexFound.GOOD, found.index, rows, journaled, self._lost_logs(found.index))

    def _with_made_index(self, ground: _Ground, journaled: _Journaled, store_id: bytes) -> View:
        ledgers, mark = self._layout.ledgers, ground.mark
        assert mark.trailer is not None, "a mark of ours"
        sequence = mark.trailer.rows_sequence
        made = rebuild(MemoryPlace(), ledgers, mark, store_id, ground.rows, sequence, self._progress)
        return self._view(IndexFound.REBUILT, made.index, ground.rows, journaled, made.findings)

    def _lost_logs(self, index: Index) -> tuple[str, ...]:
        try:
            check_logs(self._layout.ledgers, index.state())
        except CorruptionError as error:
            return (str(error),)
        return ()

    # ── a bookie's directory ─────────────────────────────────────────────────────────────────────────

    def _look_at_a_bookie_s(self, unless_seen: ExitStack) -> View:
        before = lastmark.load(self._layout.ledgers)
        imagined = Layout(Overlay(self._layout.root))
        adopted = adopt(imagined, MemoryPlace(self._open_index), self._progress)
        unless_seen.callback(adopted.index.close)
        rows = dict(adopted.rows.rows)
        journaled = self._read_journals(_Ground(adopted.mark, rows))
        if lastmark.load(self._layout.ledgers) != before:
            # It has gone on, and may have trimmed what was not in its logs when they were read.
            raise _Moved
        return self._view(IndexFound.ADOPTED, adopted.index, rows, journaled, adopted.findings)

    # ── journals ─────────────────────────────────────────────────────────────────────────────────────

    def _read_journals(self, ground: _Ground) -> _Journaled:
        mark = ground.mark
        replay = Replay(self._layout.journal, mark.position, newest_named(mark), ground.rows)
        journaled, total, done, records = _Journaled(Memtable(mark.position)), replay.size, 0, 0
        for replayed in replay.batches():
            journaled.take(replayed)
            records += len(replayed.batch.records)
            done += sum(map(len, replayed.batch.records))
            self._progress(ReplayProgress(min(done, total), total, records))
        return journaled

    # ── putting it together ──────────────────────────────────────────────────────────────────────────

    def _view(
        self,
        how: IndexFound,
        index: Index,
        rows: Mapping[int, LedgerRow],
        journaled: _Journaled,
        findings: tuple[str, ...],
    ) -> View:
        slot = Slot(Tables(journaled.table))
        cache = LocationCache(index, 0)
        shelf = LogShelf(self._layout.ledgers.open)
        registry = Registry(LedgerRows(self._layout.ledgers, rows, 0), index, cache, slot, new_lock)
        for record in journaled.said:
            if (revise := revision(record)) is not None:
                registry.settle(record.ledger_id, revise, journaled.table)
        reading = Reading(slot, index, cache, shelf)
        return View(
            self._layout.root.path, how, findings, index, slot, registry, reading, shelf, journaled.newest
        )


def _later(mark: Mark | None, state: IndexState) -> Mark:
    """The mark, or what the index says where a checkpoint has ended before its last step."""
    if mark is not None and indexing.generation(mark) >= state.generation:
        return mark
    return mark_of(state, max(newest_named(mark), state.mark.journal_id))
