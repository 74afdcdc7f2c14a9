"""What many coroutines wait for, without a thread for each: the same news as `storage.turnstile.Signal`'s."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Callable

    from storage.turnstile import Signal


class News:
    """Brings the changes that a signal tells of to one loop. Costs nothing while nobody waits there."""

    def __init__(self, signal: Signal, loop: AbstractEventLoop) -> None:
        self._signal = signal
        self._loop = loop
        self._waiting: dict[Future[bool], Callable[[], bool]] = {}
        self._is_told = False
        """Whether the loop is about to look: a hundred turns in between are no reason to look twice."""

    async def wait_for(self, is_there: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Whether it came to be so in time. It is asked on the loop, after each change: it must not wait."""
        came: Future[bool] = self._loop.create_future()
        # Heard before it looks: what changes after that is seen later.
        self._await(came, is_there)
        timer = None if timeout_s is None else self._loop.call_later(timeout_s, _give_up, came)
        try:
            return is_there() or await came
        finally:
            self._forget(came)
            if timer is not None:
                timer.cancel()

    def _await(self, came: Future[bool], is_there: Callable[[], bool]) -> None:
        if not self._waiting:
            self._signal.listen(self._hear)
        self._waiting[came] = is_there

    def _forget(self, came: Future[bool]) -> None:
        del self._waiting[came]
        if not self._waiting:
            self._signal.ignore(self._hear)

    def _hear(self) -> None:
        """In the thread of whoever has changed something."""
        if not self._is_told:
            self._is_told = True
            with suppress(RuntimeError):  # the loop is closed, and nobody waits there any more
                self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        # Before it looks: what changes from here on is heard again.
        self._is_told = False
        for came, is_there in self._waiting.items():
            if not came.done() and is_there():
                came.set_result(True)


def _give_up(came: Future[bool]) -> None:
    if not came.done():
        came.set_result(False)
