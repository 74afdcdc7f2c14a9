"""Many ledgers deleted at once: one group of rows, one change of the index, one answer, and all or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from async_stores import run
from stepped_store import LEDGERS, Site, payloads
from store_internals import EngineCall, StoreInternals

from recovery import open_async_store
from recovery.crashlab import KeepAll, LoseAll, Refused, Verb, When
from storage.disk import filenames
from storage.errors import DiskFull, InvalidEntry, NoSuchLedger, Unauthorized

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from recovery.crashlab import SimulatedDisk
    from storage.store import Store

IDS = [3, 1, 2, 5]
OTHER = 9


def with_ledgers(site: Site) -> Store:
    """Open a store whose ledgers are partly in the index and partly in the table."""
    store = site.open()
    for ledger_id in (*IDS, OTHER):
        store.ledger(ledger_id).append(b"old")
        if ledger_id == 1:
            site.checkpoint(store)
    store.ledger(3).append(b"old")
    return store


DELETE: list[Callable[[Store, list[int]], None]] = [
    lambda store, ids: store.delete(ids),
    lambda store, ids: store.bookie.delete_all(ids),
]
deletes = pytest.mark.parametrize("delete", DELETE, ids=["store", "bookie"])


@deletes
def test_all_of_them_are_gone_for_readers_and_after_a_crash(
    delete: Callable[[Store, list[int]], None],
) -> None:
    site = Site()
    store = with_ledgers(site)
    delete(store, IDS)
    for _ in range(2):
        assert store.ledgers() == [OTHER]
        assert payloads(store, OTHER) == [b"old"]
        for ledger_id in IDS:
            with pytest.raises(NoSuchLedger):
                store.ledger(ledger_id).read(0)
        store = site.after_power_cut()
    store.ledger(1).append(b"new")
    assert payloads(site.after_power_cut(), 1) == [b"new"]


@deletes
def test_an_unknown_ledger_is_named_and_nothing_is_deleted(
    delete: Callable[[Store, list[int]], None],
) -> None:
    site = Site()
    store = with_ledgers(site)
    for ids, named in (([*IDS, 77, 66], 77), ([66, *IDS], 66)):
        with pytest.raises(NoSuchLedger) as refused:
            delete(store, ids)
        assert refused.value.ledger_id == named
    assert store.ledgers() == sorted([*IDS, OTHER])
    assert site.after_kill().ledgers() == sorted([*IDS, OTHER])


@deletes
def test_no_ledger_and_a_ledger_that_is_named_twice(delete: Callable[[Store, list[int]], None]) -> None:
    store = with_ledgers(Site())
    delete(store, [])
    delete(store, [1, 2, 1])
    assert store.ledgers() == [3, 5, OTHER]
    with pytest.raises(InvalidEntry):
        delete(store, [3, -1])
    assert store.ledgers() == [3, 5, OTHER]


def test_a_ledger_with_another_password_keeps_all_of_them() -> None:
    store = with_ledgers(Site())
    store.ledger(20, password=b"secret").append(b"x")
    with pytest.raises(Unauthorized):
        store.delete([1, 20, 2])
    assert store.ledgers() == sorted([*IDS, OTHER, 20])
    with pytest.raises(Unauthorized):
        store.delete([20, 1], b"secret")
    store.delete([20], b"secret")
    store.bookie.delete_all([1, 2])
    assert store.ledgers() == [3, 5, OTHER]


def test_they_share_one_group_of_rows_and_one_change_of_the_index() -> None:
    site = Site()
    store = with_ledgers(site)
    site.checkpoint(store)
    before = len(site.disk.trace)
    store.delete(IDS)
    rows = [
        operation
        for operation in site.disk.trace[before:]
        if operation.verb is Verb.WRITE and filenames.LEDGER_ROWS in operation.path
    ]
    assert len(rows) <= 2  # the tombstones, and the empty group that proves them durable
    generation = StoreInternals(store).index_state.generation
    site.checkpoint(store)
    assert StoreInternals(store).index_state.generation == generation + 1
    assert list(StoreInternals(store).index.ledgers()) == [OTHER]


def test_an_add_that_waits_for_its_commit_is_deleted_with_its_ledger() -> None:
    store = with_ledgers(Site())
    future = store.ledger(2).submit(b"before")
    store.delete([1, 2])
    assert future.result() == 1
    assert store.ledgers() == [3, 5, OTHER]
    assert store.ledger(2).append(b"new") == 0


def test_a_full_disk_keeps_all_of_them() -> None:
    site = Site()
    store = with_ledgers(site)
    site.disk.plant(Refused(When(verb=Verb.CREATE, name=f"{filenames.LEDGER_ROWS}*"), 28))
    with pytest.raises(DiskFull):
        store.delete(IDS)
    assert store.ledgers() == sorted([*IDS, OTHER])
    store.delete(IDS)
    assert site.after_power_cut().ledgers() == [OTHER]


def test_a_crash_at_any_operation_leaves_all_of_them_or_none() -> None:
    site = Site()
    store = with_ledgers(site)
    disks: list[SimulatedDisk] = []
    site.disk.watch(lambda _: disks.append(site.disk.copy()))
    store.delete(IDS)
    answered = len(disks)
    site.checkpoint(store)
    disks.append(site.disk.copy())
    seen = set()
    for number, disk in enumerate(disks):
        for fate in (LoseAll(), KeepAll()):
            after = disk.copy()
            after.power_cut(fate)
            found = tuple(Site(disk=after, first_salt=1000).open().ledgers())
            assert found in {(OTHER,), tuple(sorted([*IDS, OTHER]))}
            assert number < answered or found == (OTHER,)
            seen.add(found)
    assert len(seen) == 2


def test_a_lost_index_brings_none_of_them_back() -> None:
    site = Site()
    store = with_ledgers(site)
    store.delete(IDS)
    store.close()
    site.remove(f"{LEDGERS}/{filenames.INDEX}")
    assert site.open().ledgers() == [OTHER]


def test_the_cache_is_searched_once_for_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    store = with_ledgers(Site())
    calls: list[object] = []
    engine = StoreInternals(store)
    drop = engine.call(EngineCall.DROP_PLACES)

    def noted(ids: object) -> None:
        calls.append(ids)
        drop(ids)

    monkeypatch.setattr(*engine.at(EngineCall.DROP_PLACES), noted)
    store.delete(IDS)
    assert calls == [set(IDS)]


def test_coroutines_delete_many_ledgers(tmp_path: Path) -> None:
    async def main() -> None:
        async with await open_async_store(tmp_path) as store:
            for ledger_id in IDS:
                await store.ledger(ledger_id).append(b"x")
            with pytest.raises(NoSuchLedger):
                await store.delete([1, 77])
            await store.delete([1, 2])
            assert await store.ledgers() == [3, 5]

    run(main())
