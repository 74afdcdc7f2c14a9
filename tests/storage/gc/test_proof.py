"""A record is dead only if something says so, and its log is kept for the first record that is not."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from entry_log_builder import Log
from journal_builder import entry_bytes
from memory_files import MemoryFile

from storage.entry.ledger_record import LedgerRecord, Tombstone, Truncation
from storage.entry.position import JournalPosition, LogPosition
from storage.entrylog.format import HEADER_SIZE
from storage.gc.log_walk import RecordRun
from storage.gc.proof import (
    DeadRecords,
    Kept,
    KeptBecause,
    LedgerLookups,
    account_for_records,
    not_dead,
)
from storage.index.state import IndexState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LOG, LEDGER = 3, 7
STATE = IndexState(last_log=5, log_ends={3: 1 << 20, 4: 1 << 20, 5: 1 << 20})
LIVING = LedgerRecord(LEDGER, 1)
BEGIN = JournalPosition(1, 0)


def deleted(log: LogPosition | None) -> LedgerRecord:
    return LedgerRecord(LEDGER, 2, tombstone=Tombstone(BEGIN, log))


def place(log_id: int, position: int) -> int:
    """Return the packed location of the record at this position, which is after its length word."""
    return log_id << 32 | (position + 4)


class Index:
    """The locations of some entries of one ledger."""

    def __init__(self, places: Mapping[int, int]) -> None:
        self._places = dict(sorted(places.items()))

    def find(self, _: int, entry_id: int) -> int | None:
        return self._places.get(entry_id)

    def locations(self, _: int, first: int, count: int) -> list[tuple[int, int]]:
        return [one for one in self._places.items() if one[0] >= first][:count]

    def last(self, _: int) -> tuple[int, int] | None:
        return max(self._places.items(), default=None)


def lookups(record: LedgerRecord, state: IndexState = STATE, index: Index | None = None) -> LedgerLookups:
    return LedgerLookups(state, cast("Any", index or Index({})), lambda _: record)


def dead_records(record: LedgerRecord) -> DeadRecords:
    return DeadRecords(LOG, lookups(record))


def run_of(*records: tuple[int, int]) -> RecordRun:
    """Return a run of records of a hundred bytes, of which each has an id and a position."""
    ids, positions = zip(*records, strict=True)
    return RecordRun(LEDGER, array("q", ids), array("q", positions), array("q", [100] * len(ids)))


def kept(index: Mapping[int, int], run: RecordRun, record: LedgerRecord = LIVING) -> list[tuple[object, ...]]:
    found = not_dead(cast("Any", Index(index)), dead_records(record), LOG, run)
    return [(one.because, one.finding, one.offset) for one in found]


# ── what a tombstone kills ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("bound", "is_killed"),
    [
        (None, True),  # no checkpoint since the delete
        (LogPosition(LOG, 0), False),  # there was no log at the delete
        (LogPosition(2, 0), False),
        (LogPosition(2, 9000), False),  # an earlier log
        (LogPosition(4, 9000), True),  # a later one
        (LogPosition(LOG, 5001), True),
        (LogPosition(LOG, 5000), False),
        (LogPosition(LOG, HEADER_SIZE), True),  # an imported log
        (LogPosition(LOG, HEADER_SIZE + 1), False),
    ],
)
def test_a_tombstone_kills_the_records_before_its_bound(bound: LogPosition | None, is_killed: bool) -> None:
    dead, run = dead_records(deleted(bound)), run_of((0, 5000 - 99))
    assert dead.is_killed(LEDGER, 0, 5000) is is_killed
    assert dead.are_all_killed(run) is is_killed, "its last byte is at 5000"


def test_a_truncation_kills_the_entries_before_it() -> None:
    dead = dead_records(LedgerRecord(LEDGER, 2, truncation=Truncation(5, 2, 0)))
    assert [dead.is_killed(LEDGER, one, 5000) for one in (4, 5)] == [True, False]
    assert dead.are_all_killed(run_of((3, 5000), (4, 5100)))
    assert not dead.are_all_killed(run_of((4, 5000), (5, 5100)))


# ── where the index points ───────────────────────────────────────────────────────────────────────────────


def test_records_with_later_locations_are_dead_in_this_log_and_in_later_ones() -> None:
    run = run_of((1, 5000), (2, 5100), (3, 5200))
    assert kept({1: place(4, 0), 2: place(5, 0), 3: place(4, 10)}, run) == []
    # The second of two records of one entry in this log counts.
    assert kept({1: place(LOG, 9000), 2: place(4, 0), 3: place(LOG, 9100)}, run) == []


def test_a_record_that_the_index_points_at_is_live_or_waits_for_a_checkpoint() -> None:
    run, index = run_of((1, 5000), (2, 5100)), {1: place(4, 0), 2: place(LOG, 5100)}
    assert kept(index, run) == [(KeptBecause.LIVE, None, 5100)]
    assert kept(index, run, deleted(None)) == [(KeptBecause.WAITS, None, 5100)]


def test_a_record_that_is_newer_than_its_location_or_has_none_is_unaccounted() -> None:
    run = run_of((1, 5000), (2, 5100), (3, 5200))
    index = {1: place(2, 9000), 3: place(LOG, 1000)}
    assert kept(index, run) == [
        (KeptBecause.UNACCOUNTED, "IDX-006", 5000),
        (KeptBecause.UNACCOUNTED, "IDX-003", 5100),
        (KeptBecause.UNACCOUNTED, "IDX-006", 5200),
    ]
    assert kept(index, run, deleted(None)) == []


@pytest.mark.parametrize("step", [1, 10])
def test_each_entry_is_compared_with_its_own_location(step: int) -> None:
    """`step` 1 asks the index for a range, 10 for each entry."""
    run = run_of(*((step * one, 5000 + 100 * one) for one in range(4)))
    index = {step * one: place(4, 100 * one) for one in (0, 1, 3)}
    assert kept(index, run) == [(KeptBecause.UNACCOUNTED, "IDX-003", 5200)]


# ── a whole log ──────────────────────────────────────────────────────────────────────────────────────────


def accounted(log: Log, record: LedgerRecord, index: Index) -> Kept | None:
    """Walk over all records, and return why the log is kept."""
    state = IndexState(last_log=5, log_ends={LOG: len(log.data), 5: 2000})
    directory = SimpleNamespace(open=lambda name: MemoryFile(log.file(), name))
    account = account_for_records(
        cast("Any", directory), cast("Any", index), lookups(record, state, index), LOG
    )
    while True:
        try:
            next(account)
        except StopIteration as end:
            found: Kept | None = end.value
            return found


def log_of(ids: Iterable[int]) -> Log:
    return Log().add(*(entry_bytes(LEDGER, one, b"x" * 50) for one in ids))


def test_a_log_is_kept_for_a_live_record_after_others_that_are_dead() -> None:
    # The ids do not ascend, so that each record is a run of its own.
    log = log_of([9, 5, 2])
    index = {9: place(5, 0), 5: place(5, 100), 2: place(LOG, log.places[2])}
    found = accounted(log, LIVING, Index(index))
    assert found is not None
    assert (found.because, found.offset) == (KeptBecause.LIVE, log.places[2])
    assert accounted(log, LIVING, Index({**index, 2: place(5, 200)})) is None


def test_records_of_a_deleted_ledger_wait_while_the_index_has_them() -> None:
    log = log_of([1, 2])
    found = accounted(log, deleted(None), Index({2: place(LOG, log.places[1])}))
    assert found is not None
    assert found.because is KeptBecause.WAITS
    assert accounted(log, deleted(None), Index({})) is None
