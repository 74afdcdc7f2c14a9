"""The memtable: the same as a dict of entries, between any two steps of its writer."""

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

from storage import memtable
from storage.codec.record import FRONT_SIZE
from storage.memtable import LEDGER_OVERHEAD, RECORD_OVERHEAD, STRAY_OVERHEAD, Memtable, Slot, Tables
from storage.position import START, JournalPosition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from _typeshed import TraceFunction

Model = dict[tuple[int, int], bytes]


def record(ledger_id: int, entry_id: int, version: int = 0, size: int = 0) -> bytes:
    return (b"%d/%d/%d" % (ledger_id, entry_id, version)).ljust(max(size, FRONT_SIZE + 3), b".")


def table_of(*entry_ids: int, ledger_id: int = 1) -> Memtable:
    """A table with these entries of a ledger, inserted one by one."""
    table = Memtable(START)
    for entry_id in entry_ids:
        table.insert(ledger_id, entry_id, [record(ledger_id, entry_id)])
    return table


def shape(table: Memtable, ledger_id: int = 1) -> list[list[int] | range]:
    """The ids of each run: a range where the table holds a list, a list where it holds strays."""
    return [ids for ids, _ in table.runs(ledger_id)]


# ── what is in it ────────────────────────────────────────────────────────────────────────────────────────


def test_an_empty_table_has_nothing() -> None:
    table = Memtable(JournalPosition(3, 4096))
    assert (len(table), table.size, table.ledgers()) == (0, 0, [])
    assert (table.get(1, 0), table.last_id(1), table.ids_from(1, 0, 9)) == (None, None, [])
    assert list(table.runs(1)) == []
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


def test_entries_behind_a_gap_join_the_run_that_reaches_them() -> None:
    table = table_of(0, 2, 3, 5)
    assert shape(table) == [range(1), [2, 3, 5]]
    assert table.get(1, 1) is table.get(1, 4) is None
    table.insert(1, 1, [record(1, 1)])
    assert shape(table) == [range(4), [5]]
    table.insert(1, 4, [record(1, 4)])
    assert shape(table) == [range(6)]


def test_a_run_that_has_taken_in_its_strays_grows_fast_again() -> None:
    table = table_of(0, 2, 1)
    # Whatever is left of the gap would send each of these through the dict.
    grown = [record(1, number) for number in range(3, 9)]
    fronts = [one[:FRONT_SIZE] for one in grown]
    table.insert_parts(1, 3, fronts, [one[FRONT_SIZE:] for one in grown], size=-1000)
    assert table.size < 0


def test_entries_before_the_run_come_before_it() -> None:
    table = table_of(5, 6, 4, 1)
    assert shape(table) == [[1, 4], range(5, 7)]
    assert table.ids_from(1, 0, 9) == [1, 4, 5, 6]
    assert table.last_id(1) == 6


@pytest.mark.parametrize("first", [0, 1, 2, 3, 4, 6, 7])
def test_d47_of_an_id_inserted_twice_the_second_copy_stays(first: int) -> None:
    table = table_of(2, 3, 5, 0)
    newer = [record(1, entry_id, 1, 30) for entry_id in range(first, first + 3)]
    table.insert(1, first, newer)
    assert [table.get(1, entry_id) for entry_id in range(first, first + 3)] == newer
    runs = table.runs(1)
    written = {one: found for ids, records in runs for one, found in zip(ids, records, strict=True)}
    assert [written[entry_id] for entry_id in range(first, first + 3)] == newer


def test_d48_a_gap_has_no_entries_and_both_sides_do() -> None:
    table = table_of(10, 2)
    assert [entry_id for entry_id in range(12) if table.get(1, entry_id)] == [2, 10]


def test_d54_everything_comes_by_ledger_and_entry() -> None:
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


# ── against a model ──────────────────────────────────────────────────────────────────────────────────────

INSERTS = st.tuples(st.integers(1, 3), st.integers(0, 40), st.integers(0, 7), st.integers(0, 20))


def expected_ids(model: Model, ledger_id: int, first: int, count: int) -> list[int]:
    return sorted(entry for ledger, entry in model if ledger == ledger_id and entry >= first)[:count]


def measured(table: Memtable) -> int:
    """What it should say it takes, counted from what it holds, newer copies beside those they hide."""
    size = 0
    for entries in table._ledgers.values():
        run = [entries.record(at) for at in range(len(entries.run))]
        size += LEDGER_OVERHEAD + sum(len(one) + RECORD_OVERHEAD for one in run)
        size += sum(len(one) + RECORD_OVERHEAD + STRAY_OVERHEAD for one in entries.strays.values())
    return size


def check(table: Memtable, model: Model) -> None:
    assert table.ledgers() == sorted({ledger_id for ledger_id, _ in model})
    assert len(table) == len(model)
    for ledger_id in range(5):
        ids = expected_ids(model, ledger_id, 0, 99)
        found = [table.get(ledger_id, entry_id) for entry_id in range(-1, 60)]
        assert found == [model.get((ledger_id, entry_id)) for entry_id in range(-1, 60)]
        assert table.last_id(ledger_id) == max(ids, default=None)
        runs = list(table.runs(ledger_id))
        assert [entry_id for ids, _ in runs for entry_id in ids] == ids
        assert [one for _, records in runs for one in records] == [model[ledger_id, one] for one in ids]


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


# ── what it takes ────────────────────────────────────────────────────────────────────────────────────────


def test_records_in_two_parts_are_the_same_as_whole_ones() -> None:
    whole, parted = table_of(0), table_of(0)
    records = [record(1, 1), record(1, 2, size=100)]
    whole.insert(1, 1, records)
    fronts = [one[:FRONT_SIZE] for one in records]
    payloads = [one[FRONT_SIZE:] for one in records]
    parted.insert_parts(1, 1, fronts, payloads, sum(map(len, records)))
    assert whole.size == parted.size
    assert [parted.get(1, number) for number in (1, 2)] == records
    assert list(whole.runs(1)) == list(parted.runs(1))


def many_in_a_run(table: Memtable) -> None:
    for entry_id in range(20_000):
        table.insert(1, entry_id, [record(1, entry_id, size=100)])


def many_strays(table: Memtable) -> None:
    for entry_id in range(0, 40_000, 2):
        table.insert(1, entry_id, [record(1, entry_id, size=100)])


def many_ledgers(table: Memtable) -> None:
    for ledger_id in range(1000, 6000):
        table.insert(ledger_id, 0, [record(ledger_id, 0, size=100)])


@pytest.mark.parametrize("fill", [many_in_a_run, many_strays, many_ledgers])
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


def test_an_entry_of_a_run_takes_few_bytes_beside_its_own() -> None:
    tracemalloc.start()
    try:
        table = Memtable(START)
        many_in_a_run(table)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    payload = sum(len(table.get(1, entry_id) or b"") for entry_id in range(20_000))
    assert (taken - payload) / 20_000 < 50


def test_descending_ids_cost_no_more_when_there_are_many() -> None:
    def cost(count: int) -> float:
        begun = time.process_time()
        table_of(*range(count, 0, -1)).ids_from(1, 0, 5)
        return (time.process_time() - begun) / count

    few, many = (min(cost(count) for _ in range(5)) for count in (1_000, 32_000))
    assert many < 10 * few  # quadratic would be 32


def test_strays_are_sorted_once_for_many_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counting(ids: dict[int, bytes]) -> list[int]:
        calls.append(len(ids))
        return sorted(ids)

    monkeypatch.setattr(memtable, "sorted", counting, raising=False)
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


def test_what_stands_as_frozen_is_frozen() -> None:
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


def test_whoever_loaded_the_tables_keeps_what_was_thawed() -> None:
    slot = Slot(Tables(Memtable(START), table_of(0)))
    seen = slot.tables
    slot.tables = Tables(seen.active)
    assert seen.get(1, 0) == record(1, 0)
    assert slot.tables.get(1, 0) is None


# ── readers beside the writer ────────────────────────────────────────────────────────────────────────────


def at_each_step(run: Callable[[], None], between: Callable[[int], None]) -> None:
    """Runs code of the memtable, and calls before each of its instructions, where threads may be switched."""
    steps = iter(range(1 << 30))

    def trace(frame: FrameType, event: str, _: object) -> TraceFunction | None:
        if frame.f_code.co_filename != memtable.__file__:
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


HISTORIES = {
    "a new ledger": ((), [(0, 1)]),
    "a run that grows": ((0,), [(1, 1), (2, 3)]),
    "a gap that is closed": ((0, 2, 3, 5), [(1, 1)]),
    "a run over its strays": ((0, 2, 3, 7), [(1, 4)]),
    "strays": ((5,), [(9, 2), (1, 2), (3, 1)]),
    "more strays": ((0, 5), [(9, 2), (3, 1)]),
    "newer copies": ((2, 3, 7, 0), [(0, 1), (2, 2), (7, 1)]),
}


@pytest.mark.parametrize("history", HISTORIES)
def test_between_two_steps_of_the_writer_nothing_that_was_there_is_missing(history: str) -> None:
    before, inserts = HISTORIES[history]
    table, promised, steps = table_of(*before), set(before), 0

    def read(_: int) -> None:
        nonlocal steps
        steps += 1
        assert all(table.get(1, entry_id) for entry_id in promised)
        assert promised <= set(table.ids_from(1, 0, 99))
        assert table.ids_from(1, 0, 99) == sorted(set(table.ids_from(1, 0, 99)))
        last_id = table.last_id(1)
        assert (last_id is None) == (not table.ledgers())
        assert last_id is None or table.get(1, last_id)

    for first, count in inserts:
        records = [record(1, entry_id, 1) for entry_id in range(first, first + count)]
        at_each_step(partial(table.insert, 1, first, records), read)
        promised |= set(range(first, first + count))
        read(0)
        # What a reader has made of the order meanwhile must not outlive the insert.
        assert [one for ids in shape(table) for one in ids] == sorted(promised)
    assert steps > 50


@pytest.mark.parametrize("history", HISTORIES)
def test_between_two_steps_of_a_reader_an_insert_takes_nothing_away(history: str) -> None:
    before, inserts = HISTORIES[history]
    for step in steps_of_a_reader(table_of(*before), before):
        table = table_of(*before)

        def insert(now: int, step: int = step, table: Memtable = table) -> None:
            if now == step:
                for first, count in inserts:
                    table.insert(1, first, [record(1, one, 1) for one in range(first, first + count)])

        at_each_step(partial(read_all, table, before), insert)
        inserted = {one for first, count in inserts for one in range(first, first + count)}
        assert table.ids_from(1, 0, 99) == sorted(inserted | set(before))
        assert [one for ids in shape(table) for one in ids] == sorted(inserted | set(before))


def read_all(table: Memtable, before: tuple[int, ...]) -> None:
    for entry_id in before:
        assert table.get(1, entry_id), entry_id
    assert set(before) <= set(table.ids_from(1, 0, 99))
    assert (table.last_id(1) or 0) >= max(before, default=0)


def steps_of_a_reader(table: Memtable, before: tuple[int, ...]) -> Iterator[int]:
    steps: list[int] = []
    at_each_step(partial(read_all, table, before), steps.append)
    return iter(steps)


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
