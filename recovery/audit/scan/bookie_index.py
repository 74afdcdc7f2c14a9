"""Scan a bookie's index in RocksDB: return its rows as runs, as those of an index of ours."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from recovery.audit.model.runs import merged
from recovery.audit.model.scan_results import BookieIndexPart
from recovery.audit.scan.index import runs_of
from recovery.audit.scan.index_rows import IndexRows
from recovery.audit.scan.periods import LedgerSteps
from recovery.bookkeeper import rocksdb_index

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recovery.audit.engines.task import ReadThrottle
    from recovery.audit.model.runs import Runs

_RUNS_AT_ONCE = 1 << 17


@dataclass(frozen=True, slots=True)
class ScanBookieIndex:
    """The task to read the copy of a bookie's index."""

    locations: str
    ledgers: str | None
    steps: Mapping[int, int] = field(default_factory=dict)
    needs_this_machine: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return f"bookie's index {self.locations}"

    @property
    def size(self) -> int:
        return 0

    def run(self, throttle: ReadThrottle) -> BookieIndexPart:
        """Return the rows, or why they cannot be read."""
        clock = time.monotonic()
        try:
            part = self._scanned(throttle)
        except OSError as error:
            return BookieIndexPart(trouble=error.strerror or str(error), seconds=time.monotonic() - clock)
        return part

    def _scanned(self, throttle: ReadThrottle) -> BookieIndexPart:
        clock = time.monotonic()
        living = None
        if self.ledgers is not None:
            living = np.array(sorted(rocksdb_index.ledger_ids(self.ledgers)), dtype=np.int64)
        runs: list[Runs] = []
        count = invalid = waiting = 0
        steps = LedgerSteps(self.steps)
        for keys, values in rocksdb_index.location_rows(self.locations):
            throttle.without_reporting().read(len(keys) + len(values))
            rows, wrong = _rows(keys, values, living)
            invalid += wrong
            count += len(rows)
            some = runs_of(rows, steps)
            runs.append(some)
            waiting += len(some)
            if waiting > _RUNS_AT_ONCE:
                runs, waiting = [merged(runs)], 0
        return BookieIndexPart(
            runs=merged(runs), count=count, invalid=invalid, seconds=time.monotonic() - clock
        )


def _rows(keys: bytes, values: bytes, living: np.ndarray | None) -> tuple[IndexRows, int]:
    """Return the rows of ledgers that were not deleted, and how many rows cannot be right."""
    pairs = np.frombuffer(keys, dtype=">i8").reshape(-1, 2).astype(np.int64)
    ledgers, entries = pairs[:, 0], pairs[:, 1]
    locations = np.frombuffer(values, dtype=">i8").astype(np.int64)
    valid = (ledgers >= 0) & (entries >= 0) & (locations > 0)
    invalid = len(valid) - int(valid.sum())
    if living is not None:
        valid &= np.isin(ledgers, living)
    ledgers, entries, locations = ledgers[valid], entries[valid], locations[valid]
    begins = np.flatnonzero(np.append(True, ledgers[1:] != ledgers[:-1])[: len(ledgers)])
    counts = np.diff(np.append(begins, len(ledgers)))
    return IndexRows(ledgers[begins], counts, entries, locations), invalid
