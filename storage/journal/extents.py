"""The places of a journal's entries, noted while its groups are verified.

An extent is a part of one group: entries of one ledger with consecutive ids, one after the other.

    ├ record n ┼ record n + 1 ┼ … ┼ record n + count - 1 ┤

However many entries it has, an extent takes 36 bytes of memory: its place, and the checksum of its group
before it and after it. A later reader of the same bytes proves by these that they are still what was
verified.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from operator import sub
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from storage.entry.position import LENGTH_WORD_SIZE
from storage.entry.record_format import HEAD_FRONT_SIZE, PREFIX
from storage.journal import format as journal_format

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from storage.entry.digest import Buffer
    from storage.journal.reader import StoredRecord

    _Heads = Callable[[memoryview], Iterator[tuple[int, int, int]]]

SIZE_MAX = 256 << 10
"""Bytes of an extent; only a larger record makes a larger one."""

UNEVEN_SIZE_MAX = 16 << 10
"""Bytes of an extent whose records differ in size, because a reader of one looks at all before it."""

_PACKED = struct.Struct("=qqIIIII")
_LENGTH = struct.Struct(">i")

PACKED_SIZE = _PACKED.size
_WORDS, _COUNT_WORD, _SIZE_WORD = PACKED_SIZE // 4, 4, 5


class JournalExtent(NamedTuple):
    """The place of some entries of a ledger, and the checksums that prove them."""

    first_id: int
    offset: int
    """The offset of the first record's length word in the journal."""
    number: int
    """How many entries it has."""
    size: int
    stride: int
    """Bytes of each record, the length word included; 0 if they differ."""
    before: int
    """CRC-32C of the group up to the extent."""
    after: int
    """CRC-32C of the group up to the end of the extent."""

    @property
    def end_id(self) -> int:
        """The id after the last one."""
        return self.first_id + self.number


# ── extents in memory ────────────────────────────────────────────────────────────────────────────────────

pack: Callable[..., bytes] = _PACKED.pack
"""Pack the fields of an extent, in their order."""


def unpack(packed: Buffer) -> Iterator[JournalExtent]:
    """Return the extents that are packed one after the other."""
    return map(JournalExtent._make, _PACKED.iter_unpack(packed))


def count(packed: Buffer) -> int:
    """Return the number of packed extents."""
    return len(packed) // PACKED_SIZE


def nth(packed: Buffer, number: int) -> JournalExtent:
    """Return the packed extent with that number, from 0 on."""
    return JournalExtent._make(_PACKED.unpack_from(packed, number * PACKED_SIZE))


def first_id(packed: Buffer, number: int) -> int:
    """Return only the first id of the packed extent with that number: the key of a search."""
    return int(_PACKED.unpack_from(packed, number * PACKED_SIZE)[0])


def totals(packed: Buffer) -> tuple[int, int]:
    """Return how many entries the packed extents have together, and how many bytes."""
    # Summed as columns, because there may be a million extents, and an object for each would cost
    # too much.
    words = memoryview(packed).cast("B").cast("I")
    return sum(words[_COUNT_WORD::_WORDS]), sum(words[_SIZE_WORD::_WORDS])


# ── reading an extent again ──────────────────────────────────────────────────────────────────────────────


def is_same(extent: JournalExtent, data: Buffer) -> bool:
    """Return whether these bytes are those that were verified with their group."""
    return len(data) == extent.size and crc32c(data, extent.before) == extent.after


def records(extent: JournalExtent, data: bytes) -> list[bytes]:
    """Split the bytes of an extent, which are known to be the same, into its records."""
    ends = list(_ends(extent, data))
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def sizes(extent: JournalExtent, data: bytes) -> list[int]:
    """Return the size of each record."""
    if extent.stride:
        return [extent.stride] * extent.number
    ends = list(_uneven_ends(data))
    return list(map(sub, ends, [0, *ends]))


def place(extent: JournalExtent, entry_id: int) -> tuple[int, int] | None:
    """Return where in the extent the record begins and ends; `None` if only the records before it tell."""
    if not extent.stride:
        return None
    start = (entry_id - extent.first_id) * extent.stride
    return start, start + extent.stride


def _ends(extent: JournalExtent, data: bytes) -> Sequence[int] | Iterator[int]:
    if extent.stride:
        return range(extent.stride, extent.size + 1, extent.stride)
    return _uneven_ends(data)


def _uneven_ends(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += LENGTH_WORD_SIZE + length
        yield at


# ── noting the extents of a journal ──────────────────────────────────────────────────────────────────────

Taken = tuple[int, int, int, bytes]
"""Ledger, first id, the id after the last one, and the packed extent."""


class JournalExtents:
    """The extents of the groups of one journal that were verified, and all records that are no entries.

    Only for journals as this store writes them: the entries of each ledger in the order of their ids, and
    nothing that would have to be refused. The records of any other journal are looked at one by one. At most
    `number_max` extents are noted, because the memory for more is better used otherwise.
    """

    def __init__(self, number_max: int) -> None:
        self.is_plain = True
        """Whether the extents and the special records are everything in the groups."""
        self.number = 0
        self.packed: dict[int, bytearray] = {}
        """The extents of each ledger, in the order of their ids."""
        self.special: list[tuple[int, bytes]] = []
        """Records that are no entries, each with its offset."""
        self.open: list[Taken] = []
        """The extents of groups whose seals were not read yet."""
        self.open_special: list[tuple[int, bytes]] = []
        self._end_ids: dict[int, int] = {}
        self._number_max = number_max

    def note_one(self, item: StoredRecord, before: int, after: int) -> None:
        """Note one record, with the group's checksum before it and after it."""
        match item.record:
            case journal_format.EntryRecord(ledger_id, entry_id, data) if (
                LENGTH_WORD_SIZE + len(data) >= HEAD_FRONT_SIZE
            ):
                size = item.end - item.offset
                packed = pack(entry_id, item.offset, 1, size, size, before, after)
                self.open.append((ledger_id, entry_id, entry_id + 1, packed))
            case _:
                # A special record that makes sense is small, and is noted with the block that holds it.
                self.is_plain = False

    def close_groups(self, extents: int | None = None, special: int | None = None) -> None:
        """Keep the first so many open extents and special records, or all, because their groups hold."""
        taken, self.open = self.open[:extents], [] if extents is None else self.open[extents:]
        said = self.open_special[:special]
        self.open_special = [] if special is None else self.open_special[special:]
        self.number += len(taken) + len(said)
        if not self.is_plain or self.number > self._number_max:
            self._give_up()
            return
        self.special += said
        self._keep(taken)

    def _keep(self, taken: list[Taken]) -> None:
        packed, end_ids = self.packed, self._end_ids
        for ledger_id, first_id, end_id, one in taken:
            if first_id < end_ids.get(ledger_id, 0):
                self._give_up()  # because an older copy of an entry comes first, and would be found
                return
            end_ids[ledger_id] = end_id
            if ledger_id in packed:
                packed[ledger_id] += one
            else:
                packed[ledger_id] = bytearray(one)

    def _give_up(self) -> None:
        self.is_plain = False
        self.packed, self.special, self._end_ids = {}, [], {}


_WORD = 4
_LAST_WORD = PREFIX.size // _WORD - 1
_CYCLE = 256
_COUNTING = bytes(range(_CYCLE))
_MANY = 64
"""More records than these are compared by columns, because that is faster than one by one."""

_STRIDES_MAX = 1024


def note_records(
    block: memoryview, start: int, offset: int, checksum: int, into: JournalExtents
) -> tuple[int, int, int]:
    """Note the records that follow each other from `start` on, in a block that lies at `offset` in the file.

    Return their number, where the last one ends, and the group's checksum up to there. The loop ends at the
    first thing that is no whole record: an end, damage, padding, or the end of the block.
    """
    unpack_from, size, last = PREFIX.unpack_from, len(block), len(block) - PREFIX.size
    add, count = into.open.append, 0
    while start <= last:
        length, ledger_id, entry_id = unpack_from(block, start)
        end = start + LENGTH_WORD_SIZE + length
        if length < journal_format.BODY_SIZE_MIN or end > size:
            break
        if (ledger_id | entry_id) < 0 or end - start < HEAD_FRONT_SIZE:
            into.open_special.append((offset + start, bytes(block[start:end])))
            number, checksum = 1, crc32c(block[start:end], checksum)
        else:
            number, stride = 1, end - start
            if end <= last:
                next_length, next_ledger, next_id = unpack_from(block, end)
                if next_ledger == ledger_id and next_id == entry_id + 1:
                    run_of = _even_run if next_length == length else _uneven_run
                    number, end, stride = run_of(block, start, length, ledger_id, entry_id)
            before, checksum = checksum, crc32c(block[start:end], checksum)
            packed = pack(entry_id, offset + start, number, end - start, stride, before, checksum)
            add((ledger_id, entry_id, entry_id + number, packed))
        count += number
        start = end
    return count, start, checksum


def _even_run(
    block: memoryview, start: int, length: int, ledger_id: int, entry_id: int
) -> tuple[int, int, int]:
    """Return how many records of this length follow each other, where the last one ends, and their stride."""
    stride = LENGTH_WORD_SIZE + length
    limit = min(len(block), start + max(stride, SIZE_MAX))
    most, far = (limit - start) // stride, start + _MANY * stride
    # If the run still goes on at a distance, then most likely everywhere up to there.
    goes_on = most > _MANY and PREFIX.unpack_from(block, far) == (length, ledger_id, entry_id + _MANY)
    if goes_on and stride % _WORD == 0:
        number = _compare_columns(block, start, stride, min(most, _CYCLE - entry_id % _CYCLE))
    else:
        number = _count_run(block[start : start + most * stride], length, ledger_id, entry_id)
    return number, start + number * stride, stride


def _count_run(records: memoryview, length: int, ledger_id: int, entry_id: int) -> int:
    """Count the records that begin as expected, one by one."""
    next_id = entry_id
    for found_length, found_ledger, found_id in _heads(LENGTH_WORD_SIZE + length)(records):
        if found_id != next_id or found_length != length or found_ledger != ledger_id:
            break
        next_id += 1
    return next_id - entry_id


def _compare_columns(block: memoryview, start: int, stride: int, most: int) -> int:
    """Count them all at once: compare each word of their prefixes, with ids that differ in the last byte."""
    words, step = block[start : start + most * stride].cast("I"), stride // _WORD
    head = bytes(block[start : start + PREFIX.size])
    for number in range(PREFIX.size // _WORD):
        expected = bytearray(head[number * _WORD : (number + 1) * _WORD] * most)
        if number == _LAST_WORD:
            expected[_WORD - 1 :: _WORD] = _COUNTING[head[-1] : head[-1] + most]
        found = words[number : most * step : step].tobytes()
        if found != expected:
            most = _equal_words(found, expected)
    return most


def _equal_words(found: bytes, expected: bytearray) -> int:
    """Return how many words are equal before the first that differs."""
    difference = int.from_bytes(found, "big") ^ int.from_bytes(expected, "big")
    return (len(expected) - (difference.bit_length() + 7) // 8) // _WORD


@lru_cache(_STRIDES_MAX)
def _heads(stride: int) -> _Heads:
    return struct.Struct(f"{PREFIX.format}{stride - PREFIX.size}x").iter_unpack


def _uneven_run(
    block: memoryview, start: int, length: int, ledger_id: int, entry_id: int
) -> tuple[int, int, int]:
    """Return how many records of any length follow each other, where the last one ends, and 0 as stride."""
    unpack_from, next_id, end = PREFIX.unpack_from, entry_id + 1, start + LENGTH_WORD_SIZE + length
    limit = min(len(block), start + max(end - start, UNEVEN_SIZE_MAX))
    while end + PREFIX.size <= limit:
        length, found_ledger, found_id = unpack_from(block, end)
        next_end = end + LENGTH_WORD_SIZE + length
        is_short = length < HEAD_FRONT_SIZE - LENGTH_WORD_SIZE
        if found_ledger != ledger_id or found_id != next_id or is_short or next_end > limit:
            break
        end = next_end
        next_id += 1
    number = next_id - entry_id
    return number, end, 0 if number > 1 else end - start
