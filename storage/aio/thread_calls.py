"""Calls that may block, made in threads for the coroutines of one loop.

The loop's own executor is not used, for three reasons: other calls of the program would keep a store waiting;
a disk that hangs would occupy the executor for the whole program; and its threads are no daemons, so that a
program could not end while one of them hangs.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Callable

T = TypeVar("T")


def _nothing(_: object) -> None:
    """Default for `discard`: does nothing with a result that no coroutine takes."""


class ThreadCalls:
    """Makes calls in threads, and delivers their results to the loop."""

    def __init__(self, loop: AbstractEventLoop, submit: Callable[[Callable[[], None]], bool]) -> None:
        """`submit` has a thread make a call; it returns False if it accepts no more calls."""
        self._loop = loop
        self._submit = submit

    def begin(self, act: Callable[[], T], discard: Callable[[T], object] = _nothing) -> Future[T] | None:
        """Return a future of the call's result; `None` if no thread will make the call.

        If the future is cancelled before a thread begins the call, the call is not made. If it is cancelled
        later, `discard` gets the result, in a thread.
        """
        future: Future[T] = self._loop.create_future()
        return future if self._submit(partial(self._run, act, future, discard)) else None

    def _run(self, act: Callable[[], T], future: Future[T], discard: Callable[[T], object]) -> None:
        if future.cancelled():
            return
        try:
            result = act()
        except BaseException as error:
            self._notify(partial(_set_error, future, error))
            del future  # the error refers to this frame, and through the future to itself
            return
        if future.cancelled() or not self._notify(partial(self._deliver, future, result, discard)):
            _discard_result(discard, result)

    def _notify(self, callback: Callable[[], None]) -> bool:
        """Have the loop make a call; return False if the loop is closed."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)
            return True
        return False

    def _deliver(self, future: Future[T], result: T, discard: Callable[[T], object]) -> None:
        if future.cancelled():
            self.discard(result, discard)
        else:
            future.set_result(result)

    def discard(self, result: T, discard: Callable[[T], object]) -> None:
        """Have a thread discard a result that no coroutine takes."""
        self._submit(partial(_discard_result, discard, result))


def _set_error(future: Future[T], error: BaseException) -> None:
    if not future.cancelled():
        future.set_exception(error)


def _discard_result(act: Callable[[T], object], result: T) -> None:
    with suppress(Exception):  # no caller is left that could handle it
        act(result)
