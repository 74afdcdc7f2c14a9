"""How long the operations of one kind took: their number, their time, and quantiles of the last minutes.

A value is counted in a bucket whose width is 1/16 of a power of two, so a quantile is wrong by 3 % at most.
Buckets are forgotten after one to two minutes, so that a quantile tells of now and not of the whole day. The
number and the sum are never forgotten, as an exporter of counters needs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp, nan

WINDOW_S = 60.0
"""The length of a window. Quantiles are those of the present window and of the one before."""

_SCALE = 32
"""`frexp` returns a mantissa from 0.5 to 1, so that there are 16 buckets for each power of two."""

_LEAST_S = 1e-9
"""Added to each value, because zero has no power of two."""


@dataclass(frozen=True, slots=True)
class LatencySummary:
    """The figures of one kind of operation at one moment."""

    count: int
    seconds: float
    buckets: tuple[tuple[int, int], ...]
    """The buckets of the last minutes and the number of operations in each, ascending."""

    def quantiles(self, wanted: tuple[float, ...]) -> list[float]:
        """Return the time in seconds below which each of these parts of the operations lies, ascending.

        NaN if there was no operation in the last minutes.
        """
        total = sum(number for _, number in self.buckets)
        if not total:
            return [nan] * len(wanted)
        found: list[float] = []
        seen = 0
        for bucket, number in self.buckets:
            seen += number
            while len(found) < len(wanted) and seen >= wanted[len(found)] * total:
                found.append(_middle_of(bucket))
        return found


class Latencies:
    """Counts operations of one kind. For one thread."""

    __slots__ = ("_buckets", "_earlier", "_turn_at", "count", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self._buckets: dict[int, int] = {}
        self._earlier: dict[int, int] = {}
        self._turn_at = 0.0
        """When the present window ends."""

    def note(self, seconds: float, now: float, count: int = 1) -> None:
        """Count operations that took so long each and end at `now`, by any steady clock."""
        if now >= self._turn_at:
            self._turn(now)
        self.count += count
        self.seconds += seconds * count
        mantissa, exponent = frexp(seconds + _LEAST_S)
        bucket = exponent * 16 + int(mantissa * _SCALE)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + count

    def _turn(self, now: float) -> None:
        """Begin a window. After a pause of more than one window nothing is left of the one before."""
        self._earlier = self._buckets if now < self._turn_at + WINDOW_S else {}
        self._buckets = {}
        self._turn_at = now + WINDOW_S

    def summary(self, now: float) -> LatencySummary:
        """Return the figures at this moment."""
        if now >= self._turn_at:
            self._turn(now)
        both = self._buckets.keys() | self._earlier.keys()
        buckets = tuple((one, self._buckets.get(one, 0) + self._earlier.get(one, 0)) for one in sorted(both))
        return LatencySummary(self.count, self.seconds, buckets)


def _middle_of(bucket: int) -> float:
    """Return the middle of a bucket, in seconds."""
    exponent, part = divmod(bucket - 16, 16)
    return float((part + 16.5) / _SCALE * 2.0**exponent)
