"""The raw limit while another thread writes as much as a store writes in the background.

For each byte that is added, a store fills one byte of the next journal in advance, and writes one to an entry
log. Here two files grow by the same amount, in synced writes of one megabyte, in a thread that keeps up with
the adds. There is no computation and no order of writes, therefore no store that writes as much can be faster
on this disk.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Self

from contenders.raw import RawFile
from contest.timing import Timed

if TYPE_CHECKING:
    from pathlib import Path

_KIB, _MIB = 1 << 10, 1 << 20
_SIZE, _BATCH = _KIB, 64
_SLICE = _MIB // (_SIZE * _BATCH)
"""Number of batches in a megabyte."""
_FILE = 64 * _MIB
_AMPLE_S = 60.0
_PENDING_MAX = 128
"""Number of pending megabytes at which adds wait, as they do when both memtables are full."""


@dataclass(frozen=True, slots=True)
class WriteTimes:
    """Microseconds of a batch."""

    mean: float
    p50: float
    p999: float

    @classmethod
    def of(cls, timed: Timed) -> Self:
        figures = timed.figures(1)
        return cls(1e6 / figures["rate"], figures["p50"], figures["p999"])


class BackgroundWriter:
    """A thread that lets files grow on request. The `with` block ends when all is written and synced."""

    def __init__(self, place: Path, names: tuple[str, ...]) -> None:
        self.bytes = 0
        self._place = place
        self._names = names
        self._requests = deque[bool]()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run)

    def ask(self) -> None:
        """Request a megabyte for each file. Wait while too many requests are pending."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._requests) < _PENDING_MAX)
            self._requests.extend(True for _ in self._names)
            self._changed.notify_all()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._requests.append(False)
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        content = bytes(_MIB)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        files = [os.open(self._place / name, flags, 0o600) for name in self._names]
        for file in cycle(files):
            with self._changed:
                self._changed.wait_for(lambda: self._requests)
                continues = self._requests.popleft()
                self._changed.notify_all()
            if not continues:
                break
            self.bytes += os.write(file, content)
            os.fdatasync(file)
        for file in files:
            os.close(file)


def raw_with_background_writes(
    place: Path, batches: int, names: tuple[str, ...] = ("filled", "logged")
) -> WriteTimes:
    """Time batches of 64 entries of 1 KB in a filled file, while each file of `names` grows by as much."""
    (place / "raw").mkdir(parents=True)
    raw = RawFile(place / "raw", _FILE, size=_SIZE, batch=_BATCH)
    raw.timed(_AMPLE_S, _SLICE)
    found: list[Timed] = []
    with BackgroundWriter(place, names) as writer:
        for _ in range(-(-batches // _SLICE)):
            found.append(raw.timed(_AMPLE_S, _SLICE))
            if names:
                writer.ask()
    raw.close()
    latencies = [latency for one in found for latency in one.latencies]
    return WriteTimes.of(Timed(latencies, sum(one.elapsed for one in found)))
