"""Rows of the index one by one: of ledgers whose runs do not agree with those of the logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from recovery.audit.index_rows import RowReader
from recovery.verify.entries import ROW, no_rows
from storage.entry import ID_MAX

if TYPE_CHECKING:
    from recovery.audit.index_rows import Rows as Columns
    from recovery.audit.task import Pace
    from recovery.verify.entries import Rows
    from recovery.verify.windows import Windows


@dataclass(frozen=True, slots=True)
class DrillIndex:
    """All rows of these ledgers, by ledger, entry and place."""

    path: str
    ledgers: frozenset[int]
    windows: Windows | None = None
    """Of those ledgers only the entries in these, if they are told."""
    stays: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return f"index rows of {len(self.ledgers)} ledgers"

    @property
    def size(self) -> int:
        return 0

    def run(self, pace: Pace) -> Rows:
        reader = RowReader(self.path, pace.read, self.ledgers)
        first, last = min(self.ledgers, default=0), max(self.ledgers, default=ID_MAX)
        found = [self._wanted(_as_rows(columns)) for columns in reader.rows(first, last)]
        rows: Rows = np.concatenate([no_rows(), *found])
        return rows[np.lexsort((rows["location"], rows["entry"], rows["ledger"]))]

    def _wanted(self, rows: Rows) -> Rows:
        if self.windows is None:
            return rows
        wanted: Rows = rows[self.windows.hold(rows["ledger"], rows["entry"])]
        return wanted


def _as_rows(columns: Columns) -> Rows:
    rows = np.empty(len(columns), dtype=ROW)
    rows["ledger"], rows["entry"], rows["location"] = columns.ledgers, columns.entries, columns.locations
    return rows
