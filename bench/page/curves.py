"""Curves: what a figure comes to along an axis, where each scenario is one point of it."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from page.run import Row, Run


@dataclass(frozen=True, slots=True)
class Spot:
    """One contender at one place: the median and the middle half of the rounds.

    A disk has slow phases: the worst round of all would decide how much of a plot is empty.
    """

    x: float
    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Curve:
    """One contender along the axis."""

    contender: str
    spots: Sequence[Spot]

    @property
    def change(self) -> float | None:
        """How many times as much the last is as the first."""
        first, last = self.spots[0].median, self.spots[-1].median
        return last / first if len(self.spots) > 1 and first else None


def along(run: Run, axis: str) -> list[Row]:
    """The scenarios that stand on it, in its order."""
    return sorted((row for row in run.rows if axis in row.points), key=lambda row: row.points[axis])


def curves(run: Run, axis: str, figure: str) -> list[Curve]:
    """One for each contender, but for those who took part at one place only where others did at several."""
    rows = along(run, axis)
    names = list(dict.fromkeys(name for row in rows for name in row.contenders))
    made = [Curve(name, _spots(rows, axis, name, figure)) for name in names]
    least = min(2, max((len(curve.spots) for curve in made), default=0))
    return [curve for curve in made if curve.spots and len(curve.spots) >= least]


def _spots(rows: Sequence[Row], axis: str, contender: str, figure: str) -> list[Spot]:
    found = [(row.points[axis], row.result.values(contender, figure)) for row in rows]
    return [_spot(x, values) for x, values in found if values and min(values) > 0]


def _spot(x: float, values: Sequence[float]) -> Spot:
    if len(values) == 1:
        return Spot(x, values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spot(x, median, low, high)
