"""Ranges of entry logs: where a log is cut, and how the parts are put together.

A range begins at a guess, the first sound record after its start. A payload that contains bytes of an entry
log can mislead it. But the range before it is read record by record, and the next range has to begin where it
ends. If it does not, the later range is read again from there.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from recovery.audit.model.runs import merged
from recovery.audit.scan.entry_log_flaws import merged_flaws

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recovery.audit.model.scan_results import LogPart


def ranges(size: int, count: int) -> Iterator[tuple[int, int]]:
    """Yield `count` ranges of about the same size for a log of that size."""
    for number in range(count):
        yield size * number // count, size * (number + 1) // count


@dataclass(frozen=True, slots=True)
class Stitched:
    """The valid parts in order, and the ranges that have to be read again, each from a record on."""

    parts: tuple[LogPart, ...]
    broken: tuple[tuple[int, int], ...]


def stitch(parts: Sequence[LogPart]) -> Stitched:
    """Return which parts of one log are valid. A range may have several parts with different first
    records.
    """
    kept: list[LogPart] = []
    broken: list[tuple[int, int]] = []
    expected = min((part for part in parts), key=lambda part: part.start).entry
    for end in sorted({part.end for part in parts}):
        several = [part for part in parts if part.end == end]
        if expected >= end and end < several[0].file_size:
            continue  # a record or hole before this range extends beyond it
        right = [part for part in several if part.entry == expected]
        kept += right[-1:]
        if not right:
            # Where a wrong guess ends is mostly right, so that the following ranges can be read again at the
            # same time.
            broken.append((expected, end))
        last = (right or several)[-1]
        if last.stop is not None:
            break
        expected = last.exit
    return Stitched(tuple(kept), tuple(broken))


def broken(parts: Sequence[LogPart]) -> list[tuple[int, int]]:
    """Return the ranges that have to be read again, each with the record at which it begins."""
    return list(stitch(parts).broken)


def stitched(parts: Sequence[LogPart]) -> LogPart:
    """Merge the parts of one log into what a single walk would have returned. No range may be broken."""
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
        flaws=merged_flaws(part.flaws for part in found.parts),
        maps=tuple(record for part in found.parts for record in part.maps),
        fillers=sum(part.fillers for part in found.parts),
        types={ledger: kind for part in found.parts for ledger, kind in part.types.items()},
        unverified=dict(unverified),
        seconds=sum(part.seconds for part in parts),
    )
