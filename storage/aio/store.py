"""The store, as coroutines see it. `recovery.open_async_store` opens it."""

from __future__ import annotations

from asyncio import Event
from functools import partial
from typing import TYPE_CHECKING, Self

from storage.aio.calls import Calls
from storage.aio.home import Home
from storage.aio.ledger import AsyncLedger
from storage.errors import ForkedStore
from storage.request import access_of
from storage.store import checked_entry
from storage.worker import ThreadWorker, begin_thread

if TYPE_CHECKING:
    from asyncio import Future
    from types import TracebackType

    from storage.entry import DigestType, Entry
    from storage.report import OpenReport
    from storage.store import Store
    from storage.worker import Hire


class AsyncStore:
    """A directory of ledgers, open for the coroutines of one event loop.

    Only there can it be awaited: `OtherLoop`. Threads use `blocking` beside it; a fork must use neither.
    """

    def __init__(self, store: Store, hire: Hire = ThreadWorker) -> None:
        """The store on the loop that runs."""
        self.blocking = store
        """The same store for threads: its words wait where these are awaited."""
        self._home = Home(store, hire)
        self._closing: Future[None] | None = None
        self._closed = Event()

    @property
    def opened(self) -> OpenReport:
        """What opening found and did."""
        return self.blocking.opened

    @property
    def path(self) -> str:
        return self.blocking.path

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncStore {self.path}>"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a store belongs to the process that opened it, and cannot be pickled")

    def ledger(self, ledger_id: int, digest: DigestType | None = None, password: bytes = b"") -> AsyncLedger:
        """The ledger of that id; its first add creates it.

        With the first add its password is set, and how its entries are protected: by CRC-32C unless `digest`
        says otherwise. Adding with another password is `Unauthorized`; reading needs it only for a MAC.
        """
        self._home.check()
        return AsyncLedger(self.blocking.ledger(ledger_id, digest, password), self._home)

    async def ledgers(self) -> list[int]:
        """The ids of all ledgers that exist, ascending, be they without entries: see `AsyncLedger.exists`."""
        return await self._home.call(self.blocking.ledgers)

    async def add(self, entry: Entry, digest: DigestType | None = None, password: bytes = b"") -> None:
        """Adds an entry whose id, last add confirmed and length the caller has chosen: what a replica gets.

        Returns when a crash can no longer lose it. Ids may come in any order and leave gaps; of an id added
        twice the later entry counts.
        """
        self._home.check()
        checked, access = checked_entry(entry, digest, self._home.parts), access_of(password, digest)
        tail = await self._home.tail_of(entry.ledger_id)
        await self._home.turns.through(tail, access, lambda tail: tail.place(checked, access))

    async def checkpoint(self) -> None:
        """Returns when everything added before is in entry log and index, and the mark behind it.

        `DiskFull` when there is no space for that: it goes on by itself when there is, and nothing is lost.
        """
        await self._home.call(self.blocking.checkpoint)

    async def close(self) -> None:
        """Checkpoints everything and lets the directory go; after a failed write it only lets go.

        Adds under way are answered before. Who is cancelled meanwhile waits no longer; the closing goes on.
        """
        if self._home.parts.latch.gone is ForkedStore:
            return
        self._home.check_loop()
        if self._closing is None:
            # A thread of its own: calls that wait for the disk may have taken all the others.
            calls = Calls(self._home.loop, partial(begin_thread, "ledgerstore-close"))
            self._closing = calls.begin(self._home.close)
            assert self._closing is not None
            self._closing.add_done_callback(lambda _: self._closed.set())
        await self._closed.wait()
        if (error := self._closing.exception()) is not None:
            raise error
