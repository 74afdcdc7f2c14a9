"""A piece of work that any engine runs: in this process, in another one, on another machine."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Part_co = TypeVar("Part_co", covariant=True)
Answer = TypeVar("Answer")


class Task(Protocol[Part_co]):
    """Frozen, and pickled as it is: paths and numbers, never open files."""

    @property
    def name(self) -> str:
        """What it is about, for people and for finding its part again: unique in an audit."""

    @property
    def size(self) -> int:
        """Bytes it is going to read."""

    def run(self, pace: Pace) -> Part_co:
        """Does it."""


def stays(task: Task[Any]) -> bool:
    """Whether only this machine has what it reads: the copy of an index, in a directory for the moment."""
    return bool(getattr(task, "stays", False))


def _nowhere(_: int) -> None:
    """Progress that nobody watches."""


@dataclass(slots=True)
class Pace:
    """What a task tells of the bytes it has read, and what holds it back. One for each worker."""

    tell: Callable[[int], None] = _nowhere
    rate_max: float | None = None
    """Bytes a second."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _ahead_until: float = field(default=0.0, init=False)

    def unseen(self) -> Pace:
        """The same rate for what is read once more, of which nobody has to hear."""
        return Pace(rate_max=self.rate_max, clock=self.clock, sleep=self.sleep)

    def read(self, size: int) -> None:
        """So many more bytes were read. Returns when they may have been, at that rate."""
        self.tell(size)
        if self.rate_max is None:
            return
        now = self.clock()
        self._ahead_until = max(now, self._ahead_until) + size / self.rate_max
        if self._ahead_until > now:
            self.sleep(self._ahead_until - now)


@dataclass(frozen=True, slots=True)
class Done(Generic[Answer]):
    """A task that has ended. `number` is its place among those that were given."""

    number: int
    part: Answer


class Engine(Protocol):
    """Who runs tasks."""

    @property
    def name(self) -> str:
        """As reports tell it."""

    def run(self, tasks: Sequence[Task[Answer]], watch: Callable[[int], None]) -> Iterator[Done[Answer]]:
        """The parts, in any order. `watch` hears of bytes read. The first error of a task is raised."""
