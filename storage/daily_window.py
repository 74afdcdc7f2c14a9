"""A part of every day, such as from 01:00 to 05:00, by the clock of the machine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from datetime import time

_WINDOW = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])")


@dataclass(frozen=True, slots=True)
class DailyWindow:
    """The minutes from `start` up to `end`, counted from midnight. It may include midnight."""

    start: int
    end: int

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the window of a text such as "01:00-05:00"; `None` if it is none, or an empty one."""
        match = _WINDOW.fullmatch(text)
        if match is None:
            return None
        first_hour, first_minute, last_hour, last_minute = map(int, match.groups())
        start, end = first_hour * 60 + first_minute, last_hour * 60 + last_minute
        return None if start == end else cls(start, end)

    def includes(self, now: time) -> bool:
        """Return whether the window is open at that time of day."""
        minute = now.hour * 60 + now.minute
        if self.start < self.end:
            return self.start <= minute < self.end
        return minute >= self.start or minute < self.end

    def seconds_until_start(self, now: time) -> float:
        """Return how long it takes until the window opens; 0 while it is open."""
        if self.includes(now):
            return 0.0
        second = (now.hour * 60 + now.minute) * 60 + now.second + now.microsecond / 1e6
        return (self.start * 60 - second) % (24 * 3600)

    @property
    def opens_at(self) -> str:
        """The time of day at which it opens, as `01:00`."""
        return f"{self.start // 60:02}:{self.start % 60:02}"
