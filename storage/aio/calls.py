"""Calls that may wait, made in threads of their own for the coroutines of one loop.

Not in the loop's executor: what else the program does there could keep a store waiting, a disk that is stuck
would keep it, and its threads, which are no daemons, would keep a program from ending.
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
    """Nobody minds what becomes of an answer."""


class Calls:
    """Makes calls in threads, and brings the answers to the loop."""

    def __init__(self, loop: AbstractEventLoop, do: Callable[[Callable[[], None]], bool]) -> None:
        """`do` makes a call in some thread, or answers that it will not."""
        self._loop = loop
        self._do = do

    def begin(self, act: Callable[[], T], forsake: Callable[[T], object] = _nothing) -> Future[T] | None:
        """What the call will answer; `None` if it will not be made.

        Cancelled before its turn, it is not made; later it is, and its answer `forsake`n, in a thread.
        """
        future: Future[T] = self._loop.create_future()
        return future if self._do(partial(self._make, act, future, forsake)) else None

    def _make(self, act: Callable[[], T], future: Future[T], forsake: Callable[[T], object]) -> None:
        if future.cancelled():
            return
        try:
            answer = act()
        except BaseException as error:
            self._tell(partial(_refuse, future, error))
            del future  # the error knows this frame, and would keep itself alive by it
            return
        if future.cancelled() or not self._tell(partial(self._answer, future, answer, forsake)):
            _in_vain(forsake, answer)

    def _tell(self, news: Callable[[], None]) -> bool:
        """Whether the loop will hear of it: a closed one does not."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(news)
            return True
        return False

    def _answer(self, future: Future[T], answer: T, forsake: Callable[[T], object]) -> None:
        if future.cancelled():
            self.forsake(answer, forsake)
        else:
            future.set_result(answer)

    def forsake(self, answer: T, forsake: Callable[[T], object]) -> None:
        """Does in a thread what is to be done with an answer that nobody takes."""
        self._do(partial(_in_vain, forsake, answer))


def _refuse(future: Future[T], error: BaseException) -> None:
    if not future.cancelled():
        future.set_exception(error)


def _in_vain(act: Callable[[T], object], answer: T) -> None:
    with suppress(Exception):  # nobody is left who could be told
        act(answer)
