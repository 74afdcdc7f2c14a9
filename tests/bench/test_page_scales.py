"""Scales, ticks, labels and words of the page: pure functions."""

from __future__ import annotations

from itertools import pairwise
from math import inf, isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st
from page import wording
from page.scale import Linear, Log, apart, cost_over, log_over, round_above, round_below, thinned

POSITIVE = st.floats(1e-6, 1e12)


def test_on_a_logarithmic_axis_equal_ratios_are_equal_distances() -> None:
    axis = Log(1, 100)
    assert [axis.at(value) for value in (1, 10, 100)] == [0, 0.5, 1]


def test_what_is_beyond_an_end_stands_at_the_end() -> None:
    assert [Log(1, 100).at(value) for value in (0, 0.5, 1000, inf)] == [0, 0, 1, 1]
    assert [Linear(10).at(value) for value in (-1, 20)] == [0, 1]


@pytest.mark.parametrize(
    ("axis", "ticks"),
    [
        (Log(0.5, 5), [0.5, 1, 2, 5]),
        (Log(0.1, 10), [0.1, 0.2, 0.5, 1, 2, 5, 10]),
        (Log(10, 100_000), [10, 100, 1000, 10_000, 100_000]),
        (Linear(15), [0, 5, 10, 15]),
        (Linear(0.8), [0, 0.2, 0.4, 0.6, 0.8]),
    ],
)
def test_ticks_are_round_values(axis: Log | Linear, ticks: list[float]) -> None:
    assert axis.ticks() == pytest.approx(ticks)


@given(POSITIVE, st.floats(1.01, 1e9))
def test_an_axis_has_some_ticks_and_not_too_many(low: float, times: float) -> None:
    axis = log_over([low, low * times])
    ticks = axis.ticks()
    assert 2 <= len(ticks) <= 8
    assert all(a < b for a, b in pairwise(ticks))
    assert axis.low * 0.999 <= ticks[0]
    assert ticks[-1] <= axis.high * 1.001


@given(st.lists(POSITIVE, min_size=1))
def test_every_value_is_on_its_axis(values: list[float]) -> None:
    axis = log_over(values)
    assert axis.low < min(values)
    assert max(values) < axis.high


def test_what_has_no_logarithm_does_not_stretch_an_axis() -> None:
    assert log_over([0, 1.5, inf, -1]) == log_over([1.5]) == Log(1, 2)
    assert log_over([]).low < log_over([]).high


@pytest.mark.parametrize(
    ("value", "below", "above"), [(1, 1, 1), (3, 2, 5), (0.07, 0.05, 0.1), (5, 5, 5), (999, 500, 1000)]
)
def test_round_values_are_one_two_and_five(value: float, below: float, above: float) -> None:
    assert isclose(round_below(value), below)
    assert isclose(round_above(value), above)


def test_a_flat_cost_is_drawn_from_zero_on() -> None:
    axis = cost_over([9.0, 9.5, 10.0])
    assert axis.at(0) == 0
    assert axis.at(5) == pytest.approx(axis.at(10) / 2)
    assert axis.at(10) < 1


def test_costs_far_apart_are_drawn_by_logarithms() -> None:
    axis = cost_over([1, 100])
    assert axis.at(10) == pytest.approx((axis.at(1) + axis.at(100)) / 2)


@given(st.lists(st.floats(0, 260), min_size=1, max_size=12))
def test_labels_keep_their_order_and_their_distance(places: list[float]) -> None:
    moved = apart(places, 15, 260)
    order = sorted(range(len(places)), key=places.__getitem__)
    for above, below in pairwise(order):
        assert moved[below] - moved[above] >= 15 - 1e-6
    assert min(moved) >= -1e-6
    assert max(moved) <= 260 + 1e-6


def test_labels_with_enough_room_stay_where_they_are() -> None:
    assert apart([100, 20, 50], 15, 260) == [100, 20, 50]


def test_labels_in_each_others_way_meet_in_the_middle() -> None:
    assert apart([100, 100], 10, 260) == [95, 105]


def test_labels_without_enough_room_stand_closer_together() -> None:
    assert apart([0, 0, 0], 15, 20) == [0, 10, 20]


def test_every_nth_is_kept_of_many() -> None:
    assert thinned(range(10), 5) == [0, 2, 4, 6, 8]
    assert thinned(range(5), 5) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (1_234_567.8, "1,234,568"),
        (99.6, "100"),
        (12, "12.0"),
        (0.3, "0.300"),
        (0, "0"),
        (0.00012345, "0.000123"),
        (inf, "inf"),
    ],
)
def test_a_number_has_commas_or_three_digits(value: float, said: str) -> None:
    assert wording.number(value) == said


@pytest.mark.parametrize(
    ("value", "said"), [(20, "20 µs"), (500, "500 µs"), (1000, "1 ms"), (1500, "1.5 ms"), (2e6, "2 s")]
)
def test_a_duration_has_the_unit_that_suits_it(value: float, said: str) -> None:
    assert wording.duration(value) == said


@pytest.mark.parametrize(
    ("value", "said"), [(64, "64"), (100_000, "100k"), (10_000_000, "10M"), (2.5e9, "2.5G")]
)
def test_a_place_on_an_axis_is_said_in_few_letters(value: float, said: str) -> None:
    assert wording.compact(value) == said


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (1.14, "+14 %"),
        (0.9, "−10 %"),  # noqa: RUF001
        (1.001, "±0 %"),
        (2.4, "2.40 times as much"),
    ],
)
def test_a_change_is_said_in_percent_until_it_is_large(times: float, said: str) -> None:
    assert wording.change(times) == said


@pytest.mark.parametrize(
    ("value", "said"), [(0.00123, "0.0012"), (0.7666, "0.77"), (12.34, "12.3"), (1234.5, "1,234")]
)
def test_a_ratio_has_two_digits_behind_the_point_while_it_is_small(value: float, said: str) -> None:
    assert wording.ratio(value) == said
