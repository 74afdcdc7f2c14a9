"""An index as tables: its rows, their runs, invalid rows, and one row about itself.

It is copied first, by LMDB's own rules, because reading the file of an index that is being written to is
wrong.
"""

from __future__ import annotations

import errno
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from recovery.audit.engines.task import ReadThrottle
from recovery.audit.scan.index import ScanIndex
from recovery.audit.scan.index_rows import RowReader
from recovery.audit.snapshot import index_copy
from recovery.audit.spark.pushdown import EVERYTHING
from recovery.audit.spark.tables import INDEX
from storage.disk.posix import PosixDirectory
from storage.entry.model import ID_MAX
from storage.entry.position import LENGTH_WORD_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from recovery.audit.model.scan_results import IndexPart, RowFlaw
    from recovery.audit.spark.pushdown import IdFilter

_LOG_SHIFT = 32
_OFFSET_MASK = 0xFFFF_FFFF
_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class IndexTables:
    """One index, read for one query. `path` is its directory."""

    path: str
    ledgers: IdFilter = EVERYTHING
    logs: IdFilter = EVERYTHING

    def entries(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in any order."""
        with _copied(self.path) as copy:
            reader = RowReader(copy, lambda _: None, self.ledgers)
            for rows in reader.rows(max(0, self.ledgers.low), max(0, self.ledgers.high)):
                yield from _batches(rows.ledgers, rows.entries, rows.locations, self.logs)

    def runs(self) -> Iterator[pa.RecordBatch]:
        runs = self._part().runs
        for choice, column in ((self.ledgers, "ledger"), (self.logs, "file")):
            chosen = choice.mask(runs[column])
            runs = runs if chosen is None else runs[chosen]
        columns = {"ledger": "ledger", "log": "file", "step": "step", "places": "places"}
        columns |= {"first_entry": "first", "last_entry": "last", "entries": "count"}
        yield INDEX["runs"].batch({name: runs[column] for name, column in columns.items()})

    def flaws(self) -> Iterator[pa.RecordBatch]:
        """Yield the invalid rows, or what is wrong with an index that cannot be read."""
        try:
            rows = [_flaw_row(flaw) for flaw in self._part().flaws]
        except OSError as error:
            rows = [(None, None, None, None, error.strerror or str(error))]
        return INDEX["flaws"].rows(rows)

    def parts(self) -> Iterator[pa.RecordBatch]:
        part = self._part()
        ledgers = len(np.unique(part.runs["ledger"]))
        return INDEX["parts"].rows([(ledgers, part.count, len(part.flaws), part.seconds)])

    def unreadable(self, _: str, error: OSError) -> Iterator[pa.RecordBatch]:
        """Raise the error: without its only file, an answer about the index would be wrong."""
        raise error

    def _part(self) -> IndexPart:
        with _copied(self.path) as copy:
            return ScanIndex(copy, 0, ID_MAX).run(ReadThrottle())


def _batches(
    ledgers: np.ndarray, entries: np.ndarray, locations: np.ndarray, logs: IdFilter
) -> Iterator[pa.RecordBatch]:
    values = {
        "ledger": ledgers,
        "entry": entries,
        "log": locations >> _LOG_SHIFT,
        "offset": (locations & _OFFSET_MASK) - LENGTH_WORD_SIZE,
    }
    chosen = logs.mask(values["log"])
    if chosen is not None:
        values = {name: column[chosen] for name, column in values.items()}
    for start in range(0, len(values["ledger"]), _ROWS_AT_ONCE):
        some = slice(start, start + _ROWS_AT_ONCE)
        yield INDEX["entries"].batch({name: column[some] for name, column in values.items()})


def _flaw_row(flaw: RowFlaw) -> tuple[object, ...]:
    log_id, offset = flaw.location >> _LOG_SHIFT, (flaw.location & _OFFSET_MASK) - LENGTH_WORD_SIZE
    return flaw.ledger_id, flaw.entry_id, log_id, offset, flaw.detail


@contextmanager
def _copied(path: str) -> Iterator[str]:
    """Yield the directory of a copy of the index that does not change. The copy is removed at the end of the
    `with`.
    """
    with TemporaryDirectory(prefix="ledgerstore-index-") as scratch:
        copied = index_copy.copy_verified(PosixDirectory(Path(path).parent), Path(scratch))
        if not isinstance(copied, Path):
            raise OSError(errno.EINVAL, f"no readable index: {copied}", path)
        yield str(copied)
