"""A chunk of the records that a checkpoint writes: records of one ledger with ascending ids.

Its bytes are in any number of buffers, because a record in memory has two parts, while a journal yields one
buffer of many records.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from storage.entry import record_format

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SIZE_MAX = 256 << 10
"""Bytes of a chunk; only a larger record makes a larger one."""

COUNT_MAX = 256
"""The most records of a chunk, because no other thread runs while one is put together."""


class RecordChunk(NamedTuple):
    """Some records of a ledger."""

    ledger_id: int
    ids: Sequence[int]
    sizes: Sequence[int]
    """The size of each record, its length word included."""
    size: int
    """The sum of the sizes."""
    buffers: Sequence[bytes]

    def records(self) -> list[bytes]:
        """Return the records one by one."""
        data, ends = b"".join(self.buffers), list(accumulate(self.sizes))
        return [data[end - size : end] for size, end in zip(self.sizes, ends, strict=True)]


def of_records(ledger_id: int, ids: Sequence[int], records: Sequence[bytes]) -> Iterator[RecordChunk]:
    """Return whole records in chunks."""
    sizes, start = list(map(len, records)), 0
    while start < len(records):
        end = start + fitting_count(sizes[start : start + COUNT_MAX])
        part = slice(start, end)
        yield RecordChunk(ledger_id, ids[part], sizes[part], sum(sizes[part]), records[part])
        start = end


def of_parts(
    ledger_id: int, first_id: int, fronts: bytearray, front_size: int, payloads: Sequence[bytes]
) -> Iterator[RecordChunk]:
    """Return records with consecutive ids in chunks. Each record has two parts; the fronts are joined."""
    start, count = 0, COUNT_MAX
    while start < len(payloads):
        some = payloads[start : start + count]
        sizes = [front_size + size for size in map(len, some)]
        number = fitting_count(sizes)
        del sizes[number:]
        some_fronts = bytes(fronts[start * front_size : (start + number) * front_size])
        buffers = record_format.buffers(some_fronts, some[:number])
        ids = range(first_id + start, first_id + start + number)
        yield RecordChunk(ledger_id, ids, sizes, sum(sizes), buffers)
        start, count = start + number, min(COUNT_MAX, 2 * number)


def fitting_count(sizes: Sequence[int]) -> int:
    """Return how many of these records make a chunk."""
    if sum(sizes) <= SIZE_MAX:
        return len(sizes)
    return max(1, bisect_right(list(accumulate(sizes)), SIZE_MAX))
