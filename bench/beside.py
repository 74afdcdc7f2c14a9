"""The raw limit while as much is written beside it as a store writes: what its disk leaves of it.

For each byte that is added a store fills one ahead in the next journal, and writes one to an entry log. Here
two files grow by as much, megabyte by megabyte, each synced, in a thread that keeps up with the adds. Nothing
is computed and nothing is kept in order: no store that writes as much on this disk can be faster.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Self

from raw import RawFile
from timing import Timed

if TYPE_CHECKING:
    from pathlib import Path

_KIB, _MIB = 1 << 10, 1 << 20
_SIZE, _BATCH = _KIB, 64
_SLICE = _MIB // (_SIZE * _BATCH)
"""So many batches add a megabyte."""
_FILE = 64 * _MIB
_AMPLE_S = 60.0
_BEHIND_MAX = 128
"""Megabytes that may still have to be written when adds wait for it, as they do when both tables are full."""


@dataclass(frozen=True, slots=True)
class Beside:
    """Microseconds a batch."""

    mean: float
    p50: float
    p999: float

    @classmethod
    def of(cls, timed: Timed) -> Self:
        told = timed.figures(1)
        return cls(1e6 / told["rate"], told["p50"], told["p999"])


class Writer:
    """Files that grow by what they are asked for, in a thread; a `with` ends it when all of it is synced."""

    def __init__(self, place: Path, names: tuple[str, ...]) -> None:
        self.bytes = 0
        self._place = place
        self._names = names
        self._wanted = deque[bool]()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run)

    def ask(self) -> None:
        """A megabyte for each file; waits while too much is still to be written."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._wanted) < _BEHIND_MAX)
            self._wanted.extend(True for _ in self._names)
            self._changed.notify_all()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._wanted.append(False)
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        content = bytes(_MIB)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        files = [os.open(self._place / name, flags, 0o600) for name in self._names]
        for file in cycle(files):
            with self._changed:
                self._changed.wait_for(lambda: self._wanted)
                goes_on = self._wanted.popleft()
                self._changed.notify_all()
            if not goes_on:
                break
            self.bytes += os.write(file, content)
            os.fdatasync(file)
        for file in files:
            os.close(file)


def beside(place: Path, batches: int, names: tuple[str, ...] = ("filled", "logged")) -> Beside:
    """Batches of 64 of 1 KB into a file that is filled, while those of these names grow by as much each."""
    (place / "raw").mkdir(parents=True)
    raw = RawFile(place / "raw", _FILE, size=_SIZE, batch=_BATCH)
    raw.timed(_AMPLE_S, _SLICE)
    found: list[Timed] = []
    with Writer(place, names) as writer:
        for _ in range(-(-batches // _SLICE)):
            found.append(raw.timed(_AMPLE_S, _SLICE))
            if names:
                writer.ask()
    raw.close()
    latencies = [latency for one in found for latency in one.latencies]
    return Beside.of(Timed(latencies, sum(one.elapsed for one in found)))
