"""A cluster whose servers and connections are disturbed, and clients of both kinds that use it."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from bookies import DIRECTORY, ledgerstore, wait_until_registered
from disturbances import Disturber, Target, advertised, pause_process
from fault_proxy import fault_proxy
from ledger_clients import JavaClients, our_client
from recorded_client import RecordedClient
from zookeeper_processes import KillableServer, free_port, our_server_again

from storage.cluster.zookeeper.client import ClientConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from pathlib import Path

    from bookies import Bookie
    from history import History

CALL_TIMEOUT_S = 2
"""The time-out of a call to a bookie: shorter than a disturbance may be."""
_PROTOCOLS = ("v2", "v3")


class DisturbedCluster:
    """A running cluster of our metadata server and any bookies, and its clients."""

    def __init__(self, uri: str, direct_uri: str, disturber: Disturber, history: History) -> None:
        self.uri = uri
        """For clients: all connections go through proxies."""
        self.direct_uri = direct_uri
        self.disturber = disturber
        self.history = history
        self.ours: RecordedClient
        self.java: RecordedClient
        self._our_stack = AsyncExitStack()
        self._java: JavaClients | None = None
        self._made = 0
        self._renewing = asyncio.Lock()

    async def use_new_client_of_ours(self) -> None:
        """Close our client, in the middle of its calls, and use another one."""
        before, self._our_stack = self._our_stack, AsyncExitStack()
        name, protocol = self._new_name("ours")
        client = await self._our_stack.enter_async_context(
            our_client(name, self.uri, protocol, CALL_TIMEOUT_S)
        )
        self.ours = RecordedClient(client, self.history)
        await before.aclose()

    async def renew(self, client: RecordedClient) -> None:
        """Use another client of ours in place of this one, whose session has expired."""
        async with self._renewing:
            if client is self.ours:
                await self.use_new_client_of_ours()

    async def use_new_java_client(self) -> None:
        """Kill the process of the Java client, and use another one."""
        before = self._java
        name, protocol = self._new_name("java")
        self._java = JavaClients(DIRECTORY / name.replace(" ", "-"), self.uri, protocol, CALL_TIMEOUT_S)
        self.java = RecordedClient(await self._java.client(name), self.history)
        if before is not None:
            await before.stop()

    async def pause_java_client(self) -> None:
        assert self._java is not None
        await pause_process(self._java.pid, 0.5 + 2 * self.disturber.dice.random())

    def _new_name(self, kind: str) -> tuple[str, str]:
        self._made += 1
        protocol = _PROTOCOLS[self._made // 2 % 2]
        return f"{kind} {self._made} {protocol}", protocol

    async def stop_clients(self) -> None:
        await self._our_stack.aclose()
        if self._java is not None:
            await self._java.stop()


@contextmanager
def _metadata(port: int) -> Iterator[int]:
    with our_server_again(DIRECTORY / "metadata", port) as server:
        yield server.pid


@asynccontextmanager
async def disturbed_cluster(
    bookies: Sequence[tuple[Bookie, Path]], history: History, seed: int
) -> AsyncIterator[DisturbedCluster]:
    """Run a cluster with these bookies on these directories, whose parents are there."""
    with ExitStack() as held:
        metadata_port = free_port()
        (DIRECTORY / "metadata").mkdir()
        metadata = KillableServer(partial(_metadata, metadata_port), held)
        direct_uri = f"zk://127.0.0.1:{metadata_port}/ledgers"
        subprocess.run(ledgerstore("cluster", "init", direct_uri), check=True, capture_output=True)
        ports = [free_port() for _ in bookies]
        servers = [
            KillableServer(partial(run, direct_uri, directory, port), held)
            for (run, directory), port in zip(bookies, ports, strict=True)
        ]
        await asyncio.to_thread(wait_until_registered, direct_uri, len(bookies))
        async with AsyncExitStack() as stack:
            proxies = [
                await stack.enter_async_context(fault_proxy(port, seed)) for port in (*ports, metadata_port)
            ]
            targets = [
                Target(f"127.0.0.1:{port}", server, proxy)
                for port, server, proxy in zip(
                    (*ports, metadata_port), (*servers, metadata), proxies, strict=True
                )
            ]
            config = ClientConfig((f"127.0.0.1:{metadata_port}",))
            addresses = {one.name: one.proxy.port for one in targets[:-1]}
            await stack.enter_async_context(advertised(config, "/ledgers", addresses))
            disturber = Disturber(Random(seed), targets[:-1], targets[-1])
            uri = f"zk://127.0.0.1:{proxies[-1].port}/ledgers"
            cluster = DisturbedCluster(uri, direct_uri, disturber, history)
            try:
                yield cluster
            finally:
                await cluster.stop_clients()


def empty_directory() -> None:
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    DIRECTORY.mkdir(parents=True)
