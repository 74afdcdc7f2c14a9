"""The faults of the proxy, before a server that sends back all that it gets."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from fault_proxy import HOLD, NO_FAULTS, SILENCE, FaultProxy, ProxyFaults, fault_proxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from typing import Any

_TIMEOUT_S = 30


class Echo:
    """A server that sends back what it gets."""

    def __init__(self) -> None:
        self.received = b""
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                self.received += data
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()


class Peer:
    """A connection through the proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def round_trip(self, data: bytes) -> bytes:
        self.writer.write(data)
        return await self.reader.readexactly(len(data))


@asynccontextmanager
async def _peer(port: int) -> AsyncIterator[Peer]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Peer(reader, writer)
    finally:
        writer.transport.abort()


def _play(steps: Callable[[Echo, FaultProxy, Peer], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        echo = Echo()
        server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
        echo.port = server.sockets[0].getsockname()[1]
        async with fault_proxy(echo.port) as proxy, _peer(proxy.port) as peer:
            assert await peer.round_trip(b"before") == b"before"
            await steps(echo, proxy, peer)
        server.close()

    asyncio.run(asyncio.wait_for(run(), _TIMEOUT_S))


@pytest.mark.parametrize(("faults", "heard"), [(SILENCE, b"beforeheld"), (HOLD, b"before")])
def test_held_bytes_arrive_when_the_fault_ends_and_not_before(faults: ProxyFaults, heard: bytes) -> None:
    async def steps(echo: Echo, proxy: FaultProxy, peer: Peer) -> None:
        proxy.use(faults)
        answer = asyncio.create_task(peer.round_trip(b"held"))
        # Many bytes go round beside it, so that its own would have had the time to.
        async with fault_proxy(echo.port) as other, _peer(other.port) as beside:
            count = len(echo.received)
            for _ in range(20):
                await beside.round_trip(b"beside")
        assert not answer.done()
        assert echo.received.replace(b"beside", b"") == heard, count
        proxy.use(NO_FAULTS)
        assert await answer == b"held"

    _play(steps)


def test_a_latency_delays_each_direction_and_keeps_the_order() -> None:
    async def steps(_: Echo, proxy: FaultProxy, peer: Peer) -> None:
        loop, began = asyncio.get_running_loop(), asyncio.get_running_loop().time()
        proxy.use(ProxyFaults(latency_s=0.03, jitter_s=0.02))
        data = bytes(range(256)) * 100
        assert await peer.round_trip(data) == data
        assert loop.time() - began >= 0.06

    _play(steps)


def test_a_throttled_connection_takes_the_time_of_its_bytes() -> None:
    async def steps(_: Echo, proxy: FaultProxy, peer: Peer) -> None:
        loop, began = asyncio.get_running_loop(), asyncio.get_running_loop().time()
        proxy.use(ProxyFaults(bytes_per_s=1_000_000))
        assert len(await peer.round_trip(bytes(50_000))) == 50_000
        assert loop.time() - began >= 0.05

    _play(steps)


def test_a_connection_is_cut_after_exactly_so_many_bytes() -> None:
    async def steps(echo: Echo, proxy: FaultProxy, peer: Peer) -> None:
        proxy.cut_after(None, 3)
        peer.writer.write(b"frame")
        assert await peer.reader.read() == b"fra"
        assert (echo.received, proxy.cuts) == (b"beforeframe", 1)

    _play(steps)


def test_a_reset_is_an_error_of_both_peers_and_new_connections_are_served() -> None:
    async def steps(_: Echo, proxy: FaultProxy, peer: Peer) -> None:
        proxy.reset_now()
        with pytest.raises(ConnectionResetError):
            await peer.reader.read()
        async with _peer(proxy.port) as again:
            assert await again.round_trip(b"again") == b"again"

    _play(steps)
