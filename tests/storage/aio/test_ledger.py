"""The methods of a ledger, awaited: they return what the blocking ones return."""

from __future__ import annotations

import asyncio
import threading
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest
from async_stores import AwaitedSite, passes, run, until
from stepped_store import LEDGERS
from store_internals import AsyncEngine, EngineCall, confirm

from recovery import open_async_store
from storage import (
    DigestType,
    Entry,
    EntryTooLarge,
    EntryUnreadable,
    InvalidEntry,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
    StoreClosed,
    StoreConfig,
    Unauthorized,
)
from storage.aio.loop_context import CALLS_MAX
from storage.commit.pending import PendingEntries
from storage.entry import record_format
from storage.entry.record_format import CRC32C_OVERHEAD
from storage.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from storage.aio import AsyncLedger
    from storage.aio.follower import AsyncFollower
    from storage.commit.pending import PendingGroup

SMALL = StoreConfig(
    memtable_size_max=64 << 10,
    group_size_max=16 << 10,
    entry_size_max=8 << 10,
    journal_size=128 << 10,
    entry_log_size_max=256 << 10,
    journal_max_backups=0,
    checkpoint_interval_s=None,
)


def payload(number: int, size: int = 300) -> bytes:
    return b"%d." % number + bytes([number % 251]) * size


async def taken(entries: AsyncIterator[Entry], count: int) -> list[int]:
    """The ids of so many of them."""
    found: list[int] = []
    while len(found) < count:
        found.append((await anext(entries)).entry_id)
    return found


@pytest.fixture
def site() -> AwaitedSite:
    return AwaitedSite()


# ── the same words ───────────────────────────────────────────────────────────────────────────────────────


def test_every_question_is_answered_as_the_blocking_words_answer_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_async_store(tmp_path / "data", SMALL) as store:
            for number in range(300):
                await store.ledger(number % 3).append(payload(number))
            await store.checkpoint()
            await store.ledger(0).append_many([payload(number) for number in range(200)])
            confirm(store.blocking.ledger(1), 1_000_000)
            assert await store.ledger(2).fence() == 99
            assert await store.ledgers() == [0, 1, 2]
            for ledger_id in (0, 1, 2, 7):
                await same_answers(store.ledger(ledger_id), store.blocking.ledger(ledger_id))
            assert await store.ledger(1).last_add_confirmed() == 1_000_000
            assert [store.ledger(one).is_fenced for one in range(3)] == [False, False, True]

    async def same_answers(ledger: AsyncLedger, blocking: Ledger) -> None:
        assert await ledger.exists() == blocking.exists
        assert await ledger.last_entry_id() == blocking.last_entry_id
        assert await ledger.last_add_confirmed() == blocking.last_add_confirmed
        assert await ledger.entry_ids() == blocking.entry_ids()
        assert (ledger.explicit_lac, ledger.digest_type) == (blocking.explicit_lac, blocking.digest_type)
        assert (ledger.id, ledger.is_fenced) == (blocking.id, blocking.is_fenced)
        if blocking.exists:
            assert [one async for one in ledger.entries()] == list(blocking.entries())
            assert [one async for one in ledger.payloads(3, 70)] == list(blocking.payloads(3, 70))
            assert [await ledger.read(one) for one in range(100)] == [
                blocking.read(one) for one in range(100)
            ]

    run(main())


def test_a_missing_entry_and_a_missing_ledger_are_told_apart(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            with pytest.raises(NoSuchEntry):
                await store.ledger(1).read(1)
            with pytest.raises(NoSuchLedger):
                await store.ledger(2).read(0)
            with pytest.raises(NoSuchLedger):
                await anext(store.ledger(2).entries())
            with pytest.raises(InvalidEntry):
                await store.ledger(1).read(-1)
            assert await store.ledger(2).last_entry_id() is None
            assert not await store.ledger(2).exists()

    run(main())


def test_the_entries_before_a_missing_one_come_before_its_error(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            ledger = store.ledger(1)
            await ledger.append(b"one")
            found = ledger.payloads(0, 5)
            assert [await anext(found), await anext(found)] == [b"zero", b"one"]
            with pytest.raises(NoSuchEntry, match="no entry 2"):
                await anext(found)

    run(main())


def test_an_entry_that_has_rotted_is_unreadable_and_not_missing(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            site.checkpoint(store.blocking)
            name = next(iter(site.names(LEDGERS, ".log")))
            data = site.bytes_of(f"{LEDGERS}/{name}")
            site.flip(f"{LEDGERS}/{name}", data.index(b"zero"))
            with pytest.raises(EntryUnreadable):
                await store.ledger(1).read(0)
            assert await store.ledger(1).append(b"one") == 1

    run(main())


def test_a_ledger_with_a_password_is_read_and_written_with_that_password_only(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            ledger = store.ledger(7, DigestType.MAC, b"secret")
            assert await ledger.append(b"signed") == 0
            assert (await ledger.read(0)).payload == b"signed"
            with pytest.raises(Unauthorized):
                await store.ledger(7, DigestType.MAC, b"guessed").append(b"x")
            with pytest.raises(Unauthorized):
                await store.ledger(7, DigestType.MAC, b"guessed").read(0)

    run(main())


def test_after_a_fence_adds_are_refused_and_a_deleted_ledger_begins_anew(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            ledger = store.ledger(1)
            adds = [asyncio.create_task(ledger.append(b"x")) for _ in range(5)]
            await passes(2)  # they ask, and the loop puts them in
            last = await ledger.fence()
            assert last == max(await asyncio.gather(*adds))
            with pytest.raises(LedgerFenced):
                await ledger.append(b"late")
            await ledger.delete()
            assert not await ledger.exists()
            assert await ledger.append(b"again") == 0
            with pytest.raises(NoSuchLedger):
                await store.ledger(9).delete()

    run(main())


def test_the_largest_entry_has_the_size_of_the_limit(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_async_store(tmp_path / "data", SMALL) as store:
            ledger, largest = store.ledger(1), SMALL.entry_size_max - CRC32C_OVERHEAD
            assert await ledger.append(bytes(largest)) == 0
            for too_large in (bytes(largest + 1), bytearray(largest + 1)):
                with pytest.raises(EntryTooLarge):
                    await ledger.append(too_large)
            with pytest.raises(EntryTooLarge):
                await ledger.append_many([b"x", bytes(largest + 1)])
            assert await ledger.append(bytearray(b"the id was not used up")) == 1

    run(main())


@pytest.mark.parametrize(("count", "size"), [(5000, 1), (100, 30_000), (500, 10)])
def test_many_payloads_are_added_in_one_call(site: AwaitedSite, count: int, size: int) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            ledger = store.ledger(1)
            texts = [payload(number, size) for number in range(count)]
            assert await ledger.append_many(iter(texts)) == range(1, count + 1)
            assert [one async for one in ledger.payloads(1)] == texts

    run(main())


@pytest.mark.parametrize(("count", "size"), [(500, 10), (5000, 1), (100, 30_000)])
def test_a_call_with_very_many_payloads_is_framed_in_a_thread(
    site: AwaitedSite, monkeypatch: pytest.MonkeyPatch, count: int, size: int
) -> None:
    threads: list[threading.Thread] = []
    join = PendingEntries.join

    def noted(work: PendingEntries, group: PendingGroup) -> None:
        threads.append(threading.current_thread())
        join(work, group)

    async def main() -> None:
        async with site.awaited() as store:
            monkeypatch.setattr(PendingEntries, "join", noted)
            await store.ledger(1).append_many([bytes(size)] * count)
            monkeypatch.undo()
            assert {one is threading.main_thread() for one in threads} == {count == 500}

    run(main())


def test_the_encoder_of_many_entries_is_not_loaded_on_the_loop(
    site: AwaitedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    monkeypatch.setattr(record_format, "many_at_once", lambda: threads.append(threading.current_thread()))

    async def main() -> None:
        async with site.awaited() as store:
            many = [b"x"] * record_format.MANY
            assert await store.ledger(1).append_many(many) == range(1, len(many) + 1)
            assert threads[0] is not threading.main_thread()

    run(main())


def test_a_caller_s_buffer_may_change_while_its_entry_waits(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            buffer = bytearray(b"before")
            adds = [store.ledger(1).append(buffer), store.ledger(1).append_many([buffer])]
            tasks = [asyncio.create_task(add) for add in adds]
            await passes()
            buffer[:] = b"after!"
            await asyncio.gather(*tasks)
            assert [one async for one in store.ledger(1).payloads(1)] == [b"before"] * 2

    run(main())


def test_entries_in_memory_are_read_without_a_thread_and_the_others_in_one(
    site: AwaitedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []
    read = Ledger.read

    def noted(ledger: Ledger, entry_id: int) -> Entry:
        threads.append(threading.current_thread())
        return read(ledger, entry_id)

    async def main() -> None:
        async with site.awaited() as store:
            monkeypatch.setattr(Ledger, "read", noted)
            assert (await store.ledger(1).read(0)).payload == b"zero"
            site.checkpoint(store.blocking)
            assert (await store.ledger(1).read(0)).payload == b"zero"
            assert [thread is threading.main_thread() for thread in threads] == [True, False]

    run(main())


def test_a_ledger_that_was_asked_for_before_its_tail_was_known_finds_it_once(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            asked: list[int] = []
            find = AsyncEngine(store).call(EngineCall.FIND_END)

            def noted(ledger_id: int) -> object:
                asked.append(ledger_id)
                assert threading.current_thread() is not threading.main_thread()
                return find(ledger_id)

            setattr(*AsyncEngine(store).at(EngineCall.FIND_END), noted)
            ledger = store.ledger(5)
            adds = [asyncio.create_task(ledger.append(b"x")) for _ in range(10)]
            await passes()
            # The first of them is given up: the others do not wait for ever.
            adds[0].cancel()
            assert sorted(await asyncio.gather(*adds[1:])) == list(range(9))
            assert set(asked) == {5}
            assert len(asked) <= 2

    run(main())


def test_a_caller_that_comes_when_the_end_was_just_found_goes_after_those_that_waited_for_it(
    site: AwaitedSite,
) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            engine, ledger = AsyncEngine(store), store.ledger(5)
            adds = [asyncio.create_task(ledger.append(b"x")) for _ in range(5)]
            await passes()
            while not engine.knows_tail(5):
                assert not any(add.done() for add in adds), "the loop does not go round meanwhile"
            late = asyncio.create_task(store.ledger(5).append(b"late"))
            assert await asyncio.gather(*adds, late) == list(range(6))

    run(main())


# ── following ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_follower_gets_existing_entries_and_then_each_new_one(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            ledger = store.ledger(1)
            await ledger.append_many([b"x"] * 5000)
            async with aclosing(ledger.follow(1)) as following:
                assert await taken(following, 5000) == list(range(1, 5001))
                for number in range(5001, 5004):
                    coming = asyncio.create_task(taken(following, 1))
                    await passes(10)
                    assert not coming.done()
                    await ledger.append(b"new")
                    assert await coming == [number]

    run(main())


def test_a_follower_waits_at_a_gap_and_skips_no_entry(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            ledger = store.ledger(1)
            await store.add(Entry(1, 2, 0, 4, b"two"))
            async with aclosing(ledger.follow()) as following:
                assert await taken(following, 1) == [0]
                coming = asyncio.create_task(taken(following, 2))
                await store.add(Entry(1, 3, 0, 4, b"three"))
                await passes(20)
                assert not coming.done()
                # A checkpoint in between moves what is behind the gap, and the gap stays one.
                site.checkpoint(store.blocking)
                await passes(20)
                assert not coming.done()
                await store.add(Entry(1, 1, 0, 4, b"one"))
                assert await coming == [1, 2]
                assert await taken(following, 1) == [3]

    run(main())


def test_a_follower_whose_entry_was_written_down_before_the_loop_looked_gets_it(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store, aclosing(store.ledger(1).follow(1)) as following:
            coming = asyncio.create_task(taken(following, 1))
            await until(lambda: AsyncEngine(store).waiting_coroutines > 0)
            # All of it before the loop goes round.
            store.blocking.ledger(1).append(b"one")
            site.checkpoint(store.blocking)
            assert AsyncEngine(store).frozen_table is None
            assert await coming == [1]

    run(main())


def test_a_follower_ends_when_nothing_has_come_for_a_while_or_the_store_is_closed(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            ledger = store.ledger(1)
            assert [one.entry_id async for one in ledger.follow(idle_timeout_s=0.0)] == [0]
            following = ledger.follow()
            assert await taken(following, 1) == [0]

            async def rest() -> list[int]:
                return [one.entry_id async for one in following]

            coming = asyncio.create_task(rest())
            await passes(10)
            await store.close()
            assert await coming == []
            assert [one async for one in ledger.follow()] == []

    run(main())


def test_hundred_followers_take_no_thread_each(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            before = threading.active_count()
            following = [store.ledger(1).follow() for _ in range(100)]
            assert [await taken(one, 1) for one in following] == [[0]] * 100
            coming = [asyncio.create_task(taken(one, 3)) for one in following]
            await until(lambda: AsyncEngine(store).waiting_coroutines == 100)
            AsyncEngine(store).forbid_calls()  # new entries are in memory
            for text in (b"one", b"two", b"three"):
                await store.ledger(1).append(text)
            assert await asyncio.gather(*coming) == [[1, 2, 3]] * 100
            assert threading.active_count() <= before + CALLS_MAX
            await asyncio.gather(*(one.aclose() for one in following))
            assert AsyncEngine(store).waiting_coroutines == 0

    run(main())


def test_a_follower_that_is_cancelled_leaves_nothing_behind(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:

            async def follow(following: AsyncFollower) -> None:
                async for _ in following:
                    pass

            task = asyncio.create_task(follow(store.ledger(1).follow()))
            await until(lambda: AsyncEngine(store).waiting_coroutines > 0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert AsyncEngine(store).waiting_coroutines == 0
            assert AsyncEngine(store).registered == 0

    run(main())


# ── what is confirmed ────────────────────────────────────────────────────────────────────────────────────


def test_a_waiting_reader_gets_a_confirmation_when_it_comes(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            ledger = store.ledger(1)
            assert await ledger.wait_for_last_add_confirmed(-1) == 0
            assert await ledger.wait_for_last_add_confirmed(0, 0.0) == 0
            waiting = [
                asyncio.create_task(ledger.wait_for_last_add_confirmed(beyond)) for beyond in (0, 1, 9, 30)
            ]
            await passes(10)
            assert not any(task.done() for task in waiting)
            await ledger.append(b"one")
            assert await waiting[0] == 1
            # Entries behind a gap are not confirmed, until it is filled.
            await store.add(Entry(1, 3, 0, 9, b"three"))
            await passes(10)
            assert not waiting[1].done()
            await store.add(Entry(1, 2, 0, 9, b"two"))
            assert await waiting[1] == 3
            # An entry's writer may know of more.
            await store.add(Entry(1, 20, 10, 99, b"far"))
            assert await waiting[2] == 10
            await asyncio.to_thread(confirm, store.blocking.ledger(1), 40)
            assert await waiting[3] == 40

    run(main())


@pytest.mark.parametrize("end", ["fence", "failure"])
def test_a_reader_that_waits_for_a_confirmation_that_cannot_come_gets_an_answer(
    site: AwaitedSite, end: str
) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            ledger = store.ledger(1)
            waiting = asyncio.create_task(ledger.wait_for_last_add_confirmed(5))
            await until(lambda: AsyncEngine(store).waiting_coroutines > 0)
            if end == "fence":
                await ledger.fence()
            else:
                AsyncEngine(store).fail_background(OSError("gone"))
            assert await waiting == 0

    run(main())


def test_closed_it_answers_nothing(site: AwaitedSite) -> None:
    async def main() -> None:
        async with site.awaited() as store:
            ledger = store.ledger(1)
        words = [
            ledger.append(b"x"),
            ledger.append_many([b"x"]),
            ledger.append_many([b"x"] * 5000),
            ledger.read(0),
            ledger.entry_ids(),
            ledger.exists(),
            ledger.last_entry_id(),
            ledger.last_add_confirmed(),
            ledger.wait_for_last_add_confirmed(5),
            ledger.fence(),
            ledger.set_explicit_lac(1),
            ledger.delete(),
            anext(ledger.entries()),
            anext(ledger.payloads()),
        ]
        for word in words:
            with pytest.raises(StoreClosed):
                await word
        with pytest.raises(StoreClosed):
            _ = ledger.is_fenced

    run(main())
