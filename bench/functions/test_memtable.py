"""Times a thousand inserts into the memtable, and a thousand reads from it."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import pytest

from storage.entry.position import START
from storage.entry.record_format import FRONT_SIZE
from storage.memtable.table import Memtable, Tables

if TYPE_CHECKING:
    from pytest_benchmark.fixture import BenchmarkFixture

COUNT = 1000
SIZES = pytest.mark.parametrize("size", [140, 1064])
RECORD = bytes(140)
ONE = [RECORD]


def records(size: int) -> list[bytes]:
    return [b"%d".ljust(size, b".") % number for number in range(COUNT)]


def full_table() -> Memtable:
    table = Memtable(START)
    table.insert(1, 0, records(140))
    return table


@SIZES
def test_insert_a_run(benchmark: BenchmarkFixture, size: int) -> None:
    run = records(size)
    fronts, payloads = b"".join([one[:FRONT_SIZE] for one in run]), [one[FRONT_SIZE:] for one in run]

    def insert() -> Memtable:
        table = Memtable(START)
        table.insert(1, 0, ONE)
        table.insert_parts(1, 1, fronts, payloads, size * COUNT)
        return table

    assert len(benchmark(insert)) == COUNT + 1


def test_append_one_by_one(benchmark: BenchmarkFixture) -> None:
    def append() -> Memtable:
        table = Memtable(START)
        for entry_id in range(COUNT):
            table.insert(1, entry_id, ONE)
        return table

    assert len(benchmark(append)) == COUNT


@pytest.mark.parametrize("count", [1000, 30_000])
def test_insert_in_descending_order(benchmark: BenchmarkFixture, count: int) -> None:
    def insert() -> Memtable:
        table = Memtable(START)
        for entry_id in range(count, 0, -1):
            table.insert(1, entry_id, ONE)
        return table

    assert len(benchmark(insert)) == count


@pytest.mark.parametrize("table", ["memtable", "tables"])
def test_get(benchmark: BenchmarkFixture, table: str) -> None:
    full = full_table()
    get = full.get if table == "memtable" else Tables(full).get

    def read() -> bytes | None:
        for entry_id in range(COUNT - 1):
            get(1, entry_id)
        return get(1, COUNT - 1)

    assert benchmark(read) == records(140)[-1]


def test_get_what_is_in_neither(benchmark: BenchmarkFixture) -> None:
    get = Tables(full_table(), full_table()).get

    def read() -> bytes | None:
        for entry_id in range(COUNT, 2 * COUNT - 1):
            get(1, entry_id)
        return get(1, 2 * COUNT)

    assert benchmark(read) is None


def test_memory_beside_the_payload(benchmark: BenchmarkFixture) -> None:
    head = 40  # of the record: length, ids, last add confirmed, length of the ledger, digest

    def overhead() -> float:
        tracemalloc.start()
        table = Memtable(START)
        for entry_id in range(COUNT):
            table.insert(1, entry_id, [b"%d".ljust(140, b".") % entry_id])
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return taken / COUNT - 140 + head

    taken = benchmark(overhead)
    benchmark.extra_info["bytes beside the payload"] = taken
    assert taken <= 90
