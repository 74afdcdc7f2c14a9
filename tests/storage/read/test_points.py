"""Reading one entry: the fast path equals the general one, and is only taken if nothing is wrong."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from index_builder import CountedIndex
from sampling import many
from stepped_store import LEDGERS, Site
from store_internals import EngineCall, StoreInternals

from recovery import open_store
from storage.config import StoreConfig
from storage.entry import format as entry_format
from storage.entry.digest import digester
from storage.entry.model import ID_MAX, DigestType, Entry
from storage.errors import (
    DigestDiffers,
    EntryUnreadable,
    ForkedStore,
    InvalidEntry,
    NoSuchEntry,
    NoSuchLedger,
    StoreClosed,
)
from storage.index.location_cache import LOOK_UPS
from storage.read import points

if TYPE_CHECKING:
    from collections import Counter
    from pathlib import Path

    from storage.ledger import Ledger
    from storage.store import Store

QUIET = StoreConfig(checkpoint_interval_s=None, idle_seal_s=None)
COUNT = 40
PASSWORD = b"pw"


def text(number: int, version: int = 0, size: int = 60) -> bytes:
    return (b"%d/%d " % (number, version)).ljust(size + number % 3, b".")


def opened(kind: DigestType | None = None, count: int = COUNT) -> tuple[Site, Store, Ledger]:
    site = Site()
    store = site.open()
    ledger = store.ledger(1, kind, PASSWORD if kind is DigestType.MAC else b"")
    ledger.append_many([text(number) for number in range(count)])
    return site, store, ledger


def fill_caches(store: Store, ledger_id: int = 1) -> None:
    """Load the locations into the cache, and open the logs."""
    for number in (*[0] * LOOK_UPS, COUNT - 1):
        store.bookie.read(ledger_id, number)


@pytest.fixture
def only_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every read that takes the general path fail."""
    monkeypatch.setattr(points.PointReader, "_whole", None)


@pytest.fixture
def in_log() -> tuple[Site, Store, Ledger]:
    """All entries are in the log, and their locations are in the cache."""
    site, store, ledger = opened()
    site.checkpoint(store)
    fill_caches(store)
    return site, store, ledger


# ── the fast path ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("only_the_fast_path")
@pytest.mark.parametrize("frozen", [False, True])
def test_an_entry_in_a_table_is_read_by_the_fast_path(frozen: bool) -> None:
    _, store, ledger = opened()
    if frozen:
        StoreInternals(store).freeze()
    for number in (*range(COUNT), 3, 3, COUNT - 1, COUNT - 1):
        assert ledger.read(number).payload == text(number)


def test_an_entry_in_a_log_is_read_by_the_fast_path(
    in_log: tuple[Site, Store, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    *_, ledger = in_log
    monkeypatch.setattr(points.PointReader, "_whole", None)
    assert [ledger.read(number).payload for number in range(COUNT)] == [text(one) for one in range(COUNT)]


def test_a_read_of_a_log_ends_with_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    pread = os.pread

    def watched(descriptor: int, size: int, offset: int) -> bytes:
        asked.append(size)
        return pread(descriptor, size, offset)

    with open_store(tmp_path / "data", QUIET) as store:
        ledger = store.ledger(1)
        ledger.append_many([text(number) for number in range(COUNT)])
        store.checkpoint()
        fill_caches(store)
        monkeypatch.setattr(os, "pread", watched)
        for number in range(COUNT - 1):
            assert ledger.read(number).payload == text(number)
    assert asked[: COUNT - 1] == [40 + len(text(number)) for number in range(COUNT - 1)]


@pytest.mark.parametrize("kind", DigestType)
@pytest.mark.parametrize("where", ["active", "frozen", "log", "cache"])
def test_an_entry_is_equal_wherever_it_is(kind: DigestType, where: str) -> None:
    site, store, ledger = opened(kind)
    if where == "frozen":
        StoreInternals(store).freeze()
    elif where != "active":
        site.checkpoint(store)
    if where == "cache":
        fill_caches(store)
    lengths, length = [], 0
    for number in range(COUNT):
        length += len(text(number))
        lengths.append(length)
    expected = [Entry(1, number, -1, lengths[number], text(number)) for number in range(COUNT)]
    assert [ledger.read(number) for number in range(COUNT)] == expected
    assert list(ledger.entries()) == expected
    encoded = [entry_format.encode(one, digester(kind, PASSWORD)) for one in expected]
    assert [store.bookie.read(1, number) for number in range(COUNT)] == encoded


@pytest.mark.parametrize("entry_id", [-1, -(2**63), ID_MAX + 1, 2**70])
def test_ids_that_no_entry_has_are_refused(in_log: tuple[Site, Store, Ledger], entry_id: int) -> None:
    _, store, ledger = in_log
    for one in (ledger, store.ledger(99)):
        with pytest.raises(InvalidEntry):
            one.read(entry_id)


@pytest.mark.parametrize("entry_id", [COUNT, 1023, 1024, ID_MAX])
def test_an_absent_entry_is_missing(in_log: tuple[Site, Store, Ledger], entry_id: int) -> None:
    _, store, ledger = in_log
    with pytest.raises(NoSuchEntry):
        ledger.read(entry_id)
    with pytest.raises(NoSuchLedger):
        store.ledger(99).read(entry_id)


@pytest.mark.parametrize("size", [3000, 4050, 4060, 4096, 8100, 8300, 60_000])
def test_entries_of_any_size_are_read(size: int) -> None:
    site = Site()
    store = site.open()
    texts = [text(number, size=size) for number in range(5)]
    for one in texts:
        store.ledger(1).append(one)
    site.checkpoint(store)
    for _ in range(3):
        assert [store.ledger(1).read(number).payload for number in range(5)] == texts


def test_the_last_of_a_run_and_of_a_log_are_read() -> None:
    site, store, ledger = opened(count=3)
    for number in range(3, 40, 3):
        store.ledger(2).append(b"between")
        site.checkpoint(store)
        ledger.append_many([text(one) for one in range(number, number + 3)])
    for _ in range(3):
        assert [ledger.read(number).payload for number in range(42)] == [text(one) for one in range(42)]


# ── the newest copy counts ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("number", [0, 20, COUNT - 1])
@pytest.mark.parametrize("before", ["active", "frozen", "log"])
@pytest.mark.parametrize("after", ["active", "frozen", "log"])
def test_a_newer_copy_is_read_as_soon_as_it_exists(number: int, before: str, after: str) -> None:
    site, store, ledger = opened()
    if before == "frozen":
        StoreInternals(store).freeze()
    elif before == "log":
        site.checkpoint(store)
        fill_caches(store)
    for version in (1, 2):
        assert ledger.read(number).payload == text(number, version - 1)
        store.add(Entry(1, number, -1, 9, text(number, version)))
        assert ledger.read(number).payload == text(number, version)
        assert ledger.read(number).payload == text(number, version)
        if before != "frozen" and after == "frozen" and version == 1:
            StoreInternals(store).freeze()
        elif after == "log":
            site.checkpoint(store)
        for handle in (ledger, store.ledger(1)):
            assert [handle.read(number).payload for _ in range(3)] == [text(number, version)] * 3


@pytest.mark.parametrize("checkpoints", [False, True])
def test_a_recreated_ledger_shows_no_entry_of_the_deleted_one(checkpoints: bool) -> None:
    site, store, ledger = opened()
    if checkpoints:
        site.checkpoint(store)
        fill_caches(store)
    assert ledger.read(3).payload == ledger.read(3).payload == text(3)
    ledger.delete()
    with pytest.raises(NoSuchLedger):
        ledger.read(3)
    ledger.append(b"again")
    with pytest.raises(NoSuchEntry):
        ledger.read(3)
    assert ledger.read(0).payload == b"again"


def test_a_reader_keeps_no_table_in_memory_after_its_last_read() -> None:
    site, store, ledger = opened()
    entries = StoreInternals(store).active_table.find(1)
    assert entries is not None
    ledger.read(3)
    site.checkpoint(store)
    assert StoreInternals(store).frozen_table is None
    assert StoreInternals(store).active_table.find(1) is None
    assert ledger.read(3).payload == text(3)


# ── damage ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_damaged_record_in_a_table_is_unreadable_and_not_an_older_copy() -> None:
    site, store, ledger = opened()
    site.checkpoint(store)
    fill_caches(store)
    store.add(Entry(1, 5, -1, 9, text(5, 1)))
    entries = StoreInternals(store).active_table.find(1)
    assert entries is not None
    entries.fronts[7] ^= 1
    for _ in range(2):
        with pytest.raises(EntryUnreadable):
            ledger.read(5)
    assert ledger.read(4).payload == text(4)


@pytest.mark.parametrize("offset", [*range(-40, 0, 3), 0, 30])
def test_a_damaged_record_in_a_log_is_unreadable_with_file_and_offset(
    in_log: tuple[Site, Store, Ledger], offset: int
) -> None:
    site, *_ = in_log
    name = f"{LEDGERS}/0.log"
    place = site.bytes_of(name).index(text(5))
    site.flip(name, place + offset)
    store = site.after_kill()
    fill_caches(store)
    for _ in range(2):
        with pytest.raises(EntryUnreadable) as caught:
            store.ledger(1).read(5)
        assert (caught.value.file, caught.value.offset) == ("0.log", place - 40)
    assert store.ledger(1).read(4).payload == text(4)
    assert store.ledger(1).read(6).payload == text(6)


def test_an_entry_whose_location_has_another_entry_is_unreadable(in_log: tuple[Site, Store, Ledger]) -> None:
    _, store, ledger = in_log
    index = StoreInternals(store).index
    other = index.find(1, 7)
    assert other is not None
    with index.change() as change:
        change.put(1, [5], [other])
        change.commit(None)
    StoreInternals(store).forget_places(1)
    for _ in range(4):
        with pytest.raises(EntryUnreadable, match="another entry"):
            ledger.read(5)
    assert ledger.read(7).payload == text(7)


def test_a_log_that_cannot_be_read_is_reported(
    in_log: tuple[Site, Store, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, store, ledger = in_log
    log = StoreInternals(store).open_logs.find(0)
    assert log is not None

    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(log, "read", fail)
    with pytest.raises(EntryUnreadable, match="Input/output"):
        ledger.read(5)


def test_a_truncated_log_is_reported(
    in_log: tuple[Site, Store, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, store, ledger = in_log
    log = StoreInternals(store).open_logs.find(0)
    assert log is not None
    read = log.read
    for size in (0, 3, 4, 39, 40, 50):
        monkeypatch.setattr(log, "read", lambda offset, _, size=size: read(offset, size))
        with pytest.raises(EntryUnreadable):
            ledger.read(5)


# ── the cost of a read ───────────────────────────────────────────────────────────────────────────────────


def count_look_ups(store: Store) -> tuple[Counter[str], list[int]]:
    """Record the look-ups in the index from now on, and the sizes of the reads of the log."""
    index = CountedIndex(StoreInternals(store).index)
    StoreInternals(store).use_index(index)
    sizes: list[int] = []
    log = StoreInternals(store).open_logs.find(0)
    assert log is not None
    read = log.read

    def watched(offset: int, size: int) -> bytes:
        sizes.append(size)
        return read(offset, size)

    log.read = watched
    return index.asked, sizes


@pytest.mark.parametrize("kind", [DigestType.CRC32C, DigestType.CRC32])
@pytest.mark.parametrize("is_cached", [False, True])
def test_a_missing_entry_costs_one_question_to_the_index(kind: DigestType, is_cached: bool) -> None:
    site, store, ledger = opened(kind)
    site.checkpoint(store)
    if is_cached:
        fill_caches(store)
    ledger.read(0)
    asked, sizes = count_look_ups(store)
    with pytest.raises(NoSuchEntry):
        ledger.read(COUNT)
    assert (asked, sizes) == ({"find": 1}, [])
    asked.clear()
    with pytest.raises(NoSuchEntry):
        store.bookie.read(1, COUNT + 1)
    assert (asked, sizes) == ({"find": 1}, [])


def test_an_entry_of_a_missing_ledger_costs_one_more_look_up() -> None:
    site, store, ledger = opened()
    site.checkpoint(store)
    ledger.read(0)
    asked, sizes = count_look_ups(store)
    with pytest.raises(NoSuchLedger):
        store.ledger(99).read(0)
    assert (asked, sizes) == ({"find": 1, "last": 1}, [])


@pytest.mark.parametrize("is_cached", [False, True])
def test_a_damaged_entry_costs_one_read_and_one_look_up(is_cached: bool) -> None:
    site, store, ledger = opened()
    site.checkpoint(store)
    name = f"{LEDGERS}/0.log"
    site.flip(name, site.bytes_of(name).index(text(5)))
    store = site.after_kill()
    ledger = store.ledger(1)
    if is_cached:
        fill_caches(store)
    ledger.read(0)
    asked, sizes = count_look_ups(store)
    with pytest.raises(EntryUnreadable):
        ledger.read(5)
    assert (asked, len(sizes)) == ({} if is_cached else {"find": 1}, 1)
    asked.clear()
    sizes.clear()
    with pytest.raises(EntryUnreadable):
        store.bookie.read(1, 5)
    assert (asked, len(sizes)) == ({} if is_cached else {"find": 1}, 1)


@pytest.mark.parametrize("is_cached", [False, True])
def test_an_entry_larger_than_the_first_read_costs_one_more_read(is_cached: bool) -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append_many([text(number, size=9000) for number in range(COUNT)])
    site.checkpoint(store)
    if is_cached:
        fill_caches(store)
    store.ledger(1).read(0)
    asked, sizes = count_look_ups(store)
    assert store.ledger(1).read(5).payload == text(5, size=9000)
    assert (asked, sizes) == ({} if is_cached else {"find": 1}, [4096, 40 + len(text(5, size=9000))])


# ── digests ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("where", ["table", "log"])
def test_another_digest_type_is_refused_however_often_the_ledger_was_read(where: str) -> None:
    site, store, ledger = opened()
    if where == "log":
        site.checkpoint(store)
        fill_caches(store)
    ledger.read(3)
    ledger.read(3)
    with pytest.raises(DigestDiffers):
        store.ledger(1, DigestType.CRC32).read(3)
    assert store.ledger(1, DigestType.CRC32C).read(3).payload == text(3)
    assert store.ledger(1, password=b"of another").read(3).payload == text(3)


@pytest.mark.parametrize("where", ["table", "log"])
def test_a_payload_that_begins_with_its_own_checksum_is_read_whole(where: str) -> None:
    """Without a digest, its record equals that of a shorter payload with CRC-32C."""
    site = Site()
    store = site.open()
    whole = entry_format.encode(Entry(1, 0, -1, 9, b"text"), digester(DigestType.CRC32C))[32:]
    store.add(Entry(1, 0, -1, 9, whole), DigestType.DUMMY)
    if where == "log":
        site.checkpoint(store)
    for _ in range(4):
        assert store.ledger(1).read(0).payload == whole
        assert list(store.ledger(1).payloads()) == [whole]


@pytest.mark.parametrize("where", ["table", "log"])
def test_a_closed_store_and_a_fork_s_read_nothing(where: str) -> None:
    site, store, ledger = opened()
    if where == "log":
        site.checkpoint(store)
        fill_caches(store)
    ledger.read(3)
    with StoreInternals(store).as_forked(), pytest.raises(ForkedStore):
        ledger.read(3)
    assert ledger.read(3).payload == text(3)
    store.close()
    with pytest.raises(StoreClosed):
        ledger.read(3)


def test_a_reader_whose_log_is_closed_gets_store_closed(
    in_log: tuple[Site, Store, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, store, ledger = in_log
    known = StoreInternals(store).call(EngineCall.CACHED_PLACE)

    def close_first(*ids: int) -> tuple[int, int]:
        store.close()
        return known(*ids)  # type: ignore[no-any-return]

    monkeypatch.setattr(*StoreInternals(store).at(EngineCall.CACHED_PLACE), close_first)
    with pytest.raises(StoreClosed):
        ledger.read(3)


# ── while others write ───────────────────────────────────────────────────────────────────────────────────


def during_a_read(store: Store, act: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the call once, after a reader has searched the tables and before it asks the cache."""
    place = StoreInternals(store).at(EngineCall.CACHED_PLACE)
    known = StoreInternals(store).call(EngineCall.CACHED_PLACE)

    def then(*ids: int) -> tuple[int, int]:
        monkeypatch.setattr(*place, known)
        act()
        return known(*ids)  # type: ignore[no-any-return]

    monkeypatch.setattr(*place, then)


def test_an_entry_that_a_checkpoint_moves_meanwhile_is_found(
    in_log: tuple[Site, Store, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    site, store, ledger = in_log
    during_a_read(store, lambda: site.checkpoint(store), monkeypatch)
    assert ledger.read(5).payload == text(5)

    def rewrite() -> None:
        store.add(Entry(1, 6, -1, 9, text(6, 1)))
        site.checkpoint(store)

    during_a_read(store, rewrite, monkeypatch)
    assert ledger.read(6).payload == text(6, 1)


def test_an_entry_that_leaves_a_table_after_a_cache_look_up_is_not_read_in_an_older_copy(
    in_log: tuple[Site, Store, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    site, store, ledger = in_log
    store.add(Entry(1, 5, -1, 9, text(5, 1)))
    place = StoreInternals(store).at(EngineCall.CACHED_PLACE)
    known = StoreInternals(store).call(EngineCall.CACHED_PLACE)

    def then_checkpoint(*ids: int) -> tuple[int, int]:
        places = known(*ids)
        site.checkpoint(store)
        return places  # type: ignore[no-any-return]

    monkeypatch.setattr(*place, then_checkpoint)
    assert ledger.read(5).payload == text(5, 1)


def test_a_ledger_that_is_deleted_meanwhile_is_complete_or_gone(
    in_log: tuple[Site, Store, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, store, ledger = in_log
    during_a_read(store, ledger.delete, monkeypatch)
    with pytest.raises(NoSuchLedger):
        ledger.read(5)


@pytest.mark.sampled
def test_threads_read_the_newest_copies_while_entries_move_and_are_added_again(tmp_path: Path) -> None:
    """Use a cache of two blocks, which replace each other all the time."""
    versions = [0] * many(4000, 1000)
    config = StoreConfig(index_cache_size_max=20_000, checkpoint_interval_s=None)
    with open_store(tmp_path / "data", config) as store:
        ledger = store.ledger(1)
        ledger.append_many([text(number) for number in range(len(versions))])
        is_over = threading.Event()

        def write() -> None:
            dice = Random(1)
            for turn in range(many(12, 2)):
                for _ in range(10):
                    number = dice.randrange(len(versions))
                    store.add(Entry(1, number, -1, 9, text(number, versions[number] + 1)))
                    versions[number] += 1
                if turn % 2:
                    store.checkpoint()
            is_over.set()

        def read(seed: int) -> int:
            dice, count = Random(seed), 0
            while count < many(500, 100) or (not is_over.is_set() and count < many(sys.maxsize, 500)):
                number = dice.randrange(len(versions))
                least = versions[number]
                payload = ledger.read(number).payload
                assert payload in [text(number, version) for version in range(least, versions[number] + 2)]
                count += 1
            return count

        with ThreadPoolExecutor(4) as pool:
            writing, readings = pool.submit(write), [pool.submit(read, seed) for seed in range(3)]
            writing.result(120)
            assert all(one.result(120) >= many(500, 100) for one in readings)
        assert [ledger.read(one).payload for one in range(len(versions))] == [
            text(number, version) for number, version in enumerate(versions)
        ]
