"""Entries one by one: of the ledgers of which runs in an entry log and the index's places disagree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from recovery.audit.log_walk import LogWalk
from recovery.verify.entries import ENTRY, no_entries
from storage.posix_files import open_file

if TYPE_CHECKING:
    from recovery.audit.chunk_columns import Columns
    from recovery.audit.task import Pace
    from recovery.audit.ways import Ways
    from recovery.verify.entries import Entries
    from storage.codec.survey import EntryVerifier
    from storage.entrylog_reader import LogEntry, LogMap
    from storage.entrylog_scan import Hole, LogFiller
    from storage.files import ReadFile


@dataclass(frozen=True, slots=True)
class DrillLog:
    """The entries of some ledgers in one range of an entry log, which begins with a record."""

    path: str
    log_id: int
    start: int
    end: int
    ledgers: frozenset[int]
    ways: Ways

    @property
    def name(self) -> str:
        return f"entries of {self.path}@{self.start}"

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)

    def run(self, pace: Pace) -> Entries:
        with open_file(self.path) as file:
            return drill(file, self, pace)


def drill(file: ReadFile, task: DrillLog, pace: Pace) -> Entries:
    """All that are framed, in the order of the file. Those that nothing can verify count as good."""
    verifier = task.ways.verifier()
    once = _Drill(file, task, verifier, pace)
    once.walk.run(task.start, task.end)
    if not once.walk.depends_on_types:
        return once.entries_found()
    twice = _Drill(file, task, verifier, pace.unseen())
    twice.walk.types.believe(once.walk.types)
    twice.walk.run(task.start, task.end)
    return twice.entries_found()


class _Drill:
    """One walk, and the entries that it finds."""

    def __init__(self, file: ReadFile, task: DrillLog, verifier: EntryVerifier, pace: Pace) -> None:
        self.walk = LogWalk(file, task.log_id, task.ways, verifier, self, pace)
        self._log_id = task.log_id
        self._ledgers = np.array(sorted(task.ledgers), dtype=np.int64)
        self._found: list[Entries] = []

    def entries_found(self) -> Entries:
        return np.concatenate(self._found) if self._found else no_entries()

    def entries(self, columns: Columns) -> None:
        (wanted,) = np.isin(columns.ledgers[: columns.count], self._ledgers).nonzero()
        if not len(wanted):
            return
        found = np.empty(len(wanted), dtype=ENTRY)
        found["file"] = self._log_id
        found["offset"], found["size"] = columns.offsets[wanted], columns.sizes[wanted]
        found["ledger"], found["entry"] = columns.ledgers[wanted], columns.entries[wanted]
        found["confirmed"], found["length"] = columns.confirmed[wanted], columns.lengths[wanted]
        found["digest"], found["good"] = columns.digests[wanted], columns.good[wanted]
        self._found.append(found)

    def mismatch(self, entry: LogEntry) -> None:
        """Stands among the entries."""

    def unverified(self, ledger_id: int, count: int) -> None:
        """Counts as good."""

    def unknown(self, entry: LogEntry) -> None:
        """Counts as good."""

    def other(self, item: LogMap | LogFiller | Hole) -> None:
        """Is no entry."""
