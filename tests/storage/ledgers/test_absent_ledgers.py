"""Look-ups of ledgers that do not exist take no memory, and all users of a ledger share its state."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from bookie_clients import AddingClient
from stepped_store import Site
from store_internals import EngineCall, StoreInternals

from recovery import open_async_store, open_store
from recovery.view.open_view import open_view
from storage import DiskFull, NoSuchLedger, StoreConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from storage.bookie import Bookie
    from storage.ledger import Ledger

QUIET = StoreConfig(checkpoint_interval_s=None, idle_seal_s=None)
FIRST = 10
"""The first id of a ledger that does not exist."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with open_store(tmp_path / "data", QUIET) as store:
        store.ledger(1).append(b"x")
    return tmp_path / "data"


def ask_ledger(ledger: Ledger) -> None:
    for ask in (lambda: ledger.read(0), lambda: list(ledger.entries()), lambda: list(ledger.payloads())):
        with suppress(NoSuchLedger):
            ask()
    assert ledger.last_entry_id is None
    assert ledger.last_add_confirmed == -1
    assert not ledger.exists
    assert ledger.entry_ids() == []
    assert not ledger.is_fenced
    assert list(ledger.follow(idle_timeout_s=0)) == []
    assert ledger.wait_for_last_add_confirmed(5, 0) == -1


def ask_bookie(bookie: Bookie, ledger_id: int) -> None:
    for ask in (
        lambda: bookie.read(ledger_id, 0),
        lambda: bookie.read_last(ledger_id),
        lambda: bookie.last_add_confirmed(ledger_id),
        lambda: bookie.entry_ids(ledger_id),
        lambda: bookie.is_fenced(ledger_id),
        lambda: bookie.explicit_lac(ledger_id),
        lambda: bookie.delete(ledger_id),
    ):
        with pytest.raises(NoSuchLedger):
            ask()
    assert not bookie.has(ledger_id, 0)
    bookie.force(ledger_id)


def growth(ask: Callable[[int], None], count: int) -> int:
    """Return the bytes of memory that stay occupied after so many absent ledgers were asked for."""
    for ledger_id in range(FIRST, FIRST + 20):
        ask(ledger_id)  # so that objects that are created once exist already
    gc.collect()
    tracemalloc.start()
    try:
        for ledger_id in range(FIRST + 20, FIRST + 20 + count):
            ask(ledger_id)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def grown_by_ledgers(path: Path, count: int) -> int:
    with open_store(path, QUIET) as store:
        return growth(lambda ledger_id: ask_ledger(store.ledger(ledger_id)), count)


def grown_by_a_bookie(path: Path, count: int) -> int:
    with open_store(path, QUIET) as store:
        return growth(lambda ledger_id: ask_bookie(store.bookie, ledger_id), count)


def grown_by_coroutines(path: Path, count: int) -> int:
    async def asked() -> int:
        async with await open_async_store(path, QUIET) as store:

            async def ask(ledger_id: int) -> None:
                ledger = store.ledger(ledger_id)
                with suppress(NoSuchLedger):
                    await ledger.read(0)
                with suppress(NoSuchLedger):
                    _ = [one async for one in ledger.entries()]
                assert await ledger.last_entry_id() is None
                assert await ledger.last_add_confirmed() == -1
                assert not await ledger.exists()
                assert [one async for one in ledger.follow(idle_timeout_s=0)] == []
                assert await ledger.wait_for_last_add_confirmed(5, 0) == -1

            for ledger_id in range(FIRST, FIRST + 20):
                await ask(ledger_id)
            gc.collect()
            tracemalloc.start()
            try:
                for ledger_id in range(FIRST + 20, FIRST + 20 + count):
                    await ask(ledger_id)
                gc.collect()
                return tracemalloc.get_traced_memory()[0]
            finally:
                tracemalloc.stop()

    return asyncio.run(asked())


def grown_by_a_view(path: Path, count: int) -> int:
    with open_view(path) as view:

        def ask(ledger_id: int) -> None:
            assert not view.exists(ledger_id)
            assert view.data(ledger_id, 0) is None
            assert view.end(ledger_id) is None
            assert view.count(ledger_id) == 0
            assert list(view.ids(ledger_id)) == []

        return growth(ask, count)


WAYS = [grown_by_ledgers, grown_by_a_bookie, grown_by_coroutines, grown_by_a_view]


@pytest.mark.slow
@pytest.mark.parametrize("grown", WAYS)
def test_ledgers_that_do_not_exist_cost_no_memory(grown: Callable[[Path, int], int], path: Path) -> None:
    assert grown(path, 100) < 16 << 10


@pytest.mark.slow
@pytest.mark.parametrize("grown", WAYS)
def test_twenty_thousand_ledgers_that_do_not_exist_cost_less_than_256_kib(
    grown: Callable[[Path, int], int], path: Path
) -> None:
    assert grown(path, 20_000) < 256 << 10


# ── one state for all users of a ledger ──────────────────────────────────────────────────────────────────


def test_only_the_rows_of_deleted_ledgers_are_kept_in_memory() -> None:
    store = Site().open()
    for ledger_id in range(FIRST, FIRST + 50):
        store.ledger(ledger_id).append(b"x")
        store.ledger(ledger_id).delete()
    assert StoreInternals(store).tails_in_memory <= 1  # the last group still refers to the last one


def test_all_handles_of_a_ledger_see_an_added_entry() -> None:
    store = Site().open()
    one, other = store.ledger(7), store.ledger(7)
    assert (one.last_add_confirmed, other.last_add_confirmed) == (-1, -1)
    assert one.append(b"x") == 0
    assert other.append(b"y") == 1
    assert one.append(b"z") == 2
    assert (one.last_entry_id, other.last_entry_id, store.ledger(7).last_entry_id) == (2, 2, 2)


def test_a_deleted_and_recreated_ledger_has_one_end_for_old_and_new_handles() -> None:
    store = Site().open()
    old = store.ledger(7)
    old.append_many([b"x"] * 5)
    old.delete()
    new = store.ledger(7)
    assert new.append(b"y") == 0
    assert old.append(b"z") == 1
    assert new.append(b"z") == 2
    assert (old.last_entry_id, new.last_entry_id) == (2, 2)


def test_an_end_found_before_a_delete_is_not_used_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site = Site()
    site.open().ledger(7).append_many([b"x"] * 5)
    store = site.after_kill()
    find = StoreInternals(store).call(EngineCall.FIND_END)

    def then_delete(ledger_id: int) -> object:
        monkeypatch.undo()
        found = find(ledger_id)
        store.ledger(7).delete()
        return found

    monkeypatch.setattr(*StoreInternals(store).at(EngineCall.FIND_END), then_delete)
    assert store.ledger(7).append(b"y") == 0


def test_the_next_force_reports_a_loss_although_the_ledger_has_no_entry() -> None:
    site = Site()
    store = site.open()
    client = AddingClient(7)
    site.disk.limit(0)
    store.bookie.defer(client.entry(0), client.key)
    site.workers.elapse()
    assert StoreInternals(store).tails_in_memory == 1
    site.disk.limit(None)
    with pytest.raises(DiskFull):
        store.bookie.force(7)
    store.bookie.force(7)
