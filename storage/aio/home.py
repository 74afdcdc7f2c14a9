"""What a store and its ledgers share on the loop that they belong to."""

from __future__ import annotations

from asyncio import Event, get_running_loop
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from storage.aio.calls import Calls
from storage.aio.news import News
from storage.aio.turns import Turns
from storage.codec import record as record_codec
from storage.errors import OtherLoop, StoreClosed
from storage.worker import Threads

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable

    from storage.store import Store
    from storage.tail import Tail
    from storage.worker import Hire

CALLS_MAX = 16
"""So many reads, fences and the like wait for the disk at once; adds do not count."""

T = TypeVar("T")


class Home:
    """One store on one loop."""

    def __init__(self, store: Store, hire: Hire) -> None:
        self.store = store
        self.parts = store._parts
        self.loop = get_running_loop()
        self.news = News(self.parts.committer.news, self.loop)
        self.turns = Turns(self.parts, self.news, self.loop, hire, store._fail)
        self._threads = Threads("ledgerstore-call", CALLS_MAX)
        self._calls = Calls(self.loop, self._threads.do)
        self._searches: dict[int, Event] = {}
        self._has_many = False

    def check(self) -> None:
        """Raises unless the store is open, and the caller runs on its loop."""
        self.parts.latch.check_reads()
        self.check_loop()

    def check_loop(self) -> None:
        if get_running_loop() is not self.loop:
            raise OtherLoop(self.parts.path)

    async def call(self, act: Callable[[], T]) -> T:
        """What the call answers, which is made in a thread."""
        self.check()
        # Not kept here: an error knows this frame, and the future the error.
        return await self._begun(act)

    def _begun(self, act: Callable[[], T]) -> Future[T]:
        answer = self._calls.begin(act)
        if answer is None:
            raise StoreClosed(self.parts.path)
        return answer

    def known_tail(self, ledger_id: int) -> Tail | None:
        """The end of the ledger, if it is known and nobody waits for it any more."""
        return None if ledger_id in self._searches else self.parts.tails.known(ledger_id)

    async def tail_of(self, ledger_id: int) -> Tail:
        """The end of the ledger. Who asks first is also answered first, though the disk has to be asked."""
        while (tail := self.known_tail(ledger_id)) is None:
            if ledger_id in self._searches:
                await self._searches[ledger_id].wait()
                continue
            found = self._searches[ledger_id] = Event()
            try:
                await self.call(partial(self.parts.tails.of, ledger_id))
            finally:
                del self._searches[ledger_id]
                found.set()
        return tail

    async def load_many(self) -> None:
        """Loads what encodes many entries at once, where the loop need not wait for it."""
        if not self._has_many:
            await self.call(record_codec.many_at_once)
            self._has_many = True

    def close(self) -> None:
        """Closes the store. In a thread: it waits for the disk."""
        try:
            # What it would still lead, the store does when it closes.
            self.turns.stop()
            self.store.close()
            if self.parts.latch.failure is not None:
                # After a failure it led no turn: who waits in one hears of it only now.
                self.parts.committer.turnstile.flush()
        finally:
            self._threads.stop()
