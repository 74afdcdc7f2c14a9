"""Scales: where a value stands on an axis, from 0 to 1, and which values the axis names."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, inf, log10
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_STEPS = (1, 2, 5)
_TICKS_MAX = 8
_ROOM = 1.04
_WIDE = 8
"""So many times as much as the least, and a linear axis shows the least no more."""
_ROUNDING = 1e-9


class Scale(Protocol):
    """An axis."""

    def at(self, value: float) -> float:
        """Its place from 0 to 1; what is beyond an end stands at the end."""

    def ticks(self) -> list[float]:
        """The round values on it, in order."""


@dataclass(frozen=True, slots=True)
class Log:
    """Equal distances are equal ratios."""

    low: float
    high: float

    def at(self, value: float) -> float:
        if value <= self.low:
            return 0.0
        if value >= self.high:
            return 1.0
        return log10(value / self.low) / log10(self.high / self.low)

    def ticks(self) -> list[float]:
        exponents = range(floor(log10(self.low)) - 1, ceil(log10(self.high)) + 1)
        fine = self._within(step * 10.0**exponent for exponent in exponents for step in _STEPS)
        if len(fine) <= _TICKS_MAX:
            return fine
        return thinned(self._within(10.0**exponent for exponent in exponents), _TICKS_MAX)

    def _within(self, values: Iterable[float]) -> list[float]:
        low, high = self.low * (1 - _ROUNDING), self.high * (1 + _ROUNDING)
        return [value for value in values if low <= value <= high]


@dataclass(frozen=True, slots=True)
class Linear:
    """Equal distances are equal differences, from zero on: a cost that is flat looks flat."""

    high: float

    def at(self, value: float) -> float:
        return min(1.0, max(0.0, value / self.high))

    def ticks(self) -> list[float]:
        step = round_above(self.high / 5)
        return [index * step for index in range(floor(self.high / step * (1 + _ROUNDING)) + 1)]


def round_below(value: float) -> float:
    """The greatest of 1, 2, 5, 10, 20 … that is not above it."""
    return max(one for one in _around(value) if one <= value * (1 + _ROUNDING))


def round_above(value: float) -> float:
    """The least of 1, 2, 5, 10, 20 … that is not below it."""
    return min(one for one in _around(value) if one >= value * (1 - _ROUNDING))


def _around(value: float) -> list[float]:
    exponent = floor(log10(value))
    return [step * 10.0**power for power in range(exponent - 1, exponent + 2) for step in _STEPS]


def log_over(values: Iterable[float]) -> Log:
    """An axis with all of them and with round ends; what a logarithm does not have is left out."""
    kept = [value for value in values if 0 < value < inf] or [1.0]
    low, high = round_below(min(kept) / _ROOM), round_above(max(kept) * _ROOM)
    return Log(low, high)


def cost_over(values: Sequence[float]) -> Scale:
    """From zero on where that shows all of them, otherwise by logarithms."""
    kept = [value for value in values if 0 < value < inf] or [1.0]
    if max(kept) > _WIDE * min(kept):
        return log_over(kept)
    high = max(kept) * _ROOM
    step = round_above(high / 5)
    return Linear(ceil(high / step) * step)


def thinned(values: Sequence[float], most: int) -> list[float]:
    """Every n-th of them, so that there are no more than that."""
    return list(values[:: max(1, ceil(len(values) / most))])


def apart(places: Sequence[float], gap: float, high: float) -> list[float]:
    """The places moved as little as it takes for labels not to cover each other, between 0 and `high`.

    They keep their order. Where there is no room for all, they stand closer together.
    """
    order = sorted(range(len(places)), key=places.__getitem__)
    gap = min(gap, high / max(1, len(places) - 1))
    # Without their gaps they only have to be in order: then those in each other's way meet in the middle.
    pressed = _pressed([places[index] - rank * gap for rank, index in enumerate(order)])
    last = high - gap * (len(places) - 1)
    moved = dict(zip(order, pressed, strict=True))
    return [
        min(max(moved[index], 0.0), last) + rank * gap
        for index, rank in sorted((index, rank) for rank, index in enumerate(order))
    ]


def _pressed(values: Sequence[float]) -> list[float]:
    """The nearest values that do not fall: neighbours that do become their mean."""
    blocks: list[list[float]] = []
    for value in values:
        blocks.append([value])
        while len(blocks) > 1 and _mean(blocks[-2]) > _mean(blocks[-1]):
            blocks[-2:] = [blocks[-2] + blocks[-1]]
    return [_mean(block) for block in blocks for _ in block]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
