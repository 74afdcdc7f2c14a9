"""The payloads that coroutines add to one ledger in one pass of the loop, and the end of their commit."""

from __future__ import annotations

from asyncio import Event
from typing import TYPE_CHECKING

from storage.commit.pending import PendingEntries
from storage.entry.format import HEAD
from storage.entry.model import DigestType
from storage.entry.record_format import MANY

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.entry.credentials import Access
    from storage.ledgers.state import LedgerState

COUNT_MAX = MANY - 1
"""The most payloads in a batch. With more of them numpy would be loaded, and the loop would wait for it."""

FRONT_SIZE_MAX = 4 + HEAD.size + max(digest_type.width for digest_type in DigestType)
"""The most bytes before a payload in its record."""


class LoopGroup:
    """The work that coroutines have put into one commit in one pass of the loop."""

    __slots__ = ("_done", "_end", "error", "is_handed_over", "is_led_here", "is_over")

    def __init__(self, done: Callable[[], None] | None = None) -> None:
        """`done` is called once, on the loop, when the commit is over."""
        # field                                    written by                       read by
        self.error: BaseException | None = None  # leader, before `is_over`         the loop
        self.is_over = False  #                    leader, in any thread            the loop
        self.is_handed_over = False  #             the loop                         the loop
        self.is_led_here = False  #                the loop                         leader, after `is_over`
        """Whether the loop commits it now, and looks at `is_over` afterwards."""
        self._end: Event | None = None  #          the loop                         leader: whether it is set
        self._done = done  #                       the loop                         leader: whether it is set

    async def wait(self) -> None:
        """Return when the commit is over."""
        # Made before `is_over` is read, so that a thread that ends it afterwards finds the event.
        self._end = self._end or Event()
        if not self.is_over:
            await self._end.wait()

    @property
    def is_awaited(self) -> bool:
        """Whether a coroutine or a callback waits for the end."""
        return self._end is not None or self._done is not None

    def release(self) -> None:
        """Wake all coroutines that wait, and make the callback. For the thread of the loop."""
        done, self._done = self._done, None
        if done is not None:
            done()
        if self._end is not None:
            self._end.set()


class PayloadBatch(PendingEntries):
    """Payloads for one ledger that join a commit as one piece of work."""

    payloads: list[bytes]

    def __init__(
        self, state: LedgerState, access: Access, payload: bytes, loop_group: LoopGroup, room: int
    ) -> None:
        """`room` is the size of the largest payload that can still be added to the batch.

        A batch is no larger than a portion of a group. Otherwise only a part of it could survive a crash or a
        full disk, and each caller must know the outcome of its own entry.
        """
        super().__init__(state, access, [payload])
        self.loop_group = loop_group
        self.room = room

    def take(self, payload: bytes) -> int:
        """Add the payload, and return its index in the batch."""
        payloads = self.payloads
        at = len(payloads)
        payloads.append(payload)
        self.room = self.room - len(payload) - FRONT_SIZE_MAX if at < COUNT_MAX - 1 else -1
        return at
