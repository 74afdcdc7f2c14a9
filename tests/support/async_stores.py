"""Stores for coroutines: on a simulated disk whose syncs a test can hold up, or on real files."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from stepped_store import SMALL, Site
from store_internals import AsyncEngine

from recovery.crashlab import Verb
from storage.aio import AsyncStore
from storage.runtime.worker import ThreadWorker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from recovery.crashlab import Operation, SimulatedDisk
    from storage.config import StoreConfig
    from storage.runtime.worker import WorkerFactory

T = TypeVar("T")

PATIENCE_S = 20.0

LARGE_JOURNAL = replace(SMALL, journal_size=16 << 20, memtable_size_max=8 << 20)
"""Sizes so large that no other journal begins and no table fills while a test counts syncs."""


def run(main: Coroutine[object, object, T]) -> T:
    """Run the coroutine on a new event loop and return its result. A test that hangs fails."""

    async def in_time() -> T:
        async with asyncio.timeout(PATIENCE_S):
            return await main

    return asyncio.run(in_time())


def in_time(act: Callable[[], object]) -> bool:
    """Return whether the call returns in time. If not, its daemon thread keeps running."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    return not thread.is_alive()


async def passes(count: int = 1) -> None:
    """Let the loop make this many passes."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until another thread has made the condition true."""
    while not is_so():
        await asyncio.sleep(0)


class Journal:
    """Records in which thread each sync of a journal ran, and holds syncs up for a test."""

    def __init__(self, site: Site) -> None:
        self.syncs: list[str] = []
        """The name of the thread of each sync."""
        self.on_sync: Callable[[], None] = self._wait
        self._may_sync = threading.Event()
        self._may_sync.set()
        site.disk.watch(self._see)

    def hold(self) -> None:
        """Make the next syncs block until `let_go`."""
        self._may_sync.clear()

    def let_go(self) -> None:
        self._may_sync.set()

    def _wait(self) -> None:
        assert self._may_sync.wait(PATIENCE_S), "the disk was never let go"

    def _see(self, operation: Operation) -> None:
        # An open file keeps the name under which it was created.
        if operation.verb is Verb.SYNC and operation.path.endswith(".txn.draft"):
            self.syncs.append(threading.current_thread().name)
            self.on_sync()


class AwaitedSite(Site):
    """A simulated disk, and the stores for coroutines that are opened on it."""

    def __init__(self, config: StoreConfig = LARGE_JOURNAL, disk: SimulatedDisk | None = None) -> None:
        super().__init__(config, disk)

    @asynccontextmanager
    async def awaited(self, new_worker: WorkerFactory = ThreadWorker) -> AsyncIterator[AsyncStore]:
        """Open a store with one entry in ledger 1, so that its journal has a name and all later syncs are
        those of adds."""
        store = AsyncStore(self.open(), new_worker)
        store.blocking.ledger(1).append(b"zero")
        try:
            yield store
        finally:
            await store.close()

    def awaited_journal(self) -> Journal:
        return Journal(self)


def believe_slow(store: AsyncStore) -> None:
    """Make a thread lead the next turns, as if the disk had been slow."""
    AsyncEngine(store).believe_slow()
