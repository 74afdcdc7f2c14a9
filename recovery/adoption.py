"""Taking over a directory in which a bookie wrote last: our index, rows and mark, made from what is there.

A bookie's own index is not ours to read, and its lastMark says nothing but where to replay from. So places
come from all entry logs, digest types from the entries themselves, keys, fences and explicit LACs from all
journals that are left. What an earlier run of ours knew of ledgers still counts. Nothing is removed.

The order is `_Adoption.run`; each step is durable before the next. The mark comes last: before it is stored
the directory is still the bookie's, and who adopts it again comes to the same.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.declared import Declared
from recovery.journal_facts import gather
from recovery.leftovers import newest_foreign_journal
from recovery.lineage import header_finding, in_order, noted_ends, origin_of, read_header
from recovery.merging import Merging, is_only_deleted
from recovery.meter import Meter, nowhere
from recovery.past import load_past
from recovery.placing import Extent, Figures, Placing
from recovery.rebuild import durable_end, log_sizes
from storage import entrylog_scan, filenames, journals, lastmark
from storage.codec import entry as entry_codec
from storage.codec import entrylog as codec
from storage.codec.digest import DigestCheck
from storage.codec.survey import DigestSurvey, EntryVerifier, matching_checksum
from storage.entry_logs import log_ids
from storage.entrylog_reader import EntryLogReader
from storage.filenames import FileKind
from storage.index_state import IndexState
from storage.lastmark import mark_of
from storage.ledger_rows import LedgerRows
from storage.outcome import Damaged
from storage.registry import PLAIN_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from recovery.founding import Layout
    from recovery.journal_facts import Told
    from recovery.lineage import FoundHeader
    from recovery.past import Past
    from storage.codec.digest import Buffer
    from storage.codec.mark import Mark
    from storage.files import Directory
    from storage.index import Index, IndexDraft, IndexPlace
    from storage.report import RebuildProgress
    from storage.row import LedgerRow


@dataclass(frozen=True, slots=True)
class Adopted:
    """A directory that is ours now: all of this is durable."""

    index: Index
    mark: Mark
    rows: LedgerRows
    findings: tuple[str, ...]
    figures: Figures


def adopt(
    layout: Layout, place: IndexPlace, progress: Callable[[RebuildProgress], None] = nowhere
) -> Adopted:
    """Makes the directory ours, and answers with what it is now. For whoever holds its lock.

    When it returns, index, rows and mark are durable; the journals from the mark on are still to be
    replayed. Raises before anything is written where a newer version has written, or where what we kept of
    our own is damaged.
    """
    return _Adoption(layout, place, progress).run()


class _Verifier(EntryVerifier):
    """Knows what our rows declare, but for ledgers of which they only say that an earlier one was deleted.

    Such an id may be a bookie's now, protected in any way, or ours again; and the survey has seen the records
    of the deleted ledger too. So what any CRC verifies is sound.
    """

    def __init__(self, past: Past, key_of: Callable[[int], bytes | None]) -> None:
        rows = past.rows.items()
        self._open = {one for one, row in rows if one not in past.indexed and is_only_deleted(row)}
        super().__init__(Declared({one: row for one, row in rows if one not in self._open}), key_of=key_of)

    def check(self, data: Buffer) -> DigestCheck:
        checked = super().check(data)
        if checked is not DigestCheck.MISMATCH or not self._open or matching_checksum(data) is None:
            return checked
        ledger_id, _ = entry_codec.IDS.unpack_from(data)
        return DigestCheck.OK if ledger_id in self._open else checked


class _Adoption:
    """One adoption of one directory."""

    def __init__(
        self, layout: Layout, place: IndexPlace, progress: Callable[[RebuildProgress], None]
    ) -> None:
        self._directory = layout.ledgers
        self._journals = layout.journal
        self._place = place
        # The names that are read must stay: the index is about to name them.
        self._journals.sync()
        self._directory.sync()
        self._headers = {one: read_header(self._directory, one) for one in log_ids(self._directory)}
        self._order = in_order(self._headers)
        self._past = load_past(self._directory, place, self._headers, self._order)
        self._verifier = _Verifier(self._past, self._key_of)
        self._verifier.survey = DigestSurvey(sys.maxsize)
        self._meter = Meter(self._bytes_to_read(), progress)

    def run(self) -> Adopted:
        """Every step, in its order."""
        facts = gather(self._journals, self._past.mark, self._past.rows, self._verifier, self._meter)
        self._learn_digest_types()
        with ExitStack() as unless_adopted:
            draft = self._place.draft()
            given_up = unless_adopted.enter_context(ExitStack())
            given_up.callback(draft.close)
            placing = self._placing(draft)
            placing.run()
            merging = self._merging(facts.ledgers, placing.ledgers)
            # 1. The rows. Before the index, which is made with them and names their last group.
            rows = self._write_rows(merging.rows())
            unless_adopted.callback(rows.close)
            # 2. The index. Before the mark: behind it nobody looks into the logs again.
            state = self._state(placing, rows)
            _complete(draft, rows.rows, state)
            given_up.pop_all()
            index = draft.publish()
            unless_adopted.callback(index.close)
            # 3. The mark: from here on the directory is ours.
            known = max(self._past.newest_journal, state.mark.journal_id)
            # A later one tells an opening that a bookie ran here once more.
            mark = mark_of(state, newest_foreign_journal(self._journals, known))
            lastmark.write_draft(self._directory, mark)
            lastmark.publish(self._directory)
            unless_adopted.pop_all()
        findings = (*self._past.findings, *facts.findings, *self._damaged_headers(), *self._lost_logs())
        return Adopted(
            index, mark, rows, (*findings, *placing.findings, *merging.findings()), placing.figures
        )

    def _key_of(self, ledger_id: int) -> bytes | None:
        row = self._past.rows.get(ledger_id)
        return PLAIN_KEY if row is None else row.master_key

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────

    def _bytes_to_read(self) -> int:
        # Logs twice: what protects a ledger's entries is learned before any of them is judged.
        return 2 * sum(log_sizes(self._directory, self._order)) + sum(_journal_sizes(self._journals))

    def _learn_digest_types(self) -> None:
        for log_id in self._order:
            with self._directory.open(filenames.entry_log(log_id)) as file:
                reader = EntryLogReader(file, log_id, self._verifier)
                _learn(reader)
                self._meter.pass_over(reader.size)

    def _placing(self, draft: IndexDraft) -> Placing:
        extents = list(_extents(self._headers, self._order, self._past.log_ends))
        return Placing(self._directory, extents, self._past.rows, self._verifier, draft, self._meter)

    def _merging(self, told: Mapping[int, Told], placed: Mapping[int, int]) -> Merging:
        past = self._past
        return Merging(past.rows, past.indexed, told, placed, frozenset(self._order), self._verifier.survey)

    def _damaged_headers(self) -> Iterator[str]:
        for log_id in self._order:
            header = self._headers[log_id]
            if isinstance(header, Damaged):
                yield header_finding(log_id, header)

    def _lost_logs(self) -> Iterator[str]:
        """The logs of which only the name of a compaction that did not end is left."""
        for name in self._directory.names():
            parsed = filenames.parse(name)
            if parsed.kind is FileKind.COMPACTED_LOG and not {parsed.number, parsed.victim} & {*self._order}:
                yield f"ELG-005 {name}@0: the log that it replaces is not here, nor the one that it becomes"

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────

    def _write_rows(self, merged: Mapping[int, LedgerRow]) -> LedgerRows:
        rows = LedgerRows(self._directory, merged, self._past.rows_sequence)
        # Always: what was only read a power cut may take away.
        rows.rewrite()
        return rows

    def _state(self, placing: Placing, rows: LedgerRows) -> IndexState:
        ends = {one.log_id: durable_end(one, placing.sizes[one.log_id]) for one in placing.extents}
        written = [one for one in self._order if not isinstance(self._headers[one], codec.EmptyLog)]
        if written:
            # Where the way back from our next log ends: in front of it all logs count, as they do now.
            ends[written[-1]] = codec.HEADER_SIZE
        return IndexState(
            generation=1 + max([self._past.generation, *self._generations()]),
            mark=self._past.mark,
            last_log=written[-1] if written else None,
            log_ends=ends,
            rows_sequence=rows.sequence,
            is_whole=placing.is_whole,
        )

    def _generations(self) -> Iterator[int]:
        # Of our own logs too: the index may be lost, and a log is never of a later checkpoint than this.
        for header in self._headers.values():
            if (origin := origin_of(header)) is not None:
                yield origin.generation


def _complete(draft: IndexDraft, rows: Mapping[int, LedgerRow], state: IndexState) -> None:
    with draft.change() as change:
        change.put_rows(row for _, row in sorted(rows.items()))
        change.commit(state)


def _extents(
    headers: Mapping[int, FoundHeader], order: Sequence[int], indexed_ends: Mapping[int, int]
) -> Iterator[Extent]:
    """All logs, each up to the end that another notes, or else as far as it is sound."""
    noted = noted_ends(headers)
    for log_id in order:
        # What our index knows is no limit: it may be an older copy that somebody has brought back.
        indexed = indexed_ends.get(log_id, 0)
        known = indexed if indexed > codec.HEADER_SIZE else None
        limit = noted.get(log_id)
        yield Extent(log_id, limit, limit or known, gives_way=True)


def _learn(reader: EntryLogReader) -> None:
    """Has the reader's verifier see every entry, without judging any as long as the framing holds."""
    at = codec.HEADER_SIZE
    while isinstance(frame := reader.frame_at(at), codec.Frame | codec.DirectPadding):
        if isinstance(frame, codec.Frame) and frame.kind is codec.FrameKind.ENTRY:
            reader.verifier.survey.observe(reader.body(frame))
        at = frame.end
    for _ in entrylog_scan.items(reader, at):
        pass


def _journal_sizes(directory: Directory) -> Iterator[int]:
    for journal_id in journals.journal_ids(directory):
        with directory.open(filenames.journal(journal_id)) as file:
            yield file.size()
