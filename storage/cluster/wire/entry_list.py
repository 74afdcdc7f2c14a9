"""The condensed list of the entries that a bookie has of a ledger.

    header, 64 bytes     version i32 (0) · number of groups i32 · zeros
    group, 24 bytes      first start i64 · last start i64 · size i32 · period i32

A group is a run of `size` consecutive ids that is repeated every `period` ids, from the run that begins at
the first start to the run that begins at the last start. With period 0 it is a single run. Java's writer
never makes a group of several runs, although its format has them: ours writes the same bytes, and reads both.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from storage.cluster.wire.protobuf import Malformed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_HEADER = struct.Struct(">ii56x")
_GROUP = struct.Struct(">qqii")
_VERSION = 0
_SIZE_MAX = (1 << 31) - 1
_RUNS_MAX = 1 << 20
"""A group may claim more runs than memory has room for; a bookie's answer has no more than this."""


def encode(runs: Iterable[range]) -> bytes:
    """Return the list of the ids in these ascending ranges, between which at least one id is missing."""
    groups = [_GROUP.pack(part.start, part.start, len(part), 0) for run in runs for part in _parts(run)]
    return _HEADER.pack(_VERSION, len(groups)) + b"".join(groups)


def _parts(run: range) -> Iterator[range]:
    for start in range(run.start, run.stop, _SIZE_MAX):
        yield range(start, min(start + _SIZE_MAX, run.stop))


def decode(data: bytes) -> list[range] | Malformed:
    """Return the ranges of ids in the list, ascending as the writer has them."""
    if len(data) < _HEADER.size:
        return Malformed("the list is shorter than its header", len(data))
    version, count = _HEADER.unpack_from(data)
    if version != _VERSION:
        return Malformed(f"version {version} of the list", 0)
    if not 0 <= count <= (len(data) - _HEADER.size) // _GROUP.size:
        return Malformed(f"{count} groups in {len(data)} bytes", 4)
    runs: list[range] = []
    for number in range(count):
        offset = _HEADER.size + number * _GROUP.size
        first, last, size, period = _GROUP.unpack_from(data, offset)
        is_single = last == first
        if (
            size < 1
            or first < 0
            or last < first
            or (not is_single and (period < size or (last - first) % period))
        ):
            return Malformed("a group that no writer makes", offset)
        starts = range(first, last + 1, period) if not is_single else range(first, first + 1)
        if len(runs) + len(starts) > _RUNS_MAX:
            return Malformed(f"more than {_RUNS_MAX} runs", offset)
        runs += [range(start, start + size) for start in starts]
    return runs
