"""The boxes of a treemap have the right size, do not overlap, and are inside the whole."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.audit.report.treemap import Box, squarified

WHOLE = Box(0, 0, 1140, 300)


@given(
    st.lists(st.integers(1, 1 << 40), min_size=1, max_size=61).map(lambda sizes: sorted(sizes, reverse=True))
)
def test_each_box_has_its_share_and_is_inside(sizes: list[int]) -> None:
    boxes = squarified(sizes, WHOLE)
    area = WHOLE.width * WHOLE.height
    for size, box in zip(sizes, boxes, strict=True):
        assert box.width * box.height == pytest.approx(area * size / sum(sizes), rel=1e-3, abs=1e-3)
        assert box.left >= -1e-6
        assert box.top >= -1e-6
        assert box.left + box.width <= WHOLE.width + 1e-3
        assert box.top + box.height <= WHOLE.height + 1e-3


def test_no_boxes_overlap_and_most_are_nearly_square() -> None:
    boxes = squarified([600, 500, 300, 200, 200, 100, 90, 80, 70, 60, 50], WHOLE)
    for one, other in combinations(boxes, 2):
        across = min(one.left + one.width, other.left + other.width) - max(one.left, other.left)
        down = min(one.top + one.height, other.top + other.height) - max(one.top, other.top)
        assert min(across, down) < 1e-6
    ratios = [max(box.width / box.height, box.height / box.width) for box in boxes]
    assert sorted(ratios)[len(ratios) // 2] < 2


def test_without_sizes_there_are_no_boxes() -> None:
    assert squarified([], WHOLE) == []
