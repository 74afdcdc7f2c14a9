"""Take the entries of a chunk into columns and verify all of them with one CRC-32C over the chunk.

It works like `storage.entry.verify_numpy`, which explains why it is correct, but by columns instead of
rows: a column of records of one size is read and written in a quarter of the time of rows, and the numbers in
it are used for the runs. The heads are moved over the digests in the chunk itself, which cannot be used
afterwards.

    record      ├ length: 4 ┼ head: 32 ┼ digest: 4 ┼ payload ┤
    moved       ├ complement of the previous digest: 4 ┼ zeros: 4 ┼ head: 32 ┼ payload ┤
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from crc32c import crc32c

from storage.entry.format import HEAD
from storage.entry.model import RECORD_SIZE_MAX
from storage.entry.position import LENGTH_WORD_SIZE
from storage.entry.record_format import FRONT_SIZE

if TYPE_CHECKING:
    from recovery.audit.model.runs import Fingerprints, Numbers
    from recovery.audit.scan.chunk_columns import ChunkColumns

    Bytes = Any
    """An array of bytes that supports the buffer protocol."""

SLACK = 64
"""The number of spare bytes after the end of a chunk, so that the front of a cut record can be read."""

REGULAR_MIN = 128
"""The number of records of one size from which they are read by strides."""

_HOP_MAX = 4096
"""The number of records after which the code checks again whether the following ones have one size."""

_LENGTH = struct.Struct(">i")
_WORD = struct.Struct("<I")
_BODY_MIN = HEAD.size + 4
_ONES = 0xFFFF_FFFF
_FIRST_WORD = np.int64(-1 << 32)
"""The first four bytes of a head, which are complemented."""
_FRONT = np.dtype(
    [
        ("size", ">i4"),
        ("ledger", ">i8"),
        ("entry", ">i8"),
        ("confirmed", ">i8"),
        ("length", ">i8"),
        ("digest", ">u4"),
    ]
)
_MOVED = np.dtype(
    [("lead", "<u8"), ("ledger", ">i8"), ("entry", ">i8"), ("confirmed", ">i8"), ("length", ">i8")]
)


class ChunkRecords(Protocol):
    """The positions of consecutive records in a chunk."""

    count: int

    @property
    def begin(self) -> int:
        """Where the first one begins."""

    def end(self, count: int) -> int:
        """Where that many records end."""

    def take(self, columns: ChunkColumns, shift: int) -> None:
        """Append the fronts of the records to the columns. `shift` is the offset of the chunk in the file."""

    def move(self, columns: ChunkColumns, count: int, lead: Fingerprints, ledgers: Numbers) -> None:
        """Write the fronts of that many records as the sum over the chunk needs them."""


class UniformRecords:
    """Records of one size."""

    def __init__(self, work: Bytes, begin: int, stride: int, count: int) -> None:
        self._work = work
        self._stride = stride
        self.begin = begin
        self.count = count

    def end(self, count: int) -> int:
        return self.begin + count * self._stride

    def take(self, columns: ChunkColumns, shift: int) -> None:
        place = slice(columns.count, columns.count + self.count)
        columns.sizes[place] = self._stride
        columns.offsets[place] = np.arange(
            self.begin + shift, self.end(self.count) + shift, self._stride, dtype=np.int64
        )
        columns.ledgers[place] = self._each(self.count, ">i8", 4)
        columns.entries[place] = self._each(self.count, ">i8", 12)
        columns.confirmed[place] = self._each(self.count, ">i8", 20)
        columns.lengths[place] = self._each(self.count, ">i8", 28)
        columns.digests[place] = self._each(self.count, ">u4", 36)

    def move(self, columns: ChunkColumns, count: int, lead: Fingerprints, ledgers: Numbers) -> None:
        place = slice(columns.count, columns.count + count)
        self._each(count, "<u8", 0)[:] = lead
        self._each(count, ">i8", 8)[:] = ledgers
        self._each(count, ">i8", 16)[:] = columns.entries[place]
        self._each(count, ">i8", 24)[:] = columns.confirmed[place]
        self._each(count, ">i8", 32)[:] = columns.lengths[place]

    def _each(self, count: int, kind: str, offset: int) -> Any:
        return np.ndarray(count, kind, self._work, self.begin + offset, (self._stride,))


class VariedRecords:
    """Records of any sizes. `bounds` are their beginnings and the end of the last one."""

    def __init__(self, work: Bytes, bounds: Numbers) -> None:
        self._work = work
        self._bounds = bounds
        self.count = len(bounds) - 1

    @property
    def begin(self) -> int:
        return int(self._bounds[0])

    def end(self, count: int) -> int:
        return int(self._bounds[count])

    def take(self, columns: ChunkColumns, shift: int) -> None:
        place = slice(columns.count, columns.count + self.count)
        begins = self._bounds[:-1]
        np.subtract(self._bounds[1:], begins, out=columns.sizes[place])
        np.add(begins, shift, out=columns.offsets[place])
        fronts = self._items(FRONT_SIZE)[begins].view(_FRONT)
        columns.ledgers[place] = fronts["ledger"]
        columns.entries[place] = fronts["entry"]
        columns.confirmed[place] = fronts["confirmed"]
        columns.lengths[place] = fronts["length"]
        columns.digests[place] = fronts["digest"]

    def move(self, columns: ChunkColumns, count: int, lead: Fingerprints, ledgers: Numbers) -> None:
        place = slice(columns.count, columns.count + count)
        moved = np.empty(count, dtype=_MOVED)
        moved["lead"] = lead
        moved["ledger"] = ledgers
        moved["entry"] = columns.entries[place]
        moved["confirmed"] = columns.confirmed[place]
        moved["length"] = columns.lengths[place]
        self._items(_MOVED.itemsize)[self._bounds[:count]] = moved.view(f"V{_MOVED.itemsize}")

    def _items(self, size: int) -> Any:
        """Return the chunk as overlapping items of that size, one beginning at every byte."""
        return np.ndarray(len(self._work) - size + 1, f"V{size}", self._work, 0, (1,))


def find_records(
    work: Bytes, begin: int, end: int, last: int, room: int
) -> UniformRecords | VariedRecords | None:
    """Return the records from `begin` on that are whole before `end` and begin before `last`, at most `room`
    of them.

    Their ids have to show whether they are entries.
    """
    regular = _regular(work, begin, end, last, room)
    if regular is not None:
        return regular
    found = record_bounds(memoryview(work), begin, end, last, room)
    return VariedRecords(work, np.fromiter(found, np.int64, len(found))) if len(found) > 1 else None


def _regular(work: Bytes, begin: int, end: int, last: int, room: int) -> UniformRecords | None:
    if end - begin < LENGTH_WORD_SIZE:
        return None
    (size,) = _LENGTH.unpack_from(work, begin)
    stride = size + LENGTH_WORD_SIZE
    if not _BODY_MIN <= size <= RECORD_SIZE_MAX:
        return None
    count = min((end - begin) // stride, -((begin - last) // stride), room)
    if count < 1:
        return None
    same = np.ndarray(count, ">i4", work, begin, (stride,)) == size
    if not same.all():
        count = int(same.argmin())
    return UniformRecords(work, begin, stride, count) if count >= REGULAR_MIN else None


def record_bounds(work: memoryview, begin: int, end: int, last: int, room: int) -> list[int]:
    """Return where records begin, and where the last one ends, by following the length words."""
    at, found = begin, [begin]
    append, unpack = found.append, _LENGTH.unpack_from
    last = min(last, end - LENGTH_WORD_SIZE + 1)
    for _ in range(min(room, _HOP_MAX)):
        if at >= last:
            break
        (size,) = unpack(work, at)
        at += size + LENGTH_WORD_SIZE
        if size < _BODY_MIN or at > end:
            break
        append(at)
    return found


def record_size(work: Bytes, begin: int) -> int:
    """Return the size that the length word announces, including itself."""
    (size,) = _LENGTH.unpack_from(work, begin)
    return int(size) + LENGTH_WORD_SIZE


def entries_before(columns: ChunkColumns, count: int) -> int:
    """Return how many of the records just taken come before the first that is no entry (its ids are
    negative).
    """
    place = slice(columns.count, columns.count + count)
    ledgers, entries = columns.ledgers[place], columns.entries[place]
    if ledgers.min() >= 0 and entries.min() >= 0:
        return count
    return int(((ledgers >= 0) & (entries >= 0)).argmin())


def all_match(work: Bytes, found: ChunkRecords, columns: ChunkColumns, count: int) -> bool:
    """Return whether the first `count` of the records just taken carry the right CRC-32C.

    The answer is never yes if a single digest is wrong, and with a probability of 2^-32 if several are. The
    bytes of the chunk up to the end of these records cannot be used afterwards.
    """
    place = slice(columns.count, columns.count + count)
    complements = columns.digests[place] ^ np.uint64(_ONES)
    lead = np.empty_like(complements)
    lead[0] = 0
    lead[1:] = complements[:-1]
    found.move(columns, count, lead, columns.ledgers[place] ^ _FIRST_WORD)
    begin, end = found.begin, found.end(count)
    after = _WORD.unpack_from(work, end)
    _WORD.pack_into(work, end, int(complements[-1]))
    match = crc32c(work[begin : end + _WORD.size], _ONES) == _ONES
    _WORD.pack_into(work, end, *after)
    return match
