"""How long a turn waits for those before it."""

from __future__ import annotations

import sys

from storage.patience import SLOW_S, Patience


class Clock:
    """Says what it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def passing(patience: Patience, clock: Clock, seconds: float) -> bool:
    """Whether nobody waited any longer, as one of a turn had taken so long to pass."""
    began = patience.turn_over()
    clock.now += seconds
    return patience.has_ended(patience.now() - began)


def test_who_passes_quickly_is_waited_for() -> None:
    clock = Clock()
    patience = Patience(clock)
    assert not any(passing(patience, clock, SLOW_S / 2) for _ in range(100))


def test_who_is_slow_is_waited_for_no_longer_and_the_next_ones_not_at_all() -> None:
    clock = Clock()
    patience = Patience(clock)
    assert passing(patience, clock, 2 * SLOW_S)
    assert [passing(patience, clock, 0) for _ in range(9)] == [True] * 7 + [False] * 2


def test_where_all_are_slow_it_waits_ever_more_rarely() -> None:
    patience = Patience()
    waits = 0
    for _ in range(10_000):
        patience.turn_over()
        waits += not patience.has_ended(0)  # at once: it does not yet know that they are slow
        patience.has_ended(2 * SLOW_S)
    assert 5 < waits < 25


def test_one_slow_passing_now_and_then_does_not_end_the_waiting() -> None:
    clock = Clock()
    patience = Patience(clock)
    for _ in range(20):
        passing(patience, clock, 2 * SLOW_S)
        assert sum(not passing(patience, clock, 0) for _ in range(100)) == 93


def test_a_slow_passing_is_shorter_than_waiting_for_the_interpreter() -> None:
    assert sys.getswitchinterval() > SLOW_S
