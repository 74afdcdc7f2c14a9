"""Our client of ledgers, as a program that `client_speed.py` compares with the same program in Java.

A command is a line on stdin, and its answer a line on stdout:

    open NAME URI v2|v3                      a client for a cluster; answers with 0
    add NAME COUNT SIZE IN_FLIGHT E QW QA    a new ledger, and its close; answers with nanoseconds of the adds
    p99 NAME COUNT SIZE E QW QA              the same, one by one; answers with the 99th percentile of an add
    leave NAME COUNT SIZE E QW QA            unconfirmed entries without a writer; answers with the ledger
    recover NAME LEDGER                      takes a ledger over; answers with nanoseconds
    read NAME COUNT AT_ONCE                  the first entries of the last ledger; answers with nanoseconds
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from contextlib import AsyncExitStack
from time import perf_counter_ns
from typing import TYPE_CHECKING

from storage.cluster import connect_async
from storage.cluster.client.distribution import Quorums
from storage.cluster.wire.messages import Protocol

if TYPE_CHECKING:
    from storage.cluster.client.async_writer import AsyncLedgerWriter
    from storage.cluster.client.cluster import AsyncCluster

_PASSWORD = b"secret"


class SpeedClient:
    """The clusters that are open, and the last ledger that was written in each."""

    def __init__(self, opened: AsyncExitStack) -> None:
        self._opened = opened
        self._clusters: dict[str, AsyncCluster] = {}
        self._uris: dict[str, str] = {}
        self._last_ledgers: dict[str, int] = {}

    async def obey(self, words: list[str]) -> int:
        match words:
            case ["open", name, uri, protocol]:
                connecting = connect_async(uri, protocol=Protocol[protocol.upper()])
                self._clusters[name] = await self._opened.enter_async_context(connecting)
                self._uris[name] = uri
                return 0
            case ["add", name, count, size, in_flight, *quorums]:
                writer = await self._create(self._clusters[name], quorums)
                self._last_ledgers[name] = writer.id
                return await _add(writer, int(count), int(size), int(in_flight))
            case ["p99", name, count, size, *quorums]:
                return await _p99(await self._create(self._clusters[name], quorums), int(count), int(size))
            case ["leave", name, count, size, *quorums]:
                async with connect_async(self._uris[name]) as cluster:
                    writer = await self._create(cluster, quorums)
                    # They are sent in one pass of the loop, so that none brings news of another.
                    await writer.append_many([bytes(int(size))] * int(count))
                    return writer.id
            case ["recover", name, ledger_id]:
                started = perf_counter_ns()
                reader = await self._clusters[name].take_over(int(ledger_id), _PASSWORD)
                assert reader.last_entry >= 0
                return perf_counter_ns() - started
            case ["read", name, count, _]:
                started = perf_counter_ns()
                reader = await self._clusters[name].take_over(self._last_ledgers[name], _PASSWORD)
                length = 0
                async for payload in reader.payloads(0, int(count) - 1):
                    length += len(payload)
                assert length
                return perf_counter_ns() - started
            case _:
                raise AssertionError(words)

    async def _create(self, cluster: AsyncCluster, quorums: list[str]) -> AsyncLedgerWriter:
        return await cluster.create(Quorums(*map(int, quorums)), _PASSWORD)


async def _add(writer: AsyncLedgerWriter, count: int, size: int, in_flight: int) -> int:
    payload = b"x" * size
    under_way: deque[asyncio.Future[int]] = deque()
    started = perf_counter_ns()
    for _ in range(count):
        if len(under_way) == in_flight:
            await under_way.popleft()
        under_way.append(await writer.submit(payload))
    while under_way:
        await under_way.popleft()
    nanoseconds = perf_counter_ns() - started
    await writer.close()
    return nanoseconds


async def _p99(writer: AsyncLedgerWriter, count: int, size: int) -> int:
    payload, took = b"x" * size, []
    for _ in range(count):
        started = perf_counter_ns()
        await writer.append(payload)
        took.append(perf_counter_ns() - started)
    await writer.close()
    return sorted(took)[count * 99 // 100]


async def main() -> None:
    async with AsyncExitStack() as opened:
        client = SpeedClient(opened)
        # In a thread, because the sessions of the clients have to go on.
        while line := await asyncio.to_thread(sys.stdin.readline):
            print(await client.obey(line.split()), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
