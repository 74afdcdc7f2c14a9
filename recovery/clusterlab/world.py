"""Time, the queue of events, and chance."""

from __future__ import annotations

import enum
import heapq
from random import Random
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

EVENTS_MAX = 20_000
"""A schedule has a few hundred events. One with so many is busy for ever."""


class EventKind(enum.Enum):
    """The kinds of lines of a trace."""

    REQUEST = "a request arrives"
    LOST = "a request is lost"
    ANSWER = "an answer arrives"
    NO_ANSWER = "a call ends without an answer"
    REPORT = "a client tells its application"
    FAULT = "something goes wrong"
    MENDED = "something works again"
    VIOLATION = "an invariant does not hold"


class TraceEvent(NamedTuple):
    """One line of a trace."""

    at: float
    kind: EventKind
    source: str
    """The client, the bookie or the metadata. Empty for a violation."""
    target: str
    """Where a message arrives; otherwise empty."""
    text: str

    def __str__(self) -> str:
        where = f"{self.source} → {self.target}" if self.target else self.source
        return f"{self.at:7.1f}  {where:<24} {self.text}"


class BusyForEver(Exception):
    """Events go on without an end."""


class Choices:
    """The source of all chance. Every choice is a number; with 0 nothing goes wrong."""

    def __init__(self, seed: int, given: Sequence[int] | None = None) -> None:
        """With `given` the choices are these, and 0 after the last of them."""
        self._random = None if given is not None else Random(seed).random
        self._given = iter(given or ())
        self.made: list[int] = []

    def pick(self, count: int) -> int:
        """Return a number below `count`."""
        random = self._random
        chosen = int(random() * count) if random is not None else next(self._given, 0) % count
        self.made.append(chosen)
        return chosen

    def happens(self, probability: float) -> bool:
        """Return whether something happens that has this probability."""
        random = self._random
        chosen = random() < probability if random is not None else next(self._given, 0) > 0
        self.made.append(chosen)
        return chosen


class World:
    """The events that will happen, in the order of their times."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.now = 0.0
        self.trace: list[TraceEvent] | None = None
        """The events of a schedule that is shown; `None` for all others."""
        self._events: list[tuple[float, int, Callable[..., object], tuple[object, ...]]] = []
        self._count = 0

    def after(self, delay: float, action: Callable[..., object], *arguments: object) -> None:
        """Let something happen. Events of the same time happen in the order of these calls."""
        self._count += 1
        heapq.heappush(self._events, (self.now + delay, self._count, action, arguments))

    def delay(self) -> float:
        """Return a delay of a message: mostly short, sometimes longer than many others together."""
        chosen = self.choices.pick(12)
        return 1.0 + chosen if chosen < 10 else chosen * 4.0

    def run(self, events_max: int = EVENTS_MAX) -> None:
        """Let everything happen."""
        events, pop = self._events, heapq.heappop
        for _ in range(events_max):
            if not events:
                return
            self.now, _, action, arguments = pop(events)
            action(*arguments)
        raise BusyForEver

    def note(self, kind: EventKind, source: str, text: str, target: str = "") -> None:
        """Add a line to the trace, if there is one."""
        if self.trace is not None:
            self.trace.append(TraceEvent(self.now, kind, source, target, text))
