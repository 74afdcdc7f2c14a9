"""Many coroutines that wait for the same news."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest
from awaited import passes, run

from storage.aio.news import News
from storage.turnstile import Signal


def new_news() -> tuple[Signal, News]:
    signal = Signal()
    return signal, News(signal, asyncio.get_running_loop())


def test_what_is_there_already_is_not_waited_for() -> None:
    async def main() -> None:
        _, news = new_news()
        assert await news.wait_for(lambda: True)

    run(main())


def test_each_hears_when_what_it_waits_for_is_there_and_not_before() -> None:
    async def main() -> None:
        signal, news = new_news()
        there: set[int] = set()
        waiting = [asyncio.create_task(news.wait_for(partial(there.__contains__, one))) for one in range(3)]
        await passes()
        for one in (1, 0, 2):
            there.add(one)
            signal.notify()
            await passes(2)
            assert {number for number, task in enumerate(waiting) if task.done()} == there
        assert await asyncio.gather(*waiting) == [True] * 3

    run(main())


def test_news_come_from_any_thread() -> None:
    async def main() -> None:
        signal, news = new_news()
        there = threading.Event()
        waiting = asyncio.create_task(news.wait_for(there.is_set))
        await passes()

        def change() -> None:
            there.set()
            signal.notify()

        threading.Thread(target=change).start()
        assert await waiting

    run(main())


def test_it_ends_when_the_time_is_up() -> None:
    async def main() -> None:
        _, news = new_news()
        assert not await news.wait_for(lambda: False, 0.0)
        assert not await news.wait_for(lambda: False, 0.001)

    run(main())


def test_hundred_changes_that_the_loop_has_not_seen_yet_are_looked_at_once() -> None:
    async def main() -> None:
        signal, news = new_news()
        looks = 0

        def look() -> bool:
            nonlocal looks
            looks += 1
            return False

        waiting = asyncio.create_task(news.wait_for(look))
        await passes()
        assert looks == 1
        for _ in range(100):
            signal.notify()
        await passes(3)
        assert looks == 2
        signal.notify()
        await passes(2)
        assert looks == 3
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run(main())


def test_while_nobody_waits_nobody_listens() -> None:
    async def main() -> None:
        signal, news = new_news()
        waiting = [asyncio.create_task(news.wait_for(lambda: False)) for _ in range(2)]
        await passes()
        assert len(signal._listeners) == 1
        waiting[0].cancel()
        await passes()
        assert len(signal._listeners) == 1
        waiting[1].cancel()
        await passes()
        assert not signal._listeners

    run(main())


def test_what_changes_when_the_loop_is_closed_is_heard_by_nobody() -> None:
    signal = Signal()
    loop = asyncio.new_event_loop()
    news = News(signal, loop)
    waiting = news.wait_for(lambda: False)
    waiting.send(None)
    loop.close()
    signal.notify()
    waiting.close()
    assert signal._listeners == ()
