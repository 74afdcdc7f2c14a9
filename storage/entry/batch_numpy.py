"""Batches of entries taken out of blocks with numpy: all heads at once, and one CRC over the whole block."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from storage.entry import batch_plain, verify
from storage.entry.batch_plain import LEAD, NEAR
from storage.entry.model import NO_ENTRY
from storage.entry.position import LENGTH_WORD_SIZE
from storage.entry.record_format import front_size
from storage.entry.verify import EntryBounds
from storage.entry.verify_numpy import EqualSizedRecords, Fronts, ScatteredRecords, is_provable

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator, Sequence

    from storage.entry.batch import BatchFields, LogRange, WantedEntries
    from storage.entry.verify_numpy import Numbers

    Bools = np.ndarray[Any, np.dtype[np.bool_]]

_HEAD = struct.Struct("=qqqq")

_FEW = 16
"""Fewer entries than these are faster taken one by one."""

_RUN_MIN = 4
"""Runs of entries of one size are cut out together, unless the runs are shorter than this on average."""

_CUT_SIZE = 256 << 10
"""The most bytes that are cut out together, so that they are still in the processor's caches when they are
used."""


def lay_out(locations: array[int], size_max: int) -> tuple[list[LogRange], Sequence[int], int]:
    numbers = np.frombuffer(locations, dtype=np.int64)
    steps = numbers[1:] - numbers[:-1]
    # Compared without a sign, so that steps that lead back count as very long.
    (far,) = np.nonzero((steps - 1).view(np.uint64) >= NEAR)
    ranges: list[LogRange] = []
    starts, size, count = np.empty_like(numbers), 0, 0
    for begin, end in pairwise([0, *(far + 1).tolist(), len(numbers)]):
        first, offset = int(numbers[begin]), size
        if end - begin < 2 or not first or size >= size_max:
            break
        within = starts[begin:end]
        np.subtract(numbers[begin:end], first - offset, out=within)
        size = int(within[-1] + steps[begin : end - 1].max())
        count = end
        if size > size_max:
            count = begin + int(within[1:].searchsorted(size_max, "right"))
            size = int(starts[count])
        if size > offset:
            ranges.append((first, offset, size - offset))
        if count < end:
            break
    return ranges, cast("Sequence[int]", starts[:count]), size


def of_block(block: bytearray, starts: Sequence[int], size: int, wanted: WantedEntries) -> BatchFields:
    if not is_provable(wanted.digester.digest_type) or len(starts) < _FEW:
        return batch_plain.of_block(block, starts, size, wanted)
    begins = np.asarray(starts, dtype=np.int64)
    rooms = begins[1:] - begins[:-1]
    stride = int(rooms[0])
    if size == stride * len(begins) and (rooms == stride).all():
        taken = _regular(block, stride, len(begins), wanted)
        if taken is not None:
            return taken
    return _scattered(block, begins + LEAD, np.append(rooms, size - begins[-1]), wanted)


def _regular(block: bytearray, stride: int, count: int, wanted: WantedEntries) -> BatchFields | None:
    """Take all entries, if they are of one size and nothing is wrong, which is the usual case."""
    kind = wanted.digester.digest_type
    if stride < front_size(kind):
        return None
    fronts = Fronts(EqualSizedRecords(np.frombuffer(block, dtype=np.uint8), LEAD, stride, count), kind)
    heads = fronts.heads
    ledger_ids, entry_ids, confirmed, lengths = heads.T
    if not (
        (fronts.lengths == stride - LENGTH_WORD_SIZE).all()
        and (ledger_ids == wanted.ledger_id).all()
        and not (entry_ids - wanted.first_id - np.arange(count)).any()
        and confirmed.min() >= NO_ENTRY
        and lengths.min() >= 0
        and fronts.all_match(count, LEAD + stride * count)
    ):
        return None
    return count, _HEAD.iter_unpack(heads.data), _cut(block, LEAD, stride, count, front_size(kind))


def _scattered(block: bytearray, begins: Numbers, rooms: Numbers, wanted: WantedEntries) -> BatchFields:
    """Take the entries before the first wrong one, of any sizes and with other bytes between them."""
    kind, front = wanted.digester.digest_type, front_size(wanted.digester.digest_type)
    begins = begins[: _until_false(rooms >= front)]
    if not len(begins):
        return 0, (), ()
    fronts = Fronts(ScatteredRecords(np.frombuffer(block, dtype=np.uint8), begins), kind)
    heads, sizes = fronts.heads, fronts.lengths + np.int64(LENGTH_WORD_SIZE)
    rooms = rooms[: len(begins)]
    count = _until_false(_are_wanted(heads, wanted) & (sizes >= front) & (sizes <= rooms))
    if not count:
        return 0, (), ()
    gaps = np.flatnonzero(sizes[: count - 1] != rooms[: count - 1]).tolist()
    ends = [(index, int(begins[index] + sizes[index])) for index in (*gaps, count - 1)]
    if not fronts.all_match(count, ends[-1][1], ends[:-1]):
        count = _sound(block, begins[:count], sizes[:count], wanted)
        gaps = [gap for gap in gaps if gap < count]
    return (
        count,
        _HEAD.iter_unpack(heads[:count].data),
        _runs(block, begins[:count], sizes[:count], front, gaps),
    )


def _are_wanted(heads: Numbers, wanted: WantedEntries) -> Bools:
    ledger_ids, entry_ids, confirmed, lengths = heads.T
    good: Bools = ledger_ids == wanted.ledger_id
    good &= entry_ids - wanted.first_id == np.arange(len(heads))
    good &= (confirmed >= NO_ENTRY) & (lengths >= 0)
    return good


def _until_false(conditions: Bools) -> int:
    return len(conditions) if conditions.all() else int(conditions.argmin())


def _sound(block: bytearray, begins: Numbers, sizes: Numbers, wanted: WantedEntries) -> int:
    """Return how many entries there are before the first wrong one."""
    bounds = EntryBounds((begins + LENGTH_WORD_SIZE).tolist(), (begins + sizes).tolist())
    return min(verify.mismatches_one_by_one(block, bounds, wanted.digester), default=len(begins))


def _runs(
    block: bytearray, begins: Numbers, sizes: Numbers, front: int, gaps: list[int]
) -> Iterator[Sequence[bytes]]:
    """Return the payloads; those of a run of one size together."""
    others = np.flatnonzero(sizes[1:] != sizes[:-1])
    bounds = sorted({0, *(gap + 1 for gap in gaps), *(others + 1).tolist(), len(begins)})
    if len(bounds) * _RUN_MIN > len(begins):
        starts, ends = (begins + front).tolist(), (begins + sizes).tolist()
        with memoryview(block) as view:
            yield [bytes(view[start:end]) for start, end in zip(starts, ends, strict=True)]
        return
    for begin, end in pairwise(bounds):
        yield from _cut(block, int(begins[begin]), int(sizes[begin]), end - begin, front)


def _cut(block: bytearray, begin: int, stride: int, count: int, front: int) -> Iterator[Sequence[bytes]]:
    """Return the payloads of records of one size, some at a time."""
    if stride == front:
        yield [b""] * count
        return
    at_once = _CUT_SIZE // stride + 1
    for at in range(0, count, at_once):
        start = begin + at * stride + front
        yield np.ndarray(min(at_once, count - at), f"V{stride - front}", block, start, (stride,)).tolist()
