"""The facts of one journal that decide what of it counts.

How far the file is sound, what is vouched for, and what lies behind: a few numbers, not the records. What the
facts of several journals mean together is decided in `recovery.chain`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from storage.codec import entry as entry_codec
from storage.codec import journal as codec
from storage.codec.digest import DigestCheck
from storage.codec.seal import NoSeal
from storage.journal_groups import Group, groups
from storage.journal_proof import has_swallowed, proof_behind
from storage.journal_reader import StoredPadding, StoredRecord
from storage.outcome import Damaged, EndOfData, Flaw, Stop, Torn
from storage.position import LENGTH_WORD_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.codec.seal import Seal, StoredSeal
    from storage.codec.survey import EntryVerifier
    from storage.journal_reader import JournalReader
    from storage.journal_stretches import Stretches
    from storage.position import JournalPosition


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
    record_count: int = 0
    first_seal: Seal | None = None
    """The first from `start` on: what it names is where the chain goes on."""
    durable_up_to: JournalPosition | None = None
    """The largest `durable_up_to` of all valid seals, those behind the stop included; `None`: no seals."""
    proof_offset: int | None = None
    """Behind the stop: where a sealed group begins, in a bookie's journal a good entry, or what was cut."""

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong with the file from `start` on."""
        return isinstance(self.stop, EndOfData)


def scan(
    reader: JournalReader, verifier: EntryVerifier, start: int = 0, stretches: Stretches | None = None
) -> JournalScan:
    """The facts of this journal from `start` on (0: from the first record). Damage before it is not seen.

    What sealed groups of ours hold is added to `stretches`: see `storage.journal_groups`.
    """
    start = max(start, reader.records_start)
    match owner_of(reader):
        case Owner.NOBODY:
            return _unread(reader, Owner.NOBODY, 0)
        case Owner.OURS:
            return _scan_groups(reader, verifier, start, stretches)
        case Owner.BOOKIE | Owner.UNKNOWN as owner:
            return _scan_records(reader, verifier, start, owner)


def owner_of(reader: JournalReader) -> Owner:
    """Who wrote the journal: its header says so, or any valid seal."""
    if isinstance(reader.header, codec.Void):
        return Owner.NOBODY
    if reader.salt is not None or next(reader.seals_behind(0), None) is not None:
        return Owner.OURS
    return Owner.UNKNOWN if isinstance(reader.header, Damaged) else Owner.BOOKIE


def _unread(reader: JournalReader, owner: Owner, start: int) -> JournalScan:
    end = min(start, reader.size)  # a file that ends before its own mark has lost its end
    return JournalScan(reader.journal_id, owner, reader.header, start, end, EndOfData(end), Kept(end, end, 0))


@dataclass(slots=True)
class _Sound:
    """What the sealed groups say together. Changed in place: there may be one for each entry."""

    end: int
    record_count: int = 0
    first_seal: Seal | None = None
    durable_up_to: JournalPosition | None = None

    def add(self, group: Group) -> None:
        self.end = group.end
        self.record_count += group.record_count
        self.first_seal = self.first_seal or group.seal
        self.durable_up_to = _larger(self.durable_up_to, group.seal.durable_up_to)

    def facts(self, nothing: JournalScan) -> JournalScan:
        return replace(
            nothing,
            end=self.end,
            kept=Kept(self.end, self.end, 0),
            record_count=self.record_count,
            first_seal=self.first_seal,
            durable_up_to=self.durable_up_to,
        )


def _scan_groups(
    reader: JournalReader, verifier: EntryVerifier, start: int, stretches: Stretches | None
) -> JournalScan:
    unread = _unread(reader, Owner.OURS, start)
    found_groups = groups(reader, start) if stretches is None else groups(reader, start, stretches)
    sound, stop = _sound_groups(found_groups, unread.end)
    found = replace(sound.facts(unread), stop=stop)
    if isinstance(stop, EndOfData):
        # Behind the header's padding no group may have begun: its place is reached all the same.
        found = replace(found, end=max(found.end, min(stop.offset, reader.size)))
    else:
        found = replace(found, kept=_keep(reader, verifier, found.end))
        for stored in reader.seals_behind(found.end):
            found = _with_seal_behind(found, stored)
    return _against_header(found, reader)


def _against_header(found: JournalScan, reader: JournalReader) -> JournalScan:
    """With what only the header tells of the file, and what tells that it is not this file's."""
    if found.durable_up_to is None and not found.is_sound:
        # Only where no seal has confirmed the header.
        stranger = reader.stranger_behind(found.start)
        if stranger is not None:
            return replace(found, stop=Damaged(0, Flaw.OTHER_HEADER), proof_offset=stranger.group_start)
    if reader.has_lost_its_end and not isinstance(found.stop, Damaged):
        return replace(found, stop=Torn(reader.size, Flaw.FILE_CUT), proof_offset=reader.size)
    return found


def _sound_groups(found_groups: Iterator[Group | Stop], end: int) -> tuple[_Sound, Stop]:
    sound = _Sound(end)
    for found in found_groups:
        if not isinstance(found, Group):
            return sound, found
        sound.add(found)
    raise AssertionError("groups end with a stop")


def _with_seal_behind(found: JournalScan, stored: StoredSeal) -> JournalScan:
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


def _keep(reader: JournalReader, verifier: EntryVerifier, start: int) -> Kept:
    """The candidates of the torn group at `start`: what frames and verifies, up to the last entry.

    A fence, a key or an explicit LAC proves nothing by itself and counts only with an entry behind it. A key
    that is not known already ends them: were it damaged, its ledger would have lost its writer for ever. An
    atomic group without its seal is not kept at all.
    """
    end, count, unproven = start, 0, 0
    for item in reader.items(start):
        match item:
            case StoredRecord(record=codec.EntryRecord(data=data)):
                if verifier.check(data) is not DigestCheck.OK:
                    break
                end, count, unproven = item.end, count + unproven + 1, 0
            case StoredRecord(record=codec.LedgerKey(ledger_id, key)) if verifier.knows_key(ledger_id, key):
                unproven += 1
            case StoredRecord(record=codec.Fence() | codec.ExplicitLac()):
                unproven += 1
            case StoredPadding(seal=NoSeal(), atomic_mark=False) if item.offset == reader.records_start:
                pass
            case _:
                break
    return Kept(start, end, count)


def _scan_records(reader: JournalReader, verifier: EntryVerifier, start: int, owner: Owner) -> JournalScan:
    """A bookie's journal: every record's digest, whole flushes, and zeros behind the end.

    What no digest proves counts only with something behind it that does, or with its flush complete.
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
    """Before anything is judged, so that a damaged entry cannot hide behind a type that is not known yet.

    What stands before the mark counts too; damage there ends only that part of the learning.
    """
    for begin in dict.fromkeys((reader.records_start, start)):
        for item in reader.items(begin):
            match item:
                case StoredRecord(record=codec.EntryRecord(data=data)):
                    verifier.survey.observe(data)
                case StoredRecord(record=codec.LedgerKey(ledger_id=ledger_id)):
                    verifier.survey.saw_key(ledger_id)


def _is_a_replayed_end(reader: JournalReader, start: int) -> bool:
    """Whether a bookie's replay stopped here at a zero length, and marked the place behind those four bytes.

    It goes on in the next journal, so nothing behind counts: what a power cut left there was never answered.
    """
    behind_a_word = start % codec.HEADER_SIZE_MAX == LENGTH_WORD_SIZE
    return behind_a_word and reader.framing.pads and not any(reader.window.peek(start - LENGTH_WORD_SIZE, 4))


def _stopped(found: JournalScan, stop: Stop, reader: JournalReader, verifier: EntryVerifier) -> JournalScan:
    kept = Kept(found.end, found.end, 0)
    if isinstance(stop, EndOfData):
        return replace(found, stop=stop, kept=kept)
    return replace(found, stop=stop, kept=kept, proof_offset=proof_behind(reader, verifier, found.end))


def _check(
    item: StoredRecord | StoredPadding | Stop, reader: JournalReader, verifier: EntryVerifier
) -> DigestCheck | Stop:
    """What is known of an item of a bookie's journal, or why the sound part ends at it."""
    if isinstance(item, StoredPadding):
        return DigestCheck.UNVERIFIED
    if not isinstance(item, StoredRecord):
        return item
    match item.record:
        case Damaged(flaw=flaw, detail=detail):
            return Damaged(item.offset, flaw, detail)
        case codec.UnknownRecord(entry_id=entry_id):
            # No bookie writes one: it is an entry whose id is damaged, and must not be skipped.
            return Damaged(item.offset, Flaw.ENTRY_NEGATIVE, f"entry {entry_id}")
        case codec.EntryRecord(ledger_id=ledger_id, data=data):
            if len(data) < entry_codec.HEAD.size:
                # No client makes one: a length that has shrunk, or an id that has lost its sign.
                return Damaged(item.offset, Flaw.ENTRY_SHORT)
            check = verifier.check(data)
            if check is DigestCheck.MISMATCH:
                return Damaged(item.offset, Flaw.DIGEST)
            if check is DigestCheck.UNVERIFIED and has_swallowed(reader, verifier, item):
                return Damaged(item.offset, Flaw.DIGEST, "other entries stand inside")
            if check is DigestCheck.UNVERIFIED and verifier.doubts(ledger_id):
                return Damaged(item.offset, Flaw.DIGEST_UNKNOWN, f"ledger {ledger_id}")
            return check
    return DigestCheck.UNVERIFIED


def _ends_a_flush(item: StoredRecord | StoredPadding, reader: JournalReader) -> bool:
    # Padding ends a flush. One that is aligned anyway needs none, and before version 5 there is none at all.
    aligned = item.end % codec.HEADER_SIZE_MAX == 0
    return isinstance(item, StoredPadding) or aligned or not reader.framing.pads
