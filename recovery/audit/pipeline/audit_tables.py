"""The tables of an audit: the runs of all parts that were scanned, and which parts count.

On one machine the runs come with the results of the scans and are kept here until an engine for queries gets
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recovery.audit.model.scan_results import Scanned
from recovery.audit.model.store_tables import put_mapped, put_parts, put_runs
from recovery.audit.scan.scan_task import ScanTask

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recovery.audit.engines.sql import SqlEngine
    from recovery.audit.engines.task import AuditTask, TaskEngine, UnreadFile
    from recovery.audit.model.runs import Runs
    from recovery.audit.model.scan_results import Part
    from recovery.audit.pipeline.merge import ScanResults


class AuditTables:
    """The tables of one audit."""

    def __init__(self, engine: TaskEngine) -> None:
        self._engine = engine
        self._rows: dict[int, Runs] = {}
        self._mapped: dict[int, Any] = {}
        self._count = 0
        self._sql: SqlEngine | None = None

    def task(self, store: int, scan: AuditTask[Part]) -> ScanTask:
        """Return the scan as a task with a number that no other part has."""
        self._count += 2
        return ScanTask(self._count, store, scan)

    def take(self, found: Scanned | UnreadFile) -> Part | UnreadFile:
        """Keep the runs of a result, and return the rest."""
        if not isinstance(found, Scanned):
            return found
        self._rows.update(found.rows)
        self._mapped[found.part.number] = found.mapped
        self._sql = None
        return found.part

    def sql(self) -> SqlEngine:
        """Return an engine that has the runs of all parts as the table `scanned`."""
        if self._sql is None:
            self._sql = self._engine.sql(sum(map(len, self._rows.values())))
            put_runs(self._sql, self._rows)
            put_mapped(self._sql, self._mapped)
        return self._sql

    def choose(self, stores: Iterable[ScanResults]) -> SqlEngine:
        """Return an engine that also has the table `parts`, of the parts that count."""
        sql = self.sql()
        # The engine has them. From here on nothing is scanned.
        self._rows, self._mapped = {}, {}
        put_parts(sql, ((part, store, of) for store, one in enumerate(stores) for part, of in one.parts()))
        return sql
