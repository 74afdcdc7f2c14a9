"""Makes a directory in which a bookie has written last a store of ours: metadata, lineage, index and mark.

A bookie's index has a format of its own, and its lastMark says only where replay begins. So locations come
from all entry logs, digest types from the entries, and keys, fences and explicit LACs from all journals that
are left. What an earlier run of ours knew about ledgers still counts. Nothing is removed.

`_DirectoryImport.run` has the order. Each step is durable before the next. The mark comes last, because until
it is stored the directory is the bookie's, and another import comes to the same result.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from recovery.bookkeeper.merge_metadata import MetadataMerge, is_only_deleted
from recovery.bookkeeper.previous_state import load_previous_state
from recovery.directory.orphans import newest_foreign_journal
from recovery.rebuild.entry_log_chain import (
    header_finding,
    in_creation_order,
    noted_ends,
    origin_of,
    read_header,
)
from recovery.rebuild.index_builder import IndexBuilder, LogExtent, RebuildFigures
from recovery.rebuild.rebuild import durable_end, log_sizes
from recovery.replay.journal_metadata import gather_metadata
from recovery.replay.known_digests import DeclaredDigests, master_key
from recovery.replay.progress import ReadMeter, ignore
from storage.checkpoint import mark as lastmark
from storage.checkpoint.mark import mark_of
from storage.disk import filenames
from storage.disk.filenames import FileKind
from storage.entry import format as entry_format
from storage.entry.digest import DigestCheck
from storage.entry.digest_inference import DigestSurvey, EntryVerifier, matching_checksum
from storage.entry.position import LogPosition
from storage.entry.read_result import Damaged
from storage.entrylog import format as entrylog_format
from storage.entrylog import lineage
from storage.entrylog import scan as entrylog_scan
from storage.entrylog.lineage_format import Lineage
from storage.entrylog.log_set import log_ids
from storage.entrylog.reader import EntryLogReader
from storage.index.state import IndexState
from storage.journal import journal_set
from storage.ledgers.metadata_log import MetadataLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from recovery.bookkeeper.previous_state import PreviousState
    from recovery.directory.layout import Layout
    from recovery.rebuild.entry_log_chain import FoundHeader
    from recovery.replay.journal_metadata import JournaledLedger
    from storage.checkpoint.mark_format import Mark
    from storage.disk.files import Directory
    from storage.entry.digest import Buffer
    from storage.entry.ledger_record import LedgerRecord
    from storage.index.port import Index, IndexDirectory, IndexDraft
    from storage.open_report import RebuildProgress


@dataclass(frozen=True, slots=True)
class ImportedDirectory:
    """Index, mark and metadata of an imported directory, all of them durable."""

    index: Index
    mark: Mark
    rows: MetadataLog
    findings: tuple[str, ...]
    figures: RebuildFigures


def import_directory(
    layout: Layout,
    place: IndexDirectory,
    store_id: bytes,
    progress: Callable[[RebuildProgress], None] = ignore,
) -> ImportedDirectory:
    """Make the directory a store of ours. The caller holds its lock.

    When it returns, index, metadata and mark are durable, and the journals from the mark on are still to be
    replayed. Raise before anything is written if a newer version has written, or if our own metadata is
    damaged.
    """
    return _DirectoryImport(layout, place, store_id, progress).run()


class _Verifier(EntryVerifier):
    """Verifies by the digest types of our metadata, except for ledgers of which it only has a tombstone.

    Such an id may be a bookie's now, protected in any way, or ours again, and the survey has seen the records
    of the deleted ledger too. So an entry is sound if any CRC verifies it.
    """

    def __init__(self, previous: PreviousState, key_of: Callable[[int], bytes | None]) -> None:
        rows = previous.rows.items()
        self._open = {one for one, row in rows if one not in previous.indexed and is_only_deleted(row)}
        super().__init__(
            DeclaredDigests({one: row for one, row in rows if one not in self._open}), key_of=key_of
        )

    def check(self, data: Buffer) -> DigestCheck:
        checked = super().check(data)
        if checked is not DigestCheck.MISMATCH or not self._open or matching_checksum(data) is None:
            return checked
        ledger_id, _ = entry_format.IDS.unpack_from(data)
        return DigestCheck.OK if ledger_id in self._open else checked


class _DirectoryImport:
    """One import of one directory."""

    def __init__(
        self,
        layout: Layout,
        place: IndexDirectory,
        store_id: bytes,
        progress: Callable[[RebuildProgress], None],
    ) -> None:
        self._store_id = store_id
        self._directory = layout.ledgers
        self._journals = layout.journal
        self._place = place
        # The names that are read must stay, because the index is about to name the files.
        self._journals.sync()
        self._directory.sync()
        self._headers = {one: read_header(self._directory, one) for one in log_ids(self._directory)}
        self._order = in_creation_order(self._headers)
        self._previous = load_previous_state(layout, place, self._headers, self._order)
        self._verifier = _Verifier(self._previous, partial(master_key, self._previous.rows))
        self._verifier.survey = DigestSurvey(sys.maxsize)
        self._meter = ReadMeter(self._bytes_to_read(), progress)

    def run(self) -> ImportedDirectory:
        """Do every step in its order."""
        facts = gather_metadata(
            self._journals, self._previous.mark, self._previous.rows, self._verifier, self._meter
        )
        self._learn_digest_types()
        with ExitStack() as unless_imported:
            draft = self._place.draft()
            given_up = unless_imported.enter_context(ExitStack())
            given_up.callback(draft.close)
            builder = self._builder(draft)
            builder.run()
            merge = self._merge(facts.ledgers, builder.ledgers)
            # 1. The metadata. Before the index, which contains it and names its last group.
            rows = self._write_rows(merge.rows())
            unless_imported.callback(rows.close)
            # 2. The lineage. Before the mark, because an older one names logs that the bookie may have
            #    removed, and not those that it made. Before the index too, which can stand in for the mark.
            state = self._state(builder, rows)
            lineage.store(self._directory, self._lineage(state), self._store_id)
            # 3. The index. Before the mark, because once it is stored the logs are not read again.
            _complete(draft, rows.rows, state)
            given_up.pop_all()
            index = draft.publish()
            unless_imported.callback(index.close)
            # 4. The mark. From here on the directory is ours.
            known = max(self._previous.newest_journal, state.mark.journal_id)
            # A later journal tells an opening that a bookie ran here once more.
            mark = mark_of(state, newest_foreign_journal(self._journals, known))
            lastmark.write_draft(self._directory, mark)
            lastmark.publish(self._directory)
            unless_imported.pop_all()
        findings = (*self._previous.findings, *facts.findings, *self._damaged_headers(), *self._lost_logs())
        return ImportedDirectory(
            index, mark, rows, (*findings, *builder.findings, *merge.findings()), builder.figures
        )

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────

    def _bytes_to_read(self) -> int:
        # Logs are read twice, because digest types are learned before any entry is judged.
        return 2 * sum(log_sizes(self._directory, self._order)) + sum(_journal_sizes(self._journals))

    def _learn_digest_types(self) -> None:
        for log_id in self._order:
            with self._directory.open(filenames.entry_log(log_id)) as file:
                reader = EntryLogReader(file, log_id, self._verifier)
                _learn(reader)
                self._meter.pass_over(reader.size)

    def _builder(self, draft: IndexDraft) -> IndexBuilder:
        extents = list(_extents(self._headers, self._order, self._previous.log_ends))
        return IndexBuilder(self._directory, extents, self._previous.rows, self._verifier, draft, self._meter)

    def _merge(self, journaled: Mapping[int, JournaledLedger], logged: Mapping[int, int]) -> MetadataMerge:
        previous = self._previous
        return MetadataMerge(previous.rows, previous.indexed, journaled, logged, self._verifier.survey)

    def _damaged_headers(self) -> Iterator[str]:
        for log_id in self._order:
            header = self._headers[log_id]
            if isinstance(header, Damaged):
                yield header_finding(log_id, header)

    def _lost_logs(self) -> Iterator[str]:
        """Yield the logs of which only the file of an unfinished compaction is left."""
        for name in self._directory.names():
            parsed = filenames.parse(name)
            if parsed.kind is FileKind.COMPACTED_LOG and not {parsed.number, parsed.victim} & {*self._order}:
                yield f"ELG-005 {name}@0: the log that it replaces and the one that it becomes are missing"

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────

    def _write_rows(self, merged: Mapping[int, LedgerRecord]) -> MetadataLog:
        rows = MetadataLog(self._directory, merged, self._previous.rows_sequence)
        # Always, because a power cut may take away what was only read.
        rows.rewrite()
        return rows

    def _state(self, builder: IndexBuilder, rows: MetadataLog) -> IndexState:
        ends = {one.log_id: durable_end(one, builder.sizes[one.log_id]) for one in builder.extents}
        written = [one for one in self._order if not isinstance(self._headers[one], entrylog_format.EmptyLog)]
        if written:
            # The chain from our next log ends here: all logs up to this one count, as they do now.
            ends[written[-1]] = entrylog_format.HEADER_SIZE
        return IndexState(
            generation=1 + max([self._previous.generation, *self._generations()]),
            mark=self._previous.mark,
            last_log=written[-1] if written else None,
            log_ends=ends,
            rows_sequence=rows.sequence,
            is_whole=builder.is_whole,
        )

    def _lineage(self, state: IndexState) -> Lineage:
        """Return the lineage of all logs that are there. It is not known which of their bytes are durable."""
        return Lineage(state.generation, tuple(LogPosition(one, 0) for one in self._order), ())

    def _generations(self) -> Iterator[int]:
        # Of our own logs too, because the index may be lost and no log may have a later generation.
        for header in self._headers.values():
            if (origin := origin_of(header)) is not None:
                yield origin.generation


def _complete(draft: IndexDraft, rows: Mapping[int, LedgerRecord], state: IndexState) -> None:
    with draft.change() as change:
        change.put_rows(row for _, row in sorted(rows.items()))
        change.commit(state)


def _extents(
    headers: Mapping[int, FoundHeader], order: Sequence[int], indexed_ends: Mapping[int, int]
) -> Iterator[LogExtent]:
    """Yield all logs, each up to the end that another log notes, or else as far as it is sound."""
    noted = noted_ends(headers)
    for log_id in order:
        # The end in our index is no limit, because the index may be an older copy.
        indexed = indexed_ends.get(log_id, 0)
        known = indexed if indexed > entrylog_format.HEADER_SIZE else None
        limit = noted.get(log_id)
        yield LogExtent(log_id, limit, limit or known, gives_way=True)


def _learn(reader: EntryLogReader) -> None:
    """Show every entry to the reader's verifier, and judge none as long as the framing is sound."""
    at = entrylog_format.HEADER_SIZE
    while isinstance(frame := reader.frame_at(at), entrylog_format.LogFrame | entrylog_format.DirectPadding):
        if isinstance(frame, entrylog_format.LogFrame) and frame.kind is entrylog_format.LogFrameKind.ENTRY:
            reader.verifier.survey.observe(reader.body(frame))
        at = frame.end
    for _ in entrylog_scan.items(reader, at):
        pass


def _journal_sizes(directory: Directory) -> Iterator[int]:
    for journal_id in journal_set.journal_ids(directory):
        with directory.open(filenames.journal(journal_id)) as file:
            yield file.size()
