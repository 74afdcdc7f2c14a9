"""When there is no room, or a ledger is being deleted: adds wait, and the loop goes on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from async_stores import AwaitedSite, passes, run, until
from stepped_store import SMALL
from store_internals import ADMIT, AsyncEngine

from storage import Entry, NoSuchEntry, Overloaded, StoreClosed, StoreFailed

if TYPE_CHECKING:
    from storage.aio import AsyncStore

BLOCK = bytes(50_000)
PATIENT = replace(SMALL, throttle_timeout_s=60.0)


async def waiting_for_room(store: AsyncStore, adds: list[asyncio.Task[int]]) -> list[asyncio.Task[int]]:
    """Those that are, when all others are done."""
    engine = AsyncEngine(store)
    await until(lambda: engine.waiting_coroutines == sum(not add.done() for add in adds))
    return [add for add in adds if not add.done()]


def test_with_both_tables_full_an_add_waits_for_a_checkpoint_and_the_loop_goes_on() -> None:
    site = AwaitedSite(PATIENT)

    async def main() -> None:
        async with site.awaited() as store:
            ledger = store.ledger(1)
            adds = [asyncio.create_task(ledger.append(BLOCK)) for _ in range(40)]
            waiting = await waiting_for_room(store, adds)
            # One that is cancelled has put nothing in, and keeps nobody from getting room.
            waiting.pop(0).cancel()
            while not all(add.done() for add in waiting):
                site.checkpoint(store.blocking)
                await passes(3)
                await waiting_for_room(store, waiting)
            ids = [await add for add in waiting]
            assert ids == sorted(ids)
            assert await ledger.entry_ids() == [range(40)]
            assert AsyncEngine(store).waiting_coroutines == 0

    run(main())


def test_without_room_in_time_it_is_overloaded() -> None:
    site = AwaitedSite(replace(SMALL, throttle_timeout_s=0.0))

    async def main() -> None:
        async with site.awaited() as store:
            ledger = store.ledger(1)
            adds = [asyncio.create_task(ledger.append(BLOCK)) for _ in range(20)]
            done = await asyncio.gather(*adds, return_exceptions=True)
            taken = [one for one in done if isinstance(one, int)]
            assert taken == [*range(1, len(taken) + 1)]
            assert {type(one) for one in done[len(taken) :]} == {Overloaded}
            site.checkpoint(store.blocking)
            assert await ledger.append(BLOCK) == len(taken) + 1

    run(main())


@pytest.mark.parametrize("awaited", [False, True])
def test_an_add_whose_room_others_take_each_time_is_overloaded_in_time(
    monkeypatch: pytest.MonkeyPatch, *, awaited: bool
) -> None:
    site = AwaitedSite(replace(SMALL, throttle_timeout_s=0.02))
    entry = Entry(1, 1, 0, 7, b"one")

    async def main() -> None:
        async with site.awaited() as store:
            # There is room whenever it looks, and none any more when it comes in.
            monkeypatch.setattr(*ADMIT, lambda *_: False)
            with pytest.raises(Overloaded):
                await (store.add(entry) if awaited else asyncio.to_thread(store.blocking.add, entry))
            monkeypatch.undo()
            await store.add(entry)

    run(main())


@pytest.mark.parametrize("end", ["failure", "close"])
def test_an_add_that_waits_for_room_gets_the_error_of_a_store_that_has_ended(end: str) -> None:
    site = AwaitedSite(PATIENT)

    async def main() -> None:
        async with site.awaited() as store:
            adds = [asyncio.create_task(store.ledger(1).append(BLOCK)) for _ in range(40)]
            waiting = await waiting_for_room(store, adds)
            if end == "failure":
                AsyncEngine(store).fail_background(OSError("a worker has died"))
            else:
                await store.close()
            told = await asyncio.gather(*waiting, return_exceptions=True)
            assert {type(one) for one in told} == {StoreFailed if end == "failure" else StoreClosed}

    run(main())


def test_an_add_to_a_ledger_that_is_being_deleted_waits_and_makes_a_new_one() -> None:
    site = AwaitedSite()

    async def main() -> None:
        async with site.awaited() as store:
            ledger, engine = store.ledger(1), AsyncEngine(store)
            await ledger.append(b"one")
            taken = engine.begin_turn()
            assert taken is not None
            deleting = asyncio.create_task(ledger.delete())
            await until(lambda: bool(engine.open_group.deletes))
            adds = [asyncio.create_task(ledger.append(b"again")) for _ in range(3)]
            beside = asyncio.create_task(store.ledger(2).append(b"beside"))
            await passes(20)
            assert not any(task.done() for task in [deleting, *adds, beside])
            engine.end_turn(taken)
            assert await asyncio.gather(deleting, beside, *adds) == [None, 0, 0, 1, 2]
            with pytest.raises(NoSuchEntry):
                await ledger.read(3)

    run(main())
