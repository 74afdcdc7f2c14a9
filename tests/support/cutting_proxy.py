"""A proxy on the loopback interface that cuts a connection after a number of bytes, in either direction."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class CuttingProxy:
    """Passes bytes on between clients and a server."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._left: list[int | None] = [None, None]
        """The bytes that still pass before the next cut, to the server and from it. `None` for any number."""
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0
        self.cuts = 0
        self.is_closed = False

    def cut_after(self, to_server: int | None, from_server: int | None) -> None:
        """Cut the connection when so many more bytes have passed in one of the directions."""
        self._left = [to_server, from_server]

    def cut_now(self) -> None:
        """Cut every connection."""
        self._left = [None, None]
        self.cuts += 1
        for writer in [*self._writers]:
            writer.transport.abort()

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
                self._pass_on(0, reader, their_writer), self._pass_on(1, their_reader, writer)
            )
        finally:
            self._writers -= both
            for one in both:
                one.transport.abort()

    async def _pass_on(self, way: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                left = self._left[way]
                if left is not None and len(data) >= left:
                    writer.write(data[:left])
                    # The bytes that were let through must arrive before the connection ends.
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
                    self.cut_now()
                    return
                if left is not None:
                    self._left[way] = left - len(data)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()


@asynccontextmanager
async def cutting_proxy(server_port: int) -> AsyncIterator[CuttingProxy]:
    """Run a proxy before the server at the port."""
    proxy = CuttingProxy(server_port)
    listener = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = listener.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listener.close()
        proxy.is_closed = True
        proxy.cut_now()
        await asyncio.sleep(0)
