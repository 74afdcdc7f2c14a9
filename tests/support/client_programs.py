"""Programs for the client of ZooKeeper, the same for our server and for a real ZooKeeper.

python tests/support/client_programs.py 20000        cut the connection so many times, at random bytes
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from fault_proxy import FaultProxy, fault_proxy
from zookeeper_servers import ANY_PORT, serving

from storage.cluster.errors import MetadataUnavailable
from storage.cluster.metadata.znodes import (
    ChildNames,
    Created,
    CreateMode,
    Deleted,
    Gone,
    Node,
    NodeStat,
    Unknown,
)
from storage.cluster.zookeeper.client import ClientConfig, ZookeeperClient, connect
from storage.cluster.zookeeper.sessions import TimeoutRange

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from storage.cluster.metadata.znodes import Znodes

REAL = os.environ.get("ZOOKEEPER_PORT")
"""The port of a real ZooKeeper that the programs use in place of our server."""

TIMEOUT_S = 20
SHORT_SESSION_S = 1.0
"""The shortest session that a real ZooKeeper with a tick of half a second grants."""


@asynccontextmanager
async def server_port() -> AsyncIterator[int]:
    if REAL is not None:
        yield int(REAL)
        return
    timeouts = TimeoutRange(100, 40_000)
    async with serving(replace(ANY_PORT, timeouts=timeouts)) as server:
        yield server.port


def config(port: int, **settings: Any) -> ClientConfig:
    return ClientConfig(
        (f"127.0.0.1:{port}",), **{"session_timeout_s": 4.0, "reconnect_delay_s": 0.002} | settings
    )


def with_client(test: Callable[[ZookeeperClient, int], Coroutine[Any, Any, None]]) -> None:
    """Run a test with one session, below a root that is empty."""

    async def main() -> None:
        async with nothing_unhandled(), server_port() as port, connect(config(port)) as client:
            await cleared(client)
            await asyncio.wait_for(test(client, port), TIMEOUT_S)

    asyncio.run(main())


@asynccontextmanager
async def nothing_unhandled() -> AsyncIterator[None]:
    """Fail if a callback of the loop raises, for example because a call was answered twice."""
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    yield
    assert problems == []


def with_proxy(
    test: Callable[[ZookeeperClient, FaultProxy, ZookeeperClient], Coroutine[Any, Any, None]],
    timeout_s: float = TIMEOUT_S,
    **settings: Any,
) -> None:
    """Run a test with one session through a proxy, and another one beside it."""
    asyncio.run(through_proxy(test, timeout_s, **settings))


async def through_proxy(
    test: Callable[[ZookeeperClient, FaultProxy, ZookeeperClient], Coroutine[Any, Any, None]],
    timeout_s: float | None,
    **settings: Any,
) -> None:
    async with (
        nothing_unhandled(),
        server_port() as port,
        fault_proxy(port) as proxy,
        connect(config(port)) as other,
        connect(config(proxy.port, **settings)) as client,
    ):
        await cleared(other)
        await asyncio.wait_for(test(client, proxy, other), timeout_s)


async def cleared(client: Znodes) -> None:
    """Delete what an earlier test has left on a real server."""
    await _delete(client, "/t")
    assert await client.create("/t") == Created("/t")


async def _delete(client: Znodes, path: str) -> None:
    children = await client.children(path)
    for name in () if isinstance(children, Gone) else children.names:
        await _delete(client, f"{path}/{name}")
    await client.delete(path)


async def node(client: Znodes, path: str) -> Node:
    found = await client.get(path)
    assert isinstance(found, Node)
    return found


# ── cuts at random bytes ──────────────────────────────────────────────────────────────────────────────────


async def play_cuts(
    client: ZookeeperClient, proxy: FaultProxy, other: ZookeeperClient, cuts: int, seed: int
) -> None:
    """Cut the connection at random bytes, and check after each cut what ZooKeeper promises."""
    dice = Random(seed)
    await client.create("/t/mine", b"", CreateMode.EPHEMERAL)
    await client.create("/t/counted", b"0")
    watch = client.watch("/t/counted")
    await watch.next()
    session_id = client.session_id
    for number in range(cuts):
        parent = f"/t/c{number}"
        await _until_done(other.create(parent))
        to_server, from_server = dice.randrange(600), dice.randrange(400)
        proxy.cut_after(*((to_server, None) if dice.random() < 0.5 else (None, from_server)))
        calls: list[Coroutine[Any, Any, object]] = [client.create(f"{parent}/{i}") for i in range(4)]
        calls += [client.get("/t/counted"), client.children(parent), client.exists("/t/mine")]
        calls.append(client.set("/t/counted", str(number + 1).encode()))
        calls.append(client.create(f"{parent}/e", b"", CreateMode.EPHEMERAL))
        calls.append(client.delete(f"{parent}/0"))
        # Each call ends: otherwise this waits until the test's time is over.
        answers = await asyncio.gather(*calls, return_exceptions=True)
        proxy.cut_now()
        await _check_answers(client, other, parent, answers)
        mine = await other.exists("/t/mine")
        assert isinstance(mine, NodeStat)
        assert mine.ephemeral_owner == session_id == client.session_id
        # The watch is there again, and shows the newest value.
        await other.set("/t/counted", b"-%d" % number)
        found = await watch.next()
        while not isinstance(found, Node) or found.data != b"-%d" % number:
            found = await watch.next()
        await _delete(other, parent)


async def _check_answers(
    client: ZookeeperClient, other: ZookeeperClient, parent: str, answers: list[Any]
) -> None:
    # A lost write may still arrive until the client has a new connection.
    while True:
        try:
            await client.sync(parent)
            break
        except MetadataUnavailable:
            await client.connected()
    await other.sync(parent)
    for number, answer in enumerate(answers[:4]):
        is_there = not isinstance(await other.exists(f"{parent}/{number}"), Gone)
        if isinstance(answer, Created):
            assert is_there or number == 0
        else:
            assert isinstance(answer, Unknown | MetadataUnavailable), answer
            assert not (isinstance(answer, MetadataUnavailable) and is_there)
    for answer in answers[4:7]:
        assert isinstance(answer, Node | ChildNames | NodeStat | MetadataUnavailable), answer
    owned = await other.exists(f"{parent}/e")
    assert isinstance(answers[8], Created | Unknown | MetadataUnavailable)
    if isinstance(answers[8], Created):
        assert isinstance(owned, NodeStat)
    if isinstance(owned, NodeStat):
        assert owned.ephemeral_owner == client.session_id
    if isinstance(answers[9], Deleted):
        assert isinstance(await other.exists(f"{parent}/0"), Gone)


async def _until_done(call: Coroutine[Any, Any, object]) -> None:
    assert isinstance(await call, Created)


async def _cut(count: int) -> None:
    # The client warns of each lost connection.
    logging.getLogger("ledgerstore").addHandler(logging.NullHandler())
    began = time.monotonic()

    async def program(client: ZookeeperClient, proxy: FaultProxy, other: ZookeeperClient) -> None:
        await play_cuts(client, proxy, other, count, seed=count)
        print(f"{proxy.cuts} cuts, every call ended once · {time.monotonic() - began:.0f} s")

    await through_proxy(program, timeout_s=None)


if __name__ == "__main__":
    asyncio.run(_cut(int(sys.argv[1])))
