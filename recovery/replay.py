"""From the mark through the journals: what counts, and what of it nothing proves to be durable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.chain import Required, judge
from recovery.decision import Decision
from recovery.declared import AllCrc32c
from storage import filenames, journals
from storage.codec import journal as journal_codec
from storage.codec.survey import EntryVerifier
from storage.errors import CorruptionError, ForeignStore, NewerFormat
from storage.journal_reader import JournalReader
from storage.journal_records import record_batches
from storage.journal_scan import Owner, scan
from storage.outcome import Damaged, Flaw, Torn
from storage.position import JournalPosition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from recovery.chain import Standing, Verdict
    from storage.files import Directory, ReadFile
    from storage.journal_records import RecordBatch
    from storage.journal_scan import JournalScan


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

    def __init__(self, directory: Directory, mark: JournalPosition, newest_journal: int) -> None:
        self._directory = directory
        scans = {
            journal_id: self._scan(journal_id, mark)
            for journal_id in journals.journal_ids(directory)
            if journal_id >= mark.journal_id
        }
        self._check_ours(scans)
        required = [Required(newest_journal, "the mark's trailer")] if newest_journal else []
        self.verdict = judge(mark, scans, required)
        _check_verdict(self.verdict)

    def _scan(self, journal_id: int, mark: JournalPosition) -> JournalScan:
        start = mark.offset if journal_id == mark.journal_id else 0
        with self._open(journal_id) as file:
            return scan(JournalReader(file, journal_id), EntryVerifier(declared=AllCrc32c()), start)

    def _open(self, journal_id: int) -> ReadFile:
        return self._directory.open(filenames.journal(journal_id))

    def _check_ours(self, scans: Mapping[int, JournalScan]) -> None:
        for journal_id, found in scans.items():
            if found.owner is Owner.BOOKIE:
                raise ForeignStore(
                    self._directory.path, f"{filenames.journal(journal_id)} is a bookie's journal"
                )

    @property
    def durable_up_to(self) -> JournalPosition:
        return self.verdict.durable_up_to

    @property
    def size(self) -> int:
        """Bytes to be replayed."""
        return sum(end - start for one in self.verdict.standings for start, end in _ranges(one))

    def batches(self) -> Iterator[Replayed]:
        """Everything that counts, in the order in which it was written."""
        for one in self.verdict.standings:
            ranges = list(_ranges(one))
            if ranges:
                with self._open(one.scan.journal_id) as file:
                    reader = JournalReader(file, one.scan.journal_id)
                    for start, end in ranges:
                        yield from self._replayed(reader, start, end)

    def _replayed(self, reader: JournalReader, start: int, end: int) -> Iterator[Replayed]:
        for batch in record_batches(reader, start, end):
            _check_known(reader, batch)
            position = JournalPosition(reader.journal_id, batch.end)
            yield Replayed(reader.journal_id, batch, position <= self.durable_up_to)


def _ranges(one: Standing) -> Iterator[tuple[int, int]]:
    """The parts of a journal whose records count."""
    if one.decision in (Decision.USE, Decision.CUT) and one.scan.start < one.end:
        yield one.scan.start, one.end
    if one.decision in (Decision.CUT, Decision.KEEP) and one.scan.kept.start < one.scan.kept.end:
        yield one.scan.kept.start, one.scan.kept.end


def _check_known(reader: JournalReader, batch: RecordBatch) -> None:
    """A fence or an explicit LAC that is passed over would be lost: no store of this version writes one."""
    for offset, record in batch.special:
        if not isinstance(record, journal_codec.LedgerKey):
            name = filenames.journal(reader.journal_id)
            raise NewerFormat(name, f"{type(record).__name__} of ledger {record.ledger_id} at {offset}")


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
