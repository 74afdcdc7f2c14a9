"""What a log, and the index, hold of ledgers that are suspects, added up by windows of ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from recovery.audit.drill import walk_twice
from recovery.audit.index_rows import RowReader
from recovery.verify.windows import Adding, sums_of
from storage.entry import ID_MAX
from storage.position import LENGTH_WORD_SIZE
from storage.posix_files import open_file

if TYPE_CHECKING:
    from recovery.audit.chunk_columns import Columns
    from recovery.audit.drill import DrillLog
    from recovery.audit.task import Pace
    from recovery.verify.runs import Numbers
    from recovery.verify.windows import Sums

_SHIFT = 32


@dataclass(frozen=True, slots=True)
class NarrowLog:
    """The same entries as the drill would give."""

    drill: DrillLog

    @property
    def name(self) -> str:
        return f"windows of {self.drill.path}"

    @property
    def size(self) -> int:
        return self.drill.size

    def run(self, pace: Pace) -> Sums:
        with open_file(self.drill.path) as file:
            return walk_twice(file, self.drill, _Summing, pace).adding.all()


class _Summing:
    """Adds up what a walk finds."""

    def __init__(self, drill: DrillLog) -> None:
        self.adding = Adding()
        self._log = drill.log_id << _SHIFT

    def take(self, columns: Columns, wanted: Numbers) -> None:
        offsets, sizes = columns.offsets[wanted], columns.sizes[wanted]
        locations = (offsets + LENGTH_WORD_SIZE) | self._log
        extents = {"size": sizes, "begin": offsets, "end": offsets + sizes}
        self.adding.add(sums_of(columns.ledgers[wanted], columns.entries[wanted], locations, **extents))


@dataclass(frozen=True, slots=True)
class NarrowIndex:
    """All rows of these ledgers."""

    path: str
    ledgers: frozenset[int]
    stays: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return f"index windows of {len(self.ledgers)} ledgers"

    @property
    def size(self) -> int:
        return 0

    def run(self, pace: Pace) -> Sums:
        reader, adding = RowReader(self.path, pace.read, self.ledgers), Adding()
        for rows in reader.rows(min(self.ledgers, default=0), max(self.ledgers, default=ID_MAX)):
            adding.add(sums_of(rows.ledgers, rows.entries, rows.locations))
        return adding.all()
