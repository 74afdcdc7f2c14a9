"""Entries one by one: of the ledgers of which runs in an entry log and the index's places disagree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from recovery.audit.log_walk import LogWalk
from recovery.verify.entries import ENTRY, no_entries
from storage.posix_files import open_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.audit.chunk_columns import Columns
    from recovery.audit.task import Pace
    from recovery.audit.ways import Ways
    from recovery.verify.entries import Entries
    from recovery.verify.runs import Numbers
    from recovery.verify.windows import Windows
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
    windows: Windows | None = None
    """Of those ledgers only the entries in these, if they are told."""

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
    return walk_twice(file, task, _Keeping, pace).entries_found()


def walk_twice(file: ReadFile, task: DrillLog, sink: Callable[[DrillLog], Taker], pace: Pace) -> Taker:
    """What `sink` has made of the entries; again, if in the end more is known of how they are verified."""
    verifier = task.ways.verifier()
    taker = sink(task)
    once = LogWalk(file, task.log_id, task.ways, verifier, _Wanted(task, taker), pace)
    once.run(task.start, task.end)
    if not once.depends_on_types:
        return taker
    taker = sink(task)
    twice = LogWalk(file, task.log_id, task.ways, verifier, _Wanted(task, taker), pace.unseen())
    twice.types.believe(once.types)
    twice.run(task.start, task.end)
    return taker


class Sink(Protocol):
    """Who takes the entries that a task is about."""

    def take(self, columns: Columns, wanted: Numbers) -> None:
        """Those with these numbers."""


Taker = TypeVar("Taker", bound=Sink)


class _Wanted:
    """Which of the entries that a walk finds a task is about."""

    def __init__(self, task: DrillLog, sink: Sink) -> None:
        self._sink = sink
        self._ledgers = np.array(sorted(task.ledgers), dtype=np.int64)
        self._windows = task.windows

    def entries(self, columns: Columns) -> None:
        (wanted,) = np.isin(columns.ledgers[: columns.count], self._ledgers).nonzero()
        if self._windows is not None and len(wanted):
            wanted = wanted[self._windows.hold(columns.ledgers[wanted], columns.entries[wanted])]
        if len(wanted):
            self._sink.take(columns, wanted)

    def mismatch(self, entry: LogEntry) -> None:
        """Stands among the entries."""

    def unverified(self, ledger_id: int, count: int) -> None:
        """Counts as good."""

    def unknown(self, entry: LogEntry) -> None:
        """Counts as good."""

    def other(self, item: LogMap | LogFiller | Hole) -> None:
        """Is no entry."""


class _Keeping:
    """Keeps each of them."""

    def __init__(self, task: DrillLog) -> None:
        self._log_id = task.log_id
        self._found: list[Entries] = []

    def entries_found(self) -> Entries:
        return np.concatenate(self._found) if self._found else no_entries()

    def take(self, columns: Columns, wanted: Numbers) -> None:
        found = np.empty(len(wanted), dtype=ENTRY)
        found["file"] = self._log_id
        found["offset"], found["size"] = columns.offsets[wanted], columns.sizes[wanted]
        found["ledger"], found["entry"] = columns.ledgers[wanted], columns.entries[wanted]
        found["confirmed"], found["length"] = columns.confirmed[wanted], columns.lengths[wanted]
        found["digest"], found["good"] = columns.digests[wanted], columns.good[wanted]
        self._found.append(found)
