"""The report of a collection, which `Store.collect` returns, and the statistics of all of them."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.gc.policy import LogVerdict


class CollectionEnd(enum.Enum):
    """The end of a collection. After an early end its work so far stays, and a later one does the rest."""

    COMPLETE = "complete"
    PAUSED = "paused"
    NO_SPACE = "no space"
    """There was no space for the copies of live entries."""
    FAILED = "failed"
    """An entry log or the index could not be written, which changed nothing."""
    WINDOW = "outside of its time of day"
    """`compaction_window` ended before the collection did."""


@dataclass(frozen=True, slots=True)
class CollectionReport:
    """The results of one collection."""

    end: CollectionEnd
    seconds: float
    removed: tuple[int, ...]
    """The ids of the logs that were removed."""
    freed: int
    """The bytes of their files. An audit that reads such a file keeps its space until the audit ends."""
    moved_entries: int
    """Living entries that were moved to another log."""
    moved_bytes: int
    tombstones: int
    """Deleted ledgers whose tombstones were purged, because nothing is left of their records."""
    logs: tuple[LogVerdict, ...]
    """Every log that is still there, with the reason."""

    @property
    def problems(self) -> tuple[LogVerdict, ...]:
        """The logs that were passed over because they are damaged, or hold a record that nothing explains."""
        return tuple(one for one in self.logs if one.log.problem is not None)


@dataclass(frozen=True, slots=True)
class CollectionProgress:
    """How far a collection is."""

    read: int
    """Bytes of logs that were read so far."""
    total: int
    """Bytes of all logs that are to be read."""


@dataclass(frozen=True, slots=True)
class CollectionStats:
    """The collections since a store was opened."""

    count: int
    """How many have ended, also early."""
    is_paused: bool
    last_seconds: float | None = None
    """How long the last one took; `None` before the first."""
    logs_removed: int = 0
    bytes_freed: int = 0
    """The bytes of the files of these logs."""
    entries_moved: int = 0
    bytes_moved: int = 0
    tombstones_purged: int = 0
    logs_passed_over: int = 0
    """Logs that the last collection found damaged, or with a record that nothing explains."""

    def with_report(self, report: CollectionReport) -> CollectionStats:
        """Return the figures after one more collection."""
        return CollectionStats(
            self.count + 1,
            self.is_paused,
            report.seconds,
            self.logs_removed + len(report.removed),
            self.bytes_freed + report.freed,
            self.entries_moved + report.moved_entries,
            self.bytes_moved + report.moved_bytes,
            self.tombstones_purged + report.tombstones,
            len(report.problems),
        )
