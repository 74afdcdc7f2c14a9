"""Finds the tombstones that can be purged: those that kill no record of any log or journal that is left.

A tombstone says that a ledger was deleted. It is needed only as long as a file has a record of that ledger:
without it, a rebuilt index or a replay would bring the ledger back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.disk import filenames
from storage.entry import ledger_record_format
from storage.entry.digest_inference import EntryVerifier
from storage.entry.ledger_record import LedgerRecord
from storage.entry.read_result import Damaged
from storage.entrylog.log_set import age_of
from storage.entrylog.reader import EntryLogReader
from storage.gc.log_walk import walk
from storage.runtime.worker import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from storage.disk.files import Directory
    from storage.entry.ledger_record import Tombstone
    from storage.index.state import IndexState
    from storage.runtime.worker import Pause

_TOMBSTONES_AT_ONCE = 512


class LedgersInLogs:
    """The ledgers with records in each log, alive or dead. For one thread.

    The ledgers of a log with a proven map are read from the map each time. The result of a scan of another
    log is kept, because logs that are not written any more never change.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._scanned: dict[int, frozenset[int]] = {}

    def forget_others(self, log_ids: Mapping[int, int]) -> None:
        """Forget the logs that are not among these."""
        self._scanned = {one: found for one, found in self._scanned.items() if one in log_ids}

    def of(self, log_id: int, end: int) -> Generator[Pause, None, frozenset[int] | Damaged]:
        """Return the ledgers with a record in the log; `Damaged` if they cannot be known."""
        if (found := self._scanned.get(log_id)) is not None:
            return found
        with self._directory.open(filenames.entry_log(log_id)) as file:
            sizes = EntryLogReader(file, log_id, EntryVerifier()).proven_map()
            if isinstance(sizes, dict):
                return frozenset(sizes)
            ledgers: set[int] = set()
            for item in walk(file, log_id, end):
                if isinstance(item, Damaged):
                    return item
                ledgers.update(run.ledger_id for run in item.runs)
                yield AT_ONCE
        self._scanned[log_id] = frozenset(ledgers)
        return self._scanned[log_id]


def purgeable(
    tombstones: Mapping[int, bytes], state: IndexState, ledgers_in: LedgersInLogs, oldest_journal: int | None
) -> Generator[Pause, None, dict[int, int]]:
    """Return the tombstones that can be purged: the number of each by its ledger.

    `tombstones` are encoded rows that say nothing else. The files of removed logs, and the journals before
    `oldest_journal`, must be gone for certain. Records that are written meanwhile are after the bound of each
    of these tombstones.
    """
    found: dict[int, tuple[int, Tombstone]] = {}
    for number, (ledger_id, encoded) in enumerate(tombstones.items()):
        row = ledger_record_format.decode(encoded)
        assert isinstance(row, LedgerRecord), "it was checked when it was loaded"
        tombstone = row.tombstone
        assert tombstone is not None, "a tombstone"
        is_in_no_journal = oldest_journal is None or tombstone.journal.journal_id < oldest_journal
        if is_in_no_journal and tombstone.log is not None:
            found[ledger_id] = (row.change, tombstone)
        if number % _TOMBSTONES_AT_ONCE == 0:
            yield AT_ONCE
    if not found or state.last_log is None:
        return {ledger_id: change for ledger_id, (change, _) in found.items()}
    ledgers_in.forget_others(state.log_ends)
    age = age_of(state.last_log)
    for log_id, end in sorted(state.log_ends.items(), key=lambda one: age(one[0])):
        reached = [one for one, (_, tombstone) in found.items() if _reaches(tombstone, age, log_id)]
        # The last log is still written, and its map is made when it is sealed.
        is_last = log_id == state.last_log
        ledgers = frozenset(reached) if is_last or not reached else (yield from ledgers_in.of(log_id, end))
        for ledger_id in reached:
            if isinstance(ledgers, Damaged) or ledger_id in ledgers:
                del found[ledger_id]
        yield AT_ONCE
    return {ledger_id: change for ledger_id, (change, _) in found.items()}


def _reaches(tombstone: Tombstone, age: Callable[[int], int], log_id: int) -> bool:
    """Return whether the tombstone may kill records in the log."""
    bound = tombstone.log
    assert bound is not None, "it has a bound"
    return bound.offset > 0 and age(log_id) <= age(bound.log_id)
