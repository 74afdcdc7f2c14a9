"""Entry logs in ranges: where they are cut, and how the parts are put together again.

A range begins at a guess, the first sound record behind its start. A payload that holds the bytes of an entry
log can mislead it; but the range before it walks record by record, and where it ends the next one has to
begin. Where it does not, the later range is read again, from there on.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from recovery.audit.log_flaws import together
from recovery.verify.runs import merged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recovery.verify.parts import LogPart


def ranges(size: int, count: int) -> Iterator[tuple[int, int]]:
    """A log of that size in so many ranges, about equally large."""
    for number in range(count):
        yield size * number // count, size * (number + 1) // count


@dataclass(frozen=True, slots=True)
class Stitched:
    """The parts that hold, in order, and the ranges that have to be read again, each from a record on."""

    parts: tuple[LogPart, ...]
    broken: tuple[tuple[int, int], ...]


def stitch(parts: Sequence[LogPart]) -> Stitched:
    """Which parts of one log hold. Of a range there may be several: with different first records."""
    kept: list[LogPart] = []
    broken: list[tuple[int, int]] = []
    expected = min((part for part in parts), key=lambda part: part.start).entry
    for end in sorted({part.end for part in parts}):
        several = [part for part in parts if part.end == end]
        if expected >= end and end < several[0].file_size:
            continue  # a record before it, or a hole, goes on behind it
        right = [part for part in several if part.entry == expected]
        kept += right[-1:]
        if not right:
            # Where a wrong guess ends is most often right: what follows can be read again at the same time.
            broken.append((expected, end))
        last = (right or several)[-1]
        if last.stop is not None:
            break
        expected = last.exit
    return Stitched(tuple(kept), tuple(broken))


def broken(parts: Sequence[LogPart]) -> list[tuple[int, int]]:
    """The ranges that have to be read again, each from the record on with which it begins."""
    return list(stitch(parts).broken)


def stitched(parts: Sequence[LogPart]) -> LogPart:
    """The parts of one log as one: just what a single walk would have found. Their stitches must hold."""
    found = stitch(parts)
    assert not found.broken, "a range has to be read again"
    first, last = found.parts[0], found.parts[-1]
    unverified: Counter[int] = Counter()
    for part in found.parts:
        unverified.update(part.unverified)
    return replace(
        last,
        start=min(part.start for part in parts),
        end=max(part.end for part in parts),
        entry=first.entry,
        runs=merged(part.runs for part in found.parts),
        records=sum(part.records for part in found.parts),
        size=sum(part.size for part in found.parts),
        flaws=together(part.flaws for part in found.parts),
        maps=tuple(record for part in found.parts for record in part.maps),
        fillers=sum(part.fillers for part in found.parts),
        types={ledger: kind for part in found.parts for ledger, kind in part.types.items()},
        unverified=dict(unverified),
        seconds=sum(part.seconds for part in parts),
    )
