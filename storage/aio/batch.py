"""What coroutines want to add to one ledger, and when they are answered."""

from __future__ import annotations

from asyncio import Event
from typing import TYPE_CHECKING

from storage.codec.entry import HEAD
from storage.codec.record import MANY
from storage.entry import DigestType

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.access import Access
    from storage.tail import Run, Tail

COUNT_MAX = MANY - 1
"""So many payloads make one run. With more of them numpy would be loaded, and the loop wait for it."""

FRONT_SIZE_MAX = 4 + HEAD.size + max(digest_type.width for digest_type in DigestType)
"""What stands in front of a payload in its record, at most."""


class Group:
    """What coroutines have put into one turn in one pass of the loop."""

    __slots__ = ("_end", "error", "is_handed_over", "is_over")

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.is_over = False
        """May be set by another thread at any time; `error` before it."""
        self.is_handed_over = False
        self._end: Event | None = None

    async def wait(self) -> None:
        """Returns when it is over."""
        # Awaited before it looks: whoever ends it afterwards lets it go.
        self._end = self._end or Event()
        if not self.is_over:
            await self._end.wait()

    @property
    def is_awaited(self) -> bool:
        return self._end is not None

    def release(self) -> None:
        """Lets everybody go who waits. On the loop."""
        if self._end is not None:
            self._end.set()


class Batch:
    """What goes to one ledger as one run."""

    __slots__ = ("_make", "access", "error", "group", "payloads", "room", "run", "tail")

    def __init__(
        self,
        tail: Tail,
        access: Access,
        group: Group,
        payloads: list[bytes],
        room: int,
        make: Callable[[Tail], Run] | None = None,
    ) -> None:
        self.tail = tail
        self.access = access
        self.group = group
        """With whom it goes."""
        self.payloads = payloads
        self.room = room
        """The largest payload that can still come along. A run of more than a group takes could be kept in
        part, and each caller has to know of its own entry."""
        self.run: Run | None = None
        self.error: Exception | None = None
        self._make = make

    def take(self, payload: bytes) -> int:
        """Puts it in; the place where it is."""
        payloads = self.payloads
        at = len(payloads)
        payloads.append(payload)
        self.room = self.room - len(payload) - FRONT_SIZE_MAX if at < COUNT_MAX - 1 else -1
        return at

    def make(self, tail: Tail) -> Run:
        make = self._make
        run = self.run = tail.append(self.payloads, self.access) if make is None else make(tail)
        return run
