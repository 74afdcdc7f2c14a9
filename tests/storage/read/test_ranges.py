"""Reading in order returns the same as single reads, wherever the entries are."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING

import pytest
from sampling import many
from stepped_store import LEDGERS, Site
from store_internals import EngineCall, StoreInternals, batches

from recovery import open_store
from storage.commit.queue import new_lock
from storage.config import StoreConfig
from storage.entry import batch as entry_batch
from storage.entry import batch_numpy, batch_plain
from storage.entry.model import DigestType, Entry
from storage.entrylog.open_logs import OpenEntryLogs
from storage.errors import EntryUnreadable, NoSuchEntry, NoSuchLedger, StoreError
from storage.read import ranges

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from storage.ledger import Ledger
    from storage.store import Store

KINDS = pytest.mark.parametrize("kind", DigestType)
QUIET = StoreConfig(checkpoint_interval_s=None, idle_seal_s=None)


@pytest.fixture(params=["numpy", "plain"], autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    module = batch_numpy if request.param == "numpy" else batch_plain
    monkeypatch.setattr(entry_batch, "_kernel", lambda: module)


def text(number: int, version: int = 0, size: int = 0) -> bytes:
    return (b"%d/%d " % (number, version)).ljust(size or 30 + 7 * (number % 3), b"\0")


def fill(ledger: Ledger, count: int, size: int = 0) -> list[bytes]:
    """Append after the existing entries."""
    first = (ledger.last_entry_id or -1) + 1 if ledger.last_entry_id is not None else 0
    texts = [text(number, size=size) for number in range(first, first + count)]
    ledger.append_many(texts)
    return texts


def one_by_one(ledger: Ledger, first: int, last: int) -> list[Entry]:
    return [ledger.read(entry_id) for entry_id in range(first, last + 1)]


def assert_in_order(ledger: Ledger, expected: Sequence[bytes], first: int = 0) -> None:
    last = first + len(expected) - 1
    assert list(ledger.payloads(first, last)) == list(expected)
    assert list(ledger.entries(first, last)) == one_by_one(ledger, first, last)


def until_error(ledger: Ledger, **span: int) -> tuple[list[bytes], type[Exception] | None]:
    found: list[bytes] = []
    try:
        for payload in ledger.payloads(**span):
            found.append(payload)  # noqa: PERF402 - what came before the error counts
    except StoreError as error:
        return found, type(error)
    return found, None


@pytest.fixture
def in_logs() -> tuple[Site, Store, list[bytes]]:
    """Ledger 1 beside others, in two logs and written by many checkpoints."""
    site = Site()
    store = site.open()
    texts: list[bytes] = []
    for number in range(8):
        texts += fill(store.ledger(1), 20 + number)
        fill(store.ledger(2), 5)
        site.checkpoint(store)
        if number == 3:
            site.disk.kill()
            store = site.open()
    return site, store, texts


# ── the places of entries ────────────────────────────────────────────────────────────────────────────────


@KINDS
def test_runs_of_many_checkpoints_come_in_order(kind: DigestType) -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1, kind, b"pw")
    texts: list[bytes] = []
    for number in range(6):
        texts += fill(ledger, 17 + number)
        fill(store.ledger(2), 3)
        if number < 4:
            site.checkpoint(store)
        assert_in_order(ledger, texts)
    recovered = site.after_kill().ledger(1, kind, b"pw")
    assert_in_order(recovered, texts)
    for first, last in [(0, 0), (5, 9), (16, 17), (40, 120), (len(texts) - 1, len(texts) - 1)]:
        assert_in_order(recovered, texts[first : last + 1], first)


def test_entries_of_many_checkpoints_are_read_in_one_batch(in_logs: tuple[Site, Store, list[bytes]]) -> None:
    _, store, texts = in_logs
    ledger = store.ledger(1)
    assert [one.length for one in batches(ledger)] == [len(texts)]


@pytest.mark.parametrize("read_ahead", [1, 50, 75, 200, 1000, 5000])
def test_all_entries_are_read_with_any_size_of_read_ahead(
    in_logs: tuple[Site, Store, list[bytes]], read_ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, store, texts = in_logs
    monkeypatch.setattr(ranges, "READ_AHEAD", read_ahead)
    assert_in_order(store.ledger(1), texts)


@pytest.mark.parametrize("places", [1, 2, 3, 50])
def test_all_entries_are_read_with_any_number_of_locations_at_once(
    in_logs: tuple[Site, Store, list[bytes]], places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, store, texts = in_logs
    monkeypatch.setattr(ranges, "_LOCATIONS_AT_ONCE", places)
    monkeypatch.setattr(ranges, "_IN_MEMORY", places)
    assert_in_order(store.ledger(1), texts)


@pytest.mark.parametrize("size", [3000, 5000, 140_000])
def test_entries_of_any_size_come_in_order(size: int, tmp_path: Path) -> None:
    with open_store(tmp_path / "data", QUIET) as store:
        ledger = store.ledger(1)
        texts = [text(number, size=size + number % 3) for number in range(40)]
        ledger.append_many(texts)
        assert_in_order(ledger, texts)
        store.checkpoint()
        assert_in_order(ledger, texts)


def test_an_entry_larger_than_the_one_before_it_is_read() -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1)
    texts = [text(number, size=100) for number in range(20)] + [text(20, size=9000)]
    for _ in range(2):  # the last entry of its log, and then followed by others
        ledger.append_many(texts)
        site.checkpoint(store)
    assert_in_order(ledger, texts * 2)


def test_the_last_entry_of_a_log_is_read_with_the_others(in_logs: tuple[Site, Store, list[bytes]]) -> None:
    _, store, texts = in_logs
    count = len(list(store.ledger(2).payloads()))
    assert [one.length for one in batches(store.ledger(2))] == [count]
    assert [one.length for one in batches(store.ledger(1), len(texts) - 9)] == [9]


# ── tables, and newer copies ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rewritten", [[0], [10], [39], [3, 4, 5], [0, 20, 39], range(40), [7, 25, 8]])
@pytest.mark.parametrize("moved", ["active", "frozen", "log"])
def test_newer_copies_are_read_wherever_the_older_ones_are(rewritten: Sequence[int], moved: str) -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1)
    texts = fill(ledger, 40)
    site.checkpoint(store)
    list(ledger.payloads())  # so that the cache has the older locations
    for number in rewritten:
        texts[number] = text(number, version=1)
        store.add(Entry(1, number, number - 1, 5000, texts[number]))
    if moved == "frozen":
        StoreInternals(store).freeze()
    elif moved == "log":
        site.checkpoint(store)
    assert_in_order(ledger, texts)


def test_the_active_table_s_copy_comes_before_the_frozen_one_s() -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1)
    texts = fill(ledger, 30)
    StoreInternals(store).freeze()
    for number in (5, 6, 20):
        texts[number] = text(number, version=1)
        store.add(Entry(1, number, number - 1, 5000, texts[number]))
    assert_in_order(ledger, texts)
    assert_in_order(ledger, texts[4:22], 4)


def test_from_log_to_frozen_to_active_table_in_one_go() -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1)
    texts = fill(ledger, 30)
    site.checkpoint(store)
    texts += fill(ledger, 30)
    StoreInternals(store).freeze()
    texts += fill(ledger, 30)
    assert_in_order(ledger, texts)


def test_payloads_of_a_table_are_returned_without_a_copy() -> None:
    store = Site().open()
    texts = fill(store.ledger(1), 100)
    assert all(one is another for one, another in zip(store.ledger(1).payloads(), texts, strict=True))


@pytest.mark.parametrize("where", ["active", "frozen", "log"])
@pytest.mark.parametrize("gap", [0, 1, 25, 48])
def test_a_gap_is_reported_after_all_entries_before_it(where: str, gap: int) -> None:
    site = Site()
    store = site.open()
    for number in range(50):
        if number != gap:
            store.add(Entry(1, number, -1, 9, text(number)))
    if where == "frozen":
        StoreInternals(store).freeze()
    elif where == "log":
        site.checkpoint(store)
    assert until_error(store.ledger(1)) == ([text(number) for number in range(gap)], NoSuchEntry)
    assert until_error(store.ledger(1), first=gap + 1)[1] is None


def test_a_range_beyond_the_end_returns_all_entries_first(in_logs: tuple[Site, Store, list[bytes]]) -> None:
    _, store, texts = in_logs
    assert until_error(store.ledger(1), last=len(texts) + 5) == (texts, NoSuchEntry)
    assert list(store.ledger(1).payloads(5, 4)) == []


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────


@KINDS
@pytest.mark.parametrize("index", [0, 1, 20, 38])
def test_damage_is_reported_after_all_entries_before_it(kind: DigestType, index: int) -> None:
    site = Site()
    store = site.open()
    ledger = store.ledger(1, kind, b"pw")
    texts = fill(ledger, 40, size=70)
    site.checkpoint(store)
    log = site.bytes_of(f"{LEDGERS}/0.log")
    site.flip(f"{LEDGERS}/0.log", log.index(texts[index]) - kind.width - 20)  # a byte of the entry's id
    again = site.after_kill().ledger(1, password=b"pw")
    assert until_error(again) == (texts[:index], EntryUnreadable)
    assert until_error(again, first=index + 1) == (texts[index + 1 :], None)


def test_a_location_of_another_entry_is_reported_after_all_entries_before_it() -> None:
    site = Site()
    store = site.open()
    texts = fill(store.ledger(1), 40)
    site.checkpoint(store)
    index = StoreInternals(store).index
    places = dict(index.locations(1, 0, 40))
    with index.change() as change:
        change.put(1, [20, 21], [places[21], places[20]])
        change.commit(None)
    assert until_error(store.ledger(1)) == (texts[:20], EntryUnreadable)


def test_bytes_of_an_earlier_block_are_not_taken_for_a_truncated_log(
    in_logs: tuple[Site, Store, list[bytes]],
) -> None:
    site, store, texts = in_logs
    assert list(store.ledger(1).payloads()) == texts
    name = f"{LEDGERS}/0.log"
    # The reused block still has the bytes of the earlier read, digests included.
    whole = site.bytes_of(name)
    store = site.after_kill()
    ledger = store.ledger(1)
    assert list(ledger.payloads()) == texts
    StoreInternals(store).use_logs(OpenEntryLogs(site.directory(LEDGERS).open, new_lock()))
    middle = whole.index(texts[30])
    site.put(name, whole[:middle])
    assert until_error(ledger) == (texts[:30], EntryUnreadable)


def test_a_read_error_far_ahead_does_not_hide_readable_entries(
    in_logs: tuple[Site, Store, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, store, texts = in_logs
    engine = StoreInternals(store)
    read, read_into = engine.call(EngineCall.READ_LOG), engine.call(EngineCall.READ_LOG_INTO)
    bad = engine.index.find(1, 60)
    assert bad is not None
    asked: list[int] = []

    def check(packed: int, size: int) -> None:
        asked.append(size)
        if packed <= bad < packed + size:
            raise OSError(5, "Input/output error")

    def bad_read(packed: int, size: int) -> bytes:
        check(packed, 70)
        return read(packed, size)  # type: ignore[no-any-return]

    def bad_read_into(packed: int, buffer: memoryview) -> int:
        check(packed, len(buffer))
        return read_into(packed, buffer)  # type: ignore[no-any-return]

    monkeypatch.setattr(*engine.at(EngineCall.READ_LOG), bad_read)
    monkeypatch.setattr(*engine.at(EngineCall.READ_LOG_INTO), bad_read_into)
    monkeypatch.setattr(*engine.at(EngineCall.FIND_LOG), lambda _: None)
    assert until_error(store.ledger(1)) == (texts[:60], EntryUnreadable)
    assert len(asked) < 100


# ── while others write ───────────────────────────────────────────────────────────────────────────────────


def during_a_read(store: Store, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the call once, when the next block is read."""
    place = StoreInternals(store).at(EngineCall.READ_LOG_INTO)
    read_into = StoreInternals(store).call(EngineCall.READ_LOG_INTO)

    def then(packed: int, buffer: memoryview) -> int:
        monkeypatch.setattr(*place, read_into)
        act()
        return read_into(packed, buffer)  # type: ignore[no-any-return]

    monkeypatch.setattr(*place, then)


def test_entries_that_a_checkpoint_moves_meanwhile_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "READ_AHEAD", 700)
    site = Site()
    store = site.open()
    texts = fill(store.ledger(1), 40)
    site.checkpoint(store)
    texts += fill(store.ledger(1), 40)
    during_a_read(store, lambda: site.checkpoint(store), monkeypatch)
    assert list(store.ledger(1).payloads()) == texts


def test_an_entry_that_leaves_a_table_after_a_cache_look_up_is_not_read_in_an_older_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site()
    store = site.open()
    texts = fill(store.ledger(1), 40)
    site.checkpoint(store)
    texts[0] = text(0, 1)
    store.add(Entry(1, 0, -1, 9, texts[0]))
    places = StoreInternals(store).call(EngineCall.CACHED_PLACES)

    def then_checkpoint(*asked: int) -> array[int]:
        found = places(*asked)
        site.checkpoint(store)
        return found  # type: ignore[no-any-return]

    monkeypatch.setattr(*StoreInternals(store).at(EngineCall.CACHED_PLACES), then_checkpoint)
    assert list(store.ledger(1).payloads()) == texts


def test_a_ledger_that_is_deleted_meanwhile_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "READ_AHEAD", 700)
    site = Site()
    store = site.open()
    ledger = store.ledger(1)
    texts = fill(ledger, 200)
    site.checkpoint(store)
    during_a_read(store, ledger.delete, monkeypatch)
    found, error = until_error(ledger)
    assert found == texts[: len(found)]
    assert 0 < len(found) < 30
    assert error is NoSuchLedger


def test_copies_added_meanwhile_are_read_from_their_entry_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "READ_AHEAD", 700)
    site = Site()
    store = site.open()
    texts = fill(store.ledger(1), 200)
    site.checkpoint(store)

    def rewrite() -> None:
        store.add(Entry(1, 150, -1, 9, b"new"))
        site.checkpoint(store)
        store.add(Entry(1, 160, -1, 9, b"newer"))

    during_a_read(store, rewrite, monkeypatch)
    found = list(store.ledger(1).payloads())
    texts[150], texts[160] = b"new", b"newer"
    assert found == texts


# ── the memory it takes ──────────────────────────────────────────────────────────────────────────────────


def test_readers_of_two_ledgers_take_turns_and_do_not_disturb_each_other(
    in_logs: tuple[Site, Store, list[bytes]],
) -> None:
    site, store, texts = in_logs
    others = fill(store.ledger(3), len(texts))
    site.checkpoint(store)
    for _ in range(3):
        assert list(zip(store.ledger(1).payloads(), store.ledger(3).payloads(), strict=True)) == list(
            zip(texts, others, strict=True)
        )
        first = store.ledger(1).payloads()
        assert list(islice(first, 7)) == texts[:7]
        assert list(store.ledger(3).payloads()) == others
        assert list(first) == texts[7:]


def test_a_block_is_used_again_and_few_are_kept(in_logs: tuple[Site, Store, list[bytes]]) -> None:
    _, store, texts = in_logs
    spares = StoreInternals(store).spare_blocks
    assert list(store.ledger(1).payloads()) == texts
    assert len(spares) == 1
    kept = spares[0]
    half_read = [store.ledger(1).payloads() for _ in range(5)]
    assert [next(one) for one in half_read] == texts[:1] * 5
    assert spares == []
    del half_read
    assert len(spares) == 2
    assert any(one is kept for one in spares) or list(store.ledger(1).payloads()) == texts


def test_entries_in_tables_need_no_block() -> None:
    store = Site().open()
    fill(store.ledger(1), 50)
    list(store.ledger(1).payloads())
    list(store.ledger(1).entries(3, 3))
    assert StoreInternals(store).spare_blocks == []


@pytest.mark.sampled
def test_threads_read_while_entries_move(tmp_path: Path) -> None:
    with open_store(tmp_path / "data", QUIET) as store:
        counts = dict.fromkeys(range(4), 0)
        is_over = threading.Event()

        def write() -> None:
            for number in range(many(60, 15)):
                for ledger_id in counts:
                    store.ledger(ledger_id).append_many(
                        [text(number * 5 + index, ledger_id) for index in range(5)]
                    )
                    counts[ledger_id] = 5 * (number + 1)
                if number % 7 == 6:
                    store.checkpoint()
            is_over.set()

        def read(ledger_id: int) -> None:
            for _ in range(many(sys.maxsize, 8)):
                is_last, count = is_over.is_set(), counts[ledger_id]
                if count:
                    expected = [text(number, ledger_id) for number in range(count)]
                    assert list(store.ledger(ledger_id).payloads(0, count - 1)) == expected
                    entries = list(store.ledger(ledger_id).entries(count // 2, count - 1))
                    assert [one.payload for one in entries] == expected[count // 2 :]
                if is_last:
                    return

        with ThreadPoolExecutor(5) as pool:
            done = [pool.submit(write), *(pool.submit(read, ledger_id) for ledger_id in counts)]
            for one in done:
                one.result(120)
