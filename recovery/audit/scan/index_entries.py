"""Read index rows one by one, for ledgers whose runs in logs and index disagree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from recovery.audit.model.entry_columns import ROW, no_rows
from recovery.audit.scan.index_rows import RowReader
from storage.entry.model import ID_MAX

if TYPE_CHECKING:
    from recovery.audit.engines.task import ReadThrottle
    from recovery.audit.model.entry_columns import RowArray
    from recovery.audit.model.windows import WindowSet
    from recovery.audit.scan.index_rows import IndexRows


@dataclass(frozen=True, slots=True)
class ReadIndexRows:
    """The task to read all rows of some ledgers, sorted by ledger, entry and place."""

    path: str
    ledgers: frozenset[int]
    windows: WindowSet | None = None
    """If set, only the entries in these windows are returned."""
    needs_this_machine: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return f"index rows of {len(self.ledgers)} ledgers"

    @property
    def size(self) -> int:
        return 0

    def run(self, throttle: ReadThrottle) -> RowArray:
        reader = RowReader(self.path, throttle.read, self.ledgers)
        first, last = min(self.ledgers, default=0), max(self.ledgers, default=ID_MAX)
        found = [self._wanted(_as_rows(columns)) for columns in reader.rows(first, last)]
        rows: RowArray = np.concatenate([no_rows(), *found])
        return rows[np.lexsort((rows["location"], rows["entry"], rows["ledger"]))]

    def _wanted(self, rows: RowArray) -> RowArray:
        if self.windows is None:
            return rows
        wanted: RowArray = rows[self.windows.hold(rows["ledger"], rows["entry"])]
        return wanted


def _as_rows(columns: IndexRows) -> RowArray:
    rows = np.empty(len(columns), dtype=ROW)
    rows["ledger"], rows["entry"], rows["location"] = columns.ledgers, columns.entries, columns.locations
    return rows
