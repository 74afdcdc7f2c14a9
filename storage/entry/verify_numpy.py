"""Verification of many entries in one CRC call, with numpy.

CRC is linear. Write the complement of an entry's digest after the entry, and the CRC register becomes zero if
the digest was right. Write the next head there with its first four bytes complemented, and the register is
what a fresh CRC would have been. So the heads are moved up over the digests, the gaps are filled with zeros,
and one CRC over the whole area ends in zero exactly when the errors of all entries cancel out: never for a
single bad entry, and for several with a probability of 2^-32.

The *front* of a record is everything before its payload. The fronts are copied into rows, one for each
record. A row begins m bytes before the record, m (4 or 8) being the width of the digest, because the front
then lies in the row as it has to lie in the work area.

    record      ├ length ┼ head: 32 ┼ digest: m ┼ payload ┤
    row         ├ m ┼ length ┼ head: 32 ┼ digest: m ┼ 4 ┤
    moved       ├ complement: 4 ┼ zeros: m ┼ head: 32 ┤
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from crc32c import crc32c

from storage.entry import verify
from storage.entry.format import HEAD
from storage.entry.model import DigestType
from storage.entry.position import LENGTH_WORD_SIZE
from storage.entry.record_format import front_size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from storage.entry.digest import Buffer, Digester
    from storage.entry.verify import EntryBounds

    Numbers = np.ndarray[Any, np.dtype[np.int64]]
    Bytes = np.ndarray[Any, np.dtype[np.uint8]]
    Words = np.ndarray[Any, np.dtype[np.uint32]]

LEAD = 8
"""Bytes of a work area before the first record."""

SLACK = 4
"""Bytes of a work area after the last record, for the complement of its digest."""

_WORD = 4
_HEAD_WORDS = HEAD.size // _WORD
_ONES = 0xFFFF_FFFF
_CHECKSUMS: dict[DigestType, Callable[[Any, int], int]] = {
    DigestType.CRC32C: crc32c,
    DigestType.CRC32: zlib.crc32,
}


def is_provable(kind: DigestType) -> bool:
    """Return whether entries with that digest type can be verified in one call."""
    return kind in _CHECKSUMS


def mismatches(block: Buffer, bounds: EntryBounds, digester: Digester) -> list[int]:
    """Return what `verify.mismatches` does; look at single entries only if the CRC of all is wrong."""
    kind = digester.digest_type
    if not is_provable(kind) or not len(bounds.starts):
        return verify.mismatches_one_by_one(block, bounds, digester)
    starts, ends = _numbers(bounds.starts), _numbers(bounds.ends)
    long_enough = ends - starts >= HEAD.size + kind.width
    if long_enough.all() and _all_match(block, starts - LENGTH_WORD_SIZE, ends, kind):
        return []
    return verify.mismatches_one_by_one(block, bounds, digester)


def _numbers(found: Sequence[int]) -> Numbers:
    if isinstance(found, range):
        return np.arange(found.start, found.stop, found.step, dtype=np.int64)
    return np.asarray(found, dtype=np.int64)


def _all_match(block: Buffer, begins: Numbers, ends: Numbers, kind: DigestType) -> bool:
    first, last, count = int(begins[0]), int(ends[-1]), len(begins)
    work = np.empty(LEAD + last - first + SLACK, dtype=np.uint8)
    work[LEAD:-SLACK] = np.frombuffer(block, dtype=np.uint8)[first:last]
    stride = int(ends[0]) - first
    if last - first == stride * count and (ends - begins == stride).all():
        return Fronts(EqualSizedRecords(work, LEAD, stride, count), kind).all_match(count, len(work) - SLACK)
    begins, ends = begins - (first - LEAD), ends - (first - LEAD)
    gaps = np.flatnonzero(begins[1:] != ends[:-1]).tolist()
    fronts = Fronts(ScatteredRecords(work, begins), kind)
    return fronts.all_match(count, int(ends[-1]), [(number, int(ends[number])) for number in gaps])


class ScatteredRecords:
    """Records anywhere in a work area, in ascending order."""

    def __init__(self, work: Bytes, begins: Numbers) -> None:
        self.work = work
        self._begins = begins

    def begin(self, index: int) -> int:
        return int(self._begins[index])

    def items(self, size: int, before: int) -> Any:
        """Copy so many bytes of each record, beginning so many bytes before it."""
        return _items(self.work, size)[self._begins - before]

    def put(self, items: Any) -> None:
        """Write the items where the first records begin."""
        _items(self.work, items.itemsize)[self._begins[: len(items)]] = items


class EqualSizedRecords:
    """Records of one size that follow each other, which take half of the time."""

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
    """The fronts of some records, all with one digest type."""

    def __init__(self, records: ScatteredRecords | EqualSizedRecords, kind: DigestType) -> None:
        self._records = records
        self._kind = kind
        self._digest = kind.width // _WORD
        row = 2 * kind.width + LENGTH_WORD_SIZE + HEAD.size + SLACK
        items = records.items(row, kind.width)
        self._words: Words = items.view("<u4").reshape(len(items), row // _WORD)

    @property
    def lengths(self) -> Any:
        """The length words."""
        return self._words[:, self._digest].view(">i4")

    @property
    def heads(self) -> Numbers:
        """The four numbers of each head, as a row."""
        first = self._digest + 1
        heads: Numbers = self._words[:, first : first + _HEAD_WORDS].view(">i8").astype(np.int64)
        return heads

    def all_match(self, count: int, last_end: int, gaps: Sequence[tuple[int, int]] = ()) -> bool:
        """Return whether the first `count` records have the right digests. May be called once only.

        The records follow each other except at the `gaps`: the number of each record that something else
        follows, and its end. The call overwrites the work area between records and after the last one.
        """
        digest, words = self._digest, self._words[:count]
        if digest > 1 and words[:, digest + 1 + _HEAD_WORDS].any():
            return False  # because a CRC-32 is in the lower half of its eight bytes
        lengths, complements = self.lengths[:count].copy(), (~words[:, -2]).byteswap()
        words[0, 0] = 0
        words[1:, 0] = complements[:-1]
        words[:, 1 : digest + 1] = 0
        words[:, digest + 1] ^= _ONES
        self._put(words, 0)
        self._fill(gaps, complements)
        self._put_complement(last_end, complements, count - 1)
        begin, work = self._records.begin(0), self._records.work
        if _CHECKSUMS[self._kind](work[begin : last_end + SLACK], _ONES) == _ONES:
            return True
        self.lengths[:count] = lengths
        words[:, digest + 1] ^= _ONES
        self._put(words, self._kind.width)
        return False

    def _put(self, words: Words, offset: int) -> None:
        size, row = front_size(self._kind), words.shape[1] * _WORD
        self._records.put(np.ndarray(len(words), f"V{size}", words, offset, (row,)))

    def _fill(self, gaps: Sequence[tuple[int, int]], complements: Words) -> None:
        for index, end in gaps:
            self._records.work[end : self._records.begin(index + 1) + SLACK] = 0
            self._put_complement(end, complements, index)

    def _put_complement(self, end: int, complements: Words, index: int) -> None:
        self._records.work[end : end + SLACK] = complements[index : index + 1].view(np.uint8)


def _items(work: Bytes, size: int) -> Any:
    """Return the work area as overlapping items of that size, one at each byte."""
    return np.ndarray(len(work) - size + 1, f"V{size}", cast("Any", work), 0, (1,))
