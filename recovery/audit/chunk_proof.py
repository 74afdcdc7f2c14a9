"""Entries of a chunk taken into columns, and all of them verified by one CRC-32C over the chunk.

As `storage.codec.proof_numpy` does it (see there why it holds), but by columns instead of rows: a column of
records of one size is read and written in a quarter of the time that rows take, and the numbers in it are
what runs are made of. The heads move up over the digests, in the chunk itself, which is of no use then.

    record      ├ length: 4 ┼ head: 32 ┼ digest: 4 ┼ payload ┤
    moved       ├ complement of the digest before: 4 ┼ zeros: 4 ┼ head: 32 ┼ payload ┤
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from crc32c import crc32c

from storage.codec.entry import HEAD
from storage.codec.record import FRONT_SIZE
from storage.entry import RECORD_SIZE_MAX
from storage.position import LENGTH_WORD_SIZE

if TYPE_CHECKING:
    from recovery.audit.chunk_columns import Columns
    from recovery.verify.runs import Fingerprints, Numbers

    Bytes = Any
    """An array of bytes, which is a buffer too."""

SLACK = 64
"""Bytes that a chunk has behind its last one: fronts are read without asking whether they are whole."""

REGULAR_MIN = 128
"""From so many records of one size on they are read by strides."""

_HOP_MAX = 4096
"""After so many records it is seen whether those that follow are of one size."""

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


class Places(Protocol):
    """Where some records lie in a chunk, one behind the other."""

    count: int

    @property
    def begin(self) -> int:
        """Of the first one."""

    def end(self, count: int) -> int:
        """Of so many."""

    def take(self, columns: Columns, shift: int) -> None:
        """Copies the fronts into the columns, behind what they hold; `shift` is the chunk's own place."""

    def move(self, columns: Columns, count: int, lead: Fingerprints, ledgers: Numbers) -> None:
        """Writes the fronts of so many as they have to be when the chunk is summed."""


class Regular:
    """Records of one size."""

    def __init__(self, work: Bytes, begin: int, stride: int, count: int) -> None:
        self._work = work
        self._stride = stride
        self.begin = begin
        self.count = count

    def end(self, count: int) -> int:
        return self.begin + count * self._stride

    def take(self, columns: Columns, shift: int) -> None:
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

    def move(self, columns: Columns, count: int, lead: Fingerprints, ledgers: Numbers) -> None:
        place = slice(columns.count, columns.count + count)
        self._each(count, "<u8", 0)[:] = lead
        self._each(count, ">i8", 8)[:] = ledgers
        self._each(count, ">i8", 16)[:] = columns.entries[place]
        self._each(count, ">i8", 24)[:] = columns.confirmed[place]
        self._each(count, ">i8", 32)[:] = columns.lengths[place]

    def _each(self, count: int, kind: str, offset: int) -> Any:
        return np.ndarray(count, kind, self._work, self.begin + offset, (self._stride,))


class Scattered:
    """Records of any sizes. `bounds` are where they begin, and where the last one ends."""

    def __init__(self, work: Bytes, bounds: Numbers) -> None:
        self._work = work
        self._bounds = bounds
        self.count = len(bounds) - 1

    @property
    def begin(self) -> int:
        return int(self._bounds[0])

    def end(self, count: int) -> int:
        return int(self._bounds[count])

    def take(self, columns: Columns, shift: int) -> None:
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

    def move(self, columns: Columns, count: int, lead: Fingerprints, ledgers: Numbers) -> None:
        place = slice(columns.count, columns.count + count)
        moved = np.empty(count, dtype=_MOVED)
        moved["lead"] = lead
        moved["ledger"] = ledgers
        moved["entry"] = columns.entries[place]
        moved["confirmed"] = columns.confirmed[place]
        moved["length"] = columns.lengths[place]
        self._items(_MOVED.itemsize)[self._bounds[:count]] = moved.view(f"V{_MOVED.itemsize}")

    def _items(self, size: int) -> Any:
        """The chunk as overlapping items of that size, one beginning at every byte."""
        return np.ndarray(len(self._work) - size + 1, f"V{size}", self._work, 0, (1,))


def places(work: Bytes, begin: int, end: int, last: int, room: int) -> Regular | Scattered | None:
    """The records from `begin` on, as far as they are whole before `end` and begin before `last`.

    So many at most as there is room for. Whether they are entries, their ids have to tell.
    """
    regular = _regular(work, begin, end, last, room)
    if regular is not None:
        return regular
    found = hop(memoryview(work), begin, end, last, room)
    return Scattered(work, np.fromiter(found, np.int64, len(found))) if len(found) > 1 else None


def _regular(work: Bytes, begin: int, end: int, last: int, room: int) -> Regular | None:
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
    return Regular(work, begin, stride, count) if count >= REGULAR_MIN else None


def hop(work: memoryview, begin: int, end: int, last: int, room: int) -> list[int]:
    """Where records begin, and behind them where the last one ends: from one length word to the next."""
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
    """What the length word there announces, itself included."""
    (size,) = _LENGTH.unpack_from(work, begin)
    return int(size) + LENGTH_WORD_SIZE


def entries_before(columns: Columns, count: int) -> int:
    """How many of those just taken there are before the first that is no entry: its ids are negative."""
    place = slice(columns.count, columns.count + count)
    ledgers, entries = columns.ledgers[place], columns.entries[place]
    if ledgers.min() >= 0 and entries.min() >= 0:
        return count
    return int(((ledgers >= 0) & (entries >= 0)).argmin())


def all_match(work: Bytes, found: Places, columns: Columns, count: int) -> bool:
    """Whether the first so many of what was just taken carry the right CRC-32C.

    For a single bad one the answer is never yes, for several with a chance of 2^-32. Of the chunk the bytes
    before the end of these are of no use afterwards.
    """
    place = slice(columns.count, columns.count + count)
    complements = columns.digests[place] ^ np.uint64(_ONES)
    lead = np.empty_like(complements)
    lead[0] = 0
    lead[1:] = complements[:-1]
    found.move(columns, count, lead, columns.ledgers[place] ^ _FIRST_WORD)
    begin, end = found.begin, found.end(count)
    behind = _WORD.unpack_from(work, end)
    _WORD.pack_into(work, end, int(complements[-1]))
    match = crc32c(work[begin : end + _WORD.size], _ONES) == _ONES
    _WORD.pack_into(work, end, *behind)
    return match
