"""From the mark through the journals: what counts, and what of it nothing proves to be durable."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from recovery.chain import Required, judge
from recovery.decision import Decision
from recovery.declared import Declared, DeclaredByRows
from storage import filenames, journals
from storage.codec import journal as journal_codec
from storage.codec.survey import EntryVerifier
from storage.errors import CorruptionError, NewerFormat
from storage.journal_reader import JournalReader
from storage.journal_records import record_batches
from storage.journal_scan import Owner, scan
from storage.journal_stretches import Stretches
from storage.outcome import Damaged, Flaw, Torn
from storage.position import START, JournalPosition
from storage.registry import PLAIN_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from recovery.chain import Standing, Verdict
    from storage.files import Directory, ReadFile
    from storage.journal_records import RecordBatch
    from storage.journal_scan import JournalScan
    from storage.row import LedgerRow


@dataclass(frozen=True, slots=True)
class Replayed:
    """A batch of records that count, from one journal."""

    journal_id: int
    batch: RecordBatch
    is_proven: bool
    """Whether it was known to be durable; else it must be written again."""

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
        rows: Mapping[int, LedgerRow],
        stretches_max: int = 0,
    ) -> None:
        """So many stretches are noted on the way, if they are no more: not beside a live writer."""
        self._directory = directory
        self.tombstones = {
            row.ledger_id: row.tombstone.journal for row in rows.values() if row.tombstone is not None
        }
        """Up to where in the journals a ledger is dead."""
        self.stretches: dict[int, Stretches] = {}
        """Of each journal of which all were noted."""
        scans = {}
        for journal_id in journals.journal_ids(directory):
            if journal_id >= mark.journal_id:
                start = mark.offset if journal_id == mark.journal_id else 0
                noted = Stretches(stretches_max) if stretches_max > 0 else None
                scans[journal_id] = scan_of(directory, journal_id, rows, start, noted)
                if noted is not None and noted.is_plain:
                    self.stretches[journal_id] = noted
                    stretches_max -= noted.number
        required = [Required(newest_journal, "the mark's trailer")] if newest_journal else []
        self.verdict = judge(mark, scans, required)
        _check_verdict(self.verdict)

    def open(self, journal_id: int) -> ReadFile:
        """The journal's file."""
        return self._directory.open(filenames.journal(journal_id))

    @property
    def durable_up_to(self) -> JournalPosition:
        return self.verdict.durable_up_to

    @property
    def foreign_end(self) -> JournalPosition | None:
        """Where the last journal ends in which a bookie has written anything; `None` if none has."""
        ends = [
            JournalPosition(one.scan.journal_id, one.end)
            for one in self.verdict.standings
            if one.scan.owner is Owner.BOOKIE and one.scan.record_count
        ]
        return max(ends, default=None)

    @property
    def size(self) -> int:
        """Bytes to be replayed."""
        return sum(end - start for one in self.verdict.standings for start, end in _ranges(one))

    def batches(self, behind: JournalPosition = START) -> Iterator[Replayed]:
        """Everything that counts behind that place, in the order in which it was written."""
        for one in self.verdict.standings:
            ranges = [part for part in map(partial(_behind, behind, one), _ranges(one)) if part]
            if ranges:
                with self.open(one.scan.journal_id) as file:
                    reader = JournalReader(file, one.scan.journal_id)
                    for start, end in ranges:
                        yield from self._replayed(reader, start, end)

    def _replayed(self, reader: JournalReader, start: int, end: int) -> Iterator[Replayed]:
        for batch in record_batches(reader, start, end):
            _check_known(reader, batch)
            position = JournalPosition(reader.journal_id, batch.end)
            living = self._living(batch, position) if self.tombstones else batch
            yield Replayed(reader.journal_id, living, position <= self.durable_up_to)

    def _living(self, batch: RecordBatch, end: JournalPosition) -> RecordBatch:
        """Without the records of ledgers that were deleted behind them."""
        # Here, and not behind the next journal: what is written again loses the place by which it is judged.
        dead = {ledger_id for ledger_id, position in self.tombstones.items() if end <= position}
        if dead.isdisjoint(batch.ledger_ids) and not any(
            record.ledger_id in dead for _, record in batch.special
        ):
            return batch
        kept = [
            (ledger_id, entry_id, record)
            for ledger_id, entry_id, record in zip(
                batch.ledger_ids, batch.entry_ids, batch.records, strict=True
            )
            if ledger_id not in dead
        ]
        return replace(
            batch,
            ledger_ids=[ledger_id for ledger_id, _, _ in kept],
            entry_ids=[entry_id for _, entry_id, _ in kept],
            records=[record for _, _, record in kept],
            special=[(offset, record) for offset, record in batch.special if record.ledger_id not in dead],
        )


def scan_of(
    directory: Directory,
    journal_id: int,
    rows: Mapping[int, LedgerRow],
    start: int = 0,
    stretches: Stretches | None = None,
) -> JournalScan:
    """The facts of one journal of a directory, from `start` on; what it holds is added to `stretches`."""
    with directory.open(filenames.journal(journal_id)) as file:
        reader = JournalReader(file, journal_id)
        return scan(reader, verifier_of(reader, rows), start, stretches)


def verifier_of(reader: JournalReader, rows: Mapping[int, LedgerRow]) -> EntryVerifier:
    """By what the entries of a journal are verified."""
    # In a bookie's journal a ledger without a row is one that nobody has told us of.
    declared = Declared(rows) if reader.salt is None else DeclaredByRows(rows)
    return EntryVerifier(declared=declared, key_of=partial(_key_of, rows))


def _key_of(rows: Mapping[int, LedgerRow], ledger_id: int) -> bytes | None:
    row = rows.get(ledger_id)
    return PLAIN_KEY if row is None else row.master_key


def _ranges(one: Standing) -> Iterator[tuple[int, int]]:
    """The parts of a journal whose records count."""
    if one.decision in (Decision.USE, Decision.CUT) and one.scan.start < one.end:
        yield one.scan.start, one.end
    if one.decision in (Decision.CUT, Decision.KEEP) and one.scan.kept.start < one.scan.kept.end:
        yield one.scan.kept.start, one.scan.kept.end


def _behind(place: JournalPosition, one: Standing, part: tuple[int, int]) -> tuple[int, int] | None:
    """What of the part of a journal lies behind the place."""
    start, end = part
    if one.scan.journal_id < place.journal_id:
        return None
    if one.scan.journal_id == place.journal_id:
        start = max(start, place.offset)
    return (start, end) if start < end else None


def _check_known(reader: JournalReader, batch: RecordBatch) -> None:
    """A record that is passed over may say something that must not be lost."""
    for offset, record in batch.special:
        if isinstance(record, journal_codec.UnknownRecord):
            name = filenames.journal(reader.journal_id)
            raise NewerFormat(name, f"a record of an unknown kind, {record.entry_id}, at {offset}")


def _check_verdict(verdict: Verdict) -> None:
    """Raises when going on would hide that something acknowledged is damaged or gone."""
    for standing in verdict.refused:
        raise _refusal(standing)
    for missing in verdict.missing:
        name = filenames.journal(missing.journal_id)
        raise CorruptionError(name, 0, f"missing, and named by {missing.named_by}", "MRK-002")


def _refusal(standing: Standing) -> CorruptionError | NewerFormat:
    found = standing.scan
    name = filenames.journal(found.journal_id)
    for flawed in (found.header, found.stop):
        if isinstance(flawed, Damaged) and flawed.flaw is Flaw.FUTURE_VERSION:
            return NewerFormat(name, f"{flawed} at {flawed.offset}")
    what = f"{found.stop.flaw.value}; " if isinstance(found.stop, Torn | Damaged) else ""
    return CorruptionError(name, found.end, what + standing.rule.why, "JRN-003")
