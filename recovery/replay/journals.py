"""Reads the journals from the mark on: the records that count, and which of them are proven durable."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from recovery.replay.chain import RequiredJournal, judge
from recovery.replay.decision import Decision
from recovery.replay.known_digests import DeclaredDigests, PresumedDigests, master_key
from storage.disk import filenames
from storage.entry.digest_inference import EntryVerifier
from storage.entry.ledger_record_table import living_rows
from storage.entry.position import START, JournalPosition
from storage.entry.read_result import Damaged, Flaw, Torn
from storage.errors import CorruptionError, NewerFormat
from storage.journal import format as journal_format
from storage.journal import journal_set
from storage.journal.extents import JournalExtents
from storage.journal.reader import JournalReader
from storage.journal.record_batches import record_batches
from storage.journal.scan import Owner, scan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from recovery.replay.chain import ChainVerdict, JudgedJournal
    from storage.disk.files import Directory, ReadFile
    from storage.entry.ledger_record import LedgerRecord
    from storage.journal.record_batches import RecordBatch
    from storage.journal.scan import JournalScan


@dataclass(frozen=True, slots=True)
class ReplayBatch:
    """A batch of records that count, from one journal."""

    journal_id: int
    batch: RecordBatch
    is_proven: bool
    """Whether it was known to be durable. Otherwise it must be written again."""

    @property
    def end(self) -> JournalPosition:
        return JournalPosition(self.journal_id, self.batch.end)


class Replay:
    """The journals of a directory from the mark on, judged. Reads only."""

    def __init__(
        self,
        directory: Directory,
        mark: JournalPosition,
        newest_journal: int,
        rows: Mapping[int, LedgerRecord],
        extents_max: int = 0,
    ) -> None:
        """Note the extents of each journal, up to `extents_max` of them; 0 beside a live writer."""
        self._directory = directory
        self._rows = rows
        self._tombstones: dict[int, JournalPosition | None] = {}
        """Only those of ledgers that were looked up, because there may be very many others."""
        self._first_ids = {row.ledger_id: row.first_entry_id for row in living_rows(rows) if row.truncation}
        """The first entries of truncated ledgers, at any position in the journals."""
        self.extents: dict[int, JournalExtents] = {}
        """The extents of each journal of which all were noted."""
        scans = {}
        for journal_id in journal_set.journal_ids(directory):
            if journal_id >= mark.journal_id:
                start = mark.offset if journal_id == mark.journal_id else 0
                noted = JournalExtents(extents_max) if extents_max > 0 else None
                scans[journal_id] = scan_of(directory, journal_id, rows, start, noted)
                if noted is not None and noted.is_plain:
                    self.extents[journal_id] = noted
                    extents_max -= noted.number
        required = [RequiredJournal(newest_journal, "the mark's trailer")] if newest_journal else []
        self.verdict = judge(mark, scans, required)
        _check_verdict(self.verdict)

    def tombstone(self, ledger_id: int) -> JournalPosition | None:
        """Return the position in the journals up to which an earlier ledger of that id is dead, or `None`."""
        if ledger_id not in self._tombstones:
            row = self._rows.get(ledger_id)
            self._tombstones[ledger_id] = (
                None if row is None or row.tombstone is None else row.tombstone.journal
            )
        return self._tombstones[ledger_id]

    def open(self, journal_id: int) -> ReadFile:
        """Open the journal's file."""
        return self._directory.open(filenames.journal(journal_id))

    @property
    def durable_up_to(self) -> JournalPosition:
        return self.verdict.durable_up_to

    @property
    def sound_end(self) -> JournalPosition:
        """The end of the last sound group. A later replay may begin here, because groups never change."""
        used = (one for one in self.verdict.standings if one.decision in (Decision.USE, Decision.CUT))
        ends = [JournalPosition(one.scan.journal_id, one.end) for one in used if one.scan.start < one.end]
        return max(ends, default=START)

    @property
    def foreign_end(self) -> JournalPosition | None:
        """Return the end of the last journal in which a bookie has written; `None` if there is none."""
        ends = [
            JournalPosition(one.scan.journal_id, one.end)
            for one in self.verdict.standings
            if one.scan.owner is Owner.BOOKIE and one.scan.record_count
        ]
        return max(ends, default=None)

    @property
    def size(self) -> int:
        """How many bytes are replayed."""
        return sum(end - start for one in self.verdict.standings for start, end in _ranges(one))

    def batches(self, after: JournalPosition = START) -> Iterator[ReplayBatch]:
        """Yield the records that count after that position, in the order in which they were written."""
        for one in self.verdict.standings:
            ranges = [part for part in map(partial(_part_after, after, one), _ranges(one)) if part]
            if ranges:
                with self.open(one.scan.journal_id) as file:
                    reader = JournalReader(file, one.scan.journal_id)
                    for start, end in ranges:
                        yield from self._replayed(reader, start, end)

    def _replayed(self, reader: JournalReader, start: int, end: int) -> Iterator[ReplayBatch]:
        for batch in record_batches(reader, start, end):
            _check_known(reader, batch)
            position = JournalPosition(reader.journal_id, batch.end)
            living = self._without_deleted(batch, position) if self._rows else batch
            counts = self._without_truncated(living)
            yield ReplayBatch(reader.journal_id, counts, position <= self.durable_up_to)

    def _without_deleted(self, batch: RecordBatch, end: JournalPosition) -> RecordBatch:
        """Return the batch without the records of ledgers that were deleted after them."""
        # Before they are written again, because the position by which they are judged changes then.
        ledger_ids = {*batch.ledger_ids, *(record.ledger_id for _, record in batch.special)}
        dead = {
            one for one in ledger_ids if (tombstone := self.tombstone(one)) is not None and end <= tombstone
        }
        if not dead:
            return batch
        special = [(offset, record) for offset, record in batch.special if record.ledger_id not in dead]
        return replace(_filtered(batch, lambda ledger_id, _: ledger_id not in dead), special=special)

    def _without_truncated(self, batch: RecordBatch) -> RecordBatch:
        """Return the batch without the entries that were truncated. Records about their ledgers stay."""
        first_ids = self._first_ids
        if first_ids.keys().isdisjoint(batch.ledger_ids):
            return batch
        return _filtered(batch, lambda ledger_id, entry_id: entry_id >= first_ids.get(ledger_id, 0))


def _filtered(batch: RecordBatch, counts: Callable[[int, int], bool]) -> RecordBatch:
    """Return the batch with those of its entries that count, by ledger id and entry id."""
    kept = [
        (ledger_id, entry_id, record)
        for ledger_id, entry_id, record in zip(batch.ledger_ids, batch.entry_ids, batch.records, strict=True)
        if counts(ledger_id, entry_id)
    ]
    return replace(
        batch,
        ledger_ids=[ledger_id for ledger_id, _, _ in kept],
        entry_ids=[entry_id for _, entry_id, _ in kept],
        records=[record for _, _, record in kept],
    )


def scan_of(
    directory: Directory,
    journal_id: int,
    rows: Mapping[int, LedgerRecord],
    start: int = 0,
    extents: JournalExtents | None = None,
) -> JournalScan:
    """Scan one journal of a directory from `start` on, and add its content to `extents`."""
    with directory.open(filenames.journal(journal_id)) as file:
        reader = JournalReader(file, journal_id)
        return scan(reader, verifier_of(reader, rows), start, extents)


def verifier_of(reader: JournalReader, rows: Mapping[int, LedgerRecord]) -> EntryVerifier:
    """Return the verifier for the entries of a journal."""
    # In a bookie's journal the digest type of a ledger without a record is unknown.
    declared = DeclaredDigests(rows) if reader.salt is None else PresumedDigests(rows)
    return EntryVerifier(declared=declared, key_of=partial(master_key, rows))


def _ranges(one: JudgedJournal) -> Iterator[tuple[int, int]]:
    """Yield the parts of a journal whose records count."""
    if one.decision in (Decision.USE, Decision.CUT) and one.scan.start < one.end:
        yield one.scan.start, one.end
    if one.decision in (Decision.CUT, Decision.KEEP) and one.scan.kept.start < one.scan.kept.end:
        yield one.scan.kept.start, one.scan.kept.end


def _part_after(place: JournalPosition, one: JudgedJournal, part: tuple[int, int]) -> tuple[int, int] | None:
    """Return the part of a range of a journal that is after the position; `None` if nothing is."""
    start, end = part
    if one.scan.journal_id < place.journal_id:
        return None
    if one.scan.journal_id == place.journal_id:
        start = max(start, place.offset)
    return (start, end) if start < end else None


def _check_known(reader: JournalReader, batch: RecordBatch) -> None:
    """Raise if a record is of an unknown kind, because it may say something that must not be lost."""
    for offset, record in batch.special:
        if isinstance(record, journal_format.UnknownRecord):
            name = filenames.journal(reader.journal_id)
            raise NewerFormat(name, f"a record of an unknown kind, {record.entry_id}, at {offset}")


def _check_verdict(verdict: ChainVerdict) -> None:
    """Raise if going on would hide that acknowledged data is damaged or missing."""
    for standing in verdict.refused:
        raise _refusal(standing)
    for missing in verdict.missing:
        name = filenames.journal(missing.journal_id)
        raise CorruptionError(name, 0, f"missing, and named by {missing.named_by}", "MRK-002")


def _refusal(standing: JudgedJournal) -> CorruptionError | NewerFormat:
    found = standing.scan
    name = filenames.journal(found.journal_id)
    for flawed in (found.header, found.stop):
        if isinstance(flawed, Damaged) and flawed.flaw is Flaw.FUTURE_VERSION:
            return NewerFormat(name, f"{flawed} at {flawed.offset}")
    what = f"{found.stop.flaw.value}; " if isinstance(found.stop, Torn | Damaged) else ""
    return CorruptionError(name, found.end, what + standing.rule.why, "JRN-003")
