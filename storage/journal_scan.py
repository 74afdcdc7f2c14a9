"""The facts of one journal that decide what of it counts.

How far the file is sound, what is vouched for, and what lies behind: a few numbers, not the records. What the
facts of several journals mean together is decided in `recovery.chain`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeGuard

from storage.codec import journal as codec
from storage.codec.digest import DigestCheck
from storage.codec.seal import NoSeal
from storage.journal_groups import Group, groups
from storage.journal_reader import SECTOR, StoredPadding, StoredRecord
from storage.outcome import Damaged, EndOfData, Flaw, Stop, Torn

if TYPE_CHECKING:
    from storage.codec.seal import Seal
    from storage.codec.survey import EntryVerifier
    from storage.journal_reader import JournalReader
    from storage.position import JournalPosition

Stored = StoredRecord | StoredPadding
JournalItem = Stored | Stop


class Owner(enum.Enum):
    """Who wrote a journal, as far as its header and its seals tell."""

    OURS = "ours"
    BOOKIE = "a bookie's"
    NOBODY = "void"
    """Nothing but zeros, or shorter than a header."""
    UNKNOWN = "damaged header"


@dataclass(frozen=True, slots=True)
class Kept:
    """The longest prefix of a torn group whose records frame and verify: `[start, end)`, `count` records."""

    start: int
    end: int
    count: int


@dataclass(frozen=True, slots=True)
class JournalScan:
    """What one journal says, from `start` on."""

    journal_id: int
    owner: Owner
    header: codec.Header | codec.Void | Damaged
    start: int
    end: int
    """Everything in [start, end) is sound: sealed groups, or a bookie's records with good digests."""
    stop: Stop
    """Why it ends there. `EndOfData`: only zeros behind."""
    kept: Kept
    """What of the torn group behind `end` may be kept; nothing in a bookie's journal."""
    records: int = 0
    first_seal: Seal | None = None
    vouched: JournalPosition | None = None
    """The largest `durable_up_to` of all valid seals, those behind the stop included; `None`: no seals."""
    evidence: int | None = None
    """Behind the stop: where a valid seal's group, or in a bookie's journal a good entry, begins."""

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong with the file from `start` on."""
        return isinstance(self.stop, EndOfData)


def scan(reader: JournalReader, verifier: EntryVerifier, start: int = 0) -> JournalScan:
    """The facts of this journal from `start` on (0: from the first record). Damage before it is not seen."""
    start = max(start, reader.records_start)
    if isinstance(reader.header, codec.Void):
        return _empty(reader, Owner.NOBODY, 0)
    if _is_salted(reader) or next(reader.seals_behind(0), None) is not None:
        return _scan_groups(reader, verifier, start)
    return _scan_records(reader, verifier, start)


def _empty(reader: JournalReader, owner: Owner, start: int) -> JournalScan:
    end = min(start, reader.size)  # a file that ends before its own mark has lost its end
    return JournalScan(reader.journal_id, owner, reader.header, start, end, EndOfData(end), Kept(end, end, 0))


def _is_salted(reader: JournalReader) -> bool:
    return isinstance(reader.header, codec.Header) and reader.header.salt is not None


def _scan_groups(reader: JournalReader, verifier: EntryVerifier, start: int) -> JournalScan:
    facts = _empty(reader, Owner.OURS, start)
    for group in groups(reader, start):
        if isinstance(group, Group):
            facts = _with_group(facts, group)
        elif isinstance(group, EndOfData):
            return replace(facts, stop=group)
        else:
            facts = replace(facts, stop=group, kept=_keep(reader, verifier, facts.end))
    for seal in reader.seals_behind(facts.end):
        evidence = seal.group_start if facts.evidence is None else facts.evidence
        facts = replace(facts, evidence=evidence, vouched=_larger(facts.vouched, seal.durable_up_to))
    return facts


def _with_group(facts: JournalScan, group: Group) -> JournalScan:
    return replace(
        facts,
        end=group.end,
        kept=Kept(group.end, group.end, 0),
        records=facts.records + group.records,
        first_seal=facts.first_seal or group.seal,
        vouched=_larger(facts.vouched, group.seal.durable_up_to),
    )


def _larger(known: JournalPosition | None, claimed: JournalPosition) -> JournalPosition:
    return claimed if known is None else max(known, claimed)


def _keep(reader: JournalReader, verifier: EntryVerifier, start: int) -> Kept:
    """The candidates of the torn group at `start`: what frames and verifies, up to the last entry.

    A fence, a key or an explicit LAC proves nothing by itself and counts only with an entry behind it. An
    atomic group without its seal is not kept at all.
    """
    end, count, unproven = start, 0, 0
    for item in reader.items(start):
        match item:
            case StoredRecord(record=codec.EntryRecord(data=data)):
                if verifier.check(data) is not DigestCheck.OK:
                    break
                end, count, unproven = item.end, count + unproven + 1, 0
            case StoredRecord(record=codec.LedgerKey() | codec.Fence() | codec.ExplicitLac()):
                unproven += 1
            case StoredPadding(seal=NoSeal(), atomic_mark=False) if item.offset == reader.records_start:
                pass
            case _:
                break
    return Kept(start, end, count)


def _scan_records(reader: JournalReader, verifier: EntryVerifier, start: int) -> JournalScan:
    """A bookie's journal: every record's digest, whole flushes, and zeros behind the end.

    What no digest proves counts only with something behind it that does, or with its flush complete.
    """
    owner = Owner.UNKNOWN if isinstance(reader.header, Damaged) else Owner.BOOKIE
    _survey(reader, verifier, start)
    facts = _empty(reader, owner, start)
    end, records, unproven = facts.end, 0, 0
    for item in reader.items(start):
        stop = _stop_of(item, reader, verifier)
        if isinstance(stop, EndOfData) and unproven:
            stop = Torn(end, Flaw.UNPADDED)
        if stop is not None:
            facts = replace(facts, end=end, kept=Kept(end, end, 0), records=records)
            evidence = None if isinstance(stop, EndOfData) else reader.entry_behind(stop.offset, verifier)
            return replace(facts, stop=stop, evidence=evidence)
        unproven += isinstance(item, StoredRecord)
        if _settles(item, reader, verifier):
            end, records, unproven = item.end, records + unproven, 0
    raise AssertionError("items end with a stop")


def _survey(reader: JournalReader, verifier: EntryVerifier, start: int) -> None:
    """Learns the ledgers' digest types first, so that a damaged entry cannot hide behind not knowing."""
    for item in reader.items(start):
        match item:
            case StoredRecord(record=codec.EntryRecord(data=data)):
                verifier.survey.observe(data)


def _stop_of(item: JournalItem, reader: JournalReader, verifier: EntryVerifier) -> Stop | None:
    """Why the sound part of a bookie's journal ends at this item; `None` if it does not."""
    match item:
        case EndOfData() | Torn() | Damaged():
            return item
        case StoredRecord(record=Damaged(flaw=flaw, detail=detail)):
            return Damaged(item.offset, flaw, detail)
        case StoredRecord(record=codec.UnknownRecord(entry_id=entry_id)):
            # No bookie writes one: it is an entry whose id is damaged, and must not be skipped.
            return Damaged(item.offset, Flaw.ENTRY_NEGATIVE, f"entry {entry_id}")
        case StoredRecord(record=codec.EntryRecord(ledger_id=ledger_id, data=data)):
            if verifier.check(data) is DigestCheck.MISMATCH:
                return Damaged(item.offset, Flaw.DIGEST)
            if verifier.digester(ledger_id) is None and _holds_an_entry(item, reader, verifier):
                return Damaged(item.offset, Flaw.DIGEST, "another entry begins inside")
    return None


def _holds_an_entry(item: StoredRecord, reader: JournalReader, verifier: EntryVerifier) -> bool:
    """Whether a length that grew has swallowed the records behind it."""
    inside = reader.entry_behind(item.offset, verifier)
    return inside is not None and inside < item.end


def _settles(item: JournalItem, reader: JournalReader, verifier: EntryVerifier) -> TypeGuard[Stored]:
    """Whether everything up to the end of this item was certainly written as it stands."""
    match item:
        case StoredPadding():
            return True
        case StoredRecord(record=codec.EntryRecord(data=data)) if verifier.check(data) is DigestCheck.OK:
            return True
        case StoredRecord():
            # A flush that ends aligned needs no padding; before version 5 there is none at all.
            return not reader.framing.pads or item.end % SECTOR == 0
    return False
