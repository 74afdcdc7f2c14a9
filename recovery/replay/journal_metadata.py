"""Gathers what the journals say about ledgers beside their entries: keys, fences, explicit LACs.

A bookie keeps these in an index of its own format. So every journal that is left is read, those before the
mark too. Each is read as far as it is sound, and again from where it is sound after damage. Repetitions do no
harm: the last key counts, the largest LAC, and a fence is never taken back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from storage.disk import filenames
from storage.entry import format as entry_format
from storage.entry.digest import Digester
from storage.entry.digest_inference import digest_type_of_lac
from storage.entry.position import JournalPosition
from storage.entry.read_result import Damaged, EndOfData, Flaw, Torn
from storage.errors import NewerFormat
from storage.journal import format as journal_format
from storage.journal import journal_set
from storage.journal.reader import JournalReader, StoredRecord
from storage.journal.scan import Owner, scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from recovery.replay.progress import ReadMeter
    from storage.disk.files import Directory
    from storage.entry.digest_inference import EntryVerifier
    from storage.entry.ledger_record import LedgerRecord
    from storage.journal.scan import JournalScan


@dataclass(slots=True)
class JournaledLedger:
    """Key, fence and explicit LAC of one ledger, as the journals say."""

    master_key: bytes | None = None
    fenced: bool = False
    explicit_lac: bytes | None = None
    by_a_bookie: bool = False
    """Whether a bookie has journaled a record of it."""


@dataclass(frozen=True, slots=True)
class JournalMetadata:
    """The metadata of ledgers in all journals, and the damage that was found."""

    ledgers: dict[int, JournaledLedger] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)


def gather_metadata(
    directory: Directory,
    mark: JournalPosition,
    rows: Mapping[int, LedgerRecord],
    verifier: EntryVerifier,
    meter: ReadMeter,
) -> JournalMetadata:
    """Read all journals of a directory. `verifier` learns the digest types of their entries.

    Records before the tombstone of a ledger belong to the deleted ledger and are ignored. Raise `NewerFormat`
    if a newer version has written.
    """
    gathering = _MetadataGatherer(directory, mark, rows, verifier)
    for journal_id in sorted(journal_set.journal_ids(directory)):
        meter.pass_over(gathering.take(journal_id))
    return gathering.facts


class _MetadataGatherer:
    """Reads one journal after the other."""

    def __init__(
        self,
        directory: Directory,
        mark: JournalPosition,
        rows: Mapping[int, LedgerRecord],
        verifier: EntryVerifier,
    ) -> None:
        self.facts = JournalMetadata()
        self._directory = directory
        self._mark = mark
        self._tombstones = {row.ledger_id: row.tombstone.journal for row in rows.values() if row.tombstone}
        self._verifier = verifier

    def take(self, journal_id: int) -> int:
        """Read one journal, and return its size."""
        with self._directory.open(filenames.journal(journal_id)) as file:
            reader = JournalReader(file, journal_id)
            for found in self._scans(reader):
                self._check_version(found)
                for start, end in ((found.start, found.end), (found.kept.start, found.kept.end)):
                    self._take_between(reader, found.owner, start, end)
                self._report_damage(found)
            return reader.size

    def _scans(self, reader: JournalReader) -> Iterator[JournalScan]:
        """Yield scans of the sound parts of a journal: from its start, and from the end of each damage."""
        found = scan(reader, self._verifier)
        yield found
        while found.proof_offset is not None and found.proof_offset > found.start:
            found = scan(reader, self._verifier, found.proof_offset)
            yield found
        # A sound part begins at the mark, even if what is before it is damaged.
        if (
            reader.journal_id == self._mark.journal_id
            and not found.is_sound
            and found.end < self._mark.offset
        ):
            yield scan(reader, self._verifier, self._mark.offset)

    def _check_version(self, found: JournalScan) -> None:
        for flawed in (found.header, found.stop):
            if isinstance(flawed, Damaged) and flawed.flaw is Flaw.FUTURE_VERSION:
                raise NewerFormat(filenames.journal(found.journal_id), f"{flawed} at {flawed.offset}")

    def _report_damage(self, found: JournalScan) -> None:
        if isinstance(found.header, Damaged):
            self._finding("JRN-003", found, 0, str(found.header))
        elif found.proof_offset is not None and isinstance(found.stop, Torn | Damaged):
            # A torn tail without sound data after it is what an interrupted write leaves, and no finding.
            self._finding("JRN-003", found, found.end, found.stop.flaw.value)

    def _finding(self, finding: str, found: JournalScan, offset: int, words: str) -> None:
        name = filenames.journal(found.journal_id)
        told = f"{finding} {name}@{offset}: {words}; what it said about ledgers is lost"
        if told not in self.facts.findings:
            self.facts.findings.append(told)

    def _take_between(self, reader: JournalReader, owner: Owner, start: int, end: int) -> None:
        for item in reader.items(start) if start < end else ():
            if isinstance(item, EndOfData | Torn | Damaged) or item.offset >= end:
                return
            if isinstance(item, StoredRecord) and not isinstance(item.record, Damaged):
                self._take(item.record, JournalPosition(reader.journal_id, item.offset), owner)

    def _take(self, record: journal_format.Record, position: JournalPosition, owner: Owner) -> None:
        grave = self._tombstones.get(record.ledger_id)
        if grave is not None and position < grave:
            return
        ledgers = self.facts.ledgers
        told = ledgers.get(record.ledger_id) or ledgers.setdefault(record.ledger_id, JournaledLedger())
        told.by_a_bookie |= owner is not Owner.OURS
        match record:
            case journal_format.EntryRecord(data=data):
                self._verifier.survey.observe(data)
            case journal_format.LedgerKey(master_key=key):
                self._verifier.survey.note_key(record.ledger_id)
                # A bookie whose index was made again writes no bytes or zeros.
                told.master_key = key if any(key) else told.master_key
            case journal_format.Fence():
                told.fenced = True
            case journal_format.ExplicitLac(packet=packet):
                told.explicit_lac = larger_lac(told.explicit_lac, packet, record.ledger_id)
                if _confirmed(packet, record.ledger_id) is None:
                    words = f"the explicit LAC of ledger {record.ledger_id} does not verify"
                    self.facts.findings.append(f"JRN-004 {position}: {words}")


def larger_lac(before: bytes | None, packet: bytes | None, ledger_id: int) -> bytes | None:
    """Return the packet that confirms more; a damaged one confirms nothing."""
    if packet is None or (confirmed := _confirmed(packet, ledger_id)) is None:
        return before
    earlier = None if before is None else _confirmed(before, ledger_id)
    return packet if earlier is None or confirmed > earlier else before


def _confirmed(packet: bytes, ledger_id: int) -> int | None:
    digest_type = digest_type_of_lac(packet)
    if digest_type is None or entry_format.LAC_PACKET.unpack_from(packet)[0] != ledger_id:
        return None
    confirmed = entry_format.decode_lac(packet, Digester(digest_type))
    return None if isinstance(confirmed, Damaged) else confirmed
