"""A piece of what a checkpoint writes: records of one ledger with ascending ids, one behind the other.

Their bytes lie in as many buffers as they happen to: a record in memory is in two parts, and what comes out
of a journal is one buffer of many records.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from storage.codec import record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SIZE_MAX = 256 << 10
"""Bytes of one; only a larger record makes a larger one."""

COUNT_MAX = 256
"""Records of one: while it is put together nobody else has the interpreter."""


class Piece(NamedTuple):
    """Some records of a ledger."""

    ledger_id: int
    ids: Sequence[int]
    sizes: Sequence[int]
    """What each record measures, its length word included."""
    size: int
    """All of them together."""
    buffers: Sequence[bytes]

    def records(self) -> list[bytes]:
        """The records by themselves."""
        data, ends = b"".join(self.buffers), list(accumulate(self.sizes))
        return [data[end - size : end] for size, end in zip(self.sizes, ends, strict=True)]


def of_records(ledger_id: int, ids: Sequence[int], records: Sequence[bytes]) -> Iterator[Piece]:
    """Records in pieces, each a buffer of its own."""
    sizes, start = list(map(len, records)), 0
    while start < len(records):
        end = start + fitting(sizes[start : start + COUNT_MAX])
        part = slice(start, end)
        yield Piece(ledger_id, ids[part], sizes[part], sum(sizes[part]), records[part])
        start = end


def of_parts(
    ledger_id: int, first_id: int, fronts: bytearray, front_size: int, payloads: Sequence[bytes]
) -> Iterator[Piece]:
    """Records with consecutive ids in pieces, each record in two parts; the fronts stand together."""
    start, count = 0, COUNT_MAX
    while start < len(payloads):
        some = payloads[start : start + count]
        sizes = [front_size + size for size in map(len, some)]
        number = fitting(sizes)
        del sizes[number:]
        some_fronts = bytes(fronts[start * front_size : (start + number) * front_size])
        buffers = record.buffers(some_fronts, some[:number])
        ids = range(first_id + start, first_id + start + number)
        yield Piece(ledger_id, ids, sizes, sum(sizes), buffers)
        start, count = start + number, min(COUNT_MAX, 2 * number)


def fitting(sizes: Sequence[int]) -> int:
    """How many of these records make a piece."""
    if sum(sizes) <= SIZE_MAX:
        return len(sizes)
    return max(1, bisect_right(list(accumulate(sizes)), SIZE_MAX))
