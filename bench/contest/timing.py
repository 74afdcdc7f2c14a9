"""Times calls of one thread, of several threads, or of several coroutines, until a limit is reached."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from contest.result import Figures

    Call = Callable[[], object]
    AsyncCall = Callable[[], Awaitable[object]]

_NS = 1_000_000_000
_PER_US = 1000
_PERCENTILES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
_clock = time.perf_counter_ns


@dataclass(frozen=True, slots=True)
class Limit:
    """The duration of the calls, and the maximum number of calls of each caller."""

    seconds: float
    calls: int

    @property
    def nanoseconds(self) -> int:
        return int(self.seconds * _NS)


@dataclass(frozen=True, slots=True)
class Timed:
    """The duration of each call, and of all together, in nanoseconds."""

    latencies: Sequence[int]
    elapsed: int

    def figures(self, per_call: int) -> Figures:
        """Return rate, count, and percentiles in microseconds. Each call counts as `per_call` entries."""
        count = len(self.latencies) * per_call
        ordered = sorted(self.latencies)
        percentiles = {name: _at(ordered, share) / _PER_US for name, share in _PERCENTILES.items()}
        rate = count * _NS / self.elapsed
        return {
            "rate": rate,
            "count": count,
            "calls": len(ordered),
            "seconds": self.elapsed / _NS,
            **percentiles,
        }


def _at(ordered: Sequence[int], share: float) -> int:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def in_this_thread(call: Call, limit: Limit) -> Timed:
    """Repeat a call in this thread."""
    start = _clock()
    latencies = _repeat(call, limit.calls, start + limit.nanoseconds)
    return Timed(latencies, _clock() - start)


def in_threads(calls: Sequence[Call], limit: Limit) -> Timed:
    """Repeat each call in a thread of its own. They begin when all threads have started."""
    found: list[list[int]] = []
    failures: list[BaseException] = []
    begin = threading.Barrier(len(calls) + 1)
    start = 0

    def run(call: Call) -> None:
        begin.wait()
        try:
            found.append(_repeat(call, limit.calls, start + limit.nanoseconds))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    start = _clock()
    begin.wait()
    for thread in threads:
        thread.join()
    elapsed = _clock() - start
    if failures:
        raise failures[0]
    return Timed([latency for one in found for latency in one], elapsed)


def _repeat(call: Call, calls: int, end: int) -> list[int]:
    latencies: list[int] = []
    note, clock, before = latencies.append, _clock, _clock()
    for _ in range(calls):
        call()
        now = clock()
        note(now - before)
        before = now
        if now >= end:
            break
    return latencies


async def in_one_loop(calls: Sequence[AsyncCall], limit: Limit) -> Timed:
    """Repeat each call in a task of its own."""
    start = _clock()
    runs = [_repeat_async(call, limit.calls, start + limit.nanoseconds) for call in calls]
    found = await asyncio.gather(*runs)
    return Timed([latency for one in found for latency in one], _clock() - start)


async def _repeat_async(call: AsyncCall, calls: int, end: int) -> list[int]:
    latencies: list[int] = []
    note, clock, before = latencies.append, _clock, _clock()
    for _ in range(calls):
        await call()
        now = clock()
        note(now - before)
        before = now
        if now >= end:
            break
    return latencies
