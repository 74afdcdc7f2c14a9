"""What is wrong in a part of a journal of ours that no seal covers which holds: looked at record by record.

A digest tells each damaged entry. Where the framing is lost it is found again at an entry whose digest
matches, or at padding that ends in a seal. A group all of whose entries are sound is damaged in what no
digest protects: in its padding or its seal, if that shows, or where one wrong byte explains its checksum,
else in something between its two ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from recovery.audit.journal_framing import Framing
from recovery.audit.one_byte import candidates
from recovery.verify.parts import FlawAt, FlawKind
from storage.codec import journal as codec
from storage.codec import seal as seal_codec
from storage.codec.digest import DigestCheck
from storage.codec.seal import GroupFlag, NoSeal, StoredSeal
from storage.journal_reader import StoredPadding, StoredRecord
from storage.outcome import Damaged, Flaw
from storage.position import LENGTH_WORD_SIZE, START, JournalPosition
from storage.resync import find_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.codec.survey import EntryVerifier
    from storage.journal_reader import JournalReader

_SECTOR = min(seal_codec.ALIGNMENTS)
_RESERVED = slice(6, 8)
"""Of a seal: zeros."""

_FAR = 1 << 20
_SEARCHED_MAX = 1 << 20
_HOPS_MAX = 64
"""So many records in a row may be damaged, each by itself, before their framing is no more believed."""


_Suspect = tuple[int, int, int | None, int | None]
"""Where it begins and ends, of which ledger it is, and which entry."""


@dataclass(slots=True)
class _Group:
    """A group that is being passed."""

    start: int
    number: int | None
    """That its seal should have; `None`: not known any more."""
    records: int = 0
    flags: GroupFlag = GroupFlag.NONE
    is_framed: bool = True
    """Whether every record of it was seen."""
    is_explained: bool = False
    """Whether anything was found that makes its checksum fail."""
    unproven: list[_Suspect] = field(default_factory=list)
    """What no digest has proven."""


class GapReader:
    """Looks at gaps of one journal."""

    def __init__(self, reader: JournalReader, verifier: EntryVerifier) -> None:
        self.records = 0
        """Those that were framed, damaged ones too."""
        self._reader = reader
        self._framing = Framing(reader, verifier, reader.size)
        self._group = _Group(0, None)

    def flaws(self, start: int, end: int) -> Iterator[FlawAt]:
        """All that is wrong between a place at which a group begins, and one at which it is sound again."""
        self._framing.end = end
        self._begin(start, self._number_at(start))
        at = start
        while at < end:
            item = self._framing.item(at)
            match item:
                case StoredRecord():
                    flaws, at = self._record(item)
                case StoredPadding():
                    flaws, at = list(self._padding(item)), item.end
                case _:
                    at = self._next_place(at + 1)
                    flaws = [self._framing.around_stop(item, at)]
                    self._lose_framing()
            yield from flaws

    def _begin(self, start: int, number: int | None) -> None:
        self._group = _Group(start, number)

    def _lose_framing(self) -> None:
        # Seals may have been passed over.
        group = self._group
        group.is_explained, group.is_framed, group.number = True, False, None

    def _number_at(self, start: int) -> int | None:
        """Of the group that begins there, by the seal in front of it."""
        if start <= self._reader.records_start:
            return 1
        stored = seal_codec.decode(self._reader.window.peek(start - seal_codec.SIZE, seal_codec.SIZE))
        return stored.seal.sequence + 1 if isinstance(stored, StoredSeal) else None

    # ── records ──────────────────────────────────────────────────────────────────────────────────────

    def _record(self, item: StoredRecord) -> tuple[list[FlawAt], int]:
        group, framing = self._group, self._framing
        self.records += 1
        group.records += 1
        match item.record:
            case codec.EntryRecord(data=data):
                check = framing.check(data)
                if check is DigestCheck.MISMATCH:
                    return self._wrong(item, FlawKind.DIGEST, Damaged(0, Flaw.DIGEST))
                if check is DigestCheck.UNVERIFIED:
                    group.unproven.append((item.offset, item.end, *framing.ids(item.offset)))
            case Damaged() as damage:
                return self._wrong(item, FlawKind.RECORD, damage)
            case codec.UnknownRecord(entry_id=entry_id):
                damage = Damaged(0, Flaw.ENTRY_NEGATIVE, f"entry {entry_id}")
                return self._wrong(item, FlawKind.RECORD, damage)
            case record:
                group.unproven.append((item.offset, item.end, record.ledger_id, None))
        return [], item.end

    def _wrong(self, item: StoredRecord, kind: FlawKind, damage: Damaged) -> tuple[list[FlawAt], int]:
        around = self._framing.around_record(item, kind, damage, self._next_place)
        self._group.is_explained = True
        if not around.is_framed:
            self._lose_framing()
        return around.flaws, around.behind

    # ── where it goes on ─────────────────────────────────────────────────────────────────────────────

    def _next_place(self, start: int) -> int:
        """The first entry from there on that is proven, the first sealed padding, or the end of the gap."""
        entry = find_record(self._reader.window, start, self._framing.proves, self._framing.end)
        limit = self._framing.end if entry is None else entry
        return next(self._paddings(start, limit), limit)

    def _paddings(self, start: int, end: int) -> Iterator[int]:
        """Places of padding records that end in what looks like a seal."""
        while start < end:
            block = bytes(self._reader.window.view(start, min(_FAR, end - start + LENGTH_WORD_SIZE - 1)))
            at = block.find(codec.PADDING_WORD)
            while at >= 0:
                if start + at < end and self._is_sealed_padding(start + at):
                    yield start + at
                at = block.find(codec.PADDING_WORD, at + 1)
            start += _FAR - LENGTH_WORD_SIZE + 1

    def _is_sealed_padding(self, place: int) -> bool:
        frame = self._reader.frame_at(place)
        if not isinstance(frame, codec.Frame) or frame.end > self._framing.end or frame.end % _SECTOR:
            return False
        return not isinstance(self._reader.padding(frame).seal, NoSeal)

    # ── what ends a group ────────────────────────────────────────────────────────────────────────────

    def _padding(self, item: StoredPadding) -> Iterator[FlawAt]:
        group = self._group
        if isinstance(item.seal, StoredSeal):
            yield from self._sealed(item, item.seal)
            self._begin(item.end, None if group.number is None else group.number + 1)
        elif item.atomic_mark and item.offset == group.start:
            group.flags = GroupFlag.ATOMIC
        elif item.offset == self._reader.records_start:
            self._begin(item.end, 1)
        else:
            yield FlawAt(
                FlawKind.RECORD, Flaw.SEAL_MISSING, max(item.offset, item.end - seal_codec.SIZE), item.end
            )
            self._begin(item.end, None if group.number is None else group.number + 1)

    def _sealed(self, item: StoredPadding, stored: StoredSeal) -> Iterator[FlawAt]:
        group, seal_start = self._group, item.end - seal_codec.SIZE
        if stored.flaw is Flaw.FUTURE_VERSION and self._holds(stored, item.end):
            return
        found = list(self._filling(item.offset + codec.PREFIX_SIZE, seal_start))
        wrong = self._wrong_fields(stored, seal_start)
        if wrong:
            told = ", ".join(wrong)
            found.append(FlawAt(FlawKind.RECORD, Flaw.BAD_FIELD, seal_start, item.end, detail=told))
        yield from found
        if not found and not group.is_explained and not self._holds(stored, item.end):
            yield self._somewhere(stored, item.end)

    def _somewhere(self, stored: StoredSeal, end: int) -> FlawAt:
        """A flaw where all that a digest protects is sound, and neither padding nor seal shows anything."""
        group, seal_start = self._group, end - seal_codec.SIZE
        if not group.unproven:
            return FlawAt(FlawKind.RECORD, Flaw.CHECKSUM, seal_start, end)
        suspects: list[_Suspect] = [*group.unproven, (seal_start, end, None, None)]
        places = self._wrong_bytes(stored, end)
        hit = {one: place for place in places for one in suspects if one[0] <= place < one[1]}
        if len(hit) == 1:
            (((start, behind, ledger_id, entry_id), place),) = hit.items()
            told = f"byte {place}"
            return FlawAt(FlawKind.RECORD, Flaw.CHECKSUM, start, behind, ledger_id, entry_id, told)
        return FlawAt(FlawKind.RECORD, Flaw.CHECKSUM, group.start, end)

    def _wrong_bytes(self, stored: StoredSeal, end: int) -> list[int]:
        """Where one wrong byte would explain the checksum."""
        start, behind = self._group.start, end - seal_codec.CHECKSUM_SIZE
        if behind - start > _SEARCHED_MAX:
            return []
        found = self._reader.checksum(start, behind)
        places = [start + place for place in candidates(stored.checksum, found, behind - start)]
        wrong = (stored.checksum ^ found).to_bytes(seal_codec.CHECKSUM_SIZE)
        in_itself = [behind + place for place, byte in enumerate(wrong) if byte]
        return places + (in_itself if len(in_itself) == 1 else [])

    def _holds(self, stored: StoredSeal, end: int) -> bool:
        start = stored.seal.group_start
        if not self._reader.records_start <= start <= end - seal_codec.SIZE:
            return False
        return self._reader.checksum(start, end - seal_codec.CHECKSUM_SIZE) == stored.checksum

    def _filling(self, start: int, end: int) -> Iterator[FlawAt]:
        """What is not zero in front of a seal."""
        content = bytes(self._reader.window.view(start, max(0, end - start)))
        wrong = content.strip(b"\0")
        if wrong:
            first = start + len(content) - len(content.lstrip(b"\0"))
            yield FlawAt(FlawKind.RECORD, Flaw.NOT_ZERO, first, first + len(wrong), detail="padding")

    def _wrong_fields(self, stored: StoredSeal, start: int) -> list[str]:
        """The fields of the seal at `start` that cannot be what was written there."""
        group, seal, reader = self._group, stored.seal, self._reader
        due: list[tuple[str, object, object]] = [
            ("version", stored.version, seal_codec.VERSION),
            ("journal", seal.journal_id, reader.journal_id),
            ("reserved", bytes(reader.window.peek(start, _RESERVED.stop)[_RESERVED]), bytes(2)),
        ]
        if reader.salt is not None:
            due.append(("salt", seal.salt, reader.salt))
        if group.number is not None:
            due.append(("number", seal.sequence, group.number))
        if group.is_framed:
            due += [("start", seal.group_start, group.start), ("flags", seal.flags, group.flags)]
            due.append(("records", seal.record_count, group.records))
        told = [f"{name} {found}, due is {value}" for name, found, value in due if found != value]
        if not START <= seal.durable_up_to <= JournalPosition(reader.journal_id, start):
            told.append(f"durable up to {seal.durable_up_to}")
        return told
