"""An entry log as tables: its entries, their runs, its flaws, and one row about itself.

Digest types that are not declared are inferred first, by a walk over the whole log, because the digest of an
entry must not be called good or bad by a type that only later entries show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from recovery.audit.engines.task import ReadThrottle
from recovery.audit.scan.entry_log import ScanLog
from recovery.audit.scan.entry_log_walk import LogWalk
from recovery.audit.spark.entry_tables import (
    END,
    EntryTable,
    TableEntries,
    end_row,
    flaw_row,
    is_settled,
    learned,
    run_columns,
    unreadable_row,
)
from recovery.audit.spark.pushdown import EVERYTHING
from recovery.audit.spark.tables import LOG, with_payload
from storage.disk.posix import open_file
from storage.entry.model import DigestType
from storage.entrylog.format import HEADER_SIZE, LogHeader

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from recovery.audit.digests.policy import DigestPolicy
    from recovery.audit.model.scan_results import LogPart
    from recovery.audit.scan.chunk_columns import ChunkColumns
    from recovery.audit.spark.pushdown import IdFilter
    from storage.disk.files import ReadFile
    from storage.entrylog.reader import LogEntry, LogMap
    from storage.entrylog.scan import Hole, LogFiller

_STRETCH = 32 << 20
"""The number of bytes that are walked over before their rows are returned."""


@dataclass(frozen=True, slots=True)
class LogTables:
    """One log, read for one query."""

    path: str
    log_id: int
    policy: DigestPolicy
    ledgers: IdFilter = EVERYTHING
    """Rows of other ledgers are left out, in tables with a ledger column."""

    def entries(self, *, payload: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield entries in the order of the file."""
        table = with_payload(LOG["entries"]) if payload else LOG["entries"]
        policy = self._learned()
        made = EntryTable(table, "log", self.log_id, policy, self.ledgers)
        with open_file(self.path) as file:
            for found in _found(file, self.log_id, policy):
                batch = made.batch(found, file)
                if batch is not None:
                    yield batch

    def runs(self) -> Iterator[pa.RecordBatch]:
        runs = self._part().runs
        chosen = self.ledgers.mask(runs["ledger"])
        yield LOG["runs"].batch(run_columns("log", runs if chosen is None else runs[chosen]))

    def flaws(self) -> Iterator[pa.RecordBatch]:
        """Yield what is wrong inside the log, and at its end."""
        part = self._part()
        rows = [flaw_row(self.log_id, flaw) for flaw in part.flaws]
        if part.file_size < HEADER_SIZE:
            rows.append((self.log_id, END, part.file_size, HEADER_SIZE, None, None, "shorter than a header"))
        map_offset = part.header.map_offset if isinstance(part.header, LogHeader) else 0
        ending = end_row(self.log_id, part.stop, part.file_size, map_offset)
        if ending is not None and part.file_size >= HEADER_SIZE:
            rows.append(ending)
        return LOG["flaws"].rows(rows)

    def parts(self) -> Iterator[pa.RecordBatch]:
        return LOG["parts"].rows([_row(self._part())])

    def unreadable(self, rows: str, error: OSError) -> Iterator[pa.RecordBatch]:
        """Yield what is known of a log that cannot be read: a flaw, and a part without content."""
        if rows == "flaws":
            yield from LOG["flaws"].rows([unreadable_row(self.log_id, error)])
        if rows == "parts":
            yield from LOG["parts"].rows([(self.log_id, *(None,) * 9, "Unreadable", None, None)])

    def _part(self) -> LogPart:
        with open_file(self.path) as file:
            end = max(HEADER_SIZE, file.size())
        return ScanLog(self.path, self.log_id, HEADER_SIZE, end, self.policy).run(ReadThrottle())

    def _learned(self) -> DigestPolicy:
        if is_settled(self.policy):
            return self.policy
        part = self._part()
        silent = part.unverified.keys() - part.types.keys()
        seen = set(np.unique(part.runs["ledger"]).tolist()) - silent
        return learned(self.policy, {**dict.fromkeys(seen, DigestType.CRC32C), **part.types})


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


def _found(file: ReadFile, log_id: int, policy: DigestPolicy) -> Iterator[TableEntries]:
    gathering = _EntryGatherer()
    walk = LogWalk(file, log_id, policy, policy.verifier(), gathering, ReadThrottle())
    at, size = HEADER_SIZE, file.size()
    while walk.stop is None and at < size:
        at = walk.run(at, at + _STRETCH)
        yield from gathering.taken()


class _EntryGatherer:
    """Collects the entries of a walk, and nothing else."""

    def __init__(self) -> None:
        self._kept: list[TableEntries] = []

    def taken(self) -> list[TableEntries]:
        """Return the entries since the last call."""
        kept, self._kept = self._kept, []
        return kept

    def entries(self, columns: ChunkColumns) -> None:
        every = TableEntries(
            columns.offsets,
            columns.sizes,
            columns.ledgers,
            columns.entries,
            columns.confirmed,
            columns.lengths,
            columns.digests,
            columns.good,
        )
        # Copies, because the columns are emptied and filled again after this call.
        self._kept.append(every.select(np.arange(columns.count)))

    def mismatch(self, entry: LogEntry) -> None:
        """Do nothing: the entry is in the columns too."""

    def unverified(self, ledger_id: int, count: int) -> None:
        """Do nothing: the status is derived from the ledger's type."""

    def unknown(self, entry: LogEntry) -> None:
        """Do nothing: the status is derived from the ledger's type."""

    def other(self, item: LogMap | LogFiller | Hole) -> None:
        """Do nothing: it is not an entry."""
