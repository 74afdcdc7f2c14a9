"""The memtable is the same as a dict of entries, between any two steps of its writer."""

from __future__ import annotations

import sys
import threading
import time
import tracemalloc
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import every, many
from store_internals import runs_of

from storage.entry import record_format
from storage.entry.digest import digester
from storage.entry.ledger_record import LedgerRecord, Tombstone
from storage.entry.model import DigestType
from storage.entry.position import START, JournalPosition, LogPosition
from storage.entry.record_format import FRONT_SIZE, HEAD_FRONT_SIZE
from storage.memtable import ledger_entries as entries_module
from storage.memtable import table as memtable_table
from storage.memtable.ledger_entries import RECORD_OVERHEAD, STRAY_OVERHEAD, LedgerEntries
from storage.memtable.table import LEDGER_OVERHEAD, ROW_OVERHEAD, Memtable, Slot, Tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    from _typeshed import TraceFunction

Model = dict[tuple[int, int], bytes]


def record(ledger_id: int, entry_id: int, version: int = 0, size: int = 0) -> bytes:
    return (b"%d/%d/%d" % (ledger_id, entry_id, version)).ljust(max(size, FRONT_SIZE + 3), b".")


def record_of(size: int, ledger_id: int, entry_id: int, version: int = 0) -> bytes:
    """Return a record of exactly that size, which the other helper never makes below its front."""
    return record(ledger_id, entry_id, version, size)[:size]


def insert_parts(table: Memtable, first_id: int, records: list[bytes], front_size: int) -> None:
    """Insert into ledger 1 records with a digest of that width."""
    fronts = b"".join([one[:front_size] for one in records])
    payloads = [one[front_size:] for one in records]
    table.insert_parts(1, first_id, fronts, payloads, sum(map(len, records)))


def table_of(*entry_ids: int, ledger_id: int = 1) -> Memtable:
    """Return a table with these entries of a ledger, inserted one by one."""
    table = Memtable(START)
    for entry_id in entry_ids:
        table.insert(ledger_id, entry_id, [record(ledger_id, entry_id)])
    return table


def shape(table: Memtable, ledger_id: int = 1) -> list[Sequence[int]]:
    """Return the ids of each chunk: a range if the table holds a run, a list if it holds strays."""
    return [ids for ids, _ in runs_of(table, ledger_id)]


# ── what is in it ────────────────────────────────────────────────────────────────────────────────────────


def test_an_empty_table_has_nothing() -> None:
    table = Memtable(JournalPosition(3, 4096))
    assert (len(table), table.size, table.ledgers()) == (0, 0, [])
    assert (table.get(1, 0), table.last_id(1), table.ids_from(1, 0, 9)) == (None, None, [])
    assert list(runs_of(table, 1)) == []
    assert table.covers_until == JournalPosition(3, 4096)


def test_inserting_no_records_makes_no_ledger() -> None:
    table = Memtable(START)
    table.insert(1, 0, [])
    assert table.ledgers() == []
    table.insert(1, 5, [record(1, 5)])
    for first_id in (4, 5, 6, 9):
        table.insert(1, first_id, [])
    assert (len(table), table.last_id(1), table.size) == (1, 5, table_of(5).size)


def test_consecutive_entries_are_one_run_wherever_they_begin() -> None:
    table = Memtable(START)
    table.insert(1, 100, [record(1, 100), record(1, 101)])
    table.insert(1, 102, (record(1, 102),))
    assert shape(table) == [range(100, 103)]
    assert table.get(1, 99) is table.get(1, 103) is None
    assert table.get(1, -1) is None
    assert table.get(1, 102) == record(1, 102)


def test_the_caller_s_list_stays_the_caller_s() -> None:
    records = [record(1, 0)]
    table = Memtable(START)
    table.insert(1, 0, records)
    table.insert(1, 1, [record(1, 1)])
    assert records == [record(1, 0)]


def test_entries_after_a_gap_join_the_run_that_reaches_them() -> None:
    table = table_of(0, 2, 3, 5)
    assert shape(table) == [range(1), [2, 3, 5]]
    assert table.get(1, 1) is table.get(1, 4) is None
    table.insert(1, 1, [record(1, 1)])
    assert shape(table) == [range(4), [5]]
    table.insert(1, 4, [record(1, 4)])
    assert shape(table) == [range(6)]


def test_a_run_that_has_taken_in_its_strays_grows_fast_again() -> None:
    table = table_of(0, 2, 1)
    # A rest of the gap would send each of these through the dict.
    grown = [record(1, number) for number in range(3, 9)]
    fronts = b"".join([one[:FRONT_SIZE] for one in grown])
    table.insert_parts(1, 3, fronts, [one[FRONT_SIZE:] for one in grown], size=-1000)
    assert table.size < 0


def test_entries_before_the_run_come_before_it() -> None:
    table = table_of(5, 6, 4, 1)
    assert shape(table) == [[1, 4], range(5, 7)]
    assert table.ids_from(1, 0, 9) == [1, 4, 5, 6]
    assert table.last_id(1) == 6


@pytest.mark.parametrize("first", [0, 1, 2, 3, 4, 6, 7])
def test_d47_the_second_copy_of_an_id_inserted_twice_stays(first: int) -> None:
    table = table_of(2, 3, 5, 0)
    newer = [record(1, entry_id, 1, 30) for entry_id in range(first, first + 3)]
    table.insert(1, first, newer)
    assert [table.get(1, entry_id) for entry_id in range(first, first + 3)] == newer
    runs = runs_of(table, 1)
    written = {one: found for ids, records in runs for one, found in zip(ids, records, strict=True)}
    assert [written[entry_id] for entry_id in range(first, first + 3)] == newer


def test_d48_a_gap_has_no_entries_and_both_sides_do() -> None:
    table = table_of(10, 2)
    assert [entry_id for entry_id in range(12) if table.get(1, entry_id)] == [2, 10]


def test_d54_entries_are_in_the_order_of_ledger_and_entry() -> None:
    table = Memtable(START)
    for ledger_id, entry_id in [(7, 1), (2, 9), (7, 0), (2, 8), (5, 3), (2, 10), (5, 9)]:
        table.insert(ledger_id, entry_id, [record(ledger_id, entry_id)])
    found = [
        (ledger_id, entry_id, table.get(ledger_id, entry_id))
        for ledger_id in table.ledgers()
        for entry_id in chain.from_iterable(shape(table, ledger_id))
    ]
    assert found == sorted(found)
    assert len(found) == len(table) == 7


# ── fronts of other sizes ────────────────────────────────────────────────────────────────────────────────

FRONT_SIZES = sorted(map(record_format.front_size, DigestType))


@pytest.mark.parametrize("digest_type", DigestType)
def test_a_ledger_of_any_digest_type_keeps_the_payloads_it_is_given(digest_type: DigestType) -> None:
    table, protect = Memtable(START), digester(digest_type, b"pw")
    payloads = [b"%d" % number * 20 for number in range(10, 15)]
    joined = record_format.encode_fronts_with(protect, 1, 10, -1, 0, payloads)
    width = record_format.front_size(digest_type)
    fronts = [joined[start : start + width] for start in range(0, len(joined), width)]
    for part in slice(0, 1), slice(1, 2), slice(2, 5):
        size = sum(map(len, fronts[part] + payloads[part]))
        table.insert_parts(1, 10 + part.start, b"".join(fronts[part]), payloads[part], size)
    assert shape(table) == [range(10, 15)]
    assert [table.get(1, 10 + at) for at in range(5)] == [fronts[at] + payloads[at] for at in range(5)]
    # The objects themselves, because an add must not pay for a copy of each.
    assert all(kept is given for kept, given in zip(table._ledgers[1].run, payloads, strict=True))
    assert table.size == measured(table)


@pytest.mark.parametrize("of_run", FRONT_SIZES)
@pytest.mark.parametrize("inserted", FRONT_SIZES)
def test_records_with_fronts_of_another_size_join_the_run(of_run: int, inserted: int) -> None:
    table, model = Memtable(START), Model()
    for first, front_size in (0, of_run), (3, inserted), (6, of_run), (9, inserted):
        records = [record_of(60, 1, entry_id) for entry_id in range(first, first + 3)]
        insert_parts(table, first, records, front_size)
        model |= {(1, entry_id): one for entry_id, one in enumerate(records, first)}
    check(table, model)
    assert shape(table) == [range(12)]
    assert table._ledgers[1].front_size == of_run
    assert table.size == measured(table)


def test_a_record_too_short_for_the_run_is_a_stray_and_so_are_those_after_it() -> None:
    table = table_of(0, 1)
    insert_parts(table, 2, [record_of(39, 1, 2), record_of(36, 1, 3)], 36)
    table.insert(1, 4, [record(1, 4), record_of(37, 1, 5)])
    assert shape(table) == [range(2), [2, 3, 4, 5]]
    assert [table.get(1, 2), table.get(1, 5)] == [record_of(39, 1, 2), record_of(37, 1, 5)]
    assert (table.last_id(1), table.ids_from(1, 1, 9), len(table)) == (5, [1, 2, 3, 4, 5], 6)
    assert table.size == measured(table)


def test_the_run_goes_on_if_a_newer_copy_is_long_enough() -> None:
    table = table_of(0)
    for entry_id, size in enumerate([37, 90, 38, 90], 1):
        table.insert(1, entry_id, [record_of(size, 1, entry_id)])
    table.insert(1, 1, [record_of(39, 1, 1, 1)])
    assert shape(table) == [range(1), [1, 2, 3, 4]]
    assert table.get(1, 1) == record_of(39, 1, 1, 1)
    table.insert(1, 1, [record_of(40, 1, 1, 2)])
    assert shape(table) == [range(3), [3, 4]]
    assert table.get(1, 1) == record_of(40, 1, 1, 2)
    insert_parts(table, 3, [record_of(90, 1, 3, 1)], 36)
    assert shape(table) == [range(5)]
    assert table.size == measured(table)


def test_a_copy_too_short_for_the_run_counts_before_it() -> None:
    table = table_of(0, 1, 2)
    insert_parts(table, 1, [record_of(36, 1, 1, 1)], 36)
    assert shape(table) == [range(3)]
    assert table.get(1, 1) == record_of(36, 1, 1, 1)


@pytest.mark.parametrize(("sizes", "guessed"), [((40, 41), 40), ((200, 39), 36), ((36, 36), 36)])
def test_whole_records_are_split_if_all_of_them_can_be(sizes: tuple[int, int], guessed: int) -> None:
    table = Memtable(START)
    records = [record_of(size, 1, entry_id) for entry_id, size in enumerate(sizes)]
    table.insert(1, 0, records)
    assert table._ledgers[1].front_size == guessed
    assert list(runs_of(table, 1)) == [(range(2), records)]


@pytest.mark.parametrize("before", [(), (0,), (0, 2), (5,)])
def test_nothing_shorter_than_a_head_is_a_record(before: tuple[int, ...]) -> None:
    short, table = bytes(HEAD_FRONT_SIZE - 1), table_of(*before)
    for insert in (
        partial(table.insert, 1, 1, [short]),
        partial(table.insert, 1, 1, [record(1, 1), short]),
        partial(table.insert_parts, 1, 1, short, [b""], len(short)),
    ):
        with pytest.raises(AssertionError, match="shorter than its head"):
            insert()


def test_the_fronts_of_a_first_insert_have_one_size() -> None:
    with pytest.raises(AssertionError, match="one size"):
        Memtable(START).insert_parts(1, 0, bytes(85), [b"", b""], 85)


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_table_with_only_a_ledger_record_has_content() -> None:
    empty, table = Memtable(START), Memtable(START)
    table.put_row(LedgerRecord(7, 1))
    assert [one.has_content for one in (empty, table, table_of(0))] == [False, True, True]
    assert (len(table), table.ledgers(), table.rows) == (0, [], {7: LedgerRecord(7, 1)})


def test_a_row_counts_once_into_the_size() -> None:
    table = table_of(0)
    before = table.size
    table.put_row(LedgerRecord(1, 1))
    table.put_row(LedgerRecord(1, 2, fenced=True))
    assert table.size == before + ROW_OVERHEAD
    table.put_row(LedgerRecord(2, 3))
    assert table.size == before + 2 * ROW_OVERHEAD


def test_the_later_of_two_records_of_a_ledger_stays() -> None:
    table = Memtable(START)
    for change in (4, 9, 5):
        table.put_row(LedgerRecord(1, change))
    table.put_row(LedgerRecord(2, 1))
    assert table.rows == {1: LedgerRecord(1, 9), 2: LedgerRecord(2, 1)}
    table.put_row(LedgerRecord(1, 9, fenced=True))
    assert table.rows[1].fenced


def test_a_frozen_table_takes_no_row() -> None:
    table = Memtable(START)
    table.put_row(LedgerRecord(1, 1))
    table.freeze()
    for row in (LedgerRecord(1, 2), LedgerRecord(2, 2)):
        with pytest.raises(AssertionError, match="frozen"):
            table.put_row(row)
    assert (table.rows, table.size) == ({1: LedgerRecord(1, 1)}, ROW_OVERHEAD)


# ── dropping a ledger ────────────────────────────────────────────────────────────────────────────────────


def test_a_dropped_ledger_leaves_no_trace() -> None:
    table, other = table_of(5, 6, 9, 2, 5), table_of(0, ledger_id=2)
    table.insert(2, 0, [record(2, 0)])
    table.drop(1)
    assert (table.get(1, 5), table.get(1, 9), table.last_id(1)) == (None, None, None)
    assert (table.ids_from(1, 0, 9), list(runs_of(table, 1)), table.ledgers()) == ([], [], [2])
    assert (len(table), table.size, table.get(2, 0)) == (1, other.size, record(2, 0))


def test_dropping_an_absent_ledger_changes_nothing() -> None:
    table = table_of(0)
    table.drop(2)
    assert (table.size, len(table)) == (table_of(0).size, 1)


def test_a_table_from_which_all_was_dropped_has_no_content() -> None:
    table = table_of(0, 2)
    table.drop(1)
    assert (table.size, table.has_content) == (0, False)


def test_an_insert_after_a_drop_begins_a_new_ledger() -> None:
    table = table_of(5, 6, 9)
    table.drop(1)
    insert_parts(table, 8, [record_of(36, 1, 8, 1)], 36)
    assert shape(table) == [range(8, 9)]
    assert table.size == measured(table)


def test_a_drop_leaves_the_ledger_record() -> None:
    table = table_of(0)
    table.put_row(LedgerRecord(1, 1))
    table.drop(1)
    assert (table.rows, table.size, table.has_content) == ({1: LedgerRecord(1, 1)}, ROW_OVERHEAD, True)


def test_a_ledger_is_dropped_from_both_tables() -> None:
    tables = Tables(table_of(1, 7), table_of(0, 1))
    tables.active.insert(2, 0, [record(2, 0)])
    tables.drop(1)
    assert [tables.get(1, entry_id) for entry_id in (0, 1, 7)] == [None] * 3
    assert (tables.last_id(1), tables.get(2, 0)) == (None, record(2, 0))
    alone = Tables(table_of(0))
    alone.drop(1)
    assert alone.get(1, 0) is None


def test_a_checkpoint_that_has_begun_goes_on_with_a_dropped_ledger() -> None:
    old = table_of(*range(10, 1010), 2, 2000, 500)
    expected = list(runs_of(old, 1))
    assert len(expected) > 4
    for seen in range(len(expected) + 1):
        old = table_of(*range(10, 1010), 2, 2000, 500)
        tables = Tables(Memtable(START), old)
        walk = runs_of(old, 1)
        begun = [next(walk) for _ in range(seen)]
        tables.drop(1)
        assert begun + list(walk) == expected
        assert list(runs_of(old, 1)) == []


# ── against a model ──────────────────────────────────────────────────────────────────────────────────────

INSERTS = st.tuples(st.integers(1, 3), st.integers(0, 40), st.integers(0, 7), st.integers(0, 20))


def expected_ids(model: Model, ledger_id: int, first: int, count: int) -> list[int]:
    return sorted(entry for ledger, entry in model if ledger == ledger_id and entry >= first)[:count]


def measured(table: Memtable) -> int:
    """Return the size that it should report, counted from its content, hidden older copies included."""
    size = 0
    for entries in table._ledgers.values():
        run = [entries.record(at) for at in range(len(entries.run))]
        size += LEDGER_OVERHEAD + sum(len(one) + RECORD_OVERHEAD for one in run)
        size += sum(len(one) + RECORD_OVERHEAD + STRAY_OVERHEAD for one in entries.strays.values())
    return size


def has(table: Memtable, ledger_id: int, entry_id: int) -> bool:
    entries = table.find(ledger_id)
    return entries is not None and entries.has(entry_id)


def parted(table: Memtable, ledger_id: int, first: int, count: int, front_size: int) -> list[bytes]:
    """Return the records that a reader of many gets, put together again."""
    fronts, payloads = table.parts(ledger_id, first, count, front_size)
    assert len(fronts) == front_size * len(payloads)
    starts = range(0, len(fronts), front_size)
    return [fronts[start : start + front_size] + one for start, one in zip(starts, payloads, strict=True)]


def parts_of(model: Model, ledger_id: int, first: int, count: int, front_size: int) -> list[bytes]:
    """Return consecutive records from there on, up to one too short for such a front."""
    records = [model.get((ledger_id, entry_id), b"") for entry_id in range(first, first + count)]
    long_enough = [len(one) >= front_size for one in records]
    return records[: [*long_enough, False].index(False)]


def check(table: Memtable, model: Model) -> None:
    assert table.ledgers() == sorted({ledger_id for ledger_id, _ in model})
    assert len(table) == len(model)
    for ledger_id in range(5):
        ids = expected_ids(model, ledger_id, 0, 99)
        found = [table.get(ledger_id, entry_id) for entry_id in range(-1, 60)]
        assert found == [model.get((ledger_id, entry_id)) for entry_id in range(-1, 60)]
        assert [has(table, ledger_id, one) for one in range(-1, 60)] == [one is not None for one in found]
        for first, size in zip(range(-1, 45), FRONT_SIZES * 12, strict=False):
            expected = parts_of(model, ledger_id, first, 9, size)
            assert parted(table, ledger_id, first, 9, size) == expected
        assert table.last_id(ledger_id) == max(ids, default=None)
        runs = list(runs_of(table, ledger_id))
        assert [entry_id for ids, _ in runs for entry_id in ids] == ids
        assert [one for _, records in runs for one in records] == [model[ledger_id, one] for one in ids]


@pytest.mark.sampled
@settings(max_examples=many(100, 13))
@given(st.lists(INSERTS, max_size=30), st.lists(st.tuples(st.integers(-1, 60), st.integers(0, 50))))
def test_a_table_is_a_dict_of_entries(
    inserts: list[tuple[int, int, int, int]], asked: list[tuple[int, int]]
) -> None:
    table, model = Memtable(START), Model()
    for version, (ledger_id, first, count, size) in enumerate(inserts):
        records = [record(ledger_id, entry_id, version, size) for entry_id in range(first, first + count)]
        table.insert(ledger_id, first, records)
        model |= {(ledger_id, entry_id): one for entry_id, one in enumerate(records, first)}
        check(table, model)
        assert table.size == measured(table)
        for start, limit in asked:
            assert table.ids_from(ledger_id, start, limit) == expected_ids(model, ledger_id, start, limit)


INSERT, PARTS, DROP, FREEZE = range(4)
STEPS = st.tuples(
    st.sampled_from([INSERT, PARTS, INSERT, PARTS, DROP, FREEZE]),
    st.integers(1, 2),
    st.integers(0, 20),
    st.lists(st.sampled_from([36, 38, 40, 43, 44, 56, 70]), max_size=6),
    st.sampled_from(FRONT_SIZES),
)


@pytest.mark.sampled
@settings(max_examples=many(100, 10))
@given(st.lists(STEPS, max_size=30))
def test_tables_are_two_dicts_with_any_fronts_and_drops(
    steps: list[tuple[int, int, int, list[int], int]],
) -> None:
    tables, active, frozen = Tables(Memtable(START), Memtable(START)), Model(), Model()
    for version, (what, ledger_id, first, sizes, front_size) in enumerate(steps):
        records = [record_of(size, ledger_id, entry, version) for entry, size in enumerate(sizes, first)]
        if what == FREEZE:
            tables, active, frozen = Tables(Memtable(START), tables.active), Model(), active
        elif what == DROP:
            tables.drop(ledger_id)
            for model in active, frozen:
                for key in [key for key in model if key[0] == ledger_id]:
                    del model[key]
        elif what == INSERT or min(sizes, default=0) < front_size:
            tables.active.insert(ledger_id, first, records)
        else:
            fronts = b"".join([one[:front_size] for one in records])
            payloads = [one[front_size:] for one in records]
            tables.active.insert_parts(ledger_id, first, fronts, payloads, sum(sizes))
        if what in (INSERT, PARTS):
            active |= {(ledger_id, entry_id): one for entry_id, one in enumerate(records, first)}
        assert tables.frozen is not None
        for table, model in (tables.active, active), (tables.frozen, frozen):
            check(table, model)
            assert table.size == measured(table)
            assert table.has_content == bool(model)
            assert table.ids_from(ledger_id, first, 5) == expected_ids(model, ledger_id, first, 5)
        both = frozen | active
        assert [tables.get(ledger_id, one) for one in range(30)] == [
            both.get((ledger_id, one)) for one in range(30)
        ]


# ── what it takes ────────────────────────────────────────────────────────────────────────────────────────


def test_records_in_two_parts_are_the_same_as_whole_ones() -> None:
    whole, parted = table_of(0), table_of(0)
    records = [record(1, 1), record(1, 2, size=100)]
    whole.insert(1, 1, records)
    fronts = b"".join([one[:FRONT_SIZE] for one in records])
    payloads = [one[FRONT_SIZE:] for one in records]
    parted.insert_parts(1, 1, fronts, payloads, sum(map(len, records)))
    assert whole.size == parted.size
    assert [parted.get(1, number) for number in (1, 2)] == records
    assert list(runs_of(whole, 1)) == list(runs_of(parted, 1))


def many_in_a_run(table: Memtable) -> None:
    for entry_id in range(20_000):
        table.insert(1, entry_id, [record(1, entry_id, size=100)])


def many_strays(table: Memtable) -> None:
    for entry_id in range(0, 40_000, 2):
        table.insert(1, entry_id, [record(1, entry_id, size=100)])


def many_ledgers(table: Memtable) -> None:
    for ledger_id in range(1000, 6000):
        table.insert(ledger_id, 0, [record(ledger_id, 0, size=100)])


def many_rows(table: Memtable) -> None:
    for ledger_id in range(1000, 6000):
        deleted = Tombstone(JournalPosition(1, 1000 * ledger_id), LogPosition(1, 1000 * ledger_id))
        table.put_row(LedgerRecord(ledger_id, ledger_id, master_key=bytes(20), tombstone=deleted))


@pytest.mark.slow
@pytest.mark.parametrize(
    "fill", [many_in_a_run, pytest.param(many_strays, marks=pytest.mark.slow), many_ledgers, many_rows]
)
def test_the_size_is_about_the_memory_it_takes(fill: Callable[[Memtable], None]) -> None:
    tracemalloc.start()
    try:
        table = Memtable(START)
        fill(table)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Allocators round up, which is not traced.
    assert 0.85 * taken < table.size < 1.3 * taken


@pytest.mark.slow
def test_an_entry_of_a_run_takes_few_bytes_of_overhead() -> None:
    tracemalloc.start()
    try:
        table = Memtable(START)
        many_in_a_run(table)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    payload = sum(len(table.get(1, entry_id) or b"") for entry_id in range(20_000))
    assert (taken - payload) / 20_000 < 50


@pytest.mark.slow
def test_descending_ids_cost_no_more_when_there_are_many() -> None:
    def cost(count: int) -> float:
        begun = time.process_time()
        table_of(*range(count, 0, -1)).ids_from(1, 0, 5)
        return (time.process_time() - begun) / count

    few, many = (min(cost(count) for _ in range(5)) for count in (1_000, 32_000))
    assert many < 10 * few  # 32 if it were quadratic


def test_strays_are_sorted_once_for_many_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counting(ids: dict[int, bytes]) -> list[int]:
        calls.append(len(ids))
        return sorted(ids)

    monkeypatch.setattr(entries_module, "sorted", counting, raising=False)
    table = table_of(*range(0, 100, 2))
    assert [table.ids_from(1, first, 1) for first in range(0, 50, 2)] == [[n] for n in range(0, 50, 2)]
    assert calls == [49]


# ── frozen, and two at once ──────────────────────────────────────────────────────────────────────────────


def test_a_frozen_table_takes_nothing_more() -> None:
    table = table_of(0)
    table.freeze()
    with pytest.raises(AssertionError, match="frozen"):
        table.insert(1, 1, [record(1, 1)])
    assert (len(table), table.get(1, 0)) == (1, record(1, 0))


def test_the_frozen_table_takes_no_inserts() -> None:
    old, young = table_of(0), table_of(1)
    Tables(young, old)
    young.insert(1, 2, [record(1, 2)])
    with pytest.raises(AssertionError, match="frozen"):
        old.insert(1, 1, [record(1, 1)])


def test_the_active_table_is_looked_in_first() -> None:
    young = Memtable(START)
    young.insert(1, 1, [record(1, 1, 1)])
    tables = Tables(young, table_of(0, 1, 2))
    assert [tables.get(1, entry_id) for entry_id in range(4)] == [
        record(1, 0),
        record(1, 1, 1),
        record(1, 2),
        None,
    ]
    assert tables.get(2, 0) is None


def test_the_last_id_is_the_largest_of_both_tables() -> None:
    assert Tables(table_of(1), table_of(5)).last_id(1) == 5
    assert Tables(table_of(7), table_of(5)).last_id(1) == 7
    assert Tables(table_of(ledger_id=2), table_of(0)).last_id(1) == 0
    assert Tables(table_of(3)).last_id(1) == 3
    assert Tables(table_of(3)).last_id(2) is None


def test_a_reader_that_loaded_the_tables_keeps_a_released_table() -> None:
    slot = Slot(Tables(Memtable(START), table_of(0)))
    seen = slot.tables
    slot.tables = Tables(seen.active)
    assert seen.get(1, 0) == record(1, 0)
    assert slot.tables.get(1, 0) is None


# ── readers beside the writer ────────────────────────────────────────────────────────────────────────────


def at_each_step(run: Callable[[], object], between: Callable[[int], None]) -> None:
    """Runs code of the memtable, and calls a function before each instruction, as a thread switch may."""
    steps = iter(range(1 << 30))

    def trace(frame: FrameType, event: str, _: object) -> TraceFunction | None:
        if frame.f_code.co_filename not in (entries_module.__file__, memtable_table.__file__):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            between(next(steps))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)


SHORT = {"a run that goes on": {(1, 0)}, "a run that stops": {(1, 1)}, "shorter copies": {(2, 1), (3, 1)}}
"""Which records of a history are too short for its run: the id, and 0 if it was there before, else 1."""

HISTORIES = {
    "a run that goes on": ((0, 1, 2, 3, 5), [(1, 1), (4, 2)]),
    "a run that stops": ((0,), [(1, 2), (3, 1)]),
    "shorter copies": ((1, 2, 4), [(2, 3)]),
    "a new ledger": ((), [(0, 1)]),
    "a run that grows": ((0,), [(1, 1), (2, 3)]),
    "a gap that is closed": ((0, 2, 3, 5), [(1, 1)]),
    "a run over its strays": ((0, 2, 3, 7), [(1, 4)]),
    "strays": ((5,), [(9, 2), (1, 2), (3, 1)]),
    "more strays": ((0, 5), [(9, 2), (3, 1)]),
    "newer copies": ((2, 3, 7, 0), [(0, 1), (2, 2), (7, 1)]),
}


def record_in(history: str, entry_id: int, version: int) -> bytes:
    is_short = (entry_id, version) in SHORT.get(history, ())
    return record(1, entry_id, version)[: FRONT_SIZE - 1 if is_short else None]


def table_before(history: str) -> Memtable:
    table = Memtable(START)
    for entry_id in HISTORIES[history][0]:
        table.insert(1, entry_id, [record_in(history, entry_id, 0)])
    return table


@pytest.mark.parametrize("history", HISTORIES)
def test_no_entry_is_missing_between_two_steps_of_the_writer(history: str) -> None:
    before, inserts = HISTORIES[history]
    table, promised, steps = table_before(history), set(before), 0
    whole = [[record_in(history, entry_id, version) for version in (0, 1)] for entry_id in range(12)]

    def read(_: int) -> None:
        nonlocal steps
        steps += 1
        assert all(table.get(1, entry_id) for entry_id in promised)
        # Whole records only, because a payload that is found before its front would be half of a record.
        assert all(table.get(1, one) in (None, *copies) for one, copies in enumerate(whole))
        assert all(has(table, 1, entry_id) for entry_id in promised)
        for first in range(6):
            found = enumerate(parted(table, 1, first, 9, FRONT_SIZE), first)
            assert all(one in whole[entry_id] for entry_id, one in found)
        assert promised <= set(table.ids_from(1, 0, 99))
        assert table.ids_from(1, 0, 99) == sorted(set(table.ids_from(1, 0, 99)))
        last_id = table.last_id(1)
        assert (last_id is None) == (not table.ledgers())
        assert last_id is None or table.get(1, last_id)

    for first, count in inserts:
        records = [record_in(history, entry_id, 1) for entry_id in range(first, first + count)]
        at_each_step(partial(table.insert, 1, first, records), read)
        promised |= set(range(first, first + count))
        read(0)
        # The order that a reader has sorted meanwhile must not outlive the insert.
        assert [one for ids in shape(table) for one in ids] == sorted(promised)
    assert steps > 50


@pytest.mark.sampled
@pytest.mark.parametrize("history", HISTORIES)
def test_between_two_steps_of_a_reader_an_insert_takes_nothing_away(history: str) -> None:
    before, inserts = HISTORIES[history]
    for step in every(9, steps_of_a_reader(table_before(history), before)):
        table = table_before(history)

        def insert(now: int, step: int = step, table: Memtable = table) -> None:
            if now == step:
                for first, count in inserts:
                    records = [record_in(history, one, 1) for one in range(first, first + count)]
                    table.insert(1, first, records)

        at_each_step(partial(read_all, table, before), insert)
        inserted = {one for first, count in inserts for one in range(first, first + count)}
        assert table.ids_from(1, 0, 99) == sorted(inserted | set(before))
        assert [one for ids in shape(table) for one in ids] == sorted(inserted | set(before))


def read_all(table: Memtable, before: tuple[int, ...]) -> None:
    for entry_id in before:
        assert table.get(1, entry_id), entry_id
        assert has(table, 1, entry_id), entry_id
    for first in before:
        fronts, payloads = table.parts(1, first, 9, FRONT_SIZE)
        assert len(fronts) == FRONT_SIZE * len(payloads)
    assert set(before) <= set(table.ids_from(1, 0, 99))
    assert (table.last_id(1) or 0) >= max(before, default=0)


def steps_of_a_reader(table: Memtable, before: tuple[int, ...]) -> Iterator[int]:
    steps: list[int] = []
    at_each_step(partial(read_all, table, before), steps.append)
    return iter(steps)


def all_of(table: Memtable) -> tuple[object, ...]:
    """Return what each question of a reader finds of ledger 1."""
    gotten = tuple(table.get(1, entry_id) for entry_id in (2, 5, 6, 9))
    walked = tuple(one for _, records in runs_of(table, 1) for one in records)
    return *gotten, table.ids_from(1, 0, 9), table.last_id(1), len(table), table.ledgers(), walked


NOTHING: tuple[object, ...] = (None, None, None, None, [], None, 0, [], ())


def test_between_two_steps_of_a_drop_the_whole_ledger_is_there_or_nothing() -> None:
    table = table_of(5, 6, 9, 2)
    everything, seen = all_of(table), []
    at_each_step(partial(table.drop, 1), lambda _: seen.append(all_of(table)))
    count = seen.count(everything)
    assert seen == [everything] * count + [NOTHING] * (len(seen) - count)
    assert 0 < count < len(seen)


def test_between_two_steps_of_a_reader_a_drop_breaks_nothing() -> None:
    steps: list[int] = []
    everything = all_of(table_of(5, 6, 9, 2))
    at_each_step(partial(all_of, table_of(5, 6, 9, 2)), steps.append)
    for step in steps:
        table, found = table_of(5, 6, 9, 2), []

        def drop(now: int, step: int = step, table: Memtable = table) -> None:
            if now == step:
                table.drop(1)

        at_each_step(lambda: found.append(all_of(table)), drop)  # noqa: B023 - called at once
        assert all(one in both for one, *both in zip(found[0], everything, NOTHING, strict=True))
        assert all_of(table) == NOTHING


def tables_with_an_older_copy() -> Tables:
    young = Memtable(START)
    young.insert(1, 1, [record(1, 1, 1)])
    return Tables(young, table_of(0, 1))


def test_between_two_steps_of_a_drop_no_older_copy_comes_to_light() -> None:
    tables = tables_with_an_older_copy()
    seen = []
    at_each_step(partial(tables.drop, 1), lambda _: seen.append(tables.get(1, 1)))
    assert set(seen) == {record(1, 1, 1), None}


def test_between_two_steps_of_a_reader_a_drop_brings_no_older_copy_to_light() -> None:
    steps: list[int] = []
    at_each_step(partial(tables_with_an_older_copy().get, 1, 1), steps.append)
    for step in steps:
        tables, found = tables_with_an_older_copy(), []

        def drop(now: int, step: int = step, tables: Tables = tables) -> None:
            if now == step:
                tables.drop(1)

        at_each_step(lambda: found.append(tables.get(1, 1)), drop)  # noqa: B023 - called at once
        assert found[0] in (record(1, 1, 1), None)


def real(entry_id: int, version: int = 0) -> bytes:
    """Return a record whose digest is right."""
    payload = b"%d/%d" % (entry_id, version)
    return bytes(record_format.encode_front(1, entry_id, -1, 9, payload)) + payload


def payload_read(table: Memtable, entry_id: int) -> bytes | None:
    """Read as a ledger does: the entry that was read last, or the quick way, or else the whole record."""
    entries = table.find(1)
    if entries is None:
        return None
    last = entries.read_last
    if not entries.strays and last is not None and last.entry_id == entry_id:
        return last.payload
    found = entries.plain(1, entry_id)
    if found is not None:
        return found.payload
    record = table.get(1, entry_id)
    return None if record is None else record[FRONT_SIZE:]


REAL = {"of the run": (2, [0, 1, 2, 3]), "of the strays": (9, [0, 1, 9]), "before the run": (1, [5, 6, 1])}


@pytest.mark.parametrize("history", REAL)
def test_a_quick_read_never_returns_an_older_copy(history: str) -> None:
    entry_id, before = REAL[history]
    table = Memtable(START)
    for one in before:
        table.insert(1, one, [real(one)])
    for version in (1, 2, 3):
        older, newer = b"%d/%d" % (entry_id, version - 1), b"%d/%d" % (entry_id, version)
        seen: list[bytes | None] = []

        def read(_: int, seen: list[bytes | None] = seen) -> None:
            seen.append(payload_read(table, entry_id))

        read(0)
        at_each_step(partial(table.insert, 1, entry_id, [real(entry_id, version)]), read)
        read(0)
        assert set(seen) == {older, newer}
        assert seen == sorted(seen)  # type: ignore[type-var]
        assert [payload_read(table, one) for one in before] == [
            newer if one == entry_id else b"%d/0" % one for one in before
        ]


def test_between_two_steps_of_a_quick_reader_an_insert_shows_no_older_copy() -> None:
    def table_of_three() -> Memtable:
        table = Memtable(START)
        table.insert(1, 0, [real(0), real(1), real(2)])
        return table

    steps: list[int] = []
    at_each_step(partial(payload_read, table_of_three(), 1), steps.append)
    for step in steps:
        table = table_of_three()

        def insert(now: int, step: int = step, table: Memtable = table) -> None:
            if now == step:
                table.insert(1, 1, [real(1, 1)])

        at_each_step(partial(payload_read, table, 1), insert)
        assert payload_read(table, 1) == payload_read(table, 1) == b"1/1"


def test_a_stray_or_a_damaged_record_is_not_read_quickly() -> None:
    table = Memtable(START)
    table.insert(1, 3, [real(3), real(4)])
    table.insert(1, 9, [real(9)])
    entries = table.find(1)
    assert entries is not None
    assert [entries.plain(1, one) for one in (2, 5, 9, -1)] == [None] * 4
    assert entries.plain(2, 3) is None
    assert entries.plain(1, 3) == entries.read_last
    assert entries.plain(1, 4) == entries.read_last
    entries.fronts[-5] ^= 1
    assert entries.plain(1, 3) is not None
    assert entries.plain(1, 4) is None
    assert entries.read_last is None


@pytest.mark.parametrize("digest_type", [one for one in DigestType if one is not DigestType.CRC32C])
def test_an_entry_under_another_digest_is_not_read_quickly(digest_type: DigestType) -> None:
    digest = digester(digest_type, b"pw")
    front = bytes(record_format.encode_front_with(digest, 1, 0, -1, 4, b"text"))
    table = Memtable(START)
    table.insert_parts(1, 0, front, [b"text"], len(front) + 4)
    entries = table.find(1)
    assert entries is not None
    assert entries.plain(1, 0) is None
    assert table.parts(1, 0, 9, len(front)) == (front, [b"text"])


@settings(max_examples=5)
@given(st.permutations(range(400)))
def test_threads_that_read_see_all_that_was_inserted(order: list[int]) -> None:
    table, inserted = Memtable(START), [0]
    wrong: list[int] = []

    def write() -> None:
        for number, entry_id in enumerate(order, 1):
            table.insert(1, entry_id, [record(1, entry_id)])
            inserted[0] = number

    def read() -> None:
        known = 0
        while known < len(order) and not wrong:
            known = inserted[0]
            seen = order[:known]
            found = set(table.ids_from(1, 0, 1000))
            if not found.issuperset(seen) or (table.last_id(1) or 0) < max(seen, default=0):
                wrong.append(known)
            wrong.extend(one for one in seen if table.get(1, one) != record(1, one))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=target) for target in (write, read, read)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []
    assert len(table) == len(order)


def test_a_stretch_ends_with_the_run_for_each_of_its_entries_and_at_once_for_a_stray() -> None:
    entries = LedgerEntries(3, FRONT_SIZE)
    for entry_id in (3, 4, 5, 9):
        entries.put(entry_id, bytes(FRONT_SIZE))
    assert [entries.end_of_stretch(entry_id) for entry_id in (3, 4, 5, 9)] == [6, 6, 6, 10]


@pytest.mark.parametrize(
    ("ids", "count"),
    [((5, 6), 2), ((5, 6, 5), 2), ((5, 6, 6, 5), 2), ((5, 2), 2), ((5, 9), 2), ((5, 6, 5, 2, 9), 4)],
)
def test_an_id_that_was_added_again_is_counted_once(ids: tuple[int, ...], count: int) -> None:
    entries = LedgerEntries(5, FRONT_SIZE)
    for version, entry_id in enumerate(ids):
        entries.put(entry_id, record(1, entry_id, version))
    assert len(entries) == count


def test_entries_that_were_truncated_in_the_table_before_are_truncated_in_this_one() -> None:
    floors = {1: 2}
    table = Memtable(START, floors)
    assert (table.size, table.added, len(table)) == (0, 0, 0)
    table.insert(1, 0, [record(1, one) for one in range(4)])
    assert [one for one in range(4) if table.get(1, one) is not None] == [2, 3]
    table.truncate(1, 3)
    assert floors == {1: 3}
    assert [list(ids) for ids, _ in runs_of(table, 1)] == [[3]]
