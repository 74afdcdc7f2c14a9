"""What the journals tell of ledgers beside their entries: keys, fences, explicit LACs.

A bookie keeps these in an index that is not ours to read. So every journal that is left is read, those
before the mark too, each as far as it is sound; behind damage, from where something is sound again. What is
told more often than once does no harm: the last key counts, the largest LAC, and a fence for ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from storage import filenames, journals
from storage.codec import entry as entry_codec
from storage.codec import journal as codec
from storage.codec.digest import Digester
from storage.codec.survey import lac_digest_type
from storage.errors import NewerFormat
from storage.journal_reader import JournalReader, StoredRecord
from storage.journal_scan import Owner, scan
from storage.outcome import Damaged, EndOfData, Flaw, Torn
from storage.position import JournalPosition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from recovery.meter import Meter
    from storage.codec.survey import EntryVerifier
    from storage.files import Directory
    from storage.journal_scan import JournalScan
    from storage.row import LedgerRow


@dataclass(slots=True)
class Told:
    """What the journals tell of one ledger."""

    master_key: bytes | None = None
    fenced: bool = False
    explicit_lac: bytes | None = None
    by_a_bookie: bool = False
    """Whether a bookie has journaled anything of it."""


@dataclass(frozen=True, slots=True)
class JournalFacts:
    """What all journals tell together."""

    ledgers: dict[int, Told] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)


def gather(
    directory: Directory,
    mark: JournalPosition,
    rows: Mapping[int, LedgerRow],
    verifier: EntryVerifier,
    meter: Meter,
) -> JournalFacts:
    """What the journals of a directory tell of ledgers. `verifier` learns the digest types of their entries.

    What stands before the tombstone of a ledger's row is the deleted ledger's, and is not told. Raises
    `NewerFormat` where a later version has written.
    """
    gathering = _Gathering(directory, mark, rows, verifier)
    for journal_id in sorted(journals.journal_ids(directory)):
        meter.pass_over(gathering.take(journal_id))
    return gathering.facts


class _Gathering:
    """Goes through one journal after the other."""

    def __init__(
        self,
        directory: Directory,
        mark: JournalPosition,
        rows: Mapping[int, LedgerRow],
        verifier: EntryVerifier,
    ) -> None:
        self.facts = JournalFacts()
        self._directory = directory
        self._mark = mark
        self._graves = {row.ledger_id: row.tombstone.journal for row in rows.values() if row.tombstone}
        self._verifier = verifier

    def take(self, journal_id: int) -> int:
        """Takes what one journal tells; answers with its size."""
        with self._directory.open(filenames.journal(journal_id)) as file:
            reader = JournalReader(file, journal_id)
            for found in self._scans(reader):
                self._check_version(found)
                for start, end in ((found.start, found.end), (found.kept.start, found.kept.end)):
                    self._take_between(reader, found.owner, start, end)
                self._tell_damage(found)
            return reader.size

    def _scans(self, reader: JournalReader) -> Iterator[JournalScan]:
        """The sound parts of a journal, from its start on and from behind each damage."""
        found = scan(reader, self._verifier)
        yield found
        while found.proof_offset is not None and found.proof_offset > found.start:
            found = scan(reader, self._verifier, found.proof_offset)
            yield found
        # Where the journals are to be replayed from, something sound begins, whatever stands in front of it.
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

    def _tell_damage(self, found: JournalScan) -> None:
        if isinstance(found.header, Damaged):
            self._finding("JRN-003", found, 0, str(found.header))
        elif found.proof_offset is not None and isinstance(found.stop, Torn | Damaged):
            # A tail that nothing sound follows is what an interrupted write leaves, and no finding.
            self._finding("JRN-003", found, found.end, found.stop.flaw.value)

    def _finding(self, finding: str, found: JournalScan, offset: int, words: str) -> None:
        name = filenames.journal(found.journal_id)
        told = f"{finding} {name}@{offset}: {words}; what it said of ledgers is not known"
        if told not in self.facts.findings:
            self.facts.findings.append(told)

    def _take_between(self, reader: JournalReader, owner: Owner, start: int, end: int) -> None:
        for item in reader.items(start) if start < end else ():
            if isinstance(item, EndOfData | Torn | Damaged) or item.offset >= end:
                return
            if isinstance(item, StoredRecord) and not isinstance(item.record, Damaged):
                self._take(item.record, JournalPosition(reader.journal_id, item.offset), owner)

    def _take(self, record: codec.Record, position: JournalPosition, owner: Owner) -> None:
        grave = self._graves.get(record.ledger_id)
        if grave is not None and position < grave:
            return
        ledgers = self.facts.ledgers
        told = ledgers.get(record.ledger_id) or ledgers.setdefault(record.ledger_id, Told())
        told.by_a_bookie |= owner is not Owner.OURS
        match record:
            case codec.EntryRecord(data=data):
                self._verifier.survey.observe(data)
            case codec.LedgerKey(master_key=key):
                self._verifier.survey.saw_key(record.ledger_id)
                # No bytes, or zeros: a bookie whose own index was made again did not know it.
                told.master_key = key if any(key) else told.master_key
            case codec.Fence():
                told.fenced = True
            case codec.ExplicitLac(packet=packet):
                told.explicit_lac = larger_lac(told.explicit_lac, packet, record.ledger_id)
                if _confirmed(packet, record.ledger_id) is None:
                    words = f"the explicit LAC of ledger {record.ledger_id} does not verify"
                    self.facts.findings.append(f"JRN-004 {position}: {words}")


def larger_lac(before: bytes | None, packet: bytes | None, ledger_id: int) -> bytes | None:
    """Of two packets the one that confirms more; one that is damaged confirms nothing."""
    if packet is None or (confirmed := _confirmed(packet, ledger_id)) is None:
        return before
    earlier = None if before is None else _confirmed(before, ledger_id)
    return packet if earlier is None or confirmed > earlier else before


def _confirmed(packet: bytes, ledger_id: int) -> int | None:
    digest_type = lac_digest_type(packet)
    if digest_type is None or entry_codec.LAC_PACKET.unpack_from(packet)[0] != ledger_id:
        return None
    confirmed = entry_codec.decode_lac(packet, Digester(digest_type))
    return None if isinstance(confirmed, Damaged) else confirmed
