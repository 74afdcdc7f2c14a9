"""A small HTTP server for the operator of a bookie: metrics, health, state, and orders from this machine.

The libraries that the project has do not fit: that of `prometheus_client` serves nothing but metrics, with a
thread for each connection and without limits of time. Each connection is for one request. A client that does
not send it in time, or does not take its answer, is disconnected, so that none of them can hold memory.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING, NamedTuple

from storage.cluster.tls import is_loopback
from storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

_LOG = logging.getLogger("ledgerstore.bookie")

REQUEST_SIZE_MAX = 8 << 10
CONNECTIONS_MAX = 64
TIMEOUT_S = 10.0
"""The longest time for a request to arrive, and for an answer to be taken."""

_REQUEST_LINE = re.compile(rb"([A-Z]{1,16}) (/[\x21-\x7e]*) HTTP/1\.[01]\r\n")
_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: *(\d{1,9})\r\n", re.IGNORECASE)
_REASONS = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class HttpAnswer(NamedTuple):
    """The answer to a request."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


def failure(status: int, reason: str) -> HttpAnswer:
    """Return an answer that says what is wrong."""
    return HttpAnswer(status, f"{reason}\n".encode())


class HttpServer:
    """Serves some paths. For one event loop."""

    def __init__(
        self,
        pages: Mapping[str, Callable[[], Awaitable[HttpAnswer]]],
        orders: Mapping[str, Callable[[bytes], Awaitable[HttpAnswer]]] | None = None,
        timeout_s: float = TIMEOUT_S,
    ):
        """`pages` answer GET and HEAD. `orders` answer PUT with its body, and only to this machine."""
        self._pages = pages
        self._orders = orders or {}
        self._timeout_s = timeout_s
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> int:
        """Begin to accept connections; return the port, which the system chooses if it was 0."""
        self._listener = await asyncio.start_server(self._begin, host, port, limit=REQUEST_SIZE_MAX)
        address = self._listener.sockets[0].getsockname()
        return int(address[1])

    @property
    def connections(self) -> int:
        """The number of connections that are being served."""
        return len(self._tasks)

    async def stop(self) -> None:
        """Accept nothing more, and close all connections."""
        if self._listener is not None:
            self._listener.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            try:
                async with asyncio.timeout(self._timeout_s):
                    head = await reader.readuntil(b"\r\n\r\n")
                    body = await reader.readexactly(_size_of_body(head))
            except TimeoutError:
                head, answer = b"", failure(408, f"no complete request in {self._timeout_s:g} s")
            except asyncio.LimitOverrunError:
                head, answer = b"", failure(431, f"a request has {REQUEST_SIZE_MAX} bytes at most")
            else:
                peer = writer.get_extra_info("peername")[0]
                answer = await self._answer_to(head, body, peer)
            async with asyncio.timeout(self._timeout_s):
                writer.write(_head_of(answer))
                if not head.startswith(b"HEAD "):
                    writer.write(answer.body)
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            pass  # the client is gone, or does not take its answer
        finally:
            writer.transport.abort()

    async def _answer_to(self, head: bytes, body: bytes, peer: str) -> HttpAnswer:
        match = _REQUEST_LINE.match(head)
        if match is None:
            return failure(400, "this is no request of HTTP/1.1")
        path = match[2].decode().partition("?")[0]
        if match[1] == b"PUT" and path in self._orders:
            if not is_loopback(peer):
                # HTTP has no passwords here.
                return failure(403, "orders are taken from this machine only")
            work = self._orders[path](body)
        elif match[1] not in (b"GET", b"HEAD"):
            return failure(405, "only GET and HEAD are served")
        elif path not in self._pages:
            return failure(404, f"there is {', '.join(self._pages)}")
        else:
            work = self._pages[path]()
        try:
            return await work
        except (StoreError, OSError) as error:
            return failure(503, str(error))
        except Exception:
            _LOG.exception("a request for %s failed unexpectedly", match[2].decode())
            return failure(500, "unexpected error: the log of the bookie has it")


def _size_of_body(head: bytes) -> int:
    """Return how many bytes follow the head of a request; none for a size that is not to be believed."""
    match = _CONTENT_LENGTH.search(head)
    size = 0 if match is None else int(match[1])
    return size if head.startswith(b"PUT ") and size <= REQUEST_SIZE_MAX else 0


def _head_of(answer: HttpAnswer) -> bytes:
    lines = (
        f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        *(("Allow: GET, HEAD",) if answer.status == 405 else ()),
        "Connection: close",
    )
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()
