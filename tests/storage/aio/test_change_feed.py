"""Many coroutines of one loop that wait for changes of ledgers."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest
from async_stores import passes, run

from storage.aio.change_feed import ChangeFeed
from storage.ledgers.waiters import LedgerWaiters


def new_news() -> tuple[LedgerWaiters, ChangeFeed]:
    waiters = LedgerWaiters()
    return waiters, ChangeFeed(waiters, asyncio.get_running_loop())


def registered(waiters: LedgerWaiters, ledger_id: int) -> int:
    return len(waiters.waiting.get(ledger_id, ()))


def test_a_condition_that_holds_already_is_not_waited_for() -> None:
    async def main() -> None:
        waiters, news = new_news()
        assert await news.wait_for(7, lambda: True)
        assert waiters.waiting == {}

    run(main())


def test_each_hears_when_what_it_waits_for_is_there_and_not_before() -> None:
    async def main() -> None:
        waiters, news = new_news()
        there: set[int] = set()
        waiting = [
            asyncio.create_task(news.wait_for(7, partial(there.__contains__, one))) for one in range(3)
        ]
        await passes()
        for one in (1, 0, 2):
            there.add(one)
            waiters.wake(7)
            await passes(2)
            assert {number for number, task in enumerate(waiting) if task.done()} == there
        assert await asyncio.gather(*waiting) == [True] * 3

    run(main())


def test_a_change_of_one_ledger_makes_no_coroutine_of_another_look() -> None:
    async def main() -> None:
        waiters, news = new_news()
        looks: dict[int, int] = dict.fromkeys(range(100), 0)

        def look(ledger_id: int) -> bool:
            looks[ledger_id] += 1
            return looks[ledger_id] == 2

        waiting = [asyncio.create_task(news.wait_for(one, partial(look, one))) for one in looks]
        await passes()
        assert set(looks.values()) == {1}
        waiters.wake(42)
        await passes(3)
        assert {one for one, count in looks.items() if count == 2} == {42}
        assert [one for one, task in enumerate(waiting) if task.done()] == [42]
        waiters.wake_all()
        assert await asyncio.gather(*waiting) == [True] * 100

    run(main())


def test_news_come_from_any_thread() -> None:
    async def main() -> None:
        waiters, news = new_news()
        there = threading.Event()
        waiting = asyncio.create_task(news.wait_for(7, there.is_set))
        await passes()

        def change() -> None:
            there.set()
            waiters.wake(7)

        threading.Thread(target=change).start()
        assert await waiting

    run(main())


def test_a_change_during_a_check_is_checked_again() -> None:
    async def main() -> None:
        waiters, news = new_news()
        looks = 0

        def look() -> bool:
            nonlocal looks
            looks += 1
            if looks == 2:
                waiters.wake(7)  # as another thread would
            return looks == 3

        waiting = asyncio.create_task(news.wait_for(7, look))
        await passes()
        waiters.wake(7)
        assert await waiting
        assert looks == 3

    run(main())


def test_it_ends_when_the_time_is_up() -> None:
    async def main() -> None:
        _, news = new_news()
        assert not await news.wait_for(7, lambda: False, 0.0)
        assert not await news.wait_for(7, lambda: False, 0.001)

    run(main())


def test_hundred_changes_that_the_loop_has_not_seen_yet_are_looked_at_once() -> None:
    async def main() -> None:
        waiters, news = new_news()
        looks = 0

        def look() -> bool:
            nonlocal looks
            looks += 1
            return False

        waiting = asyncio.create_task(news.wait_for(7, look))
        await passes()
        assert looks == 1
        for _ in range(100):
            waiters.wake(7)
        await passes(3)
        assert looks == 2
        waiters.wake(7)
        await passes(2)
        assert looks == 3
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run(main())


def test_the_loop_is_registered_once_for_each_ledger_that_is_waited_for() -> None:
    async def main() -> None:
        waiters, news = new_news()
        waiting = [asyncio.create_task(news.wait_for(one, lambda: False)) for one in (7, 7, 8)]
        await passes()
        assert (registered(waiters, 7), registered(waiters, 8)) == (1, 1)
        for task, left in zip(waiting, [(1, 1), (0, 1), (0, 0)], strict=True):
            task.cancel()
            await passes()
            assert (registered(waiters, 7), registered(waiters, 8)) == left
        assert waiters.waiting == {}

    run(main())


def test_a_change_after_the_loop_was_closed_reaches_no_coroutine() -> None:
    waiters = LedgerWaiters()
    loop = asyncio.new_event_loop()
    news = ChangeFeed(waiters, loop)
    waiting = news.wait_for(7, lambda: False)
    waiting.send(None)
    loop.close()
    waiters.wake(7)
    waiting.close()
    assert waiters.waiting == {}
