"""Sums by windows of entry ids, of the ledgers that logs and index disagree about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from recovery.audit.model.windows import WindowSums, sums_of
from recovery.audit.scan.index_rows import RowReader
from recovery.audit.scan.log_entries import walk_twice
from recovery.audit.scan.read_around import ReadAroundFile
from storage.disk.posix import open_file
from storage.entry.model import ID_MAX
from storage.entry.position import LENGTH_WORD_SIZE

if TYPE_CHECKING:
    from recovery.audit.engines.task import ReadThrottle
    from recovery.audit.model.runs import Numbers
    from recovery.audit.model.windows import Sums
    from recovery.audit.scan.chunk_columns import ChunkColumns
    from recovery.audit.scan.log_entries import ReadLogEntries

_SHIFT = 32


@dataclass(frozen=True, slots=True)
class SumLogWindows:
    """The task to sum up the entries that a `ReadLogEntries` task would return."""

    read: ReadLogEntries

    @property
    def name(self) -> str:
        return f"windows of {self.read.path}"

    @property
    def size(self) -> int:
        return self.read.size

    def run(self, throttle: ReadThrottle) -> Sums:
        with ReadAroundFile(open_file(self.read.path)) as file:
            return walk_twice(file, self.read, _WindowSummer, throttle).adding.all()


class _WindowSummer:
    """Sums up the entries of a walk."""

    def __init__(self, read: ReadLogEntries) -> None:
        self.adding = WindowSums()
        self._log = read.log_id << _SHIFT

    def take(self, columns: ChunkColumns, wanted: Numbers) -> None:
        offsets, sizes = columns.offsets[wanted], columns.sizes[wanted]
        locations = (offsets + LENGTH_WORD_SIZE) | self._log
        extents = {"size": sizes, "begin": offsets, "end": offsets + sizes}
        self.adding.add(sums_of(columns.ledgers[wanted], columns.entries[wanted], locations, **extents))


@dataclass(frozen=True, slots=True)
class SumIndexWindows:
    """The task to sum up all index rows of some ledgers."""

    path: str
    ledgers: frozenset[int]
    needs_this_machine: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return f"index windows of {len(self.ledgers)} ledgers"

    @property
    def size(self) -> int:
        return 0

    def run(self, throttle: ReadThrottle) -> Sums:
        reader, adding = RowReader(self.path, throttle.read, self.ledgers), WindowSums()
        for rows in reader.rows(min(self.ledgers, default=0), max(self.ledgers, default=ID_MAX)):
            adding.add(sums_of(rows.ledgers, rows.entries, rows.locations))
        return adding.all()
