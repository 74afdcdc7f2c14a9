"""A unit of work that any engine runs: in this process, in another one, or on another machine."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from recovery.audit.engines.sql import SqlEngine

Part_co = TypeVar("Part_co", covariant=True)
Answer = TypeVar("Answer")


class AuditTask(Protocol[Part_co]):
    """A task is frozen and pickled: it contains paths and numbers, never open files."""

    @property
    def name(self) -> str:
        """A name for users and for finding its result again: unique in an audit."""

    @property
    def size(self) -> int:
        """The number of bytes that the task is going to read."""

    def run(self, throttle: ReadThrottle) -> Part_co:
        """Run the task and return its result."""


def needs_this_machine(task: AuditTask[Any]) -> bool:
    """Return whether the task reads a temporary file of this machine, such as the copy of an index."""
    return bool(getattr(task, "needs_this_machine", False))


def _ignore_bytes(_: int) -> None:
    """Ignore the number: the default callback."""


@dataclass(slots=True)
class ReadThrottle:
    """Reports the bytes that a task reads and limits their rate. Each worker has one."""

    tell: Callable[[int], None] = _ignore_bytes
    rate_max: float | None = None
    """Bytes per second."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _ahead_until: float = field(default=0.0, init=False)

    def without_reporting(self) -> ReadThrottle:
        """Return a throttle with the same rate that reports nothing, for data that is read again."""
        return ReadThrottle(rate_max=self.rate_max, clock=self.clock, sleep=self.sleep)

    def read(self, size: int) -> None:
        """Report that bytes were read, and sleep as long as the rate requires."""
        self.tell(size)
        if self.rate_max is None:
            return
        now = self.clock()
        self._ahead_until = max(now, self._ahead_until) + size / self.rate_max
        if self._ahead_until > now:
            self.sleep(self._ahead_until - now)


@dataclass(frozen=True, slots=True)
class TaskResult(Generic[Answer]):
    """The result of a task. `number` is its index among the tasks that were given."""

    number: int
    part: Answer


class TaskEngine(Protocol):
    """Runs tasks."""

    @property
    def name(self) -> str:
        """The name in reports."""

    def run(
        self, tasks: Sequence[AuditTask[Answer]], watch: Callable[[int], None]
    ) -> Iterator[TaskResult[Answer]]:
        """Yield the results in any order. `watch` is called with bytes read. The first error of a task is
        raised.
        """

    def sql(self, rows: int) -> SqlEngine:
        """Return an engine for queries over tables of so many rows."""


@dataclass(frozen=True, slots=True)
class UnreadFile:
    """A file that a task could not read, because the system refused."""

    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class TolerantTask(Generic[Answer]):
    """Wraps a task whose file may be unreadable: that becomes a result, so that other tasks go on."""

    task: AuditTask[Answer]

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def size(self) -> int:
        return self.task.size

    @property
    def needs_this_machine(self) -> bool:
        return needs_this_machine(self.task)

    def run(self, throttle: ReadThrottle) -> Answer | UnreadFile:
        try:
            return self.task.run(throttle)
        except OSError as error:
            return UnreadFile(str(error.filename or self.task.name), error.strerror or str(error))
