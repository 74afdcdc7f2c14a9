"""The slowest batches during checkpoints, filling and rolls, and what other threads did meanwhile."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING

from contenders.our_store import Ours
from contest.timing import Limit

from studies.file_trace import FileTrace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from studies.file_trace import TracedCall

_KIB = 1 << 10
_LEDGERS = 100
_SLOWEST = 1000
_US = 1000.0
_SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
_clock = time.perf_counter_ns


@dataclass(frozen=True, slots=True)
class SlowBatch:
    """One of the slowest batches, in microseconds."""

    whole: float
    own_sync: float
    rolling: float
    """Time of a roll to the next journal: renames, and syncs of the directory."""
    beside: dict[str, float]
    """File operations of other threads during the batch."""


def slowest_batches(place: Path, count: int) -> tuple[dict[str, float], list[SlowBatch]]:
    """Time batches of 64. Return percentiles, and the slowest batches with what happened meanwhile."""
    place.mkdir()
    work = {"size": _KIB, "batch": 64, "ledgers": _LEDGERS}
    ours = Ours(place, "default", 0, **work)
    ours.run(Limit(60, count // 10))
    add, calls = ours.writer(0), []
    with FileTrace() as watch:
        for _ in range(count):
            start = _clock()
            add()
            calls.append((start, _clock()))
    ours.close()
    took = sorted(end - start for start, end in calls)
    percentiles = {name: took[int(share * len(took))] / _US for name, share in _SHARES.items()}
    worst = sorted(calls, key=lambda call: call[0] - call[1])[: max(1, len(calls) // _SLOWEST)]
    return percentiles, [_slow_batch(call, watch.spans, threading.get_ident()) for call in worst]


def _slow_batch(call: tuple[int, int], spans: Sequence[TracedCall], writer: int) -> SlowBatch:
    start, end = call
    own, rolling, beside = 0.0, 0.0, dict[str, float]()
    # The calls are in the order in which they ended.
    for span in spans[bisect_left(spans, start, key=lambda one: one.end) :]:
        shared = (min(end, span.end) - max(start, span.start)) / _US
        if shared <= 0:
            continue
        if span.thread != writer:
            what = span.what.replace("journal", "next journal")
            beside[what] = beside.get(what, 0.0) + shared
        elif span.what == "sync journal":
            own += shared
        elif span.what != "write journal":
            rolling += shared
    return SlowBatch((end - start) / _US, own, rolling, beside)
