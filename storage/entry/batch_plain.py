"""Batches of entries taken one by one: from tables, and from blocks if there is no numpy."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import TYPE_CHECKING

from crc32c import crc32c

from storage.entry.digest import DigestCheck
from storage.entry.format import HEAD
from storage.entry.model import NO_ENTRY, DigestType
from storage.entry.position import LENGTH_WORD_SIZE
from storage.entry.record_format import front_size

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from storage.entry.batch import BatchFields, LogRange, WantedEntries
    from storage.entry.digest import Digester

    Parts = tuple[Sequence[int], Sequence[bytes], Sequence[bytes], Sequence[bytes]]
    """The length word, the head, the digest and the payload of each entry."""

LEAD, SLACK = 8, 4
"""Bytes of a block before and after what is read into it, so that numpy can verify the block in its place."""

NEAR = 128 << 10
"""The largest gap between two entries that is read with them."""

_FRONTS = {one: struct.Struct(f">i{HEAD.size}s{one.width}s") for one in DigestType}


def lay_out(locations: array[int], size_max: int) -> tuple[list[LogRange], list[int], int]:
    ranges: list[LogRange] = []
    starts: list[int] = []
    size, largest = 0, 0
    for location, following in pairwise([*locations, 0]):
        is_near = 0 < following - location <= NEAR
        room = following - location if is_near else largest
        if not room or not location or size + room > size_max:
            break
        if largest:
            first, offset, length = ranges.pop()
            ranges.append((first, offset, length + room))
        else:
            ranges.append((location, size, room))
        starts.append(size)
        size, largest = size + room, max(largest, room) if is_near else 0
    return ranges, starts, size


def of_block(block: bytearray, starts: Sequence[int], size: int, wanted: WantedEntries) -> BatchFields:
    kind, front = wanted.digester.digest_type, front_size(wanted.digester.digest_type)
    stride = starts[1] if len(starts) > 1 else size
    if stride >= front and size == stride * len(starts) and list(starts) == list(range(0, size, stride)):
        record = struct.Struct(f">i{HEAD.size}s{kind.width}s{stride - front}s")
        with memoryview(block)[LEAD : LEAD + stride * len(starts)] as view:
            lengths, heads, digests, payloads = zip(*record.iter_unpack(view), strict=True)
        if set(lengths) == {stride - LENGTH_WORD_SIZE}:
            return _taken((lengths, heads, digests, payloads), wanted)
    return of_parts(*_parts(block, [LEAD + start for start in (*starts, size)], front), wanted)


def _parts(block: bytearray, bounds: Sequence[int], front: int) -> tuple[bytes, list[bytes]]:
    """Return fronts and payloads, up to the first record whose length cannot be right."""
    fronts, payloads = [], []
    for start, limit in pairwise(bounds):
        end = start + LENGTH_WORD_SIZE + int.from_bytes(block[start : start + LENGTH_WORD_SIZE], "big")
        if not start + front <= end <= limit:
            break
        fronts.append(block[start : start + front])
        payloads.append(bytes(memoryview(block)[start + front : end]))
    return b"".join(fronts), payloads


def of_parts(fronts: bytes, payloads: Sequence[bytes], wanted: WantedEntries) -> BatchFields:
    if not payloads:
        return 0, (), ()
    lengths, heads, digests = zip(*_FRONTS[wanted.digester.digest_type].iter_unpack(fronts), strict=True)
    return _taken((lengths, heads, digests, payloads), wanted)


def _taken(parts: Parts, wanted: WantedEntries) -> BatchFields:
    count = len(parts[0]) if _are_right(parts, wanted.first_id, wanted) else _sound(parts, wanted)
    _, heads, _, payloads = parts
    return count, HEAD.iter_unpack(b"".join(heads[:count])), (payloads[:count],)


def _sound(parts: Parts, wanted: WantedEntries) -> int:
    """Return how many entries there are before the first wrong one."""
    for index, (length, head, digest, payload) in enumerate(zip(*parts, strict=True)):
        if not _are_right(([length], [head], [digest], [payload]), wanted.first_id + index, wanted):
            return index
    return len(parts[0])


def _are_right(parts: Parts, first_id: int, wanted: WantedEntries) -> bool:
    lengths, heads, digests, payloads = parts
    behind_length = front_size(wanted.digester.digest_type) - LENGTH_WORD_SIZE
    ledger_ids, entry_ids, confirmed, ledger_lengths = zip(*HEAD.iter_unpack(b"".join(heads)), strict=True)
    return (
        list(lengths) == [behind_length + len(payload) for payload in payloads]
        and set(ledger_ids) == {wanted.ledger_id}
        and entry_ids == (*range(first_id, first_id + len(heads)),)
        and min(confirmed) >= NO_ENTRY
        and min(ledger_lengths) >= 0
        and _digests_are_right(heads, digests, payloads, wanted.digester)
    )


def _digests_are_right(
    heads: Sequence[bytes], digests: Sequence[bytes], payloads: Sequence[bytes], digester: Digester
) -> bool:
    if digester.digest_type is DigestType.CRC32C:
        checksums = map(crc32c, payloads, map(crc32c, heads))
        return struct.pack(f">{len(heads)}I", *checksums) == b"".join(digests)
    checks = map(digester.check, heads, digests, payloads)
    return all(check is not DigestCheck.MISMATCH for check in checks)
