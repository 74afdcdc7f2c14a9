"""The engines of one machine: this process alone, or a pool of processes."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from recovery.audit.engines.sql import DuckSql
from recovery.audit.engines.task import ReadThrottle, TaskResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    from recovery.audit.engines.task import AuditTask

Answer = TypeVar("Answer")

_LOOK_S = 0.1
_AT_ONCE = 4
"""The number of tasks submitted for each process, because the results of all tasks may not fit
into memory.
"""


@dataclass(frozen=True, slots=True)
class Serial:
    """Runs one task after the other in this process."""

    rate_max: float | None = None
    name: str = "serial"

    def run(
        self, tasks: Sequence[AuditTask[Answer]], watch: Callable[[int], None]
    ) -> Iterator[TaskResult[Answer]]:
        throttle = ReadThrottle(watch, self.rate_max)
        for number, task in enumerate(tasks):
            yield TaskResult(number, task.run(throttle))

    def sql(self, rows: int) -> DuckSql:  # noqa: ARG002 - what does not fit into memory goes to the disk
        return DuckSql(threads=1)


class _PoolWorker:
    """The state of a pool process between its tasks."""

    throttle = ReadThrottle()


def _begin(counter: Any, rate_max: float | None) -> None:
    def tell(size: int) -> None:
        with counter.get_lock():
            counter.value += size

    _PoolWorker.throttle = ReadThrottle(tell, rate_max)


def _work(task: AuditTask[Answer]) -> Answer:
    return task.run(_PoolWorker.throttle)


@dataclass(frozen=True, slots=True)
class Pool:
    """Several processes. They are spawned, because a forked child must not use stores that its parent has
    open.
    """

    jobs: int
    rate_max: float | None = None
    name: str = "local"

    def run(
        self, tasks: Sequence[AuditTask[Answer]], watch: Callable[[int], None]
    ) -> Iterator[TaskResult[Answer]]:
        jobs = min(self.jobs, len(tasks))
        if jobs <= 1:
            yield from Serial(self.rate_max).run(tasks, watch)
            return
        context = multiprocessing.get_context("spawn")
        counter = context.Value("q", 0)
        rate = None if self.rate_max is None else self.rate_max / jobs
        pool = ProcessPoolExecutor(jobs, context, _begin, (counter, rate))
        try:
            yield from _ended(pool, tasks, _AT_ONCE * jobs, _PoolMeter(counter, watch))
        finally:
            # A caller that stops early waits only for the tasks that are running.
            pool.shutdown(wait=True, cancel_futures=True)

    def sql(self, rows: int) -> DuckSql:  # noqa: ARG002 - what does not fit into memory goes to the disk
        return DuckSql(threads=self.jobs)


class _PoolMeter:
    """Reports what all processes have read since the last report."""

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
    pool: ProcessPoolExecutor, tasks: Sequence[AuditTask[Answer]], at_once: int, meter: _PoolMeter
) -> Iterator[TaskResult[Answer]]:
    # Largest first, because otherwise a single large task may run alone at the end.
    waiting = sorted(range(len(tasks)), key=lambda number: tasks[number].size)
    under_way: dict[Future[Answer], int] = {}
    while waiting or under_way:
        while waiting and len(under_way) < at_once:
            number = waiting.pop()
            under_way[pool.submit(_work, tasks[number])] = number
        ended, _ = wait(under_way, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
        meter.look()
        for future in ended:
            yield TaskResult(under_way.pop(future), future.result())


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
