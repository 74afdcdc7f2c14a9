"""The engines of one machine: this process alone, or a few more beside it."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from recovery.audit.task import Done, Pace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    from recovery.audit.task import Task

Answer = TypeVar("Answer")

_LOOK_S = 0.1
_AT_ONCE = 4
"""For each process so many tasks are handed over: the parts of a million would not fit into memory."""


@dataclass(frozen=True, slots=True)
class Serial:
    """One task after the other, in this process."""

    rate_max: float | None = None
    name: str = "serial"

    def run(self, tasks: Sequence[Task[Answer]], watch: Callable[[int], None]) -> Iterator[Done[Answer]]:
        pace = Pace(watch, self.rate_max)
        for number, task in enumerate(tasks):
            yield Done(number, task.run(pace))


class _Worker:
    """What a process of the pool keeps between its tasks."""

    pace = Pace()


def _begin(counter: Any, rate_max: float | None) -> None:
    def tell(size: int) -> None:
        with counter.get_lock():
            counter.value += size

    _Worker.pace = Pace(tell, rate_max)


def _work(task: Task[Answer]) -> Answer:
    return task.run(_Worker.pace)


@dataclass(frozen=True, slots=True)
class Pool:
    """Several processes, started anew: a forked child must not touch the stores that its parent has open."""

    jobs: int
    rate_max: float | None = None
    name: str = "local"

    def run(self, tasks: Sequence[Task[Answer]], watch: Callable[[int], None]) -> Iterator[Done[Answer]]:
        jobs = min(self.jobs, len(tasks))
        if jobs <= 1:
            yield from Serial(self.rate_max).run(tasks, watch)
            return
        context = multiprocessing.get_context("spawn")
        counter = context.Value("q", 0)
        rate = None if self.rate_max is None else self.rate_max / jobs
        pool = ProcessPoolExecutor(jobs, context, _begin, (counter, rate))
        try:
            yield from _ended(pool, tasks, _AT_ONCE * jobs, _Meter(counter, watch))
        finally:
            # Who stops in the middle waits for the tasks under way only.
            pool.shutdown(wait=True, cancel_futures=True)


class _Meter:
    """Tells whoever watches what all processes have read since the last time."""

    def __init__(self, counter: Any, watch: Callable[[int], None]) -> None:
        self._counter = counter
        self._watch = watch
        self._told = 0

    def look(self) -> None:
        read = self._counter.value
        if read > self._told:
            self._watch(read - self._told)
            self._told = read


def _ended(
    pool: ProcessPoolExecutor, tasks: Sequence[Task[Answer]], at_once: int, meter: _Meter
) -> Iterator[Done[Answer]]:
    # The largest first: whoever begins with the smallest waits for one large one in the end.
    waiting = sorted(range(len(tasks)), key=lambda number: tasks[number].size)
    under_way: dict[Future[Answer], int] = {}
    while waiting or under_way:
        while waiting and len(under_way) < at_once:
            number = waiting.pop()
            under_way[pool.submit(_work, tasks[number])] = number
        ended, _ = wait(under_way, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
        meter.look()
        for future in ended:
            yield Done(under_way.pop(future), future.result())


def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
