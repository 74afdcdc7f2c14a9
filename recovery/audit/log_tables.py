"""An entry log as tables: its entries, their runs, its flaws, and itself as one row.

What nobody has declared is learned first, by a walk over the whole log: an entry's digest must not be called
good or bad by what only later ones tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from recovery.audit.choice import EVERYTHING
from recovery.audit.entry_tables import EntryTable, Found, flaw_row, is_settled, learned, run_columns
from recovery.audit.log_scan import ScanLog
from recovery.audit.log_walk import LogWalk
from recovery.audit.tables import LOG, with_payload
from recovery.audit.task import Pace
from storage.codec.entrylog import HEADER_SIZE
from storage.entry import DigestType
from storage.posix_files import open_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from recovery.audit.choice import Choice
    from recovery.audit.chunk_columns import Columns
    from recovery.audit.ways import Ways
    from recovery.verify.parts import LogPart
    from storage.entrylog_reader import LogEntry, LogMap
    from storage.entrylog_scan import Hole, LogFiller
    from storage.files import ReadFile

_STRETCH = 32 << 20
"""So many bytes are walked over before their rows go out."""


@dataclass(frozen=True, slots=True)
class LogTables:
    """One log, read for one query."""

    path: str
    log_id: int
    ways: Ways
    ledgers: Choice = EVERYTHING
    """Rows of other ledgers are left out, where rows are of ledgers."""

    def entries(self, *, payload: bool = False) -> Iterator[pa.RecordBatch]:
        """In the order of the file."""
        table = with_payload(LOG["entries"]) if payload else LOG["entries"]
        ways = self._learned()
        made = EntryTable(table, "log", self.log_id, ways, self.ledgers)
        with open_file(self.path) as file:
            for found in _found(file, self.log_id, ways):
                batch = made.batch(found, file)
                if batch is not None:
                    yield batch

    def runs(self) -> Iterator[pa.RecordBatch]:
        runs = self._part().runs
        chosen = self.ledgers.mask(runs["ledger"])
        yield LOG["runs"].batch(run_columns("log", runs if chosen is None else runs[chosen]))

    def flaws(self) -> Iterator[pa.RecordBatch]:
        return LOG["flaws"].rows(flaw_row(self.log_id, flaw) for flaw in self._part().flaws)

    def parts(self) -> Iterator[pa.RecordBatch]:
        return LOG["parts"].rows([_row(self._part())])

    def _part(self) -> LogPart:
        with open_file(self.path) as file:
            end = max(HEADER_SIZE, file.size())
        return ScanLog(self.path, self.log_id, HEADER_SIZE, end, self.ways).run(Pace())

    def _learned(self) -> Ways:
        if is_settled(self.ways):
            return self.ways
        part = self._part()
        silent = part.unverified.keys() - part.types.keys()
        seen = set(np.unique(part.runs["ledger"]).tolist()) - silent
        return learned(self.ways, {**dict.fromkeys(seen, DigestType.CRC32C), **part.types})


def _row(part: LogPart) -> tuple[object, ...]:
    stop = part.stop
    return (
        part.log_id,
        part.file_size,
        part.size,
        part.records,
        int(part.runs["count"].sum()),
        int(part.runs["bad"].sum()),
        sum(part.unverified.values()),
        len(part.flaws),
        len(part.maps),
        part.fillers,
        None if stop is None else type(stop).__name__,
        None if stop is None else stop.offset,
        part.seconds,
    )


def _found(file: ReadFile, log_id: int, ways: Ways) -> Iterator[Found]:
    gathering = _Gathering()
    walk = LogWalk(file, log_id, ways, ways.verifier(), gathering, Pace())
    at, size = HEADER_SIZE, file.size()
    while walk.stop is None and at < size:
        at = walk.run(at, at + _STRETCH)
        yield from gathering.taken()


class _Gathering:
    """Keeps the entries that a walk tells of, and nothing else."""

    def __init__(self) -> None:
        self._kept: list[Found] = []

    def taken(self) -> list[Found]:
        """Those that came since the last time."""
        kept, self._kept = self._kept, []
        return kept

    def entries(self, columns: Columns) -> None:
        every = Found(
            columns.offsets,
            columns.sizes,
            columns.ledgers,
            columns.entries,
            columns.confirmed,
            columns.lengths,
            columns.digests,
            columns.good,
        )
        # Copies: the columns are emptied, and filled again, behind this call.
        self._kept.append(every.those(np.arange(columns.count)))

    def mismatch(self, entry: LogEntry) -> None:
        """Among the columns already."""

    def unverified(self, ledger_id: int, count: int) -> None:
        """Told from the ledger's type."""

    def unknown(self, entry: LogEntry) -> None:
        """Told from the ledger's type."""

    def other(self, item: LogMap | LogFiller | Hole) -> None:
        """No entry."""
