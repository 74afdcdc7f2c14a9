"""The public interface of the store, on real files."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from recovery import open_store
from storage import Entry, NoSuchEntry, NoSuchLedger, StoreConfig
from storage.entry.record_format import CRC32C_OVERHEAD

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from storage.store import Store

SMALL = StoreConfig(
    memtable_size_max=64 << 10,
    group_size_max=16 << 10,
    entry_size_max=8 << 10,
    journal_size=128 << 10,
    entry_log_size_max=256 << 10,
    journal_max_backups=0,
    checkpoint_interval_s=None,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with open_store(path, SMALL) as opened:
        yield opened


def payload(number: int, size: int = 300) -> bytes:
    return b"%d." % number + bytes([number % 251]) * size


def entry(entry_id: int, text: bytes = b"by hand", ledger_id: int = 5) -> Entry:
    return Entry(ledger_id, entry_id, entry_id - 1, 100 + entry_id, text)


def test_an_entry_has_the_length_and_last_add_confirmed_of_its_ledger_at_the_add(store: Store) -> None:
    ledger = store.ledger(42)
    assert [ledger.append(b"one"), ledger.append(b"three")] == [0, 1]
    assert ledger.read(0) == Entry(42, 0, -1, 3, b"one")
    assert ledger.read(1) == Entry(42, 1, 0, 8, b"three")
    assert (ledger.last_entry_id, ledger.last_add_confirmed) == (1, 1)


def test_many_are_added_at_once_with_consecutive_ids(store: Store) -> None:
    ledger = store.ledger(1)
    ledger.append(b"first")
    assert ledger.append_many([b"a", bytearray(b"b"), memoryview(b"c")]) == range(1, 4)
    assert list(ledger.payloads()) == [b"first", b"a", b"b", b"c"]
    assert ledger.append_many([]) == range(0)


def test_many_may_be_more_than_a_group_holds(store: Store) -> None:
    ledger = store.ledger(1)
    texts = [payload(number) for number in range(400)]
    assert sum(map(len, texts)) > 5 * SMALL.group_size_max
    assert ledger.append_many(texts) == range(400)
    assert list(ledger.payloads()) == texts


def test_submitted_entries_are_answered_in_order_by_the_next_add(store: Store) -> None:
    ledger = store.ledger(1)
    futures = [ledger.submit(payload(number)) for number in range(50)]
    assert ledger.append(b"next") == 50
    assert [future.result(10) for future in futures] == list(range(50))
    assert ledger.read(49).payload == payload(49)


def test_submitted_entries_are_answered_without_another_add(store: Store) -> None:
    future = store.ledger(1).submit(b"alone")
    assert not future.cancel()
    assert future.result(10) == 0


def test_a_missing_entry_and_a_missing_ledger_are_told_apart(store: Store) -> None:
    store.ledger(1).append(b"here")
    with pytest.raises(NoSuchEntry):
        store.ledger(1).read(1)
    with pytest.raises(NoSuchLedger):
        store.ledger(2).read(0)
    with pytest.raises(NoSuchLedger):
        next(store.ledger(2).entries())
    assert store.ledger(2).last_entry_id is None
    assert store.ledger(2).last_add_confirmed == -1
    assert store.ledgers() == [1]


def test_reads_are_equal_from_tables_and_logs_and_after_a_reopening(path: Path) -> None:
    with open_store(path, SMALL) as store:
        for number in range(900):
            store.ledger(number % 7).append(payload(number))
        before = {ledger_id: list(store.ledger(ledger_id).entries()) for ledger_id in store.ledgers()}
        store.checkpoint()
        assert {one: list(store.ledger(one).entries()) for one in store.ledgers()} == before
        confirmed = {one: store.ledger(one).last_add_confirmed for one in store.ledgers()}
    with open_store(path, SMALL) as store:
        assert store.opened.records_replayed == 0
        assert {one: list(store.ledger(one).entries()) for one in store.ledgers()} == before
        assert {one: store.ledger(one).last_add_confirmed for one in store.ledgers()} == confirmed
        for ledger_id, entries in before.items():
            assert [store.ledger(ledger_id).read(one.entry_id) for one in entries] == entries
            assert list(store.ledger(ledger_id).payloads(3, 5)) == [one.payload for one in entries[3:6]]
        assert store.ledger(3).append(b"on") == len(before[3])
        assert store.ledger(3).read(len(before[3])).length == before[3][-1].length + 2


def test_ids_of_the_callers_choice_come_in_any_order_and_leave_gaps(store: Store) -> None:
    ledger = store.ledger(5)
    for entry_id in (7, 2, 3, 0):
        store.add(entry(entry_id))
    assert ledger.read(2) == entry(2)
    assert ledger.last_entry_id == 7
    with pytest.raises(NoSuchEntry):
        ledger.read(5)
    got = ledger.entries(2)
    assert [next(got), next(got)] == [entry(2), entry(3)]
    with pytest.raises(NoSuchEntry, match="no entry 4"):
        next(got)
    store.checkpoint()
    assert [one.entry_id for one in ledger.entries(2, 3)] == [2, 3]
    assert ledger.append(b"behind the largest") == 8


def test_the_later_of_two_entries_with_one_id_is_read_wherever_the_earlier_one_is(store: Store) -> None:
    ledger = store.ledger(5)
    store.add(entry(0, b"first"))
    store.add(entry(0, b"second"))
    assert ledger.read(0).payload == b"second"
    store.checkpoint()
    assert [ledger.read(0).payload for _ in range(3)] == [b"second"] * 3
    store.add(entry(0, b"third"))
    assert ledger.read(0).payload == b"third"
    assert list(ledger.payloads()) == [b"third"]
    store.checkpoint()
    assert ledger.read(0).payload == b"third"
    assert list(ledger.payloads()) == [b"third"]


def test_the_last_add_confirmed_is_the_gapless_end_or_what_a_writer_has_confirmed(store: Store) -> None:
    ledger = store.ledger(5)
    store.add(entry(0))
    store.add(entry(1))
    assert ledger.last_add_confirmed == 1
    store.add(Entry(5, 9, 1, 200, b"far"))
    assert ledger.last_add_confirmed == 1
    store.add(Entry(5, 10, 6, 201, b"said"))
    assert ledger.last_add_confirmed == 6
    store.checkpoint()
    assert ledger.last_add_confirmed == 6


def test_a_follower_gets_existing_entries_and_then_each_new_one(store: Store) -> None:
    ledger = store.ledger(1)
    ledger.append_many([b"0", b"1"])
    with ThreadPoolExecutor(1) as pool:
        followed = pool.submit(lambda: [one.payload for one in islice(ledger.follow(1), 3)])
        ledger.append(b"2")
        ledger.append(b"3")
        assert followed.result(10) == [b"1", b"2", b"3"]


def test_a_follower_waits_at_a_gap_and_skips_no_entry(store: Store) -> None:
    followed = store.ledger(5).follow(idle_timeout_s=0)
    store.add(entry(0))
    store.add(entry(2))
    assert [one.entry_id for one in followed] == [0]
    store.add(entry(1))
    assert [one.entry_id for one in store.ledger(5).follow(idle_timeout_s=0)] == [0, 1, 2]


def test_a_follower_ends_when_the_store_is_closed(path: Path) -> None:
    store = open_store(path, SMALL)
    store.ledger(1).append(b"only")
    first = threading.Event()

    def follow() -> list[bytes]:
        got = []
        for one in store.ledger(1).follow():
            got.append(one.payload)
            first.set()
        return got

    with ThreadPoolExecutor(1) as pool:
        followed = pool.submit(follow)
        assert first.wait(10)
        store.close()
        assert followed.result(10) == [b"only"]


def test_threads_add_and_read_at_once_and_each_gets_its_own_entries(store: Store) -> None:
    def write(ledger_id: int) -> None:
        ledger = store.ledger(ledger_id)
        for number in range(120):
            entry_id = ledger.append(payload(number + ledger_id))
            assert entry_id == number
            assert ledger.read(entry_id).payload == payload(number + ledger_id)
            assert ledger.last_entry_id == entry_id

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6)))
    for ledger_id in range(6):
        assert list(store.ledger(ledger_id).payloads()) == [
            payload(number + ledger_id) for number in range(120)
        ]


def test_the_largest_entry_has_the_size_of_the_limit(store: Store) -> None:
    largest = SMALL.entry_size_max - CRC32C_OVERHEAD
    assert store.ledger(1).append(bytes(largest)) == 0
    with pytest.raises(ValueError, match=f"of {SMALL.entry_size_max + 1} bytes"):
        store.ledger(1).append(bytes(largest + 1))
    assert store.ledger(1).append(b"the id was not used up") == 1


def test_a_store_opened_and_closed_without_adds_leaves_no_new_files(path: Path) -> None:
    with open_store(path, SMALL) as store:
        assert store.opened.created
        store.ledger(1).append(b"once")

    def listing() -> dict[str, int]:
        return {str(one): one.stat().st_size for one in path.rglob("*") if one.is_file()}

    before = listing()
    for _ in range(3):
        with open_store(path, SMALL) as store:
            assert not store.opened.created
            assert store.ledger(1).read(0).payload == b"once"
        assert listing() == before
