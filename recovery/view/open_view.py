"""Opens a store for reading only, also beside the process that has it open and writes.

The order ensures that nothing is missed that was acknowledged before:

    mark      everything before it has been in entry logs and index since before the mark was stored
    metadata  with that of the index, because a deleted ledger must not come back
    journals  from the mark on, judged as by an opening
    index     last, because it has what a checkpoint has meanwhile moved out of the journals and trimmed

A checkpoint may trim a journal while it is read, and a group may be half written. Then everything is read
again. Real damage is found in the same place again.

If a bookie has written last, or there is no index, one is made in memory. Nothing is ever written.
"""

from __future__ import annotations

import errno
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.bookkeeper.import_directory import import_directory
from recovery.directory.authority import Authority, IndexFile, decide
from recovery.directory.evidence import (
    durable_group,
    examine,
    facts_of,
    is_deleted_since,
    later_mark,
    newest_rows,
    read_index,
)
from recovery.directory.layout import Layout, load_store_id
from recovery.directory.orphans import check_logs
from recovery.opening.rebuild_index import check_can_be_rebuilt
from recovery.rebuild.rebuild import rebuild
from recovery.replay.apply import revision
from recovery.replay.journals import Replay
from recovery.replay.progress import ignore
from recovery.view.memory_index import MemoryIndexDirectory
from recovery.view.overlay import Overlay
from recovery.view.view import View, ViewSnapshot
from storage.checkpoint import mark as lastmark
from storage.checkpoint.mark import newest_named
from storage.checkpoint.mark_format import Mark
from storage.commit.queue import new_lock
from storage.disk import filenames
from storage.disk.posix import PosixDirectory
from storage.entry.model import NO_ENTRY
from storage.entry.read_result import Damaged
from storage.entrylog.open_logs import OpenEntryLogs
from storage.errors import CorruptionError, NewerFormat
from storage.index.lmdb.directory import LmdbIndexDirectory
from storage.index.location_cache import LocationCache
from storage.index.visible import VisibleIndex
from storage.ledgers import metadata_log
from storage.ledgers.metadata import LedgerMetadata
from storage.ledgers.metadata_log import MetadataLog
from storage.memtable.table import Memtable, Slot, Tables
from storage.open_report import IndexFound, RebuildProgress, ReplayProgress
from storage.read.points import PointReader
from storage.read.ranges import RangeReader

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from recovery.replay.journals import ReplayBatch
    from storage.entry.ledger_record import LedgerRecord
    from storage.entry.position import JournalPosition
    from storage.entry.read_result import Damaged
    from storage.index.port import Index, NoIndex
    from storage.journal.format import Record

    Progress = Callable[[ReplayProgress | RebuildProgress], None]
    OpenIndex = Callable[[], Index | NoIndex | Damaged]

_ATTEMPTS = 50
_END_OF_ROWS = 4096


def open_view(path: str | os.PathLike[str], progress: Progress = ignore) -> View:
    """Open the store at `path`, or a bookie's directory, for reading only: takes no lock, and writes nothing.

    The view shows what was acknowledged before, also by another process that has the store open. A process
    that has the store or another view of it open gets `AlreadyOpen`, because LMDB opens a file only once in a
    process. `NotAStore` if there is no store; `CorruptionError` if an opening would refuse the store.
    Relative and empty paths mean the same as for `open_store`.
    """
    layout = Layout(PosixDirectory(path))
    place = LmdbIndexDirectory(layout.ledgers, Path(layout.ledgers.path))
    view = ViewReader(layout, place.view, progress).run()
    view.warn_if_unclosed()
    return view


class _StoreChanged(Exception):
    """The writer has changed the store, so that what was read is not consistent."""


@dataclass(frozen=True, slots=True)
class _ReplayBase:
    """Where the replay of the journals begins, and the ledger metadata at that point."""

    mark: Mark
    rows: Mapping[int, LedgerRecord]
    filed: Mapping[int, LedgerRecord]
    """The records in `ledgers.rows` alone."""


@dataclass(slots=True)
class _ViewedJournals:
    """The content of the journals from the mark on."""

    table: Memtable
    reached: JournalPosition
    """The table has everything up to here. A later group may not have been complete yet."""
    control_records: list[Record] = field(default_factory=list)
    newest: dict[int, tuple[int, int]] = field(default_factory=dict)

    def take(self, replayed: ReplayBatch) -> None:
        batch = replayed.batch
        for ledger_id, first_id, records in batch.runs():
            self.table.insert(ledger_id, first_id, records)
            last_id = first_id + len(records) - 1
            if last_id >= self.newest.get(ledger_id, (NO_ENTRY, 0))[0]:
                self.newest[ledger_id] = last_id, replayed.journal_id
        self.control_records += (record for _, record in batch.special)


@dataclass(frozen=True, slots=True)
class _VersionStamp:
    """If two stamps are equal, the writer has only added to the journals in between."""

    mark: Mark
    rows: tuple[int, bytes]
    """Size and last bytes of `ledgers.rows`, which differ after each change, because groups are numbered."""

    def is_of(self, before: _VersionStamp) -> bool:
        """Return whether no checkpoint has ended and no ledger's metadata was written since `before`."""
        trailer, trailer_before = self.mark.trailer, before.mark.trailer
        assert trailer is not None, "a mark of ours"
        assert trailer_before is not None, "a mark of ours"
        return self.rows == before.rows and trailer.generation == trailer_before.generation


@dataclass(frozen=True, slots=True)
class _PreviousRead:
    """The result of the last read of a store of ours, which a refresh continues."""

    snapshot: ViewSnapshot
    rows: Mapping[int, LedgerRecord]
    journaled: _ViewedJournals
    stamp: _VersionStamp


class ViewReader:
    """Reads one directory for a view, and again for each refresh. It changes nothing there."""

    def __init__(self, layout: Layout, open_index: OpenIndex, progress: Progress = ignore) -> None:
        self._layout = layout
        self._open_index = open_index
        self._progress = progress
        self._snapshot: ViewSnapshot | None = None
        self._previous: _PreviousRead | None = None

    def run(self) -> View:
        """Read the directory and return the view."""
        return View(self._layout.root.path, self._read_steadily(self._read), self._refreshed)

    def _read_steadily(self, read: Callable[[], ViewSnapshot]) -> ViewSnapshot:
        """Read until it succeeds. Raise if two attempts fail with the same error, or after too many."""
        before: Exception | None = None
        for _ in range(_ATTEMPTS):
            try:
                self._snapshot = found = read()
            except (CorruptionError, OSError, _StoreChanged) as error:
                if not isinstance(error, _StoreChanged) and str(error) == str(before):
                    raise
                before = error
            else:
                return found
        raise OSError(errno.EAGAIN, "it changes faster than it can be read", self._layout.root.path)

    def _read(self) -> ViewSnapshot:
        check_can_be_rebuilt(self._layout)
        self._previous, stamp = None, self._stamp()
        with ExitStack() as unless_read:
            base = self._replay_base()
            snapshot = (
                self._read_bookie_directory(unless_read)
                if base is None
                else self._read_ours(base, stamp, unless_read)
            )
            unless_read.pop_all()
            return snapshot

    # ── refreshing ────────────────────────────────────────────────────────────────────────────────

    def _refreshed(self) -> ViewSnapshot:
        """Return the updated snapshot, or close it and return another one."""
        with suppress(CorruptionError, OSError, _StoreChanged):
            return self._updated()
        assert self._snapshot is not None, "a view was made"
        # Closed first, because LMDB cannot open an index twice in one process.
        self._snapshot.close()
        return self._read_steadily(self._read)

    def _updated(self) -> ViewSnapshot:
        """Return a snapshot with the same open index and the newest content. Raise if that is impossible."""
        for _ in range(_ATTEMPTS):
            stamp, before = self._stamp(), self._previous
            if stamp is None or before is None:
                break
            try:
                if stamp.is_of(before.stamp):
                    return self._update_from_journals(before, stamp)
                return self._update_after_checkpoint(before.snapshot, stamp)
            except (CorruptionError, OSError, _StoreChanged):
                if self._stamp() == stamp:
                    raise
        raise _StoreChanged

    def _update_from_journals(self, before: _PreviousRead, stamp: _VersionStamp) -> ViewSnapshot:
        """Take new groups into the same table, because the writer has only added to the journals."""
        journaled = before.journaled
        replay = Replay(self._layout.journal, journaled.reached, newest_named(stamp.mark), before.rows)
        if replay.foreign_end is not None:
            raise _StoreChanged
        self._take_journals(replay, journaled)
        if self._end_of_rows() != stamp.rows:
            # A ledger may have been deleted after its entries were taken.
            raise _StoreChanged
        self._settle(before.snapshot.metadata, journaled)
        return before.snapshot

    def _update_after_checkpoint(self, snapshot: ViewSnapshot, stamp: _VersionStamp) -> ViewSnapshot:
        """Read the journals from the mark on, and keep the index.

        The writer has made a checkpoint or changed the metadata of a ledger.
        """
        index, state = snapshot.index, snapshot.index.state()
        authority = decide(facts_of(self._layout, stamp.mark, state)).authority
        if authority not in (Authority.AGREED, Authority.INDEX):
            raise _StoreChanged  # another index has its name, or a bookie has written
        mark = later_mark(stamp.mark, state)
        indexed = {row.ledger_id: row for row in index.rows()}
        filed = self._rows_of(mark)
        base = _ReplayBase(mark, newest_rows(filed, indexed), filed)
        journaled = self._read_journals(base)
        if self._end_of_rows() != stamp.rows and any(
            is_deleted_since(row, base.rows) for row in self._rows_of(mark).values()
        ):
            raise _StoreChanged
        rows = MetadataLog(self._layout.ledgers, base.rows, 0)
        cache = LocationCache(snapshot.visible, 0)
        metadata = LedgerMetadata(rows, state, snapshot.visible, cache, snapshot.slot, new_lock)
        self._settle(metadata, journaled)
        snapshot.visible.hide_only(_deleted_since(base.rows, indexed))
        # All other entries of the old table are in the index by now, or belong to a deleted ledger.
        snapshot.slot.tables = Tables(journaled.table)
        metadata.hide_all_truncated()
        # Otherwise the space of logs that the writer has removed would stay in use.
        snapshot.open_logs.keep_only(state.log_ends)
        moved = replace(snapshot, metadata=metadata, newest=journaled.newest, findings=self._lost_logs(index))
        self._previous = _PreviousRead(moved, base.rows, journaled, stamp)
        self._snapshot = moved
        return moved

    def _rows_of(self, mark: Mark) -> Mapping[int, LedgerRecord]:
        assert mark.trailer is not None, "a mark of ours"
        known = durable_group(self._layout, mark, None)
        return metadata_log.load(self._layout.ledgers, known).rows

    def _stamp(self) -> _VersionStamp | None:
        """Return `None` if the mark is a bookie's or cannot be read."""
        mark = lastmark.load(self._layout.ledgers)
        if not isinstance(mark, Mark) or mark.trailer is None:
            return None
        return _VersionStamp(mark, self._end_of_rows())

    def _end_of_rows(self) -> tuple[int, bytes]:
        try:
            file = self._layout.ledgers.open(filenames.LEDGER_ROWS)
        except FileNotFoundError:
            return 0, b""
        with file:
            size = file.size()
            return size, file.read(max(0, size - _END_OF_ROWS), _END_OF_ROWS)

    # ── a store of ours ──────────────────────────────────────────────────────────────────────────────

    def _replay_base(self) -> _ReplayBase | None:
        """Return what an opening would begin with; `None` if a bookie has written last."""
        with ExitStack() as examined:
            evidence = examine(self._layout, self._open_index, examined)
            match evidence.authority:
                case Authority.BOOKIE | Authority.FOREIGN:
                    return None
                case Authority.AGREED | Authority.INDEX | Authority.MARK:
                    mark = evidence.mark
                    # Read again, because the writer may have added to the file before the index was read.
                    filed = self._rows_of(mark)
                    return _ReplayBase(mark, newest_rows(filed, evidence.indexed), filed)
        raise evidence.refusal(self._layout)

    def _read_ours(
        self, base: _ReplayBase, stamp: _VersionStamp | None, unless_read: ExitStack
    ) -> ViewSnapshot:
        store_id = load_store_id(self._layout)
        journaled = self._read_journals(base)
        # After the journals, because entries of a trimmed journal are in the index.
        found = read_index(base.mark, self._open_index, {})
        if found.fact is IndexFile.NEWER:
            raise NewerFormat(self._layout.ledgers.path, f"{filenames.INDEX}: {found.damage}")
        if found.index is None:
            return self._with_made_index(base, journaled, store_id)
        unless_read.callback(found.index.close)
        filed = base.filed
        if stamp is None or self._end_of_rows() != stamp.rows:
            # Metadata has changed meanwhile. It is read again, because a delete reaches the index only at the
            # next checkpoint.
            filed = self._rows_of(base.mark)
        # Without the records that the index had before: a tombstone may have been purged since, and would
        # hide a ledger that was made again. A purge changes the file first.
        rows = newest_rows(filed, found.rows)
        if any(is_deleted_since(row, base.rows) for row in rows.values()):
            # The ledger was deleted while the journals were read, so that its entries are in the table.
            raise _StoreChanged
        snapshot = self._assemble(IndexFound.GOOD, found.index, rows, journaled, self._lost_logs(found.index))
        snapshot.visible.hide_only(_deleted_since(rows, found.rows))
        if stamp is not None:
            self._previous = _PreviousRead(snapshot, rows, journaled, stamp)
        return snapshot

    def _with_made_index(
        self, base: _ReplayBase, journaled: _ViewedJournals, store_id: bytes
    ) -> ViewSnapshot:
        ledgers, mark = self._layout.ledgers, base.mark
        assert mark.trailer is not None, "a mark of ours"
        sequence = mark.trailer.rows_sequence
        made = rebuild(MemoryIndexDirectory(), ledgers, mark, store_id, base.rows, sequence, self._progress)
        return self._assemble(IndexFound.REBUILT, made.index, base.rows, journaled, made.findings)

    def _lost_logs(self, index: Index) -> tuple[str, ...]:
        """Return the first log that is missing or short, as a finding."""
        state = index.state()
        for _ in range(_ATTEMPTS):
            try:
                check_logs(self._layout.ledgers, state)
            except CorruptionError as error:
                # The writer removes a log after a commit of the index that no longer has it.
                before, state = state, index.state()
                if state.log_ends.keys() == before.log_ends.keys():
                    return (str(error),)
            else:
                return ()
        raise _StoreChanged

    # ── a bookie's directory ─────────────────────────────────────────────────────────────────────────

    def _read_bookie_directory(self, unless_read: ExitStack) -> ViewSnapshot:
        store_id, before = load_store_id(self._layout), lastmark.load(self._layout.ledgers)
        overlay = Layout(Overlay(self._layout.root))
        imported = import_directory(overlay, MemoryIndexDirectory(self._open_index), store_id, self._progress)
        unless_read.callback(imported.index.close)
        rows = dict(imported.rows.rows)
        journaled = self._read_journals(_ReplayBase(imported.mark, rows, rows))
        if lastmark.load(self._layout.ledgers) != before:
            # The bookie has made a checkpoint, and may have trimmed a journal whose entries were not in logs.
            raise _StoreChanged
        return self._assemble(IndexFound.ADOPTED, imported.index, rows, journaled, imported.findings)

    # ── journals ─────────────────────────────────────────────────────────────────────────────────────

    def _read_journals(self, base: _ReplayBase) -> _ViewedJournals:
        mark = base.mark
        replay = Replay(self._layout.journal, mark.position, newest_named(mark), base.rows)
        journaled = _ViewedJournals(Memtable(mark.position), mark.position)
        self._take_journals(replay, journaled)
        return journaled

    def _take_journals(self, replay: Replay, journaled: _ViewedJournals) -> None:
        total, done, records = replay.size, 0, 0
        for replayed in replay.batches():
            journaled.take(replayed)
            records += len(replayed.batch.records)
            done += sum(map(len, replayed.batch.records))
            self._progress(ReplayProgress(min(done, total), total, records))
        journaled.reached = max(journaled.reached, replay.sound_end)

    # ── assembling the snapshot ──────────────────────────────────────────────────────────────────────────

    def _assemble(
        self,
        index_found: IndexFound,
        index: Index,
        rows: Mapping[int, LedgerRecord],
        journaled: _ViewedJournals,
        findings: tuple[str, ...],
    ) -> ViewSnapshot:
        slot = Slot(Tables(journaled.table))
        visible = VisibleIndex(index, new_lock)
        cache = LocationCache(visible, 0)
        open_logs = OpenEntryLogs(self._layout.ledgers.open, new_lock())
        filed = MetadataLog(self._layout.ledgers, rows, 0)
        metadata = LedgerMetadata(filed, index.state(), visible, cache, slot, new_lock)
        metadata.hide_all_truncated()
        self._settle(metadata, journaled)
        reader = PointReader(slot, visible, cache, open_logs)
        range_reader = RangeReader(slot, cache, open_logs, reader)
        return ViewSnapshot(
            index_found,
            findings,
            index,
            visible,
            slot,
            metadata,
            reader,
            range_reader,
            open_logs,
            journaled.newest,
        )

    @staticmethod
    def _settle(metadata: LedgerMetadata, journaled: _ViewedJournals) -> None:
        """Apply the ledger metadata in the journals."""
        for record in journaled.control_records:
            if (revise := revision(record)) is not None:
                metadata.apply_journaled(record.ledger_id, revise, journaled.table)
        journaled.control_records.clear()


def _deleted_since(
    rows: Mapping[int, LedgerRecord], indexed: Mapping[int, LedgerRecord]
) -> dict[int, JournalPosition]:
    """Return the ledgers that were deleted after the last change of the index, whose locations are stale."""
    return {
        ledger_id: row.tombstone.journal
        for ledger_id, row in rows.items()
        if row.tombstone is not None and is_deleted_since(row, indexed)
    }
