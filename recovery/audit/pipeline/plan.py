"""Plan the tasks: divide the files into pieces that any engine can run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.audit.scan import entry_log_ranges
from recovery.audit.scan.bookie_index import ScanBookieIndex
from recovery.audit.scan.entry_log import ScanLog
from recovery.audit.scan.index import ScanIndex, plan_index
from recovery.audit.scan.journal import ScanJournal
from recovery.bookkeeper.rocksdb_index import RocksdbIndexCopy
from storage.entrylog.format import HEADER_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from recovery.audit.digests.policy import DigestPolicy
    from recovery.audit.engines.task import AuditTask
    from recovery.audit.model.scan_results import Part
    from recovery.audit.snapshot.inventory import JournalFile, LogFile, StoreInventory


RANGE_MIN = 256 << 20
"""The smallest range of a log, because a task has a cost of its own."""

_TASKS_FOR_EACH = 2


def plan(
    inventories: Sequence[StoreInventory], steps: Sequence[Mapping[int, int]], jobs: int
) -> Iterator[tuple[int, AuditTask[Part]]]:
    """Yield scans of everything that the stores hold, each with the number of its store."""
    logs = sum(len(inventory.logs) for inventory in inventories)
    pieces = max(1, -(-_TASKS_FOR_EACH * jobs // max(1, logs)))
    for store, (inventory, striped) in enumerate(zip(inventories, steps, strict=True)):
        for log in inventory.logs:
            for task in log_tasks(log, inventory.policy, striped, pieces):
                yield store, task
        for journal in inventory.journals:
            yield store, journal_task(journal, inventory, inventory.policy, striped)
        for one in _index_tasks(inventory, striped, jobs):
            yield store, one


def log_tasks(log: LogFile, policy: DigestPolicy, steps: Mapping[int, int], pieces: int) -> list[ScanLog]:
    """Return tasks for the ranges of a log: several only if the log is large and there are few logs.

    Data after a known end is a range of its own: it may hold a ledgers map, and leftovers.
    """
    end = max(HEADER_SIZE, log.size if log.limit is None else min(log.size, log.limit))
    bounds = entry_log_ranges.ranges(end, min(pieces, max(1, end // RANGE_MIN)))
    tasks = [ScanLog(log.path, log.log_id, start, stop, policy, steps) for start, stop in bounds]
    if log.limit is not None and end < log.size:
        tasks.append(ScanLog(log.path, log.log_id, end, log.size, policy, steps, entry=end))
    return tasks


def journal_task(
    journal: JournalFile, inventory: StoreInventory, policy: DigestPolicy, steps: Mapping[int, int]
) -> ScanJournal:
    """Return the task that reads the whole journal."""
    return ScanJournal(journal.path, journal.journal_id, journal.start, inventory.rows, policy, steps)


def _index_tasks(
    inventory: StoreInventory, steps: Mapping[int, int], jobs: int
) -> Iterator[ScanIndex | ScanBookieIndex]:
    from pathlib import Path

    if isinstance(inventory.index, Path):
        for first, last, _ in plan_index(str(inventory.index), jobs):
            yield ScanIndex(str(inventory.index), first, last, steps)
    if isinstance(inventory.bookie_index, RocksdbIndexCopy):
        yield ScanBookieIndex(inventory.bookie_index.locations, inventory.bookie_index.ledgers, steps)
