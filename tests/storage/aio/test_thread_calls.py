"""Calls in threads, for the coroutines of one loop."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING

from async_stores import PATIENCE_S, run
from store_internals import answer_late

from storage.aio.thread_calls import ThreadCalls
from storage.runtime.worker import ThreadPool, begin_thread

if TYPE_CHECKING:
    from collections.abc import Callable


def new_calls(threads: ThreadPool | None = None) -> ThreadCalls:
    do = partial(begin_thread, "test") if threads is None else threads.do
    return ThreadCalls(asyncio.get_running_loop(), do)


class Held:
    """A call that does not come back before it may."""

    def __init__(self, answer: str = "answer") -> None:
        self.entered, self.may_return = threading.Event(), threading.Event()
        self.answer = answer

    def __call__(self) -> str:
        self.entered.set()
        assert self.may_return.wait(PATIENCE_S)
        return self.answer


class Discarded(threading.Event):
    """Gets an answer that no coroutine takes."""

    def __call__(self, answer: str) -> None:
        self.answer, self.thread = answer, threading.current_thread()
        self.set()


def test_a_call_is_made_in_a_thread_and_answers_on_the_loop() -> None:
    async def main() -> None:
        answer = new_calls().begin(threading.current_thread)
        assert answer is not None
        assert (await answer).name == "test"

    run(main())


def test_an_error_of_a_call_is_raised_and_not_kept_alive() -> None:
    class Wrong(Exception):
        """Can be referred to weakly."""

    def fail() -> None:
        raise Wrong

    def begun(calls: ThreadCalls, act: Callable[[], None]) -> asyncio.Future[None]:
        answer = calls.begin(act)
        assert answer is not None
        return answer

    async def main() -> weakref.ref[Wrong]:
        threads = ThreadPool("test", 1)
        calls, kept = new_calls(threads), None
        try:
            await begun(calls, fail)
        except Wrong as wrong:
            kept = weakref.ref(wrong)
        # The thread makes another call, so it has done with the first.
        await begun(calls, threads.stop)
        assert kept is not None, "nothing was raised"
        return kept

    gc.disable()
    try:
        assert run(main())() is None
    finally:
        gc.enable()


def test_one_that_is_cancelled_before_its_turn_is_not_made() -> None:
    async def main() -> None:
        threads, held, made = ThreadPool("test", 1), Held(), threading.Event()
        calls = new_calls(threads)
        first, second = calls.begin(held), calls.begin(made.set)
        assert first is not None
        assert second is not None
        second.cancel()
        held.may_return.set()
        await first
        last = calls.begin(lambda: "last")
        assert last is not None
        assert await last == "last"
        assert not made.is_set()
        threads.stop()

    run(main())


def test_an_answer_that_no_coroutine_takes_is_discarded_in_a_thread() -> None:
    async def main() -> None:
        held, discarded = Held(), Discarded()
        answer = new_calls().begin(held, discarded)
        assert answer is not None
        await asyncio.to_thread(held.entered.wait, PATIENCE_S)
        answer.cancel()
        held.may_return.set()
        # The loop does not go round any more: it may be about to close.
        assert discarded.wait(PATIENCE_S)
        assert discarded.answer == "answer"
        assert discarded.thread is not threading.main_thread()

    run(main())


def test_an_error_that_no_coroutine_takes_does_not_reach_the_loop_s_handler() -> None:
    async def main() -> None:
        told: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        held, threads = Held(), ThreadPool("test", 1)
        calls = new_calls(threads)

        def fail() -> None:
            held()
            raise OSError("too late")

        answer = calls.begin(fail)
        assert answer is not None
        await asyncio.to_thread(held.entered.wait, PATIENCE_S)
        answer.cancel()
        held.may_return.set()
        behind = calls.begin(threads.stop)
        assert behind is not None
        await behind
        assert told == []

    run(main())


def test_an_answer_on_its_way_when_its_caller_goes_is_discarded_in_a_thread() -> None:
    async def main() -> None:
        discarded, calls = Discarded(), new_calls()
        answer = asyncio.get_running_loop().create_future()
        answer.cancel()
        answer_late(calls, answer, "late", discarded)
        assert await asyncio.to_thread(discarded.wait, PATIENCE_S)
        assert discarded.answer == "late"
        assert discarded.thread is not threading.main_thread()

    run(main())


def test_an_answer_for_a_closed_loop_is_forsaken() -> None:
    held, discarded = Held(), Discarded()

    async def main() -> None:
        answer = new_calls().begin(held, discarded)
        assert answer is not None

    run(main())
    held.may_return.set()
    assert discarded.wait(PATIENCE_S)
    assert discarded.answer == "answer"


def test_after_a_stop_no_call_is_made() -> None:
    async def main() -> None:
        threads = ThreadPool("test", 1)
        threads.stop()
        assert new_calls(threads).begin(lambda: "never") is None

    run(main())
