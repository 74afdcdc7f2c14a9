"""A server on the loopback interface that a test plays in the place of a bookie."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


@asynccontextmanager
async def played_peer(first: bytes, answer: Callable[[bytes], bytes]) -> AsyncIterator[int]:
    """Run a server for a block, and yield its port.

    It sends the first bytes, and then an answer to all bytes that arrive. The clients have to close their
    connections before the block ends.
    """
    served: list[asyncio.Task[None] | None] = []

    async def serve(requests: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        served.append(asyncio.current_task())
        answers.write(first)
        with suppress(ConnectionError):
            while data := await requests.read(1 << 16):
                answers.write(answer(data))
        answers.close()
        with suppress(ConnectionError):
            await answers.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await asyncio.gather(*(task for task in served if task is not None))
