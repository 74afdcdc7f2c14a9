"""An index as tables: its rows, their runs, what of it cannot be, and itself as one row.

It is copied first, by LMDB's own rules: of one that is being written to a reading as it lies would be wrong.
"""

from __future__ import annotations

import errno
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from recovery.audit import index_copy
from recovery.audit.choice import EVERYTHING
from recovery.audit.index_rows import RowReader
from recovery.audit.index_scan import ScanIndex
from recovery.audit.tables import INDEX
from recovery.audit.task import Pace
from storage import filenames
from storage.entry import ID_MAX
from storage.lmdb_index import LmdbIndex
from storage.lmdb_place import LmdbPlace
from storage.position import LENGTH_WORD_SIZE
from storage.posix_files import PosixDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from recovery.audit.choice import Choice
    from recovery.verify.parts import IndexPart, RowFlaw

_COPIES_MAX = 10
_LOG_SHIFT = 32
_OFFSET_MASK = 0xFFFF_FFFF
_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class IndexTables:
    """One index, read for one query. `path` is its directory."""

    path: str
    ledgers: Choice = EVERYTHING
    logs: Choice = EVERYTHING

    def entries(self) -> Iterator[pa.RecordBatch]:
        """In any order."""
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
        return INDEX["flaws"].rows(_flaw_row(flaw) for flaw in self._part().flaws)

    def parts(self) -> Iterator[pa.RecordBatch]:
        part = self._part()
        ledgers = len(np.unique(part.runs["ledger"]))
        return INDEX["parts"].rows([(ledgers, part.count, len(part.flaws), part.seconds)])

    def _part(self) -> IndexPart:
        with _copied(self.path) as copy:
            return ScanIndex(copy, 0, ID_MAX).run(Pace())


def _batches(
    ledgers: np.ndarray, entries: np.ndarray, locations: np.ndarray, logs: Choice
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
    """Where a copy of the index lies that does not change any more; gone behind the `with`."""
    directory = PosixDirectory(Path(path).parent)
    with TemporaryDirectory(prefix="ledgerstore-index-") as scratch:
        for attempt in range(_COPIES_MAX):
            index = LmdbPlace(directory, directory.path).view()
            if not isinstance(index, LmdbIndex):
                raise OSError(errno.EINVAL, f"no index that can be read: {index}", path)
            copy = Path(scratch) / f"{filenames.INDEX}{attempt}"
            copy.mkdir()
            index.close()
            if index_copy.copy(Path(path), copy):
                yield str(copy)
                return
    raise OSError(errno.EAGAIN, "it changes faster than it can be copied", path)
