"""The demo, from its first write to the last entry that is read back."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from recovery.demo.audit import audit, writer_progress
from recovery.demo.writer_process import WriterProcess

if TYPE_CHECKING:
    from recovery.demo.audit import ReadBackResult, WriterProgress
    from recovery.demo.workload import Workload
    from storage.open_report import ReplayProgress


class DemoWatcher(Protocol):
    """Callbacks for progress. They are called often, so they must be fast."""

    def started(self, pid: int) -> None: ...
    def wrote(self, written: WriteProgress) -> None: ...
    def killed(self, written: WriteProgress) -> None: ...
    def replayed(self, progress: ReplayProgress) -> None: ...
    def read(self, done: int, total: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Target:
    """When to kill the writer: after so many acknowledged entries, or so long after the first."""

    entries: int | None
    seconds: float | None

    def fraction(self, entries: int, seconds: float) -> float:
        """Return how much of the target is reached; 1 or more means all of it."""
        by_entries = entries / self.entries if self.entries else 0.0
        by_seconds = seconds / self.seconds if self.seconds else 0.0
        return max(by_entries, by_seconds)


@dataclass(frozen=True, slots=True)
class WriteProgress:
    """The acknowledged entries, and the time that they took."""

    entries: int
    size: int
    seconds: float
    fraction: float

    @property
    def speed(self) -> float:
        """Bytes of payload per second."""
        return self.size / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """The written entries, the files after the kill, and the entries that were read back."""

    written: WriteProgress
    writer_progress: WriterProgress
    recovered: ReadBackResult


def run(path: str, workload: Workload, target: Target, watch: DemoWatcher) -> DemoOutcome:
    """Write to `path` in another process, kill it, open the store and read everything back.

    Raise `WriterDied` if the other process ended by itself. It never outlives this call.
    """
    with WriterProcess(path, workload) as victim:
        watch.started(victim.pid)
        written = _write(victim, workload, target, watch)
    watch.killed(written)
    left = writer_progress(path)
    recovered = audit(path, workload, victim.acknowledged.ends, watch.replayed, watch.read)
    return DemoOutcome(written, left, recovered)


def _write(victim: WriterProcess, workload: Workload, target: Target, watch: DemoWatcher) -> WriteProgress:
    """Return what was acknowledged to the process until it was killed."""
    began: float | None = None

    def so_far() -> WriteProgress:
        entries = victim.acknowledged.entries
        seconds = 0.0 if began is None else time.monotonic() - began
        return WriteProgress(entries, entries * workload.size, seconds, target.fraction(entries, seconds))

    def is_enough() -> bool:
        nonlocal began
        # Time counts from the first acknowledgement, because the start takes long on a slow machine.
        if began is None and victim.acknowledged.entries:
            began = time.monotonic()
        written = so_far()
        watch.wrote(written)
        return written.fraction >= 1

    victim.listen(is_enough)
    victim.kill()
    return so_far()
