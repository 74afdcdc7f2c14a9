"""The scan of one part of a store as a task of an audit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.audit.engines.task import TolerantTask, UnreadFile, needs_this_machine
from recovery.audit.model.scan_results import Scanned, split

if TYPE_CHECKING:
    from recovery.audit.engines.task import AuditTask, ReadThrottle
    from recovery.audit.model.scan_results import Part


@dataclass(frozen=True, slots=True)
class ScanTask:
    """Scans a part of a store, and separates the runs from the rest of the result where the scan runs,
    because they may be many. An unreadable file is a result, so that other tasks go on.
    """

    number: int
    """The number of the part in the tables of the audit. It is even, because journals have two."""
    store: int
    task: AuditTask[Part]

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def size(self) -> int:
        return self.task.size

    @property
    def needs_this_machine(self) -> bool:
        return needs_this_machine(self.task)

    def run(self, throttle: ReadThrottle) -> Scanned | UnreadFile:
        found = TolerantTask(self.task).run(throttle)
        return found if isinstance(found, UnreadFile) else split(found, self.number)
