"""Timing calls: each by itself, made by one thread, by several, or by several coroutines, until a limit."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from result import Figures

    Call = Callable[[], object]
    AsyncCall = Callable[[], Awaitable[object]]

_NS = 1_000_000_000
_PER_US = 1000
_PERCENTILES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
_clock = time.perf_counter_ns


@dataclass(frozen=True, slots=True)
class Limit:
    """For how long calls are made, and how many of them each caller makes at most."""

    seconds: float
    calls: int

    @property
    def nanoseconds(self) -> int:
        return int(self.seconds * _NS)


@dataclass(frozen=True, slots=True)
class Timed:
    """How long each call took, and all of them together, in nanoseconds."""

    latencies: Sequence[int]
    elapsed: int

    def figures(self, per_call: int) -> Figures:
        """Rate, count, and percentiles in microseconds; of each call `per_call` entries count."""
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


def alone(call: Call, limit: Limit) -> Timed:
    """Calls of this thread."""
    start = _clock()
    latencies = _repeat(call, limit.calls, start + limit.nanoseconds)
    return Timed(latencies, _clock() - start)


def together(calls: Sequence[Call], limit: Limit) -> Timed:
    """Each call again and again in a thread of its own; they begin when all threads are there."""
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
    say, clock, before = latencies.append, _clock, _clock()
    for _ in range(calls):
        call()
        now = clock()
        say(now - before)
        before = now
        if now >= end:
            break
    return latencies


async def in_one_loop(calls: Sequence[AsyncCall], limit: Limit) -> Timed:
    """Each call again and again in a task of its own."""
    start = _clock()
    runs = [_repeat_async(call, limit.calls, start + limit.nanoseconds) for call in calls]
    found = await asyncio.gather(*runs)
    return Timed([latency for one in found for latency in one], _clock() - start)


async def _repeat_async(call: AsyncCall, calls: int, end: int) -> list[int]:
    latencies: list[int] = []
    say, clock, before = latencies.append, _clock, _clock()
    for _ in range(calls):
        await call()
        now = clock()
        say(now - before)
        before = now
        if now >= end:
            break
    return latencies
