"""Blocks of entries with numpy: runs of entries of one size are split, and blocks verified, at once.

Only a block that fails is looked at entry by entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from storage.codec import frames_plain
from storage.codec.entry import HEAD
from storage.codec.frames import PREFIX, Frames
from storage.codec.proof_numpy import LEAD, SLACK, Fronts, Scattered, is_provable
from storage.entry import RECORD_SIZE_MAX
from storage.position import LENGTH_WORD_SIZE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.codec.digest import Buffer, Digester
    from storage.codec.proof_numpy import Numbers
    from storage.entry import DigestType

_HEAD_SIZE = HEAD.size
_LENGTH_SIZE = LENGTH_WORD_SIZE
_STRIDE_MISSES_MAX = 2
_STRIDE_RUN_MIN = 8


def split_log(block: Buffer, start: int) -> Frames:
    return _split(block, start, frames_plain.nothing_to_skip)


def split_journal(block: Buffer, start: int) -> Frames:
    return _split(block, start, frames_plain.past_padding)


def _split(block: Buffer, start: int, skip: frames_plain.Skip) -> Frames:
    runs: list[Numbers] = []
    at, misses = start, 0
    while misses <= _STRIDE_MISSES_MAX:
        at = skip(block, at)
        run = _equal_run(block, at)
        if not len(run):
            break
        misses += len(run) < _STRIDE_RUN_MIN
        runs.append(run)
        at = int(run[-1, 1])
    rest = frames_plain.split(block, at, skip)
    tail = np.array([rest.starts, rest.ends], dtype=np.int64).T
    places = np.concatenate([*runs, tail]) if runs else tail
    return Frames(_as_sequence(places[:, 0]), _as_sequence(places[:, 1]), rest.split_to)


def _equal_run(block: Buffer, at: int) -> Numbers:
    """The longest run of entries of one size from here: rows of (start, end), perhaps none."""
    nothing = np.empty((0, 2), dtype=np.int64)
    if len(block) - at < PREFIX.size:
        return nothing
    size, _, _ = PREFIX.unpack_from(block, at)
    stride = size + _LENGTH_SIZE
    count = (len(block) - at) // stride if _HEAD_SIZE <= size <= RECORD_SIZE_MAX else 0
    if count < 1:
        return nothing

    def column(kind: str, offset: int) -> Any:
        return np.ndarray(count, kind, cast("Any", block), at + offset, (stride,))

    good = (column(">i4", 0) == size) & (column(">i8", 4) >= 0) & (column(">i8", 12) >= 0)
    length = count if good.all() else int(good.argmin())
    starts = at + _LENGTH_SIZE + stride * np.arange(length, dtype=np.int64)
    return np.column_stack([starts, starts + size])


def _as_sequence(numbers: Numbers) -> Sequence[int]:
    return cast("Sequence[int]", numbers)


def mismatches(block: Buffer, frames: Frames, digester: Digester) -> list[int]:
    kind = digester.digest_type
    if not is_provable(kind) or not len(frames):
        return frames_plain.mismatches(block, frames, digester)
    starts = np.asarray(frames.starts, dtype=np.int64)
    ends = np.asarray(frames.ends, dtype=np.int64)
    long_enough = ends - starts >= _HEAD_SIZE + kind.width
    if long_enough.all() and _all_match(block, starts - _LENGTH_SIZE, ends, kind):
        return []
    return frames_plain.mismatches(block, frames, digester)


def _all_match(block: Buffer, begins: Numbers, ends: Numbers, kind: DigestType) -> bool:
    first, last = int(begins[0]), int(ends[-1])
    work = np.empty(LEAD + last - first + SLACK, dtype=np.uint8)
    work[LEAD:-SLACK] = np.frombuffer(block, dtype=np.uint8)[first:last]
    begins, ends = begins - (first - LEAD), ends - (first - LEAD)
    gaps = np.flatnonzero(begins[1:] != ends[:-1]).tolist()
    fronts = Fronts(Scattered(work, begins), kind)
    return fronts.all_match(len(ends), int(ends[-1]), [(index, int(ends[index])) for index in gaps])
