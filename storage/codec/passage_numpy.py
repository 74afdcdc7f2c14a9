"""Passages taken out of blocks with numpy: all heads at once, and one CRC over the whole block."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from storage.codec import frames_plain, passage_plain
from storage.codec.frames import Frames
from storage.codec.passage_plain import LEAD, NEAR
from storage.codec.proof_numpy import Fronts, Regular, Scattered, is_provable
from storage.codec.record import LENGTH_SIZE, front_size
from storage.entry import NO_ENTRY

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator, Sequence

    from storage.codec.passage import Extent, Taken, Wanted
    from storage.codec.proof_numpy import Numbers

    Bools = np.ndarray[Any, np.dtype[np.bool_]]

_HEAD = struct.Struct("=qqqq")

_FEW = 16
"""Fewer entries than these are quicker taken one by one."""

_RUN_MIN = 4
"""Entries of one size that follow each other are cut at once, unless there are fewer together than that."""

_CUT_SIZE = 256 << 10
"""And no more bytes than these: what is used soon after is still in the processor's caches then."""


def lay_out(places: array[int], size_max: int) -> tuple[list[Extent], Sequence[int], int]:
    numbers = np.frombuffer(places, dtype=np.int64)
    steps = numbers[1:] - numbers[:-1]
    # Without a sign, those that lead back are the longest of all.
    (far,) = np.nonzero((steps - 1).view(np.uint64) >= NEAR)
    extents: list[Extent] = []
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
            extents.append((first, offset, size - offset))
        if count < end:
            break
    return extents, cast("Sequence[int]", starts[:count]), size


def of_block(block: bytearray, starts: Sequence[int], size: int, wanted: Wanted) -> Taken:
    if not is_provable(wanted.digester.digest_type) or len(starts) < _FEW:
        return passage_plain.of_block(block, starts, size, wanted)
    begins = np.asarray(starts, dtype=np.int64)
    rooms = begins[1:] - begins[:-1]
    stride = int(rooms[0])
    if size == stride * len(begins) and (rooms == stride).all():
        taken = _regular(block, stride, len(begins), wanted)
        if taken is not None:
            return taken
    return _scattered(block, begins + LEAD, np.append(rooms, size - begins[-1]), wanted)


def _regular(block: bytearray, stride: int, count: int, wanted: Wanted) -> Taken | None:
    """All of them, if they are of one size, and nothing is wrong: there is nothing more usual."""
    kind = wanted.digester.digest_type
    if stride < front_size(kind):
        return None
    fronts = Fronts(Regular(np.frombuffer(block, dtype=np.uint8), LEAD, stride, count), kind)
    heads = fronts.heads
    ledger_ids, entry_ids, confirmed, lengths = heads.T
    if not (
        (fronts.lengths == stride - LENGTH_SIZE).all()
        and (ledger_ids == wanted.ledger_id).all()
        and not (entry_ids - wanted.first_id - np.arange(count)).any()
        and confirmed.min() >= NO_ENTRY
        and lengths.min() >= 0
        and fronts.all_match(count, LEAD + stride * count)
    ):
        return None
    return count, _HEAD.iter_unpack(heads.data), _cut(block, LEAD, stride, count, front_size(kind))


def _scattered(block: bytearray, begins: Numbers, rooms: Numbers, wanted: Wanted) -> Taken:
    """Those before the first that is wrong, be they of many sizes, and with something else between them."""
    kind, front = wanted.digester.digest_type, front_size(wanted.digester.digest_type)
    begins = begins[: _until_false(rooms >= front)]
    if not len(begins):
        return 0, (), ()
    fronts = Fronts(Scattered(np.frombuffer(block, dtype=np.uint8), begins), kind)
    heads, sizes = fronts.heads, fronts.lengths + np.int64(LENGTH_SIZE)
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


def _are_wanted(heads: Numbers, wanted: Wanted) -> Bools:
    ledger_ids, entry_ids, confirmed, lengths = heads.T
    good: Bools = ledger_ids == wanted.ledger_id
    good &= entry_ids - wanted.first_id == np.arange(len(heads))
    good &= (confirmed >= NO_ENTRY) & (lengths >= 0)
    return good


def _until_false(conditions: Bools) -> int:
    return len(conditions) if conditions.all() else int(conditions.argmin())


def _sound(block: bytearray, begins: Numbers, sizes: Numbers, wanted: Wanted) -> int:
    """How many there are before the first that is wrong."""
    ends = (begins + sizes).tolist()
    whole = Frames((begins + LENGTH_SIZE).tolist(), ends, ends[-1])
    return min(frames_plain.mismatches(block, whole, wanted.digester), default=len(ends))


def _runs(
    block: bytearray, begins: Numbers, sizes: Numbers, front: int, gaps: list[int]
) -> Iterator[Sequence[bytes]]:
    """The payloads: at once those which are of one size, and follow each other."""
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
    """The payloads of records of one size, a part at a time."""
    if stride == front:
        yield [b""] * count
        return
    at_once = _CUT_SIZE // stride + 1
    for at in range(0, count, at_once):
        start = begin + at * stride + front
        yield np.ndarray(min(at_once, count - at), f"V{stride - front}", block, start, (stride,)).tolist()
