"""A stretch of a journal: entries of one ledger with consecutive ids, one behind the other in one group.

    ├ record n ┼ record n + 1 ┼ … ┼ record n + number - 1 ┤

What is kept of it are 36 bytes of memory, however many entries it holds: where it lies, and the checksum of
its group in front of it and behind it. Who reads it again later proves by these that it is still the same.
"""

from __future__ import annotations

import struct
from operator import sub
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from storage.position import LENGTH_WORD_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from storage.codec.digest import Buffer

SIZE_MAX = 256 << 10
"""Where one ends and the next begins, be it of the same run; only a larger record makes a larger one."""

UNEVEN_SIZE_MAX = 16 << 10
"""The same for records that differ in size: to find one of them, all before it are looked at."""

_STRETCH = struct.Struct("=qqIIIII")
_LENGTH = struct.Struct(">i")

PACKED_SIZE = _STRETCH.size
_WORDS, _NUMBER_WORD, _SIZE_WORD = PACKED_SIZE // 4, 4, 5


class Stretch(NamedTuple):
    """Where some entries lie, and what their bytes come to."""

    first_id: int
    offset: int
    """Of the first record's length word in the journal."""
    number: int
    size: int
    stride: int
    """What each record measures, the length word included; 0 where they differ."""
    before: int
    """CRC-32C of the group up to here."""
    after: int
    """The same behind the last record."""

    @property
    def end_id(self) -> int:
        """The id behind the last one."""
        return self.first_id + self.number


pack: Callable[..., bytes] = _STRETCH.pack
"""The fields of a stretch, in their order, as they are kept."""


def unpack(packed: Buffer) -> Iterator[Stretch]:
    """Stretches that are kept one behind the other."""
    return map(Stretch._make, _STRETCH.iter_unpack(packed))


def count(packed: Buffer) -> int:
    """How many are kept there."""
    return len(packed) // PACKED_SIZE


def nth(packed: Buffer, number: int) -> Stretch:
    """The one in that place."""
    return Stretch._make(_STRETCH.unpack_from(packed, number * PACKED_SIZE))


def first_id(packed: Buffer, number: int) -> int:
    """Its first id alone: what is searched by."""
    return int(_STRETCH.unpack_from(packed, number * PACKED_SIZE)[0])


def totals(packed: Buffer) -> tuple[int, int]:
    """How many entries they hold together, and how many bytes."""
    # Of a million of them: no object for each.
    words = memoryview(packed).cast("B").cast("I")
    return sum(words[_NUMBER_WORD::_WORDS]), sum(words[_SIZE_WORD::_WORDS])


def is_same(stretch: Stretch, data: Buffer) -> bool:
    """Whether these bytes are what stood there when the group was verified."""
    return len(data) == stretch.size and crc32c(data, stretch.before) == stretch.after


def records(stretch: Stretch, data: bytes) -> list[bytes]:
    """The records, split; the bytes are known to be the same."""
    ends = list(_ends(stretch, data))
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def sizes(stretch: Stretch, data: bytes) -> list[int]:
    """What each record measures."""
    if stretch.stride:
        return [stretch.stride] * stretch.number
    ends = list(_uneven_ends(data))
    return list(map(sub, ends, [0, *ends]))


def place(stretch: Stretch, entry_id: int) -> tuple[int, int] | None:
    """Where in the stretch the record lies, start and end; `None` if only the bytes in front of it tell."""
    if not stretch.stride:
        return None
    start = (entry_id - stretch.first_id) * stretch.stride
    return start, start + stretch.stride


def _ends(stretch: Stretch, data: bytes) -> Sequence[int] | Iterator[int]:
    if stretch.stride:
        return range(stretch.stride, stretch.size + 1, stretch.stride)
    return _uneven_ends(data)


def _uneven_ends(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += LENGTH_WORD_SIZE + length
        yield at
