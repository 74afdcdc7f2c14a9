"""Where turns are led: decided by how long they took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.aio.inline_policy import INLINE_MAX_S, InlinePolicy, waited_s

if TYPE_CHECKING:
    import pytest

SWITCH_S = 0.005
SLOW_S = 5 * INLINE_MAX_S
QUICK_S = INLINE_MAX_S / 10


def new_pace() -> InlinePolicy:
    return InlinePolicy(lambda: SWITCH_S)


def turns_until_away(pace: InlinePolicy, seconds: float) -> int:
    """How many such turns it leads on the loop before it leaves them to a thread."""
    for turns in range(1000):
        if not pace.is_quick:
            return turns
        pace.led_on_loop(seconds)
    return 1000


def turns_until_back(pace: InlinePolicy, seconds: float) -> int:
    for turns in range(5000):
        if pace.is_quick:
            return turns
        pace.led_in_thread(seconds)
    return 5000


def test_computation_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.aio.inline_policy.perf_counter", lambda: 17.0)
    monkeypatch.setattr("storage.aio.inline_policy.thread_time", lambda: 5.0)
    assert waited_s() == 12.0


def test_a_single_slow_turn_is_no_slow_disk() -> None:
    pace = new_pace()
    pace.led_on_loop(QUICK_S)
    pace.led_on_loop(SLOW_S)
    assert pace.is_quick


def test_turns_that_are_quick_stay_on_the_loop() -> None:
    assert turns_until_away(new_pace(), 0.99 * INLINE_MAX_S) == 1000


def test_turns_that_are_slow_on_average_are_left_to_a_thread() -> None:
    assert turns_until_away(new_pace(), SLOW_S) == 2
    assert turns_until_away(new_pace(), 1.2 * INLINE_MAX_S) < 20
    assert turns_until_away(new_pace(), 1000 * INLINE_MAX_S) == 1


def test_it_comes_back_after_turns_that_may_have_been_quick() -> None:
    pace = new_pace()
    turns_until_away(pace, SLOW_S)
    assert turns_until_back(pace, SWITCH_S) == 8
    assert turns_until_away(pace, QUICK_S) == 1000


def test_each_time_it_was_wrong_it_stays_away_for_twice_as_long() -> None:
    pace = new_pace()
    turns_until_away(pace, SLOW_S)
    absences = []
    for _ in range(9):
        absences.append(turns_until_back(pace, SLOW_S))
        assert turns_until_away(pace, SLOW_S) == 1, "one slow turn is enough when it tries again"
    assert absences == [8, 16, 32, 64, 128, 256, 512, 1024, 1024]


def test_after_some_quick_turns_it_has_forgotten_that() -> None:
    pace = new_pace()
    for _ in range(4):
        turns_until_away(pace, SLOW_S)
        turns_until_back(pace, SLOW_S)
    for _ in range(20):
        pace.led_on_loop(QUICK_S)
    turns_until_away(pace, SLOW_S)
    assert turns_until_back(pace, QUICK_S) == 8


def test_while_a_disk_is_stuck_there_is_no_trying() -> None:
    pace = new_pace()
    turns_until_away(pace, SLOW_S)
    assert turns_until_back(pace, SWITCH_S + INLINE_MAX_S) == 5000
