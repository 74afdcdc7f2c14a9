"""The facts of one journal that decide what of it counts.

They are a few numbers, not the records: how far the file is sound, what is known to be durable, and what
stands after that. `recovery.replay.chain` decides what the facts of several journals mean together.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from storage.entry import format as entry_format
from storage.entry.digest import DigestCheck
from storage.entry.position import LENGTH_WORD_SIZE
from storage.entry.read_result import Damaged, EndOfData, Flaw, Stop, Torn
from storage.journal import format as journal_format
from storage.journal.group_reader import SealedGroup, groups
from storage.journal.later_writes import length_overran, proof_after
from storage.journal.reader import StoredPadding, StoredRecord
from storage.journal.seal import NoSeal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.entry.digest_inference import EntryVerifier
    from storage.entry.position import JournalPosition
    from storage.journal.extents import JournalExtents
    from storage.journal.reader import JournalReader
    from storage.journal.seal import Seal, StoredSeal


class Owner(enum.Enum):
    """The writer of a journal, as far as its header and its seals tell."""

    OURS = "ours"
    BOOKIE = "a bookie's"
    VOID = "void"
    """Only zeros, or shorter than a header."""
    UNKNOWN = "damaged header"


@dataclass(frozen=True, slots=True)
class KeptPrefix:
    """The longest prefix of a torn group whose records are framed and verified.

    It is `[start, end)`, and has `count` records.
    """

    start: int
    end: int
    count: int


@dataclass(frozen=True, slots=True)
class JournalScan:
    """The facts of one journal, from `start` on."""

    journal_id: int
    owner: Owner
    header: journal_format.JournalHeader | journal_format.Void | Damaged
    start: int
    end: int
    """Everything in [start, end) is sound: sealed groups, or a bookie's records with good digests."""
    stop: Stop
    """Why the sound part ends there. `EndOfData` if only zeros follow."""
    kept: KeptPrefix
    """The part of the torn group after `end` that may be kept; nothing in a bookie's journal."""
    record_count: int = 0
    first_seal: Seal | None = None
    """The first seal from `start` on. The chain of journals goes on at the place that it names."""
    durable_up_to: JournalPosition | None = None
    """The largest `durable_up_to` of all valid seals, also of those after the stop; `None` if there is no
    seal."""
    proof_offset: int | None = None
    """After the stop: where a sealed group begins, or in a bookie's journal a good entry, or where the file
    was cut."""

    @property
    def is_sound(self) -> bool:
        """Return whether nothing is wrong with the file from `start` on."""
        return isinstance(self.stop, EndOfData)


def scan(
    reader: JournalReader, verifier: EntryVerifier, start: int = 0, extents: JournalExtents | None = None
) -> JournalScan:
    """Return the facts of this journal from `start` on (0: from the first record).

    Damage before `start` is not seen. The places of the entries in sealed groups of ours are added to
    `extents`: see `storage.journal.group_reader`.
    """
    start = max(start, reader.records_start)
    match owner_of(reader):
        case Owner.VOID:
            return _unread(reader, Owner.VOID, 0)
        case Owner.OURS:
            return _scan_groups(reader, verifier, start, extents)
        case Owner.BOOKIE | Owner.UNKNOWN as owner:
            return _scan_records(reader, verifier, start, owner)


def owner_of(reader: JournalReader) -> Owner:
    """Return the writer of the journal, by its header or by any valid seal."""
    if isinstance(reader.header, journal_format.Void):
        return Owner.VOID
    if reader.salt is not None or next(reader.seals_after(0), None) is not None:
        return Owner.OURS
    return Owner.UNKNOWN if isinstance(reader.header, Damaged) else Owner.BOOKIE


def _unread(reader: JournalReader, owner: Owner, start: int) -> JournalScan:
    end = min(start, reader.size)  # a file that is shorter than its mark has lost its end
    return JournalScan(
        reader.journal_id, owner, reader.header, start, end, EndOfData(end), KeptPrefix(end, end, 0)
    )


@dataclass(slots=True)
class _SealedGroups:
    """The sum of the sealed groups. It is changed in place, because there may be a group for each entry."""

    end: int
    record_count: int = 0
    first_seal: Seal | None = None
    durable_up_to: JournalPosition | None = None

    def add(self, group: SealedGroup) -> None:
        self.end = group.end
        self.record_count += group.record_count
        self.first_seal = self.first_seal or group.seal
        self.durable_up_to = _larger(self.durable_up_to, group.seal.durable_up_to)

    def facts(self, nothing: JournalScan) -> JournalScan:
        return replace(
            nothing,
            end=self.end,
            kept=KeptPrefix(self.end, self.end, 0),
            record_count=self.record_count,
            first_seal=self.first_seal,
            durable_up_to=self.durable_up_to,
        )


def _scan_groups(
    reader: JournalReader, verifier: EntryVerifier, start: int, extents: JournalExtents | None
) -> JournalScan:
    unread = _unread(reader, Owner.OURS, start)
    sound, stop = _sound_groups(groups(reader, start, extents), unread.end)
    found = replace(sound.facts(unread), stop=stop)
    if isinstance(stop, EndOfData):
        # Even if no group begins after the header's padding, the end of the padding is reached.
        found = replace(found, end=max(found.end, min(stop.offset, reader.size)))
    else:
        found = replace(found, kept=_kept_prefix(reader, verifier, found.end))
        for stored in reader.seals_after(found.end):
            found = _with_later_seal(found, stored)
    return _against_header(found, reader)


def _against_header(found: JournalScan, reader: JournalReader) -> JournalScan:
    """Return the facts with those that only the header tells, or with proof that it is another journal's."""
    if found.durable_up_to is None and not found.is_sound:
        # Looked for only if no seal has confirmed the header.
        stranger = reader.foreign_seal_after(found.start)
        if stranger is not None:
            return replace(found, stop=Damaged(0, Flaw.OTHER_HEADER), proof_offset=stranger.group_start)
    if reader.has_lost_its_end and not isinstance(found.stop, Damaged):
        return replace(found, stop=Torn(reader.size, Flaw.FILE_CUT), proof_offset=reader.size)
    return found


def _sound_groups(found_groups: Iterator[SealedGroup | Stop], end: int) -> tuple[_SealedGroups, Stop]:
    sound = _SealedGroups(end)
    for found in found_groups:
        if not isinstance(found, SealedGroup):
            return sound, found
        sound.add(found)
    raise AssertionError("groups end with a stop")


def _with_later_seal(found: JournalScan, stored: StoredSeal) -> JournalScan:
    seal = stored.seal
    if stored.flaw is not None:
        return replace(found, stop=Damaged(seal.group_start, stored.flaw), proof_offset=seal.group_start)
    return replace(
        found,
        proof_offset=seal.group_start if found.proof_offset is None else found.proof_offset,
        durable_up_to=_larger(found.durable_up_to, seal.durable_up_to),
    )


def _larger(known: JournalPosition | None, claimed: JournalPosition) -> JournalPosition:
    return claimed if known is None else max(known, claimed)


def _kept_prefix(reader: JournalReader, verifier: EntryVerifier, start: int) -> KeptPrefix:
    """Return the records of the torn group at `start` that may be kept: those that are framed and verified.

    They end with an entry, because a fence, a key or an explicit LAC proves nothing by itself. An unknown key
    ends them too, because a damaged key would shut out the ledger's writer for ever. Nothing is kept of an
    atomic group without its seal.
    """
    end, count, unproven = start, 0, 0
    for item in reader.items(start):
        match item:
            case StoredRecord(record=journal_format.EntryRecord(data=data)):
                if verifier.check(data) is not DigestCheck.OK:
                    break
                end, count, unproven = item.end, count + unproven + 1, 0
            case StoredRecord(record=journal_format.LedgerKey(ledger_id, key)) if verifier.knows_key(
                ledger_id, key
            ):
                unproven += 1
            case StoredRecord(record=journal_format.Fence() | journal_format.ExplicitLac()):
                unproven += 1
            case StoredPadding(seal=NoSeal(), atomic_mark=False) if item.offset == reader.records_start:
                pass
            case _:
                break
    return KeptPrefix(start, end, count)


def _scan_records(reader: JournalReader, verifier: EntryVerifier, start: int, owner: Owner) -> JournalScan:
    """Scan a bookie's journal: the digest of every record, whole flushes, and zeros after the end.

    A record that no digest proves counts only if a proven one follows it, or if its flush is complete.
    """
    learn_digest_types(reader, verifier, start)
    found = _unread(reader, owner, start)
    if _is_a_replayed_end(reader, start):
        return found
    unproven = 0
    for item in reader.items(start):
        check = _check(item, reader, verifier)
        if isinstance(check, EndOfData) and unproven:
            check = Torn(found.end, Flaw.UNPADDED)
        if not isinstance(check, DigestCheck):
            return _stopped(found, check, reader, verifier)
        assert isinstance(item, StoredRecord | StoredPadding)
        unproven += isinstance(item, StoredRecord)
        if check is DigestCheck.OK or _ends_a_flush(item, reader):
            found = replace(found, end=item.end, record_count=found.record_count + unproven)
            unproven = 0
    raise AssertionError("items end with a stop")


def learn_digest_types(reader: JournalReader, verifier: EntryVerifier, start: int) -> None:
    """Infer the digest types, before anything is judged.

    Otherwise a damaged entry could pass because its type is not known yet. Entries before the mark count too.
    Damage there ends only that part of the inference.
    """
    for begin in dict.fromkeys((reader.records_start, start)):
        for item in reader.items(begin):
            match item:
                case StoredRecord(record=journal_format.EntryRecord(data=data)):
                    verifier.survey.observe(data)
                case StoredRecord(record=journal_format.LedgerKey(ledger_id=ledger_id)):
                    verifier.survey.note_key(ledger_id)


def _is_a_replayed_end(reader: JournalReader, start: int) -> bool:
    """Return whether a bookie's replay stopped here at a zero length, and marked the place after it.

    The bookie went on in the next journal, so nothing after the place counts, because bytes that a power cut
    left there were never acknowledged.
    """
    behind_a_word = start % journal_format.HEADER_SIZE_MAX == LENGTH_WORD_SIZE
    return behind_a_word and reader.framing.pads and not any(reader.window.peek(start - LENGTH_WORD_SIZE, 4))


def _stopped(found: JournalScan, stop: Stop, reader: JournalReader, verifier: EntryVerifier) -> JournalScan:
    kept = KeptPrefix(found.end, found.end, 0)
    if isinstance(stop, EndOfData):
        return replace(found, stop=stop, kept=kept)
    return replace(found, stop=stop, kept=kept, proof_offset=proof_after(reader, verifier, found.end))


def _check(
    item: StoredRecord | StoredPadding | Stop, reader: JournalReader, verifier: EntryVerifier
) -> DigestCheck | Stop:
    """Return what is known of an item of a bookie's journal, or why the sound part ends at it."""
    if isinstance(item, StoredPadding):
        return DigestCheck.UNVERIFIED
    if not isinstance(item, StoredRecord):
        return item
    match item.record:
        case Damaged(flaw=flaw, detail=detail):
            return Damaged(item.offset, flaw, detail)
        case journal_format.UnknownRecord(entry_id=entry_id):
            # No bookie writes such a record. It is an entry whose id is damaged, and must not be skipped.
            return Damaged(item.offset, Flaw.ENTRY_NEGATIVE, f"entry {entry_id}")
        case journal_format.EntryRecord(ledger_id=ledger_id, data=data):
            if len(data) < entry_format.HEAD.size:
                # No client makes such an entry: its length has shrunk, or its id has lost the sign.
                return Damaged(item.offset, Flaw.ENTRY_SHORT)
            check = verifier.check(data)
            if check is DigestCheck.MISMATCH:
                return Damaged(item.offset, Flaw.DIGEST)
            if check is DigestCheck.UNVERIFIED and length_overran(reader, verifier, item):
                return Damaged(item.offset, Flaw.DIGEST, "other entries stand inside")
            if check is DigestCheck.UNVERIFIED and verifier.is_doubtful(ledger_id):
                return Damaged(item.offset, Flaw.DIGEST_UNKNOWN, f"ledger {ledger_id}")
            return check
    return DigestCheck.UNVERIFIED


def _ends_a_flush(item: StoredRecord | StoredPadding, reader: JournalReader) -> bool:
    # Padding ends a flush. A flush that is aligned anyway needs none, and before version 5 there is none at
    # all.
    aligned = item.end % journal_format.HEADER_SIZE_MAX == 0
    return isinstance(item, StoredPadding) or aligned or not reader.framing.pads
