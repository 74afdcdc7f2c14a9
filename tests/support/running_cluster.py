"""Bookies on the loopback interface and their metadata in memory, all on one event loop."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from bookie_connection import running_bookie
from example_cluster import INSTANCE_ID, ROOT, info
from memory_znodes import MemoryServer

from storage.cluster.bookie.access import AccessPolicy
from storage.cluster.bookie.first_add import EndedLedger, check_first_add
from storage.cluster.client.cluster import open_cluster
from storage.cluster.client.connections import CallLimits, ConnectionOptions
from storage.cluster.metadata.format import init_cluster
from storage.cluster.metadata.paths import LedgerPaths, LedgerTree
from storage.cluster.metadata.registration import BookieMode, register, unregister
from storage.cluster.tls import TlsContexts, client_context
from storage.cluster.wire.messages import Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from memory_znodes import MemoryZnodes

    from storage.aio.store import AsyncStore
    from storage.cluster.bookie.server import BookieServer
    from storage.cluster.client.cluster import AsyncCluster
    from storage.cluster.tls import ClientTls, TlsConfig
    from storage.cluster.wire.codes import Code
    from storage.entry.credentials import Purpose

_T = TypeVar("_T")

PATIENCE_S = 60.0


class RunningCluster:
    """Bookies b1, b2 and so on, and the session that has registered them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.server = MemoryServer()
        self.znodes: MemoryZnodes = self.server.session()
        self._running: dict[str, AsyncExitStack] = {}
        self.stores: dict[str, AsyncStore] = {}
        self.ports: dict[str, int] = {}

    async def start(
        self, name: str, policy: AccessPolicy | None = None, tls: TlsConfig | None = None
    ) -> None:
        """Start a bookie and register it."""
        contexts = None if tls is None else TlsContexts(tls)
        bookie = running_bookie(self._path / name, policy=policy or AccessPolicy(), tls=contexts)
        await self._enter(name, bookie)

    async def start_with_checks(self, name: str) -> None:
        """Start a bookie that checks the first add to each ledger against the metadata."""
        paths = LedgerPaths(ROOT, LedgerTree.HIERARCHICAL)

        async def check(ledger_id: int, purpose: Purpose) -> Code | EndedLedger:
            return await check_first_add(self.znodes, paths, ledger_id, name, purpose)

        await self._enter(name, running_bookie(self._path / name, check_first=check))

    async def _enter(
        self, name: str, bookie: AbstractAsyncContextManager[tuple[AsyncStore, BookieServer, int]]
    ) -> None:
        running = AsyncExitStack()
        store, _, port = await running.enter_async_context(bookie)
        self._running[name], self.stores[name], self.ports[name] = running, store, port
        await self.advertise(name, port)

    async def advertise(self, name: str, port: int) -> None:
        """Register a bookie at this port, whatever listens there."""
        await register(self.znodes, ROOT, name, info(port), BookieMode.WRITABLE, 1)

    async def stop(self, name: str) -> None:
        """Stop a bookie. It stays registered, as one that has crashed does for a while."""
        del self.stores[name]
        await self._running.pop(name).aclose()

    async def withdraw(self, name: str) -> None:
        await unregister(self.znodes, ROOT, name)

    async def stop_all(self) -> None:
        for name in list(self._running):
            await self.stop(name)

    @asynccontextmanager
    async def client(
        self,
        limits: CallLimits | None = None,
        protocol: Protocol = Protocol.V3,
        tls: ClientTls | None = None,
    ) -> AsyncIterator[AsyncCluster]:
        """Open a client with a session of its own."""
        context = None if tls is None else client_context(tls)
        options = ConnectionOptions(protocol, context, limits or CallLimits())
        async with self.client_of(self.server.session(), options) as cluster:
            yield cluster

    @asynccontextmanager
    async def client_of(
        self, session: MemoryZnodes, options: ConnectionOptions | None = None
    ) -> AsyncIterator[AsyncCluster]:
        """Open a client with this session."""
        async with open_cluster(session, ROOT, options=options) as cluster:
            yield cluster


def run_with_cluster(
    path: Path, bookies: int, steps: Callable[[RunningCluster], Coroutine[Any, Any, _T]]
) -> _T:
    """Run a test with so many bookies."""

    async def run() -> _T:
        cluster = RunningCluster(path)
        await init_cluster(cluster.znodes, ROOT, INSTANCE_ID)
        try:
            for number in range(1, bookies + 1):
                await cluster.start(f"b{number}")
            return await asyncio.wait_for(steps(cluster), PATIENCE_S)
        finally:
            await cluster.stop_all()

    return asyncio.run(run())
