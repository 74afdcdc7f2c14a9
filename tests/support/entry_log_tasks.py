"""Entry logs on disk, scan tasks over them, and engines for tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from crc32c import crc32c
from entry_log_builder import Log, items, reader
from journal_builder import entry_bytes

from recovery.audit.cache.engine import scan_of
from recovery.audit.cache.part_identity import LogOwner
from recovery.audit.digests.policy import DigestPolicy
from recovery.audit.engines.sql import DuckSql
from recovery.audit.engines.task import TaskResult
from recovery.audit.model.fingerprint import fingerprints
from recovery.audit.model.runs import RUN, merged
from recovery.audit.model.scan_results import LogPart
from recovery.audit.scan.entry_log import ScanLog
from storage.entry.model import DigestType
from storage.entry.read_result import EndOfData
from storage.entrylog.format import LogHeader
from storage.entrylog.reader import LogEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from recovery.audit.engines.task import AuditTask

OURS = DigestPolicy(presumed=DigestType.CRC32C)


def log_file(folder: Path, log_id: int = 1, ledgers: Sequence[int] = (7, 8), count: int = 5) -> Path:
    """Write a sealed log to a file."""
    log = Log()
    for entry in range(count):
        log.add(*(entry_bytes(ledger, entry) for ledger in ledgers))
    path = folder / f"{log_id:x}.log"
    path.write_bytes(log.seal().file())
    return path


def scan(path: Path, policy: DigestPolicy = OURS, steps: Mapping[int, int] | None = None) -> ScanLog:
    """Return a task that scans the whole log."""
    return ScanLog(str(path), int(path.stem, 16), 1024, path.stat().st_size, policy, steps or {})


def ledgers_of(*paths: Path, store: str = "/stores/a") -> dict[str, LogOwner]:
    return {str(path): LogOwner(store) for path in paths}


def part_of(task: ScanLog) -> LogPart:
    """Return the scan result of this log, computed entry by entry."""
    data = Path(task.path).read_bytes()
    found = [item for item in items(data) if isinstance(item, LogEntry)]
    header = reader(data).header
    assert isinstance(header, LogHeader)
    return LogPart(
        log_id=task.log_id,
        start=task.start,
        end=task.end,
        entry=1024,
        exit=len(data),
        file_size=len(data),
        header=header,
        runs=merged(_run(task, item) for item in found),
        records=len(found),
        size=len(data) - 1024,
        stop=EndOfData(len(data)),
    )


def _run(task: ScanLog, item: LogEntry) -> Any:
    ledger, entry = item.ids
    place = item.position.offset + 4 | task.log_id << 32
    digest = crc32c(bytes(item.data))
    size = item.end - item.position.offset
    step = task.steps.get(ledger, 1)
    prints = [fingerprints([ledger], [entry], [value])[0] for value in (place, digest)]
    return np.array([(task.log_id, ledger, step, entry, entry, 1, size, *prints, 0)], dtype=RUN)


def part_values(part: LogPart) -> dict[str, object]:
    """Return everything in a scan result as values that can be compared."""
    said = {name: getattr(part, name) for name in LogPart.__slots__}
    return said | {
        "runs": (part.runs.dtype, part.runs.tolist()),
        "types": dict(part.types),
        "unverified": dict(part.unverified),
    }


class TaskInterrupted(Exception):
    """Stands for a Ctrl-C."""


@dataclass
class RecordingEngine:
    """An engine that records its tasks, and can be interrupted."""

    tasks_max: int = 1_000_000
    finds: Callable[[ScanLog], LogPart] = part_of
    name: str = "reading"
    given: list[str] = field(default_factory=list)
    asked: int = 0

    def sql(self, rows: int) -> DuckSql:
        return DuckSql(threads=1)

    def run(self, tasks: Sequence[AuditTask[Any]], watch: Callable[[int], None]) -> Iterator[TaskResult[Any]]:
        self.asked += 1
        # In reverse order, because engines may answer in any order.
        for number, task in reversed(list(enumerate(tasks))):
            if len(self.given) == self.tasks_max:
                raise TaskInterrupted
            self.given.append(task.name)
            scan = scan_of(task)
            part = f"did {task.name}" if scan is None else self.finds(scan)
            watch(part.size if isinstance(part, LogPart) else task.size)
            yield TaskResult(number, part)


@dataclass
class SteppingClock:
    """A clock that is one second later at each call."""

    now_ns: int = 1_000_000_000_000

    def __call__(self) -> int:
        self.now_ns += 1_000_000_000
        return self.now_ns
