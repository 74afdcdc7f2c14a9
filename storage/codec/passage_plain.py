"""Passages taken one entry after the other: from tables, and from blocks when there is no numpy."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import TYPE_CHECKING

from crc32c import crc32c

from storage.codec.digest import DigestCheck
from storage.codec.entry import HEAD
from storage.codec.record import LENGTH_SIZE, front_size
from storage.entry import NO_ENTRY, DigestType

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from storage.codec.digest import Digester
    from storage.codec.passage import Extent, Taken, Wanted

    Parts = tuple[Sequence[int], Sequence[bytes], Sequence[bytes], Sequence[bytes]]
    """Of each entry what its length word says, its head, its digest and its payload."""

LEAD, SLACK = 8, 4
"""Bytes that a block has in front of what was read into it, and behind: room for who verifies it at once."""

NEAR = 128 << 10
"""What lies between two entries that are no further apart is read along."""

_FRONTS = {one: struct.Struct(f">i{HEAD.size}s{one.width}s") for one in DigestType}


def lay_out(places: array[int], size_max: int) -> tuple[list[Extent], list[int], int]:
    extents: list[Extent] = []
    starts: list[int] = []
    size, largest = 0, 0
    for place, following in pairwise([*places, 0]):
        is_near = 0 < following - place <= NEAR
        room = following - place if is_near else largest
        if not room or not place or size + room > size_max:
            break
        if largest:
            first, offset, length = extents.pop()
            extents.append((first, offset, length + room))
        else:
            extents.append((place, size, room))
        starts.append(size)
        size, largest = size + room, max(largest, room) if is_near else 0
    return extents, starts, size


def of_block(block: bytearray, starts: Sequence[int], size: int, wanted: Wanted) -> Taken:
    kind, front = wanted.digester.digest_type, front_size(wanted.digester.digest_type)
    stride = starts[1] if len(starts) > 1 else size
    if stride >= front and size == stride * len(starts) and list(starts) == list(range(0, size, stride)):
        record = struct.Struct(f">i{HEAD.size}s{kind.width}s{stride - front}s")
        with memoryview(block)[LEAD : LEAD + stride * len(starts)] as view:
            lengths, heads, digests, payloads = zip(*record.iter_unpack(view), strict=True)
        if set(lengths) == {stride - LENGTH_SIZE}:
            return _taken((lengths, heads, digests, payloads), wanted)
    return of_parts(*_parts(block, [LEAD + start for start in (*starts, size)], front), wanted)


def _parts(block: bytearray, bounds: Sequence[int], front: int) -> tuple[bytes, list[bytes]]:
    """Fronts and payloads, up to the first record that is not as long as it may be."""
    fronts, payloads = [], []
    for start, limit in pairwise(bounds):
        end = start + LENGTH_SIZE + int.from_bytes(block[start : start + LENGTH_SIZE], "big")
        if not start + front <= end <= limit:
            break
        fronts.append(block[start : start + front])
        payloads.append(bytes(memoryview(block)[start + front : end]))
    return b"".join(fronts), payloads


def of_parts(fronts: bytes, payloads: Sequence[bytes], wanted: Wanted) -> Taken:
    if not payloads:
        return 0, (), ()
    lengths, heads, digests = zip(*_FRONTS[wanted.digester.digest_type].iter_unpack(fronts), strict=True)
    return _taken((lengths, heads, digests, payloads), wanted)


def _taken(parts: Parts, wanted: Wanted) -> Taken:
    count = len(parts[0]) if _are_right(parts, wanted.first_id, wanted) else _sound(parts, wanted)
    _, heads, _, payloads = parts
    return count, HEAD.iter_unpack(b"".join(heads[:count])), (payloads[:count],)


def _sound(parts: Parts, wanted: Wanted) -> int:
    """How many there are before the first that is wrong."""
    for index, (length, head, digest, payload) in enumerate(zip(*parts, strict=True)):
        if not _are_right(([length], [head], [digest], [payload]), wanted.first_id + index, wanted):
            return index
    return len(parts[0])


def _are_right(parts: Parts, first_id: int, wanted: Wanted) -> bool:
    lengths, heads, digests, payloads = parts
    behind_length = front_size(wanted.digester.digest_type) - LENGTH_SIZE
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
