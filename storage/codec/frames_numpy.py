"""Blocks of entries with numpy: one CRC call proves every entry of the block.

CRC is linear. Put the complement of an entry's digest behind the entry and the CRC register becomes zero if
the digest was right; put the next head there with its first four bytes complemented and the register is what
a fresh CRC would have been. So with the heads moved up over the digests, and zeros in what is left, one run
over the whole block ends in zero exactly when the errors of all entries cancel out: never for a single bad
entry, and for several with a chance of 2^-32. Only a block that fails is looked at entry by entry.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from crc32c import crc32c

from storage.codec import frames_plain
from storage.codec.entry import HEAD
from storage.codec.frames import PREFIX, Frames
from storage.entry import RECORD_SIZE_MAX, DigestType
from storage.position import LENGTH_WORD_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from storage.codec.digest import Buffer, Digester

    Numbers = np.ndarray[Any, np.dtype[np.int64]]
    Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_HEAD_SIZE = HEAD.size
_LENGTH_SIZE = LENGTH_WORD_SIZE
_ONES = 0xFFFF_FFFF
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
    batch = _BATCH_CHECKSUMS.get(digester.digest_type)
    if batch is None or not len(frames):
        return frames_plain.mismatches(block, frames, digester)
    starts = np.asarray(frames.starts, dtype=np.int64)
    ends = np.asarray(frames.ends, dtype=np.int64)
    long_enough = ends - starts >= _HEAD_SIZE + digester.digest_type.width
    if long_enough.all() and _all_match(block, starts, ends, digester.digest_type.width, batch):
        return []
    return frames_plain.mismatches(block, frames, digester)


def _all_match(
    block: Buffer, starts: Numbers, ends: Numbers, width: int, checksum: Callable[[Bytes, int], int]
) -> bool:
    first, last = int(starts[0]) - _LENGTH_SIZE, int(ends[-1])
    work = np.empty(last - first + _LENGTH_SIZE, dtype=np.uint8)
    work[:-_LENGTH_SIZE] = np.frombuffer(block, dtype=np.uint8)[first:last]
    starts, ends = starts - first, ends - first

    heads = _items(work, _HEAD_SIZE + width)[starts]
    fields = heads.view(np.uint8).reshape(len(starts), _HEAD_SIZE + width)
    digests = np.ascontiguousarray(fields[:, -4:]).view(">u4").ravel()
    if width > 4 and fields[:, _HEAD_SIZE:-4].any():
        return False  # a CRC-32 stands in the lower half of its eight bytes
    fields = np.ascontiguousarray(fields[:, :_HEAD_SIZE])
    fields[:, :4] ^= 0xFF

    _items(work, _LENGTH_SIZE + width)[starts - _LENGTH_SIZE] = np.void(bytes(_LENGTH_SIZE + width))
    for index in np.flatnonzero(starts[1:] - _LENGTH_SIZE != ends[:-1]):
        work[ends[index] : starts[index + 1] - _LENGTH_SIZE] = 0  # padding between two entries
    _items(work, _HEAD_SIZE)[starts + width] = fields.view(f"V{_HEAD_SIZE}").ravel()
    _items(work, 4)[ends] = (digests ^ np.uint32(_ONES)).astype("<u4").view("V4")
    return checksum(work, _ONES) == _ONES


def _items(work: Bytes, size: int) -> Any:
    """The work area as overlapping items of that size, one beginning at every byte."""
    return np.ndarray(len(work) - size + 1, f"V{size}", cast("Any", work), 0, (1,))


_BATCH_CHECKSUMS: dict[DigestType, Callable[[Any, int], int]] = {
    DigestType.CRC32C: crc32c,
    DigestType.CRC32: zlib.crc32,
}
