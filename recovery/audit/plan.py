"""From files to tasks: what is to be read, in pieces that any engine can hand out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from recovery.audit import stitch
from recovery.audit.index_scan import ScanIndex, plan_index
from recovery.audit.journal_scan import ScanJournal
from recovery.audit.log_scan import ScanLog
from recovery.audit.task import stays
from storage.codec.entrylog import HEADER_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from recovery.audit.ground import Ground, JournalFile, LogFile
    from recovery.audit.task import Pace, Task
    from recovery.audit.ways import Ways

Answer = TypeVar("Answer")

RANGE_MIN = 256 << 20
"""A range of a log is no smaller: what a task costs by itself would count."""

_TASKS_FOR_EACH = 2


@dataclass(frozen=True, slots=True)
class Unread:
    """What a task has not read, because the system refused."""

    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class Careful(Generic[Answer]):
    """A task whose file may not be readable: that is a finding, and no reason to give up the others."""

    task: Task[Answer]

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def size(self) -> int:
        return self.task.size

    @property
    def stays(self) -> bool:
        return stays(self.task)

    def run(self, pace: Pace) -> Answer | Unread:
        try:
            return self.task.run(pace)
        except OSError as error:
            return Unread(str(error.filename or self.task.name), error.strerror or str(error))


@dataclass(frozen=True, slots=True)
class Planned:
    """A task, and which store it is for."""

    store: int
    task: Careful[Any]


def plan(grounds: Sequence[Ground], steps: Sequence[Mapping[int, int]], jobs: int) -> list[Planned]:
    """Everything that all stores hold."""
    logs = sum(len(ground.logs) for ground in grounds)
    pieces = max(1, -(-_TASKS_FOR_EACH * jobs // max(1, logs)))
    planned = []
    for store, (ground, striped) in enumerate(zip(grounds, steps, strict=True)):
        for log in ground.logs:
            planned += [Planned(store, Careful(one)) for one in log_tasks(log, ground.ways, striped, pieces)]
        for journal in ground.journals:
            planned.append(Planned(store, Careful(journal_task(journal, ground, ground.ways, striped))))
        planned += [Planned(store, Careful(one)) for one in _index_tasks(ground, striped, jobs)]
    return planned


def log_tasks(log: LogFile, ways: Ways, steps: Mapping[int, int], pieces: int) -> list[ScanLog]:
    """The ranges of a log: more than one only where it is large, and there are few of them.

    What lies behind a known end is a range of its own: a ledgers map perhaps, and leftovers.
    """
    end = max(HEADER_SIZE, log.size if log.limit is None else min(log.size, log.limit))
    bounds = stitch.ranges(end, min(pieces, max(1, end // RANGE_MIN)))
    tasks = [ScanLog(log.path, log.log_id, start, stop, ways, steps) for start, stop in bounds]
    if log.limit is not None and end < log.size:
        tasks.append(ScanLog(log.path, log.log_id, end, log.size, ways, steps, entry=end))
    return tasks


def journal_task(journal: JournalFile, ground: Ground, ways: Ways, steps: Mapping[int, int]) -> ScanJournal:
    """The whole journal."""
    return ScanJournal(journal.path, journal.journal_id, journal.start, ground.rows, ways, steps)


def _index_tasks(ground: Ground, steps: Mapping[int, int], jobs: int) -> Iterator[ScanIndex]:
    from pathlib import Path

    if isinstance(ground.index, Path):
        for first, last, _ in plan_index(str(ground.index), jobs):
            yield ScanIndex(str(ground.index), first, last, steps)
