"""Waiting for a change of one ledger, so that its waiters cost the writers of other ledgers nothing.

A waiter registers, then checks, then blocks. A writer makes its change visible, then looks whether anything
is registered for that ledger, then wakes it:

    waiter    1. register for the ledger       writer    1. make the change visible
              2. check: is it there?                     2. is anything registered for the ledger?
              3. block until woken, back to 2            3. wake it

No wake-up is lost, because each side writes before it reads what the other side writes. If the writer finds
nothing registered, the waiter registers after the change, so its check sees the change. If the writer finds
the waiter, it wakes it; a waiter that does not block yet keeps the wake-up and does not block at all.

The check runs in the thread that waits, without any lock, because it may read the index and the disk. The
writer takes no lock: looking up a dict and copying its keys are one step each for all threads. The only lock
here is for registering; no writer needs it.
"""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Wake = Callable[[], None]
    """Called in the thread that has made the change: must neither wait nor raise."""

ROOM = -1
"""Used in place of a ledger id: there may be room in the tables again. No ledger has a negative id."""

CHECKPOINT = -2
"""Used in place of a ledger id: a checkpoint has ended."""

COLLECTION = -3
"""Used in place of a ledger id: a collection has made progress or has ended."""


class Waiter:
    """One thread that waits, to be woken by any other. A wake-up that comes before it blocks is kept."""

    __slots__ = ("_asleep",)

    def __init__(self) -> None:
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def wake(self) -> None:
        try:
            self._asleep.release()
        except RuntimeError:
            return  # woken already

    def block(self, timeout_s: float | None) -> None:
        """Return when it is woken, or after that time."""
        self._asleep.acquire(timeout=-1 if timeout_s is None else timeout_s)


class LedgerWaiters:
    """All waiters of one store, by ledger. Any thread may call."""

    def __init__(self) -> None:
        self.waiting: dict[int, dict[Wake, None]] = {}
        """Empty while nothing waits: a writer looks at that first. Written under the lock, read without."""
        self.is_stopped = False
        """Whether no reader may wait for a change of a ledger any more. Set once, without a lock."""
        self._lock = threading.Lock()

    # ── waiters' side ────────────────────────────────────────────────────────────────────────────────

    def wait_for(
        self,
        ledger_id: int,
        is_there: Callable[[], bool],
        timeout_s: float | None = None,
        waiter: Waiter | None = None,
    ) -> bool:
        """Wait until `is_there()`, and return whether it became true in time.

        It is called now and after each change of the ledger, without a lock.
        """
        waiter = waiter or Waiter()
        give_up_at = None if timeout_s is None else monotonic() + timeout_s
        try:
            self.register(ledger_id, waiter.wake)
            while not is_there():
                left_s = None if give_up_at is None else give_up_at - monotonic()
                if left_s is not None and left_s <= 0:
                    return False
                waiter.block(left_s)
            return True
        finally:
            self.forget(ledger_id, waiter.wake)

    def register(self, ledger_id: int, wake: Wake) -> None:
        """Have `wake` called after each change of the ledger. Register before the first check."""
        with self._lock:
            self.waiting.setdefault(ledger_id, {})[wake] = None

    def forget(self, ledger_id: int, wake: Wake) -> None:
        """Have `wake` called no more; a writer that has found it already may still call it once."""
        with self._lock:
            wakes = self.waiting.get(ledger_id, {})
            wakes.pop(wake, None)
            if not wakes:
                self.waiting.pop(ledger_id, None)

    # ── writers' side ────────────────────────────────────────────────────────────────────────────────

    def wake(self, ledger_id: int) -> None:
        """Wake the ledger's waiters. Call it after each change of the ledger, unless `waiting` is empty."""
        for wake in list(self.waiting.get(ledger_id, ())):
            wake()

    def wake_all(self) -> None:
        """Wake all waiters, because the store was closed, has failed, or is no longer followed."""
        for ledger_id in list(self.waiting):
            self.wake(ledger_id)

    def stop(self) -> None:
        """End all waits for changes of ledgers, also later ones. May be called in a signal handler."""
        self.is_stopped = True
        self.wake_all()
