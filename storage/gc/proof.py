"""The two proofs that an entry log holds nothing live. Both must succeed before the log is removed.

    account_for_records   a walk over all records, which ends exactly at the log's end, finds for each one why
                          it is dead: a tombstone or a truncation kills it, or the index has a later
                          location of its entry
    count_live            a pass over the whole index finds no location in the log

Neither a ledgers map nor a count of bytes ever decides that a log is removed. Both proofs stay true: no
record of a log that is not written any more can become live again.
"""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from storage.checkpoint.reclaimer import locations_of
from storage.disk import filenames
from storage.entry.position import LENGTH_WORD_SIZE
from storage.entry.read_result import Damaged, Flaw
from storage.entrylog import format as entrylog_format
from storage.entrylog.log_set import age_of
from storage.gc.log_walk import RecordRun, walk
from storage.runtime.worker import AT_ONCE, yield_gil

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterator

    from storage.disk.files import Directory
    from storage.entry.ledger_record import LedgerRecord
    from storage.entry.position import LogPosition
    from storage.index.port import Index, IndexReader
    from storage.index.state import IndexState
    from storage.runtime.worker import Pause


_LEDGERS_KEPT = 4096
"""Of how many ledgers it is remembered what was looked up."""


class KeptBecause(enum.Enum):
    """The reason why a log was not removed, or not compacted to its end."""

    LAST = "it is the last log, or the one in use"
    NOT_COMMITTED = "the store has no such log"
    LIVE = "it holds live records"
    WAITS = "a checkpoint has yet to take dead records in it out of the index"
    DAMAGED = "it is damaged"
    UNACCOUNTED = "a record in it is neither live nor dead"
    FAILED = "the disk refused a step"


@dataclass(frozen=True, slots=True)
class Kept:
    """A log that was kept, with the reason."""

    log_id: int
    because: KeptBecause
    finding: str | None = None
    """The finding of the audit that says the same, such as ELG-004."""
    offset: int | None = None
    """The offset in the log to which the reason belongs."""
    detail: str = ""

    def __str__(self) -> str:
        place = "" if self.offset is None else f"@{self.offset}"
        words = f": {self.detail}" if self.detail else ""
        found = f"{self.finding} " if self.finding else ""
        return f"{found}{filenames.entry_log(self.log_id)}{place}: {self.because.value}{words}"


def kept_damaged(log_id: int, damage: Damaged) -> Kept:
    """Return why a log is kept in which a walk has found this damage."""
    finding = "ELG-004"
    if damage.offset < entrylog_format.HEADER_SIZE:
        finding = "ELG-002" if damage.flaw in (Flaw.BAD_MAP, Flaw.FILE_SHORT) else "ELG-001"
    elif damage.flaw is Flaw.DIGEST:
        finding = "ELG-003"
    return Kept(log_id, KeptBecause.DAMAGED, finding, damage.offset, str(damage))


class LedgerLookups:
    """Caches the records and last entries of ledgers for one state of the index, for all logs of that state.

    A cached answer stays right, because a delete or a truncation is never taken back, no log of the state has
    a record that is newer than a tombstone without a bound, and the locations change only with the state.
    """

    def __init__(
        self, state: IndexState, index: IndexReader, record_of: Callable[[int], LedgerRecord]
    ) -> None:
        self.state = state
        self.earlier_record_of = lru_cache(_LEDGERS_KEPT)(record_of)
        self.last = lru_cache(_LEDGERS_KEPT)(index.last)
        self.record_of = record_of
        """Looks a ledger up without the cache."""


class DeadRecords:
    """Tells which records of one log are dead because their ledger was deleted or truncated."""

    def __init__(self, log_id: int, lookups: LedgerLookups) -> None:
        assert lookups.state.last_log is not None, "it has logs"
        self.age = age_of(lookups.state.last_log)
        self._log_id = log_id
        self._record_of = lookups.record_of
        self._earlier_record_of = lookups.earlier_record_of

    def are_all_killed(self, run: RecordRun) -> bool:
        """Return whether all records of the run are dead for that reason."""
        record = self._earlier_record_of(run.ledger_id)
        if record.first_entry_id > run.ids[-1]:
            return True
        tombstone = record.tombstone
        return tombstone is not None and self._is_before(run.end - 1, tombstone.log)

    def are_later_logs(self, log_ids: Collection[int]) -> bool:
        """Return whether all of these logs were begun after this one."""
        return all(self.age(one) > self.age(self._log_id) for one in log_ids)

    def is_killed(self, ledger_id: int, entry_id: int, position: int) -> bool:
        """Return whether the record at this position is dead for that reason."""
        record = self._record_of(ledger_id)
        if entry_id < record.first_entry_id:
            return True
        return record.tombstone is not None and self._is_before(position, record.tombstone.log)

    def _is_before(self, position: int, bound: LogPosition | None) -> bool:
        """Return whether the position in this log is before the bound of a tombstone."""
        if bound is None:
            return True  # no checkpoint has frozen a table since the delete, so no record is newer
        if bound.offset == 0:
            return False  # there was no log at the delete
        if bound.log_id != self._log_id:
            return self.age(self._log_id) < self.age(bound.log_id)
        # If the bound is inside the header, the log was imported and never written here.
        return position < bound.offset or bound.offset <= entrylog_format.HEADER_SIZE


def account_for_records(
    directory: Directory, index: Index, lookups: LedgerLookups, log_id: int
) -> Generator[Pause, None, Kept | None]:
    """Find for each record of the log why it is dead. Return why the log is kept, if one is not."""
    dead = DeadRecords(log_id, lookups)
    with directory.open(filenames.entry_log(log_id)) as file:
        for item in walk(file, log_id, lookups.state.log_ends[log_id]):
            if isinstance(item, Damaged):
                return kept_damaged(log_id, item)
            for run in item.runs:
                # The index has the locations of a ledger that was deleted or truncated until the next
                # checkpoint. The second proof would find them, and could not say why they are there.
                if not dead.are_all_killed(run) or lookups.last(run.ledger_id) is not None:
                    kept = next(not_dead(index, dead, log_id, run), None)
                    if kept is not None:
                        return kept
                yield_gil()
            yield AT_ONCE
    return None


def not_dead(index: IndexReader, dead: DeadRecords, log_id: int, run: RecordRun) -> Iterator[Kept]:
    """Yield why the log is kept for each record of the run that is not dead."""
    found = locations_of(index, run.ledger_id, run.ids)
    if None not in found and dead.are_later_logs({place >> 32 for place in found if place is not None}):
        return  # after a compaction every record has a later copy
    for entry_id, position, place in zip(run.ids, run.positions, found, strict=True):
        if place == log_id << 32 | (position + LENGTH_WORD_SIZE):
            is_killed = dead.is_killed(run.ledger_id, entry_id, position)
            because = KeptBecause.WAITS if is_killed else KeptBecause.LIVE
            yield Kept(log_id, because, None, position, _entry(run, entry_id))
            continue
        finding = "IDX-003"
        if place is not None:
            if not (dead.age(place >> 32), place & 0xFFFF_FFFF) < (dead.age(log_id), position):
                continue
            finding = "IDX-006"
        if not dead.is_killed(run.ledger_id, entry_id, position):
            yield Kept(log_id, KeptBecause.UNACCOUNTED, finding, position, _entry(run, entry_id))


def _entry(run: RecordRun, entry_id: int) -> str:
    return f"ledger {run.ledger_id}, entry {entry_id}"


def count_live(index: Index, log_ids: Collection[int]) -> Generator[Pause, None, Counter[int]]:
    """Return how many locations of the index are in each of these logs, by a pass over all of it."""
    wanted, counted = frozenset(log_ids), Counter[int]()
    for part in index.count_by_log():
        for log_id in wanted & part.keys():
            counted[log_id] += part[log_id]
        yield AT_ONCE
    return counted
