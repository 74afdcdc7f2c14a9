"""Stores that are awaited: on a simulated disk whose journal can be held up, or on real files."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from stepped import SMALL, Site

from recovery.crashlab import Verb
from storage.aio import AsyncStore
from storage.worker import ThreadWorker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from recovery.crashlab import Operation, SimulatedDisk
    from storage.config import StoreConfig
    from storage.worker import Hire

T = TypeVar("T")

PATIENCE_S = 20.0

LARGE_JOURNAL = replace(SMALL, journal_size=16 << 20, memtable_size_max=8 << 20)
"""No other journal is begun while a test counts syncs, and no table is full."""


def run(main: Coroutine[object, object, T]) -> T:
    """What it answers, on a loop of its own; a test that hangs fails."""

    async def in_time() -> T:
        async with asyncio.timeout(PATIENCE_S):
            return await main

    return asyncio.run(in_time())


def in_time(act: Callable[[], object]) -> bool:
    """Whether it comes back; if not, a daemon is left behind."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    return not thread.is_alive()


async def passes(count: int = 1) -> None:
    """Lets the loop go round so often."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(is_so: Callable[[], bool]) -> None:
    """Returns when it has come to be so, which another thread sees to."""
    while not is_so():
        await asyncio.sleep(0)


class Journal:
    """The syncs of a disk's journals: in which threads they were, and held up when a test says so."""

    def __init__(self, site: Site) -> None:
        self.syncs: list[str] = []
        """The thread of each."""
        self.on_sync: Callable[[], None] = self._wait
        self._may_sync = threading.Event()
        self._may_sync.set()
        site.disk.watch(self._see)

    def hold(self) -> None:
        """From here on a sync does not end."""
        self._may_sync.clear()

    def let_go(self) -> None:
        self._may_sync.set()

    def _wait(self) -> None:
        assert self._may_sync.wait(PATIENCE_S), "the disk was never let go"

    def _see(self, operation: Operation) -> None:
        # A handle is called by the name it was created under.
        if operation.verb is Verb.SYNC and operation.path.endswith(".txn.draft"):
            self.syncs.append(threading.current_thread().name)
            self.on_sync()


class AwaitedSite(Site):
    """A simulated disk, and the stores on it."""

    def __init__(self, config: StoreConfig = LARGE_JOURNAL, disk: SimulatedDisk | None = None) -> None:
        super().__init__(config, disk)

    @asynccontextmanager
    async def awaited(self, hire: Hire = ThreadWorker) -> AsyncIterator[AsyncStore]:
        """A store with one entry in ledger 1: its journal has a name, and syncs are those of adds."""
        store = AsyncStore(self.open(), hire)
        store.blocking.ledger(1).append(b"zero")
        try:
            yield store
        finally:
            await store.close()

    def awaited_journal(self) -> Journal:
        return Journal(self)


def believe_slow(store: AsyncStore) -> None:
    """Has a thread lead the next turns, as if the disk had been slow."""
    store._home.turns._pace.led_on_loop(1.0)
    assert not store._home.turns._pace.is_quick
