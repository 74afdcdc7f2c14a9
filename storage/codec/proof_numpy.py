"""Many entries verified at once with numpy: one CRC call proves all that lie in a work area.

CRC is linear. Put the complement of an entry's digest behind the entry and the CRC register becomes zero if
the digest was right; put the next head there with its first four bytes complemented and the register is what
a fresh CRC would have been. So with the heads moved up over the digests, and zeros in what is left, one run
over the whole area ends in zero exactly when the errors of all entries cancel out: never for a single bad
entry, and for several with a chance of 2^-32.

What stands in front of the payloads is copied into rows, one for each record, from as many bytes before it as
a digest has (m, 4 or 8): then it stands in the row as it has to stand in the work area.

    record      ├ length ┼ head: 32 ┼ digest: m ┼ payload ┤
    row         ├ m ┼ length ┼ head: 32 ┼ digest: m ┼ 4 ┤
    moved       ├ complement: 4 ┼ zeros: m ┼ head: 32 ┤
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from crc32c import crc32c

from storage.codec.entry import HEAD
from storage.codec.record import LENGTH_SIZE, front_size
from storage.entry import DigestType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Numbers = np.ndarray[Any, np.dtype[np.int64]]
    Bytes = np.ndarray[Any, np.dtype[np.uint8]]
    Words = np.ndarray[Any, np.dtype[np.uint32]]

LEAD = 8
"""Bytes that a work area has in front of the first record."""

SLACK = 4
"""Bytes that it has behind the last one, for the complement of its digest."""

_WORD = 4
_HEAD_WORDS = HEAD.size // _WORD
_ONES = 0xFFFF_FFFF
_CHECKSUMS: dict[DigestType, Callable[[Any, int], int]] = {
    DigestType.CRC32C: crc32c,
    DigestType.CRC32: zlib.crc32,
}


def is_provable(kind: DigestType) -> bool:
    """Whether entries under that digest can be verified at once."""
    return kind in _CHECKSUMS


class Scattered:
    """Records anywhere in a work area, ascending."""

    def __init__(self, work: Bytes, begins: Numbers) -> None:
        self.work = work
        self._begins = begins

    def begin(self, index: int) -> int:
        return int(self._begins[index])

    def items(self, size: int, before: int) -> Any:
        """For each record so many bytes, from so many before it: a copy."""
        return _items(self.work, size)[self._begins - before]

    def put(self, items: Any) -> None:
        """Puts the items where the first records begin."""
        _items(self.work, items.itemsize)[self._begins[: len(items)]] = items


class Regular:
    """Records of one size that follow each other: the same in half of the time."""

    def __init__(self, work: Bytes, first: int, stride: int, count: int) -> None:
        self.work = work
        self._first = first
        self._stride = stride
        self._count = count

    def begin(self, index: int) -> int:
        return self._first + index * self._stride

    def items(self, size: int, before: int) -> Any:
        return self._each(self._count, f"V{size}", self._first - before).copy()

    def put(self, items: Any) -> None:
        self._each(len(items), items.dtype, self._first)[:] = items

    def _each(self, count: int, kind: Any, first: int) -> Any:
        return np.ndarray(count, kind, cast("Any", self.work), first, (self._stride,))


class Fronts:
    """What stands in front of the payloads of some records, all under one digest."""

    def __init__(self, places: Scattered | Regular, kind: DigestType) -> None:
        self._places = places
        self._kind = kind
        self._digest = kind.width // _WORD
        row = 2 * kind.width + LENGTH_SIZE + HEAD.size + SLACK
        items = places.items(row, kind.width)
        self._words: Words = items.view("<u4").reshape(len(items), row // _WORD)

    @property
    def lengths(self) -> Any:
        """What the length words say."""
        return self._words[:, self._digest].view(">i4")

    @property
    def heads(self) -> Numbers:
        """A row of four numbers for each record."""
        first = self._digest + 1
        heads: Numbers = self._words[:, first : first + _HEAD_WORDS].view(">i8").astype(np.int64)
        return heads

    def all_match(self, count: int, last_end: int, gaps: Sequence[tuple[int, int]] = ()) -> bool:
        """Whether the first so many carry the right digests. To be asked once.

        They follow each other but for the `gaps`: numbers of records behind which there is something else,
        and where they end. Between records, and behind the last one, the work area is not what it was then.
        """
        digest, words = self._digest, self._words[:count]
        if digest > 1 and words[:, digest + 1 + _HEAD_WORDS].any():
            return False  # a CRC-32 stands in the lower half of its eight bytes
        lengths, complements = self.lengths[:count].copy(), (~words[:, -2]).byteswap()
        words[0, 0] = 0
        words[1:, 0] = complements[:-1]
        words[:, 1 : digest + 1] = 0
        words[:, digest + 1] ^= _ONES
        self._put(words, 0)
        self._fill(gaps, complements)
        self._put_complement(last_end, complements, count - 1)
        begin, work = self._places.begin(0), self._places.work
        if _CHECKSUMS[self._kind](work[begin : last_end + SLACK], _ONES) == _ONES:
            return True
        self.lengths[:count] = lengths
        words[:, digest + 1] ^= _ONES
        self._put(words, self._kind.width)
        return False

    def _put(self, words: Words, offset: int) -> None:
        size, row = front_size(self._kind), words.shape[1] * _WORD
        self._places.put(np.ndarray(len(words), f"V{size}", words, offset, (row,)))

    def _fill(self, gaps: Sequence[tuple[int, int]], complements: Words) -> None:
        for index, end in gaps:
            self._places.work[end : self._places.begin(index + 1) + SLACK] = 0
            self._put_complement(end, complements, index)

    def _put_complement(self, end: int, complements: Words, index: int) -> None:
        self._places.work[end : end + SLACK] = complements[index : index + 1].view(np.uint8)


def _items(work: Bytes, size: int) -> Any:
    """The work area as overlapping items of that size, one beginning at every byte."""
    return np.ndarray(len(work) - size + 1, f"V{size}", cast("Any", work), 0, (1,))
