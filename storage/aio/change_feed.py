"""Waiting for changes of a ledger, for the coroutines of one event loop: uses `storage.ledgers.waiters`.

The loop registers once for each ledger that any of its coroutines waits for, and no coroutine needs a thread.
A writer that changes such a ledger notes its id and wakes the loop; the loop then makes the checks of only
those coroutines that wait for this ledger.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future
    from collections.abc import Callable

    from storage.ledgers.waiters import LedgerWaiters

    Waiting = dict[Future[bool], Callable[[], bool]]


class ChangeFeed:
    """Wakes coroutines of one loop when their ledger has changed. For the thread of the loop."""

    def __init__(self, waiters: LedgerWaiters, loop: AbstractEventLoop) -> None:
        self._waiters = waiters
        self._loop = loop
        self._waiting: dict[int, Waiting] = {}
        self._wakes: dict[int, Callable[[], None]] = {}
        self._changed: dict[int, None] = {}
        """Ledgers that have changed since the loop last checked them. Any thread adds to it, and the loop
        removes from it, without a lock, because each of these steps is atomic."""
        self._is_scheduled = False
        """Whether the loop is about to check; further changes until then need no second check."""

    async def wait_for(
        self,
        ledger_id: int,
        is_there: Callable[[], bool],
        timeout_s: float | None = None,
        came: Future[bool] | None = None,
    ) -> bool:
        """Wait until `is_there()`. Return whether it became true in time, or the result of `came` if that is
        set from outside before.

        `is_there` is called on the loop, now and after each change of the ledger: it must not wait for the
        disk.
        """
        came = self._loop.create_future() if came is None else came
        timer = None if timeout_s is None else self._loop.call_later(timeout_s, give_up, came)
        try:
            # Registered before the first check, so that no change after that check is missed.
            self._register(ledger_id, came, is_there)
            return is_there() or await came
        finally:
            self._forget(ledger_id, came)
            if timer is not None:
                timer.cancel()

    def _register(self, ledger_id: int, came: Future[bool], is_there: Callable[[], bool]) -> None:
        if ledger_id not in self._waiting:
            self._waiting[ledger_id], self._wakes[ledger_id] = {}, partial(self._note, ledger_id)
            self._waiters.register(ledger_id, self._wakes[ledger_id])
        self._waiting[ledger_id][came] = is_there

    def _forget(self, ledger_id: int, came: Future[bool]) -> None:
        waiting = self._waiting.get(ledger_id, {})
        waiting.pop(came, None)
        if not waiting and self._waiting.pop(ledger_id, None) is not None:
            self._waiters.forget(ledger_id, self._wakes.pop(ledger_id))

    def _note(self, ledger_id: int) -> None:
        """Note the change and have the loop check it. Called in the thread that has changed the ledger."""
        self._changed[ledger_id] = None
        if not self._is_scheduled:
            self._is_scheduled = True
            with suppress(RuntimeError):  # the loop is closed, so that nothing waits there any more
                self._loop.call_soon_threadsafe(self._check_changed)

    def _check_changed(self) -> None:
        # First the flag, then each ledger's note, then its checks, so that a later change is noted again.
        self._is_scheduled = False
        for ledger_id in list(self._changed):
            del self._changed[ledger_id]
            for came, is_there in self._waiting.get(ledger_id, {}).items():
                if not came.done() and is_there():
                    came.set_result(True)


def give_up(came: Future[bool]) -> None:
    """End the wait with the result False."""
    if not came.done():
        came.set_result(False)
