"""The demo from its first write to the last entry that is read back."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from recovery.demo.audit import audit, traces
from recovery.demo.victim import Victim

if TYPE_CHECKING:
    from recovery.demo.audit import Recovered, Traces
    from recovery.demo.workload import Workload
    from storage.report import ReplayProgress


class Watch(Protocol):
    """Is told what happens, when it happens. Called often: it must be quick."""

    def started(self, pid: int) -> None: ...
    def wrote(self, written: Written) -> None: ...
    def killed(self, written: Written) -> None: ...
    def replayed(self, progress: ReplayProgress) -> None: ...
    def read(self, done: int, total: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Target:
    """When it is enough: at so many acknowledged entries, or so long after the first."""

    entries: int | None
    seconds: float | None

    def fraction(self, entries: int, seconds: float) -> float:
        """How near it is; from 1 on it is reached."""
        by_entries = entries / self.entries if self.entries else 0.0
        by_seconds = seconds / self.seconds if self.seconds else 0.0
        return max(by_entries, by_seconds)


@dataclass(frozen=True, slots=True)
class Written:
    """What has been acknowledged, in how long."""

    entries: int
    size: int
    seconds: float
    fraction: float

    @property
    def speed(self) -> float:
        """Bytes of payload in a second."""
        return self.size / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was written, what the kill left, and what came back."""

    written: Written
    traces: Traces
    recovered: Recovered


def run(path: str, workload: Workload, target: Target, watch: Watch) -> Outcome:
    """Writes to `path` in another process, kills that, opens the store and reads everything back.

    `WriterDied` when the other process ended by itself. Whatever happens, it does not outlive this call.
    """
    with Victim(path, workload) as victim:
        watch.started(victim.pid)
        written = _write(victim, workload, target, watch)
    watch.killed(written)
    left = traces(path)
    recovered = audit(path, workload, victim.acknowledged.ends, watch.replayed, watch.read)
    return Outcome(written, left, recovered)


def _write(victim: Victim, workload: Workload, target: Target, watch: Watch) -> Written:
    """What the process was answered for until it was killed."""
    began: float | None = None

    def so_far() -> Written:
        entries = victim.acknowledged.entries
        seconds = 0.0 if began is None else time.monotonic() - began
        return Written(entries, entries * workload.size, seconds, target.fraction(entries, seconds))

    def is_enough() -> bool:
        nonlocal began
        # Its start is not counted: on a slow machine it takes a while until anything can be acknowledged.
        if began is None and victim.acknowledged.entries:
            began = time.monotonic()
        written = so_far()
        watch.wrote(written)
        return written.fraction >= 1

    victim.listen(is_enough)
    victim.kill()
    return so_far()
