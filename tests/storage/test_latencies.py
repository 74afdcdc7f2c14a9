"""Quantiles are right within 3 % and forget what is old; the number and the sum are exact."""

from __future__ import annotations

from math import isnan

import pytest

from storage.latencies import WINDOW_S, Latencies


def test_a_quantile_is_wrong_by_three_percent_at_most() -> None:
    latencies = Latencies()
    for microseconds in range(1, 20_001):
        latencies.note(microseconds * 1e-6, 1.0)
    wanted = (0.0001, 0.5, 0.99, 0.999, 1.0)
    found = latencies.summary(1.0).quantiles(wanted)
    assert found == pytest.approx([one * 20_000e-6 for one in wanted], rel=0.032)


def test_the_number_and_the_sum_are_exact_and_a_group_counts_as_all_its_operations() -> None:
    latencies = Latencies()
    latencies.note(0.25, 1.0, 3)
    latencies.note(0.5, 2.0)
    found = latencies.summary(2.0)
    assert (found.count, found.seconds) == (4, 1.25)
    assert found.quantiles((0.5, 1.0)) == pytest.approx([0.25, 0.5], rel=0.032)


def test_an_operation_is_forgotten_in_the_second_window_after_its_own() -> None:
    latencies = Latencies()
    latencies.note(0.001, 0.0)
    latencies.note(1.0, WINDOW_S + 1)
    assert latencies.summary(WINDOW_S + 1).quantiles((0.5, 1.0)) == pytest.approx([0.001, 1.0], rel=0.032)
    assert latencies.summary(2 * WINDOW_S + 2).quantiles((0.5,)) == pytest.approx([1.0], rel=0.032)
    assert isnan(latencies.summary(3 * WINDOW_S + 3).quantiles((0.5,))[0])
    assert latencies.summary(3 * WINDOW_S + 3).count == 2


def test_nothing_is_left_after_a_pause() -> None:
    latencies = Latencies()
    latencies.note(0.001, 0.0)
    assert isnan(latencies.summary(3 * WINDOW_S).quantiles((0.99,))[0])


def test_a_time_of_zero_and_one_of_hours_are_counted() -> None:
    latencies = Latencies()
    latencies.note(0.0, 0.0)
    latencies.note(7200.0, 0.0)
    shortest, longest = latencies.summary(0.0).quantiles((0.5, 1.0))
    assert shortest < 1e-8
    assert longest == pytest.approx(7200.0, rel=0.032)
