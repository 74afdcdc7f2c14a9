"""A treemap: sizes as rectangles that fill a rectangle, squarified so that each is nearly a square."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True)
class Box:
    left: float
    top: float
    width: float
    height: float


def squarified(sizes: Sequence[float], whole: Box) -> list[Box]:
    """Return a box for each size, in their order: the largest first, none of them 0."""
    scale = whole.width * whole.height / sum(sizes) if sizes else 0
    return list(_filled([size * scale for size in sizes], whole))


def _filled(areas: Sequence[float], rest: Box) -> Iterator[Box]:
    """Fill row after row along the shorter side. A row takes another area while that makes its boxes no
    narrower.
    """
    at = 0
    while at < len(areas):
        side = min(rest.width, rest.height)
        end = at + 1
        while end < len(areas) and _worst(areas[at : end + 1], side) <= _worst(areas[at:end], side):
            end += 1
        row = areas[at:end]
        yield from _row(row, rest)
        rest = _remaining(sum(row), rest)
        at = end


def _worst(row: Sequence[float], side: float) -> float:
    """Return the largest deviation from a square in a row."""
    depth = sum(row) / side if side else 0
    return max(max(depth * depth / area, area / (depth * depth)) if depth else 0.0 for area in row)


def _row(row: Sequence[float], rest: Box) -> Iterator[Box]:
    is_upright = rest.width >= rest.height
    depth = sum(row) / (rest.height if is_upright else rest.width)
    at = rest.top if is_upright else rest.left
    for area in row:
        length = area / depth
        yield Box(rest.left, at, depth, length) if is_upright else Box(at, rest.top, length, depth)
        at += length


def _remaining(area: float, rest: Box) -> Box:
    if rest.width >= rest.height:
        depth = min(area / rest.height, rest.width)
        return Box(rest.left + depth, rest.top, rest.width - depth, rest.height)
    depth = min(area / rest.width, rest.height)
    return Box(rest.left, rest.top + depth, rest.width, rest.height - depth)
