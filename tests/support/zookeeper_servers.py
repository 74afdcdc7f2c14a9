"""Servers of ZooKeeper's protocol for tests: ours on a simulated disk, in this loop or in a thread."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from async_stores import LARGE_JOURNAL
from stepped_store import Site

from storage.aio import AsyncStore
from storage.cluster.zookeeper.server import Server, ServerConfig
from storage.runtime.worker import ThreadWorker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from storage.store import Store

ANY_PORT = ServerConfig(port=0)

LARGE_ENTRIES = replace(LARGE_JOURNAL, entry_size_max=5 << 20, group_size_max=4 << 20)
"""A store that takes the largest frame of a client as one entry."""


class SteadyTime:
    """A wall clock that goes on by a millisecond each time it is read."""

    def __init__(self) -> None:
        self._milliseconds = count(1_800_000_000_000)

    def __call__(self) -> float:
        return next(self._milliseconds) / 1000


class InlineMetadataStore:
    """An `AsyncStore` as far as the server needs it, without threads: the loop itself waits for the disk.

    A test may hold commits up, and see what each of them has.
    """

    def __init__(self, store: Store) -> None:
        self.blocking = store
        self.may_commit = asyncio.Event()
        """Commits wait until it is set."""
        self.may_commit.set()
        self.commits: list[int] = []
        """The number of entries in each commit."""

    def ledger(self, ledger_id: int) -> InlineMetadataLedger:
        return InlineMetadataLedger(self, ledger_id)

    async def ledgers(self) -> list[int]:
        return self.blocking.ledgers()


class InlineMetadataLedger:
    """A ledger whose awaited methods are done in the thread of the loop."""

    def __init__(self, store: InlineMetadataStore, ledger_id: int) -> None:
        self._store = store
        self._ledger = store.blocking.ledger(ledger_id)

    async def append(self, payload: bytes) -> int:
        return (await self.append_many([payload]))[0]

    async def append_many(self, payloads: Sequence[bytes]) -> range:
        # The loop goes round before and after, so that requests arrive while a commit is under way.
        await asyncio.sleep(0)
        await self._store.may_commit.wait()
        self._store.commits.append(len(payloads))
        ids = self._ledger.append_many(payloads)
        await asyncio.sleep(0)
        return ids

    async def delete(self) -> None:
        self._ledger.delete()


@asynccontextmanager
async def serving_inline(store: InlineMetadataStore) -> AsyncIterator[Server]:
    """Run a server on a store that the test has opened and closes."""
    server = Server(
        store,  # type: ignore[arg-type]
        ANY_PORT,
        SteadyTime(),
        lambda: bytes(range(16)),
    )
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def serving(config: ServerConfig = ANY_PORT, site: Site | None = None) -> AsyncIterator[Server]:
    """Run a server on this loop; stop it and close its store in the end."""
    site = Site(LARGE_ENTRIES) if site is None else site
    store = AsyncStore(site.open(), ThreadWorker)
    passwords = count(1)
    server = Server(store, config, SteadyTime(), lambda: next(passwords).to_bytes(16, "big"))
    try:
        await server.start()
        try:
            yield server
        finally:
            await server.stop()
    finally:
        await store.close()


@contextmanager
def serving_in_a_thread(config: ServerConfig = ANY_PORT, site: Site | None = None) -> Iterator[int]:
    """Run a server on a loop of its own, for clients that block; return its port."""
    ports: list[int] = []
    is_ready = threading.Event()
    loop = asyncio.new_event_loop()
    ended = asyncio.Event()

    async def main() -> None:
        async with serving(config, site) as server:
            ports.append(server.port)
            is_ready.set()
            await ended.wait()

    def run() -> None:
        try:
            loop.run_until_complete(main())
        finally:
            loop.close()
            is_ready.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert is_ready.wait(20)
    try:
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(20)
