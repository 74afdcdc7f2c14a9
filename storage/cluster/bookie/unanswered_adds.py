"""The adds of one connection that are not answered yet, and the reads that wait for them.

A client that sends an add and then a read of the same entry finds it at a Java bookie, which shows entries
before they are durable. Here an entry can be read when it is durable. So a read that finds nothing waits for
the adds to its ledger that its connection has brought before, and is then done once more. A read that finds
its entry waits for nothing, and no read waits for the adds of other connections.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(slots=True)
class _DeferredCall:
    """A call that is made after a number of answers."""

    adds: int
    """The adds that are still to be answered before."""
    call: Callable[[], None]


class UnansweredAdds:
    """Counts unanswered adds by ledger. The adds to one ledger are answered in their order.

    Adds that have waited for room are an exception. A call may then come too early, which is as if the read
    had come before the add.
    """

    def __init__(self) -> None:
        self._count: dict[int, int] = {}
        self._waiting: dict[int, list[_DeferredCall]] = {}

    def note_arrived(self, ledger_id: int, count: int) -> None:
        self._count[ledger_id] = self._count.get(ledger_id, 0) + count

    def note_answered(self, ledger_id: int, count: int) -> None:
        """Count answers, and make the calls that have waited for no more than these."""
        if left := self._count[ledger_id] - count:
            self._count[ledger_id] = left
        else:
            del self._count[ledger_id]
        if ledger_id not in self._waiting:
            return
        waiting = self._waiting.pop(ledger_id)
        for one in waiting:
            one.adds -= count
        if later := [one for one in waiting if one.adds > 0]:
            self._waiting[ledger_id] = later
        for one in waiting:
            if one.adds <= 0:
                one.call()

    def call_after(self, ledger_id: int, call: Callable[[], None]) -> bool:
        """Have a call made when the adds to a ledger that have arrived by now are answered.

        Return False, and call nothing, if there are none.
        """
        adds = self._count.get(ledger_id, 0)
        if adds:
            self._waiting.setdefault(ledger_id, []).append(_DeferredCall(adds, call))
        return adds > 0

    def forget_calls(self) -> None:
        """Make none of the calls that wait, because the client is gone."""
        self._waiting.clear()
