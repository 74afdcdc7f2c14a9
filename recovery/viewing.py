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
import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from recovery import founding, indexing
from recovery.adoption import adopt
from recovery.founding import Layout
from recovery.leftovers import check_logs, has_foreign_logs
from recovery.memory_index import MemoryPlace
from recovery.overlay import Overlay
from recovery.past import latest_rows
from recovery.rebuild import rebuild
from recovery.remaking import check_may_be_remade
from recovery.replay import Replay
from recovery.replaying import revision
from recovery.view import View
from storage import filenames, lastmark, ledger_rows
from storage.checkpoint import mark_of
from storage.codec.mark import Mark
from storage.errors import CorruptionError, NewerFormat
from storage.index import NoIndex
from storage.lastmark import NoMark
from storage.ledger_rows import LedgerRows
from storage.lmdb_index import LmdbPlace
from storage.location_cache import LocationCache
from storage.memtable import Memtable, Slot, Tables
from storage.outcome import Damaged, Flaw
from storage.posix_files import PosixDirectory
from storage.reading import LogShelf, Reading
from storage.registry import Registry
from storage.report import IndexFound, RebuildProgress, ReplayProgress
from storage.turnstile import new_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from storage.codec.journal import Record
    from storage.index import Index
    from storage.row import LedgerRow

    Progress = Callable[[ReplayProgress | RebuildProgress], None]
    OpenIndex = Callable[[], Index | NoIndex | Damaged]

_ATTEMPTS = 10


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
    findings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Journaled:
    """What the journals hold from the mark on."""

    table: Memtable
    said: list[Record] = field(default_factory=list)
    newest: dict[int, tuple[int, int]] = field(default_factory=dict)


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
        found = lastmark.load(self._layout.ledgers)
        with ExitStack() as unless_seen:
            if self._is_a_bookie_s(found):
                view = self._look_at_a_bookie_s(found, unless_seen)
            else:
                view = self._look_at_ours(unless_seen)
            unless_seen.pop_all()
            return view

    def _is_a_bookie_s(self, found: lastmark.LoadedMark) -> bool:
        if isinstance(found, NoMark) and founding.was_ours(self._layout):
            raise CorruptionError(filenames.LAST_MARK, 0, "missing", "MRK-001")
        if isinstance(found, Damaged) or (isinstance(found, Mark) and found.trailer is not None):
            return False
        return True

    # ── a store of ours ──────────────────────────────────────────────────────────────────────────────

    def _look_at_ours(self, unless_seen: ExitStack) -> View:
        store_id = founding.store_id(self._layout)
        # 1. The mark, and what index and file say of ledgers.
        ground = self._ground()
        # 2. The journals.
        journaled = self._read_journals(ground)
        # 3. The index.
        index = self._good_index(ground.mark, unless_seen)
        if index is None:
            return self._with_made_index(ground, journaled, store_id)
        if has_foreign_logs(self._layout.ledgers, index.state()):
            index.close()
            return self._look_at_a_bookie_s(lastmark.load(self._layout.ledgers), unless_seen)
        rows = latest_rows(ground.rows, _rows_of(index))
        if any(indexing.is_deleted_since(row, ground.rows) for row in rows.values()):
            # Deleted while the journals were read: some of its entries are in the table.
            raise _Moved
        is_ahead = index.state().generation > indexing.generation(ground.mark)
        how = IndexFound.AHEAD if is_ahead else IndexFound.GOOD
        return self._view(how, index, rows, journaled, tuple(self._lost_logs(index)))

    def _ground(self) -> _Ground:
        """The mark where an opening would begin, and all rows by then."""
        mark = founding.load_mark(self._layout)
        with ExitStack() as looked:
            index = self._good_index(mark, looked)
            rows = {} if index is None else _rows_of(index)
            if index is not None:
                mark = _later(mark, index)
        if mark is None or mark.trailer is None:
            raise CorruptionError(
                filenames.LAST_MARK, 0, "damaged, and the index cannot stand in for it", "MRK-001"
            )
        loaded = ledger_rows.load(self._layout.ledgers, mark.trailer.rows_sequence)
        return _Ground(mark, latest_rows(loaded.rows, rows))

    def _good_index(self, mark: Mark | None, held: ExitStack) -> Index | None:
        """The index as it is now, if it is not older than the mark and can be read."""
        index = self._open_index()
        if isinstance(index, Damaged) and index.flaw is Flaw.FUTURE_VERSION:
            raise NewerFormat(self._layout.ledgers.path, f"{filenames.INDEX}: {index}")
        if isinstance(index, NoIndex | Damaged):
            return None
        held.callback(index.close)
        if mark is not None and not indexing.may_be_of(mark, index.state()):
            return None
        return index if _has_sound_rows(index) else None

    def _with_made_index(self, ground: _Ground, journaled: _Journaled, store_id: bytes) -> View:
        ledgers, mark = self._layout.ledgers, ground.mark
        assert mark.trailer is not None, "a mark of ours"
        sequence = mark.trailer.rows_sequence
        made = rebuild(MemoryPlace(), ledgers, mark, store_id, ground.rows, sequence, self._progress)
        return self._view(IndexFound.REBUILT, made.index, ground.rows, journaled, made.findings)

    def _lost_logs(self, index: Index) -> list[str]:
        try:
            check_logs(self._layout.ledgers, index.state())
        except CorruptionError as error:
            return [str(error)]
        return []

    # ── a bookie's directory ─────────────────────────────────────────────────────────────────────────

    def _look_at_a_bookie_s(self, found: lastmark.LoadedMark, unless_seen: ExitStack) -> View:
        imagined = Layout(Overlay(self._layout.root))
        adopted = adopt(imagined, MemoryPlace(self._open_index), self._progress)
        unless_seen.callback(adopted.index.close)
        adopted.rows.close()
        journaled = self._read_journals(_Ground(adopted.mark, adopted.rows.rows))
        if lastmark.load(self._layout.ledgers) != found:
            # It has gone on, and may have trimmed a journal whose entries were not in the logs before.
            raise _Moved
        return self._view(
            IndexFound.ADOPTED, adopted.index, adopted.rows.rows, journaled, adopted.findings
        )

    # ── journals ─────────────────────────────────────────────────────────────────────────────────────

    def _read_journals(self, ground: _Ground) -> _Journaled:
        mark = ground.mark
        newest_named = indexing.newest_named(mark)
        replay = Replay(self._layout.journal, mark.position, newest_named, ground.rows)
        journaled, total, done, records = _Journaled(Memtable(mark.position)), replay.size, 0, 0
        for replayed in replay.batches():
            batch = replayed.batch
            for ledger_id, first_id, run in batch.runs():
                journaled.table.insert(ledger_id, first_id, run)
                last = max(first_id + len(run) - 1, journaled.newest.get(ledger_id, (-1, 0))[0])
                journaled.newest[ledger_id] = (last, replayed.journal_id)
            journaled.said += (record for _, record in batch.special)
            done += sum(map(len, batch.records))
            records += len(batch.records)
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
        shelf = LogShelf(self._layout.ledgers)
        registry = Registry(LedgerRows(self._layout.ledgers, rows, 0), index, cache, slot, new_lock)
        for record in journaled.said:
            if (revise := revision(record)) is not None:
                registry.settle(record.ledger_id, revise, journaled.table)
        reading = Reading(slot, index, cache, shelf)
        return View(
            self._layout.root.path, how, findings, index, slot, registry, reading, shelf, journaled.newest
        )


def _later(mark: Mark | None, index: Index) -> Mark:
    """The mark, or what the index says where a checkpoint has ended before its last step."""
    state = index.state()
    if mark is not None and indexing.generation(mark) >= state.generation:
        return mark
    return mark_of(state, max(indexing.newest_named(mark), state.mark.journal_id))


def _rows_of(index: Index) -> dict[int, LedgerRow]:
    return {row.ledger_id: row for row in index.rows()}


def _has_sound_rows(index: Index) -> bool:
    try:
        _rows_of(index)
    except OSError:
        return False
    return True
