"""Read log entries one by one, for ledgers whose runs in logs and index disagree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from recovery.audit.model.entry_columns import ENTRY, no_entries
from recovery.audit.scan.entry_log_walk import LogWalk
from recovery.audit.scan.read_around import ReadAroundFile
from storage.disk.posix import open_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.audit.digests.policy import DigestPolicy
    from recovery.audit.engines.task import ReadThrottle
    from recovery.audit.model.entry_columns import EntryArray
    from recovery.audit.model.runs import Numbers
    from recovery.audit.model.windows import WindowSet
    from recovery.audit.scan.chunk_columns import ChunkColumns
    from storage.disk.files import ReadFile
    from storage.entrylog.reader import LogEntry, LogMap
    from storage.entrylog.scan import Hole, LogFiller


@dataclass(frozen=True, slots=True)
class ReadLogEntries:
    """The task to read the entries of some ledgers in a range of an entry log that begins with a record."""

    path: str
    log_id: int
    start: int
    end: int
    ledgers: frozenset[int]
    policy: DigestPolicy
    windows: WindowSet | None = None
    """If set, only the entries in these windows are returned."""

    @property
    def name(self) -> str:
        return f"entries of {self.path}@{self.start}"

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)

    def run(self, throttle: ReadThrottle) -> EntryArray:
        with ReadAroundFile(open_file(self.path)) as file:
            return read_entries(file, self, throttle)


def read_entries(file: ReadFile, task: ReadLogEntries, throttle: ReadThrottle) -> EntryArray:
    """Return all entries with correct framing, in the order of the file. Unverifiable entries count
    as good.
    """
    return walk_twice(file, task, _EntryCollector, throttle).entries_found()


def walk_twice(
    file: ReadFile, task: ReadLogEntries, sink: Callable[[ReadLogEntries], AnySink], throttle: ReadThrottle
) -> AnySink:
    """Walk, and return what the sink has made of the entries. Walk again if more types are known in
    the end.
    """
    verifier = task.policy.verifier()
    taker = sink(task)
    once = LogWalk(file, task.log_id, task.policy, verifier, _EntryFilter(task, taker), throttle)
    once.run(task.start, task.end)
    if not once.depends_on_types:
        return taker
    taker = sink(task)
    twice = LogWalk(
        file, task.log_id, task.policy, verifier, _EntryFilter(task, taker), throttle.without_reporting()
    )
    twice.types.start_with(once.types)
    twice.run(task.start, task.end)
    return taker


class EntrySink(Protocol):
    """Takes the entries that a task is about."""

    def take(self, columns: ChunkColumns, wanted: Numbers) -> None:
        """Take the entries with these numbers."""


AnySink = TypeVar("AnySink", bound=EntrySink)


class _EntryFilter:
    """Selects the entries that a task is about from those that a walk finds."""

    def __init__(self, task: ReadLogEntries, sink: EntrySink) -> None:
        self._sink = sink
        self._ledgers = np.array(sorted(task.ledgers), dtype=np.int64)
        self._windows = task.windows

    def entries(self, columns: ChunkColumns) -> None:
        (wanted,) = np.isin(columns.ledgers[: columns.count], self._ledgers).nonzero()
        if self._windows is not None and len(wanted):
            wanted = wanted[self._windows.hold(columns.ledgers[wanted], columns.entries[wanted])]
        if len(wanted):
            self._sink.take(columns, wanted)

    def mismatch(self, entry: LogEntry) -> None:
        """Do nothing: the entry is in the columns too."""

    def unverified(self, ledger_id: int, count: int) -> None:
        """Do nothing: the entries count as good."""

    def unknown(self, entry: LogEntry) -> None:
        """Do nothing: the entry counts as good."""

    def other(self, item: LogMap | LogFiller | Hole) -> None:
        """Do nothing: it is not an entry."""


class _EntryCollector:
    """Collects the entries."""

    def __init__(self, task: ReadLogEntries) -> None:
        self._log_id = task.log_id
        self._found: list[EntryArray] = []

    def entries_found(self) -> EntryArray:
        return np.concatenate(self._found) if self._found else no_entries()

    def take(self, columns: ChunkColumns, wanted: Numbers) -> None:
        found = np.empty(len(wanted), dtype=ENTRY)
        found["file"] = self._log_id
        found["offset"], found["size"] = columns.offsets[wanted], columns.sizes[wanted]
        found["ledger"], found["entry"] = columns.ledgers[wanted], columns.entries[wanted]
        found["confirmed"], found["length"] = columns.confirmed[wanted], columns.lengths[wanted]
        found["digest"], found["good"] = columns.digests[wanted], columns.good[wanted]
        self._found.append(found)
