"""Every request is counted once, by its operation and its outcome."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from bookie_connection import KEY, RawBookieConnection, add_of, entry_bytes, running_bookie

from storage.cluster.bookie.traffic import RequestKind
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import (
    BatchRead,
    BookieInfo,
    ForceLedger,
    ListEntries,
    LongPoll,
    Protocol,
    ReadEntry,
    ReadLac,
)
from storage.entry.digest import master_key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from storage.aio.store import AsyncStore
    from storage.cluster.bookie.traffic import OperationCounts, Traffic

    Steps = Callable[[RawBookieConnection, AsyncStore], Awaitable[None]]

V2, V3 = Protocol.V2, Protocol.V3
both = pytest.mark.parametrize("protocol", [V2, V3])
SIZE = len(entry_bytes(7, 0, b"payload"))


def traffic_of(path: Path, steps: Steps) -> Traffic:
    """Run the steps with a bookie; return what it has counted."""

    async def run() -> Traffic:
        async with running_bookie(path) as (store, server, port):
            client = await RawBookieConnection.open(port)
            await steps(client, store)
            await client.close()
            return server.traffic

    return asyncio.run(run())


def counted(counts: OperationCounts) -> tuple[int, int, dict[Code, int]]:
    """The successes, the failures, and the codes of the failures."""
    return counts.done.count, counts.failed.count, counts.codes


def others_than(traffic: Traffic, operation: RequestKind) -> set[RequestKind]:
    """Return the other operations of which a request was counted."""
    found = {one for one, counts in traffic.operations.items() if counted(counts) != (0, 0, {})}
    return found - {operation}


@both
def test_adds_are_counted_with_their_bytes_and_their_time(tmp_path: Path, protocol: Protocol) -> None:
    async def steps(client: RawBookieConnection, __: AsyncStore) -> None:
        # The first one looks up its ledger; the others come in one pass of the loop or in several.
        for entry_id in range(100):
            client.send(add_of(7, entry_id, b"payload"), protocol)
        for _ in range(100):
            assert (await client.answer()).code is Code.OK

    traffic = traffic_of(tmp_path / "store", steps)
    assert counted(traffic.operations[RequestKind.ADD]) == (100, 0, {})
    assert traffic.operations[RequestKind.ADD].done.seconds > 0
    assert (traffic.bytes_added, traffic.bytes_read) == (100 * SIZE, 0)
    assert others_than(traffic, RequestKind.ADD) == set()


@both
def test_an_add_that_is_refused_is_counted_with_its_code(tmp_path: Path, protocol: Protocol) -> None:
    async def steps(client: RawBookieConnection, _: AsyncStore) -> None:
        assert (await client.ask(add_of(7, 0, b"payload"), protocol)).code is Code.OK
        stranger = add_of(7, 1, b"payload", key=master_key(b"another"))
        assert (await client.ask(stranger, protocol)).code is Code.UNAUTHORIZED
        await client.ask(ReadEntry(7, -1, KEY, fences=True), protocol)
        for entry_id in (1, 2):
            assert (await client.ask(add_of(7, entry_id, b"payload"), protocol)).code is Code.FENCED

    traffic = traffic_of(tmp_path / "store", steps)
    codes = {Code.UNAUTHORIZED: 1, Code.FENCED: 2}
    assert counted(traffic.operations[RequestKind.ADD]) == (1, 3, codes)
    assert counted(traffic.operations[RequestKind.FENCE]) == (1, 0, {})


@both
def test_reads_from_memory_and_from_the_disk_are_counted_with_their_bytes(
    tmp_path: Path, protocol: Protocol
) -> None:
    async def steps(client: RawBookieConnection, store: AsyncStore) -> None:
        for entry_id in range(10):
            await client.ask(add_of(7, entry_id, b"payload"), protocol)
        for _ in range(2):
            for entry_id in range(10):
                client.send(ReadEntry(7, entry_id), protocol)
            for _ in range(10):
                assert (await client.answer()).code is Code.OK
            await store.checkpoint()
        assert (await client.ask(ReadEntry(7, 99), protocol)).code is Code.NO_ENTRY
        assert (await client.ask(ReadEntry(8, 0), protocol)).code is Code.NO_LEDGER
        assert (await client.ask(ReadEntry(-1, 0), protocol)).code is Code.BAD_REQUEST

    traffic = traffic_of(tmp_path / "store", steps)
    codes = {Code.NO_ENTRY: 1, Code.NO_LEDGER: 1, Code.BAD_REQUEST: 1}
    assert counted(traffic.operations[RequestKind.READ]) == (20, 3, codes)
    assert traffic.operations[RequestKind.READ].done.seconds > 0
    assert traffic.bytes_read == 20 * SIZE
    assert others_than(traffic, RequestKind.READ) == {RequestKind.ADD}


def test_every_other_request_is_counted_as_its_operation(tmp_path: Path) -> None:
    async def steps(client: RawBookieConnection, _: AsyncStore) -> None:
        await client.ask(add_of(7, 0, b"payload"), V3)
        for request, protocol in (
            (BatchRead(7, 0, 1, 10, 1 << 20), V2),
            (LongPoll(7, -1, -1, 0, wants_entry=True), V3),
            (ReadLac(7), V3),
            (ForceLedger(7), V3),
            (ListEntries(7), V3),
            (BookieInfo(3), V3),
        ):
            assert (await client.ask(request, protocol)).code is Code.OK, request

    traffic = traffic_of(tmp_path / "store", steps)
    for operation in set(RequestKind) - {
        RequestKind.FENCE,
        RequestKind.WRITE_LAC,
        RequestKind.OTHER,
    }:
        assert counted(traffic.operations[operation]) == (1, 0, {}), operation
    assert traffic.bytes_read == SIZE
