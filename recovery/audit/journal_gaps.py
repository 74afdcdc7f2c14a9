"""What is wrong in a part of a journal of ours that no seal covers which holds: looked at record by record.

A digest tells each damaged entry. Where the framing is lost it is found again at an entry whose digest
matches, or at padding that ends in a seal. A group all of whose entries are sound is damaged in what no
digest protects: in its padding or its seal, if that shows, or where one wrong byte explains its checksum,
else in something between its two ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.audit.journal_framing import Framing
from recovery.audit.journal_seals import PassedGroup, SealReader
from recovery.verify.parts import FlawAt, FlawKind
from storage.codec import journal as codec
from storage.codec import seal as seal_codec
from storage.codec.digest import DigestCheck
from storage.codec.seal import GroupFlag, NoSeal, StoredSeal
from storage.journal_reader import StoredPadding, StoredRecord
from storage.outcome import Damaged, Flaw
from storage.position import LENGTH_WORD_SIZE
from storage.resync import find_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.codec.survey import EntryVerifier
    from storage.journal_reader import JournalReader
    from storage.outcome import Stop

_MARK = seal_codec.encode_atomic_mark()
_MARK_SAME_MIN = 8
"""No record shares so many bytes with it."""

_SECTOR = min(seal_codec.ALIGNMENTS)
_RESERVED = slice(6, 8)
"""Of a seal: zeros."""

_FAR = 1 << 20
_SEARCHED_MAX = 1 << 20
_HOPS_MAX = 64
"""So many records in a row may be damaged, each by itself, before their framing is no more believed."""


class GapReader:
    """Looks at gaps of one journal."""

    def __init__(self, reader: JournalReader, verifier: EntryVerifier) -> None:
        self.records = 0
        """Those that were framed, damaged ones too."""
        self._reader = reader
        self._framing = Framing(reader, verifier, reader.size)
        self._seals = SealReader(reader)
        self._group = PassedGroup(0, None)

    def flaws(self, start: int, end: int) -> Iterator[FlawAt]:
        """All that is wrong between a place at which a group begins, and one at which it is sound again."""
        self._framing.end = end
        self._begin(start, self._number_at(start))
        at = start
        while at < end:
            if at == self._group.start and self._has_damaged_mark():
                behind = at + len(_MARK)
                yield FlawAt(FlawKind.RECORD, Flaw.BAD_FIELD, at, behind, detail="the atomic mark")
                self._group.flags, self._group.is_explained = GroupFlag.ATOMIC, True
                at = behind
                continue
            item = self._framing.item(at)
            match item:
                case StoredRecord():
                    flaws, at = self._record(item)
                case StoredPadding() if self._ends_something(item):
                    flaws, at = list(self._padding(item)), item.end
                case _:
                    flaws, at = list(self._lost(item)), self._next_place(at + 1)
            yield from flaws

    def _begin(self, start: int, number: int | None) -> None:
        self._group = PassedGroup(start, number)

    def _lost(self, item: StoredPadding | Stop) -> Iterator[FlawAt]:
        """What is no record, nor padding that may stand there."""
        at = item.offset
        if isinstance(item, StoredPadding):
            item = Damaged(at, Flaw.LENGTH_NEGATIVE, f"length {codec.PADDING}")
        yield from self._half_zeroed(at)
        yield self._framing.around_stop(item, self._next_place(at + 1))
        self._lose_framing()

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

    def header_padding(self) -> Iterator[FlawAt]:
        """What is not zero between the header and the first group, where no checksum covers it."""
        item = self._framing.item(self._reader.records_start)
        if isinstance(item, StoredPadding) and isinstance(item.seal, NoSeal) and not item.atomic_mark:
            yield from self._seals.filling(item.offset + codec.PREFIX_SIZE, item.end)

    def _ends_something(self, item: StoredPadding) -> bool:
        """Whether padding may stand there: the mark of an atomic group, or what fills a sector."""
        is_mark = item.atomic_mark and item.offset == self._group.start
        return is_mark or item.end % _SECTOR == 0

    def _has_damaged_mark(self) -> bool:
        """Whether an atomic group begins here whose mark is damaged: most of it is still there."""
        found = bytes(self._reader.window.peek(self._group.start, len(_MARK)))
        same = sum(one == due for one, due in zip(found, _MARK, strict=False))
        return _MARK_SAME_MIN <= same < len(_MARK)

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

    def _half_zeroed(self, at: int) -> Iterator[FlawAt]:
        """The record in front of a hole that begins with the zeros of a sector, if that begins inside of it.

        No digest tells of it: else its last bytes would be missed.
        """
        edge = at - at % _SECTOR
        for start, end, ledger_id, entry_id in self._group.unproven[-1:]:
            if start < edge < end == at and not any(self._reader.window.view(edge, at - edge)):
                yield FlawAt(FlawKind.RECORD, Flaw.CHECKSUM, start, end, ledger_id, entry_id)

    # ── where it goes on ─────────────────────────────────────────────────────────────────────────────

    def _next_place(self, start: int) -> int:
        """The first entry from there on that is proven, the first sealed padding, or the end of the gap."""
        entry = find_record(self._reader.window, start, self._framing.proves, self._framing.end)
        limit = self._framing.end if entry is None else entry
        return self._framing.first_special(start, next(self._paddings(start, limit), limit))

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
            yield from self._seals.flaws(item, item.seal, group)
            self._begin(item.end, None if group.number is None else group.number + 1)
        elif item.atomic_mark and item.offset == group.start:
            group.flags = GroupFlag.ATOMIC
        elif item.offset == self._reader.records_start:
            self._begin(item.end, 1)
        else:
            seal_start = max(item.offset, item.end - seal_codec.SIZE)
            is_filled = any(self._seals.filling(item.offset + codec.PREFIX_SIZE, seal_start))
            start = item.offset if is_filled else seal_start
            yield FlawAt(FlawKind.RECORD, Flaw.SEAL_MISSING, start, item.end)
            self._begin(item.end, None if group.number is None else group.number + 1)
