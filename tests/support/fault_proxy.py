"""A proxy on the loopback interface that does to connections what networks do.

cut      the connections end, at once or after a number of bytes in either direction: in the middle of a frame
reset    they end with RST, and what was sent before may be lost
hold     bytes of one direction, or of both, wait until the fault ends: a one-way silence, or a peer that
         accepts connections and never answers
delay    bytes arrive late, by a latency and a random share of a jitter, in their order
throttle only so many bytes pass in a second

Bytes are never dropped from a connection that goes on, because TCP does not do that either.
"""

from __future__ import annotations

import asyncio
import enum
import random
import socket
import struct
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_CHUNKS_MAX = 64
"""The most pieces of one direction that wait for their time. Then the sender has to wait."""
_NO_LINGER = struct.pack("ii", 1, 0)


class Direction(enum.IntEnum):
    """The direction of bytes on a connection."""

    TO_SERVER = 0
    FROM_SERVER = 1


@dataclass(frozen=True, slots=True)
class ProxyFaults:
    """The faults of a proxy's connections, also of those that are open already."""

    latency_s: float = 0.0
    jitter_s: float = 0.0
    bytes_per_s: float | None = None
    """The rate of each connection and direction; `None` for no limit."""
    held: frozenset[Direction] = frozenset()
    """The directions in which nothing arrives."""


NO_FAULTS = ProxyFaults()
SILENCE = ProxyFaults(held=frozenset({Direction.FROM_SERVER}))
HOLD = ProxyFaults(held=frozenset(Direction))


class FaultProxy:
    """Passes bytes on between clients and a server."""

    def __init__(self, server_port: int, seed: int = 0) -> None:
        self._server_port = server_port
        self._dice = random.Random(seed)
        self._left: list[int | None] = [None, None]
        """The bytes that still pass before the next cut, by direction. `None` for any number."""
        self._writers: set[asyncio.StreamWriter] = set()
        self._faults = NO_FAULTS
        self._changed = asyncio.Event()
        """Set when the faults are replaced."""
        self.port = 0
        self.cuts = 0
        self.is_closed = False
        """Whether new connections are refused."""

    def use(self, faults: ProxyFaults) -> None:
        """Replace the faults. Bytes that were held arrive unless the new faults hold them too."""
        self._faults = faults
        self._changed.set()
        self._changed = asyncio.Event()

    def cut_after(self, to_server: int | None, from_server: int | None) -> None:
        """Cut the connection when so many more bytes have passed in one of the directions."""
        self._left = [to_server, from_server]

    def cut_now(self) -> None:
        """Cut every connection."""
        self._left = [None, None]
        self.cuts += 1
        for writer in [*self._writers]:
            writer.transport.abort()

    def reset_now(self) -> None:
        """Cut every connection so that both peers get RST."""
        for writer in self._writers:
            found = writer.get_extra_info("socket")
            if found is not None:
                found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self.cut_now()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client until either side closes."""
        if self.is_closed:
            writer.transport.abort()
            return
        try:
            their_reader, their_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, their_writer}
        self._writers |= both
        try:
            await asyncio.gather(
                self._pass_on(Direction.TO_SERVER, reader, their_writer),
                self._pass_on(Direction.FROM_SERVER, their_reader, writer),
            )
        finally:
            self._writers -= both
            for one in both:
                one.transport.abort()

    async def _pass_on(
        self, direction: Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        line: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_CHUNKS_MAX)
        taking = asyncio.create_task(self._take(reader, line))
        try:
            await self._deliver(direction, line, writer)
        except OSError:
            pass
        finally:
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)
        writer.close()

    async def _take(self, reader: asyncio.StreamReader, line: asyncio.Queue[tuple[float, bytes]]) -> None:
        """Queue the bytes of one peer with the time at which they may arrive. The end is an empty piece."""
        loop = asyncio.get_running_loop()
        data = b"."
        while data:
            data = b""
            with suppress(OSError):
                data = await reader.read(65536)
            delay_s = self._faults.latency_s + self._faults.jitter_s * self._dice.random()
            await line.put((loop.time() + delay_s, data))

    async def _deliver(
        self,
        direction: Direction,
        line: asyncio.Queue[tuple[float, bytes]],
        writer: asyncio.StreamWriter,
    ) -> None:
        """Write the queue to the other peer. Return when the connection has ended, or was cut."""
        loop = asyncio.get_running_loop()
        while True:
            due, data = await line.get()
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
            while direction in self._faults.held:
                await self._changed.wait()
            if not data:
                return
            left = self._left[direction]
            if left is not None and len(data) >= left:
                writer.write(data[:left])
                # The bytes that were let through must arrive before the connection ends.
                await writer.drain()
                writer.close()
                await writer.wait_closed()
                self.cut_now()
                return
            if left is not None:
                self._left[direction] = left - len(data)
            if self._faults.bytes_per_s is not None:
                await asyncio.sleep(len(data) / self._faults.bytes_per_s)
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def fault_proxy(server_port: int, seed: int = 0) -> AsyncIterator[FaultProxy]:
    """Run a proxy before the server at the port."""
    proxy = FaultProxy(server_port, seed)
    listener = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = listener.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listener.close()
        proxy.is_closed = True
        proxy.use(NO_FAULTS)
        proxy.cut_now()
        await asyncio.sleep(0)
