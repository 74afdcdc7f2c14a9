"""Reading one entry: the quick way answers as the long one does, and only where nothing is wrong."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from stepped import LEDGERS, Site

from recovery import open_store
from storage import reading
from storage.codec import entry as entry_codec
from storage.codec.digest import digester
from storage.config import StoreConfig
from storage.entry import ID_MAX, DigestType, Entry
from storage.errors import (
    DigestDiffers,
    EntryUnreadable,
    ForkedStore,
    InvalidEntry,
    NoSuchEntry,
    NoSuchLedger,
    StoreClosed,
)
from storage.location_cache import LOOK_UPS

if TYPE_CHECKING:
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


def warm(store: Store, ledger_id: int = 1) -> None:
    """Brings the places into the cache, and opens the logs."""
    for number in (*[0] * LOOK_UPS, COUNT - 1):
        store.bookie.read(ledger_id, number)


@pytest.fixture
def only_the_quick_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever takes the long one fails."""
    monkeypatch.setattr(reading.Reading, "record", None)


@pytest.fixture
def logged() -> tuple[Site, Store, Ledger]:
    """All is in the log, and its places in the cache."""
    site, store, ledger = opened()
    site.checkpoint(store)
    warm(store)
    return site, store, ledger


# ── the quick way ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("only_the_quick_way")
@pytest.mark.parametrize("frozen", [False, True])
def test_what_is_in_a_table_is_read_quickly(frozen: bool) -> None:
    _, store, ledger = opened()
    if frozen:
        store._committer.freeze()
    for number in (*range(COUNT), 3, 3, COUNT - 1, COUNT - 1):
        assert ledger.read(number).payload == text(number)


def test_what_is_in_a_log_is_read_quickly(
    logged: tuple[Site, Store, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    *_, ledger = logged
    monkeypatch.setattr(reading.Reading, "record", None)
    assert [ledger.read(number).payload for number in range(COUNT)] == [text(one) for one in range(COUNT)]


def test_of_a_log_no_more_is_read_than_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    pread = os.pread

    def watched(descriptor: int, size: int, offset: int) -> bytes:
        asked.append(size)
        return pread(descriptor, size, offset)

    with open_store(tmp_path / "data", QUIET) as store:
        ledger = store.ledger(1)
        ledger.append_many([text(number) for number in range(COUNT)])
        store.checkpoint()
        warm(store)
        monkeypatch.setattr(os, "pread", watched)
        for number in range(COUNT - 1):
            assert ledger.read(number).payload == text(number)
    assert asked[: COUNT - 1] == [40 + len(text(number)) for number in range(COUNT - 1)]


@pytest.mark.parametrize("kind", DigestType)
@pytest.mark.parametrize("where", ["active", "frozen", "log", "cache"])
def test_it_is_the_same_entry_wherever_it_is(kind: DigestType, where: str) -> None:
    site, store, ledger = opened(kind)
    if where == "frozen":
        store._committer.freeze()
    elif where != "active":
        site.checkpoint(store)
    if where == "cache":
        warm(store)
    lengths, length = [], 0
    for number in range(COUNT):
        length += len(text(number))
        lengths.append(length)
    expected = [Entry(1, number, -1, lengths[number], text(number)) for number in range(COUNT)]
    assert [ledger.read(number) for number in range(COUNT)] == expected
    assert list(ledger.entries()) == expected
    encoded = [entry_codec.encode(one, digester(kind, PASSWORD)) for one in expected]
    assert [store.bookie.read(1, number) for number in range(COUNT)] == encoded


@pytest.mark.parametrize("entry_id", [-1, -(2**63), ID_MAX + 1, 2**70])
def test_ids_that_no_entry_has_are_refused(logged: tuple[Site, Store, Ledger], entry_id: int) -> None:
    _, store, ledger = logged
    for one in (ledger, store.ledger(99)):
        with pytest.raises(InvalidEntry):
            one.read(entry_id)


@pytest.mark.parametrize("entry_id", [COUNT, 1023, 1024, ID_MAX])
def test_what_is_not_there_is_missing(logged: tuple[Site, Store, Ledger], entry_id: int) -> None:
    _, store, ledger = logged
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
def test_a_newer_copy_is_read_from_the_moment_it_is_there(number: int, before: str, after: str) -> None:
    site, store, ledger = opened()
    if before == "frozen":
        store._committer.freeze()
    elif before == "log":
        site.checkpoint(store)
        warm(store)
    for version in (1, 2):
        assert ledger.read(number).payload == text(number, version - 1)
        store.add(Entry(1, number, -1, 9, text(number, version)))
        assert ledger.read(number).payload == text(number, version)
        assert ledger.read(number).payload == text(number, version)
        if before != "frozen" and after == "frozen" and version == 1:
            store._committer.freeze()
        elif after == "log":
            site.checkpoint(store)
        for handle in (ledger, store.ledger(1)):
            assert [handle.read(number).payload for _ in range(3)] == [text(number, version)] * 3


@pytest.mark.parametrize("checkpoints", [False, True])
def test_of_a_ledger_made_again_nothing_of_the_deleted_one_is_read(checkpoints: bool) -> None:
    site, store, ledger = opened()
    if checkpoints:
        site.checkpoint(store)
        warm(store)
    assert ledger.read(3).payload == ledger.read(3).payload == text(3)
    ledger.delete()
    with pytest.raises(NoSuchLedger):
        ledger.read(3)
    ledger.append(b"again")
    with pytest.raises(NoSuchEntry):
        ledger.read(3)
    assert ledger.read(0).payload == b"again"


def test_what_was_read_last_keeps_no_table_in_memory() -> None:
    site, store, ledger = opened()
    entries = store._parts.slot.tables.active.find(1)
    assert entries is not None
    ledger.read(3)
    site.checkpoint(store)
    assert store._parts.slot.tables.both == (store._parts.slot.tables.active,)
    assert store._parts.slot.tables.active.find(1) is None
    assert ledger.read(3).payload == text(3)


# ── what is wrong is told ────────────────────────────────────────────────────────────────────────────────


def test_a_damaged_record_in_a_table_is_unreadable_and_not_an_older_copy() -> None:
    site, store, ledger = opened()
    site.checkpoint(store)
    warm(store)
    store.add(Entry(1, 5, -1, 9, text(5, 1)))
    entries = store._parts.slot.tables.active.find(1)
    assert entries is not None
    entries.fronts[7] ^= 1
    for _ in range(2):
        with pytest.raises(EntryUnreadable):
            ledger.read(5)
    assert ledger.read(4).payload == text(4)


@pytest.mark.parametrize("offset", [*range(-40, 0, 3), 0, 30])
def test_a_damaged_record_in_a_log_is_unreadable_with_its_place(
    logged: tuple[Site, Store, Ledger], offset: int
) -> None:
    site, *_ = logged
    name = f"{LEDGERS}/0.log"
    place = site.bytes_of(name).index(text(5))
    site.flip(name, place + offset)
    store = site.after_kill()
    warm(store)
    for _ in range(2):
        with pytest.raises(EntryUnreadable) as caught:
            store.ledger(1).read(5)
        assert (caught.value.file, caught.value.offset) == ("0.log", place - 40)
    assert store.ledger(1).read(4).payload == text(4)
    assert store.ledger(1).read(6).payload == text(6)


def test_a_place_that_names_another_entry_is_unreadable(logged: tuple[Site, Store, Ledger]) -> None:
    _, store, ledger = logged
    index = store._parts.reading._index
    other = index.find(1, 7)
    assert other is not None
    with index.change() as change:
        change.put(1, [5], [other])
        change.commit(None)
    store._parts.reading._cache.forget({1})
    for _ in range(4):
        with pytest.raises(EntryUnreadable, match="another entry"):
            ledger.read(5)
    assert ledger.read(7).payload == text(7)


def test_a_log_that_cannot_be_read_is_told(
    logged: tuple[Site, Store, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, store, ledger = logged
    log = store._parts.reading._logs.find(0)
    assert log is not None

    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(log, "read", fail)
    with pytest.raises(EntryUnreadable, match="Input/output"):
        ledger.read(5)


def test_a_cut_log_is_told(logged: tuple[Site, Store, Ledger], monkeypatch: pytest.MonkeyPatch) -> None:
    _, store, ledger = logged
    log = store._parts.reading._logs.find(0)
    assert log is not None
    read = log.read
    for size in (0, 3, 4, 39, 40, 50):
        monkeypatch.setattr(log, "read", lambda offset, _, size=size: read(offset, size))
        with pytest.raises(EntryUnreadable):
            ledger.read(5)


# ── who may read ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("where", ["table", "log"])
def test_who_asks_for_another_digest_type_is_told_however_often_it_was_read(where: str) -> None:
    site, store, ledger = opened()
    if where == "log":
        site.checkpoint(store)
        warm(store)
    ledger.read(3)
    ledger.read(3)
    with pytest.raises(DigestDiffers):
        store.ledger(1, DigestType.CRC32).read(3)
    assert store.ledger(1, DigestType.CRC32C).read(3).payload == text(3)
    assert store.ledger(1, password=b"of another").read(3).payload == text(3)


@pytest.mark.parametrize("where", ["table", "log"])
def test_a_payload_that_begins_with_its_own_checksum_is_read_whole(where: str) -> None:
    """Without a digest its record is, byte for byte, one under CRC-32C of a shorter payload."""
    site = Site()
    store = site.open()
    whole = entry_codec.encode(Entry(1, 0, -1, 9, b"text"), digester(DigestType.CRC32C))[32:]
    store.add(Entry(1, 0, -1, 9, whole), DigestType.DUMMY)
    if where == "log":
        site.checkpoint(store)
    for _ in range(4):
        assert store.ledger(1).read(0).payload == whole
        assert list(store.ledger(1).payloads()) == [whole]


@pytest.mark.parametrize("where", ["table", "log"])
def test_a_closed_store_and_a_fork_s_read_nothing(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    site, store, ledger = opened()
    if where == "log":
        site.checkpoint(store)
        warm(store)
    ledger.read(3)
    with monkeypatch.context() as forked:
        forked.setattr(store._latch, "gone", ForkedStore)
        with pytest.raises(ForkedStore):
            ledger.read(3)
    assert ledger.read(3).payload == text(3)
    store.close()
    with pytest.raises(StoreClosed):
        ledger.read(3)


def test_a_reader_whose_log_is_closed_hears_that_the_store_is(
    logged: tuple[Site, Store, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, store, ledger = logged
    known = store._parts.reading._cache.known

    def close_first(*ids: int) -> tuple[int, int]:
        store.close()
        return known(*ids)

    monkeypatch.setattr(store._parts.reading._cache, "known", close_first)
    with pytest.raises(StoreClosed):
        ledger.read(3)


# ── while others write ───────────────────────────────────────────────────────────────────────────────────


def meanwhile(store: Store, deed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Does that once, when a reader has looked into the tables and not yet into the cache."""
    cache = store._parts.reading._cache
    known = cache.known

    def then(*ids: int) -> tuple[int, int]:
        monkeypatch.setattr(cache, "known", known)
        deed()
        return known(*ids)

    monkeypatch.setattr(cache, "known", then)


def test_what_a_checkpoint_moves_meanwhile_is_found(
    logged: tuple[Site, Store, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    site, store, ledger = logged
    meanwhile(store, lambda: site.checkpoint(store), monkeypatch)
    assert ledger.read(5).payload == text(5)

    def rewrite() -> None:
        store.add(Entry(1, 6, -1, 9, text(6, 1)))
        site.checkpoint(store)

    meanwhile(store, rewrite, monkeypatch)
    assert ledger.read(6).payload == text(6, 1)


def test_what_leaves_a_table_behind_a_look_into_the_cache_is_not_older(
    logged: tuple[Site, Store, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    site, store, ledger = logged
    store.add(Entry(1, 5, -1, 9, text(5, 1)))
    cache = store._parts.reading._cache
    known = cache.known

    def then_checkpoint(*ids: int) -> tuple[int, int]:
        places = known(*ids)
        site.checkpoint(store)
        return places

    monkeypatch.setattr(cache, "known", then_checkpoint)
    assert ledger.read(5).payload == text(5, 1)


def test_a_ledger_that_is_deleted_meanwhile_is_whole_or_gone(
    logged: tuple[Site, Store, Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, store, ledger = logged
    meanwhile(store, ledger.delete, monkeypatch)
    with pytest.raises(NoSuchLedger):
        ledger.read(5)


def test_threads_read_the_newest_copies_while_entries_move_and_come_again(tmp_path: Path) -> None:
    """With a cache of two blocks, which push each other out all the time."""
    versions = [0] * 4000
    config = StoreConfig(index_cache_size_max=20_000, checkpoint_interval_s=None)
    with open_store(tmp_path / "data", config) as store:
        ledger = store.ledger(1)
        ledger.append_many([text(number) for number in range(len(versions))])
        is_over = threading.Event()

        def write() -> None:
            dice = Random(1)
            for turn in range(12):
                for _ in range(10):
                    number = dice.randrange(len(versions))
                    store.add(Entry(1, number, -1, 9, text(number, versions[number] + 1)))
                    versions[number] += 1
                if turn % 2:
                    store.checkpoint()
            is_over.set()

        def read(seed: int) -> int:
            dice, count = Random(seed), 0
            while not is_over.is_set() or count < 500:
                number = dice.randrange(len(versions))
                least = versions[number]
                payload = ledger.read(number).payload
                assert payload in [text(number, version) for version in range(least, versions[number] + 2)]
                count += 1
            return count

        with ThreadPoolExecutor(4) as pool:
            writing, readings = pool.submit(write), [pool.submit(read, seed) for seed in range(3)]
            writing.result(120)
            assert all(one.result(120) >= 500 for one in readings)
        assert [ledger.read(one).payload for one in range(4000)] == [
            text(number, version) for number, version in enumerate(versions)
        ]
