"""The sealed groups that our own journals consist of, each verified by the one checksum of its seal.

There is one walk along a journal, `groups`. It passes over blocks of whole groups in tight loops, and looks
at a single item only where such a loop ends: at an end, at damage, at something rare, or at the end of the
block. On everything before, `GroupWatch`, which looks at each record, would agree.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from storage.entry.model import RECORD_SIZE_MAX
from storage.entry.position import LENGTH_WORD_SIZE, JournalPosition
from storage.entry.read_result import Damaged, EndOfData, Flaw, Stop, Torn
from storage.journal import format as journal_format
from storage.journal import seal as journal_seal
from storage.journal.extents import note_records
from storage.journal.reader import PartialChecksum, StoredPadding, StoredRecord
from storage.journal.seal import GroupFlag, Seal, StoredSeal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.entry.digest import Buffer
    from storage.journal.extents import JournalExtents
    from storage.journal.reader import JournalReader

BLOCK_SIZE_MAX = LENGTH_WORD_SIZE + RECORD_SIZE_MAX
"""A larger block would have room for a record larger than any that is believed."""

_LENGTH = struct.Struct(">i")
_ATOMIC = journal_seal.encode_atomic_mark()
_ATOMIC_CHECKSUM = crc32c(_ATOMIC)
_KNOWN = (journal_seal.MAGIC, journal_seal.VERSION)


class SealedGroup(NamedTuple):
    """A sealed group whose checksum holds."""

    start: int
    end: int
    seal: Seal
    record_count: int


class OpenGroup(NamedTuple):
    """A group whose seal was not read yet: how far it was read, and what the seal has to agree with."""

    start: int
    summed: PartialChecksum
    """The checksum of its bytes up to a certain offset."""
    record_count: int = 0
    flags: GroupFlag = GroupFlag.NONE


class GroupWatch:
    """Judges each seal by itself, by what was seen of its group, and by the seal before it."""

    def __init__(self, reader: JournalReader, start: int = 0) -> None:
        self._reader = reader
        self.last: Seal | None = None
        """The seal of the group before this one; `None` at the beginning."""
        self.first_record: int | None = None
        """The offset of the first record that was counted one by one since the last seal."""
        self.begin(start)

    def begin(self, offset: int) -> None:
        """Begin a group here. Its number is known only if it is the first of the file."""
        self._numbers_from_one = offset <= self._reader.records_start
        self.last = None
        self._open(max(offset, self._reader.records_start))

    def _open(self, start: int) -> None:
        self.group = OpenGroup(start, PartialChecksum(start))
        self.first_record = None

    @property
    def start(self) -> int:
        """Where the open group begins."""
        return self.group.start

    def sum_to(self, offset: int) -> int:
        """Return the checksum of the open group up to here, after reading what was not summed yet."""
        end, checksum = self.group.summed
        if end != offset:
            checksum = self._reader.checksum(end, offset, checksum)
            self.group = self.group._replace(summed=PartialChecksum(offset, checksum))
        return checksum

    def record(self, item: StoredRecord) -> None:
        """Count a record into the group."""
        self.group = self.group._replace(record_count=self.group.record_count + 1)
        if self.first_record is None:
            self.first_record = item.offset

    def passed(self, passed: PassedGroups) -> None:
        """Go on after groups that were passed over, in the next group."""
        if passed.groups:
            self.last = passed.groups[-1].seal
        self.group = passed.open

    def padding(self, item: StoredPadding) -> SealedGroup | Damaged | None:
        """Return the group that the padding seals, or why it does not; `None` while the group goes on."""
        if isinstance(item.seal, StoredSeal):
            return self._sealed(item.seal, item.end)
        if item.atomic_mark and item.offset == self.start:
            self.group = self.group._replace(flags=GroupFlag.ATOMIC)
        elif item.offset == self._reader.records_start:
            self._open(item.end)
        else:
            return Damaged(item.offset, Flaw.SEAL_MISSING)
        return None

    def _sealed(self, stored: StoredSeal, end: int) -> SealedGroup | Damaged:
        seal, start = stored.seal, self.start
        flaw = self._flaw(stored, end)
        if flaw is not None:
            # After a group that does not hold, the next one may have any number.
            self.begin(end)
            return Damaged(start, flaw)
        group = SealedGroup(start, end, seal, self.group.record_count)
        self.last = seal
        self._open(end)
        return group

    def _flaw(self, stored: StoredSeal, end: int) -> Flaw | None:
        seal, group = stored.seal, self.group
        if seal.group_start != group.start:
            return Flaw.OTHER_PLACE
        flaw = self._reader.seal_flaw(stored, end, group.summed)
        if flaw is Flaw.CHECKSUM:
            # Beside a live writer a part may have been summed before all of it was there.
            flaw = self._reader.seal_flaw(stored, end)
        if flaw is not None:
            return flaw
        if (seal.record_count, seal.flags) != (group.record_count, group.flags):
            return Flaw.BAD_FIELD
        return None if self._is_next(seal) else Flaw.SEAL_ORDER

    def _is_next(self, seal: Seal) -> bool:
        if self.last is None:
            return seal.sequence == 1 or not self._numbers_from_one
        # If no header names the salt, the first group's salt counts for all. A stale group has another one.
        return (seal.sequence, seal.salt) == (self.last.sequence + 1, self.last.salt)


def groups(
    reader: JournalReader, start: int = 0, extents: JournalExtents | None = None
) -> Iterator[SealedGroup | Stop]:
    """Walk along the sealed groups from `start` on (0: from the first). The last item says how they ended.

    Where their entries lie is added to `extents`. Not beside a live writer, because then the extents could
    describe a part that was read before all of it was there.
    """
    watch, window = GroupWatch(reader, start), reader.window
    at = watch.start
    while True:
        watch.sum_to(at)
        # First the bytes in memory. They end somewhere in the middle of a record, so next a whole chunk from
        # there on. The window is asked each time, because beside a live writer it may have been read anew.
        for block in (window.rest, window.ahead):
            while (passed := pass_groups(block(at), at, watch.last, watch.group, extents)).end > at:
                watch.passed(passed)
                at = passed.end
                yield from passed.groups
        # Then the one item that stands here, of any kind.
        item = reader.item_at(at)
        if isinstance(item, EndOfData) and item.offset != watch.start:
            item = Torn(watch.start, Flaw.SEAL_MISSING)
        if not isinstance(item, StoredRecord | StoredPadding):
            yield item
            return
        found = _pass_item(item, watch, extents)
        if found is not None:
            yield found
        if isinstance(found, Damaged):
            return
        at = item.end


def _pass_item(
    item: StoredRecord | StoredPadding, watch: GroupWatch, extents: JournalExtents | None
) -> SealedGroup | Damaged | None:
    """Pass over one item; return the group that it ends, or why the group does not hold."""
    if isinstance(item, StoredRecord):
        before = watch.sum_to(item.offset)
        watch.record(item)
        if extents is not None:
            extents.note_one(item, before, watch.sum_to(item.end))
        return None
    found = watch.padding(item)
    if extents is not None and isinstance(found, SealedGroup):
        extents.close_groups()
    return found


class PassedGroups(NamedTuple):
    """The beginning of a block: the groups that end in it, then a part of the next one."""

    groups: list[SealedGroup]
    open: OpenGroup
    end: int
    """The offset in the file up to which it was passed over."""


def pass_groups(
    block: memoryview, offset: int, last: Seal | None, group: OpenGroup, extents: JournalExtents | None = None
) -> PassedGroups:
    """Pass over records and groups from `offset` in the file, where the block begins.

    `last` is the seal before the open group. A group is passed over only if it holds: its checksum, place and
    number are right, and its seal has no unknown flag. Without a last seal only records are passed over.
    """
    assert len(block) <= BLOCK_SIZE_MAX, "a block is a piece of a file"
    start, (_, checksum), count, flags = group
    found: list[SealedGroup] = []
    at, summed = 0, 0
    closed = closed_special = 0
    while True:
        if extents is None:
            number, records_end = count_records(block, at)
        else:
            number, records_end, checksum = note_records(block, at, offset, checksum, extents)
            summed = records_end
        if not number and last and offset + at == start and block[at : at + len(_ATOMIC)] == _ATOMIC:
            at += len(_ATOMIC)
            summed, checksum, flags = at, _ATOMIC_CHECKSUM, GroupFlag.ATOMIC
            continue
        at, count = records_end, count + number
        end = None if last is None else journal_seal.sealed_end(block, at)
        if last is None or end is None:
            break
        seal = _next_seal(last, block[summed:end], (start, checksum, count, flags))
        if seal is None:
            break
        found.append(SealedGroup(start, offset + end, seal, count))
        last, at, summed, start = seal, end, end, offset + end
        count, checksum, flags = 0, 0, GroupFlag.NONE
        if extents is not None:
            closed, closed_special = len(extents.open), len(extents.open_special)
    if extents is not None and found:
        extents.close_groups(closed, closed_special)
    if summed < at:
        checksum = crc32c(block[summed:at], checksum)
    return PassedGroups(
        found, OpenGroup(start, PartialChecksum(offset + at, checksum), count, flags), offset + at
    )


def count_records(block: Buffer, start: int = 0) -> tuple[int, int]:
    """Count the records of any kind that follow each other from `start` on; return the end of the last."""
    unpack_from, size, last = _LENGTH.unpack_from, len(block), len(block) - LENGTH_WORD_SIZE
    count = 0
    while start <= last:
        (length,) = unpack_from(block, start)
        end = start + LENGTH_WORD_SIZE + length
        if length < journal_format.BODY_SIZE_MIN or end > size:
            break
        start = end
        count += 1
    return count, start


def _next_seal(last: Seal, tail: memoryview, group: tuple[int, int, int, GroupFlag]) -> Seal | None:
    """Return the seal at the end of the open group, if it holds. The tail was not summed before.

    The group is its start, the checksum of what was summed, its number of records, and its flags.
    """
    start, checksum, record_count, flags = group
    fields = journal_seal.STORED.unpack_from(tail, len(tail) - journal_seal.SIZE)
    *kind, tag, journal_id, salt, number, begun, durable_id, durable_offset, count, stored = fields
    if stored != crc32c(tail[: -journal_seal.CHECKSUM_SIZE], checksum) or count != record_count:
        return None
    sequence = last.sequence + 1
    if kind != [*_KNOWN, flags] or (journal_id, salt) != (last.journal_id, last.salt):
        return None
    if (number, begun) != (sequence, start):
        return None
    if durable_id < 0 or durable_offset < 0:
        return None
    durable_up_to = JournalPosition(durable_id, durable_offset)
    return Seal(last.journal_id, last.salt, sequence, start, durable_up_to, count, flags, tag)
