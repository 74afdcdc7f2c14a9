"""The part of a day in which compactions run."""

from __future__ import annotations

from datetime import time

import pytest

from storage.daily_window import DailyWindow


@pytest.mark.parametrize(
    ("text", "included", "excluded"),
    [
        ("01:00-05:00", ["01:00", "04:59"], ["00:59", "05:00", "23:59"]),
        ("22:30-02:00", ["22:30", "23:59", "00:00", "01:59"], ["22:29", "02:00", "12:00"]),
        ("00:00-23:59", ["00:00", "23:58"], ["23:59"]),
    ],
)
def test_a_window_has_its_start_and_not_its_end(text: str, included: list[str], excluded: list[str]) -> None:
    window = DailyWindow.parse(text)
    assert window is not None
    assert all(window.includes(time.fromisoformat(one)) for one in included)
    assert not any(window.includes(time.fromisoformat(one)) for one in excluded)


@pytest.mark.parametrize(
    "text", ["", "1:00-2:00", "01:00-24:00", "01:60-02:00", "01:00-01:00", "01:00-02:00 "]
)
def test_a_text_that_is_no_window_is_not_accepted(text: str) -> None:
    assert DailyWindow.parse(text) is None


def test_the_time_until_a_window_opens() -> None:
    window = DailyWindow(60, 300)
    assert window.seconds_until_start(time(0, 59, 30)) == 30
    assert window.seconds_until_start(time(1, 0)) == 0
    assert window.seconds_until_start(time(5, 0)) == 20 * 3600
    assert window.opens_at == "01:00"
