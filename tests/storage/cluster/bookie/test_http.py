"""The HTTP server of a bookie answers what it serves, and no client can hold it up."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from storage.cluster.bookie import http
from storage.cluster.bookie.http import CONNECTIONS_MAX, REQUEST_SIZE_MAX, HttpAnswer, HttpServer
from storage.errors import StoreClosed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

PATIENCE_S = 20.0


async def page() -> HttpAnswer:
    return HttpAnswer(200, b"the page\n")


async def closed() -> HttpAnswer:
    raise StoreClosed("the-store")


async def broken() -> HttpAnswer:
    raise ZeroDivisionError


async def large() -> HttpAnswer:
    return HttpAnswer(200, bytes(64 << 20))


async def echo(body: bytes) -> HttpAnswer:
    return HttpAnswer(200, b"did " + body)


ORDERS = {"/page": echo}
PAGES = {"/page": page, "/closed": closed, "/broken": broken, "/large": large}


def served(steps: Callable[[HttpServer, int], Awaitable[None]], timeout_s: float = PATIENCE_S) -> None:
    """Run the steps with a server and its port."""

    async def run() -> None:
        server = HttpServer(PAGES, ORDERS, timeout_s)
        port = await server.listen("127.0.0.1", 0)
        try:
            await asyncio.wait_for(steps(server, port), PATIENCE_S)
        finally:
            await server.stop()

    asyncio.run(run())


async def ask(port: int, request: bytes) -> bytes:
    """Send bytes; return everything up to the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        return await reader.read()
    finally:
        await close(writer)


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


def request(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n".encode()


def test_a_page_is_answered_with_its_length_and_the_connection_ends() -> None:
    async def steps(__: HttpServer, port: int) -> None:
        head, _, body = (await ask(port, request("/page?name=value"))).partition(b"\r\n\r\n")
        assert body == b"the page\n"
        assert head.splitlines()[0] == b"HTTP/1.1 200 OK"
        assert {b"Content-Length: 9", b"Connection: close"} <= set(head.splitlines())
        whole = await ask(port, request("/page", "HEAD"))
        assert whole == head + b"\r\n\r\n"

    served(steps)


@pytest.mark.parametrize(
    ("sent", "status", "said"),
    [
        (request("/nothing"), 404, b"there is /page"),
        (request("/page", "POST"), 405, b"only GET and HEAD"),
        (b"\r\n\r\n", 400, b"no request"),
        (b"GET page HTTP/1.1\r\n\r\n", 400, b"no request"),
        (b"GET /page HTTP/2.0\r\n\r\n", 400, b"no request"),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400, b"no request"),
        (b"GET /" + b"a" * REQUEST_SIZE_MAX, 431, b"at most"),
        (request("/closed"), 503, b"the-store"),
        (request("/broken"), 500, b"unexpected error"),
    ],
)
def test_other_requests_get_a_status_and_a_reason(sent: bytes, status: int, said: bytes) -> None:
    async def steps(_: HttpServer, port: int) -> None:
        answer = await ask(port, sent)
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert said in answer
        assert (await ask(port, request("/page"))).endswith(b"the page\n")

    served(steps)


def put(path: str, body: bytes, size: int | None = None) -> bytes:
    size = len(body) if size is None else size
    return b"PUT %s HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % (path.encode(), size) + body


def test_an_order_gets_its_body_and_is_only_taken_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def steps(_: HttpServer, port: int) -> None:
        assert (await ask(port, put("/page", b"this"))).endswith(b"did this")
        assert (await ask(port, b"PUT /page HTTP/1.1\r\n\r\n")).endswith(b"did ")
        assert (await ask(port, put("/page", b"", REQUEST_SIZE_MAX + 1))).endswith(b"did ")
        assert (await ask(port, put("/large", b"this"))).startswith(b"HTTP/1.1 405 ")
        assert (await ask(port, request("/page"))).endswith(b"the page\n")
        monkeypatch.setattr(http, "is_loopback", lambda _: False)
        assert (await ask(port, put("/page", b"this"))).startswith(b"HTTP/1.1 403 ")
        assert (await ask(port, request("/page"))).endswith(b"the page\n")

    served(steps)


@pytest.mark.parametrize("sent", [b"", b"GET /page HTTP/1.1\r\n", put("/page", b"half", 5)])
def test_a_request_that_does_not_arrive_completely_ends_with_408(sent: bytes) -> None:
    async def steps(_: HttpServer, port: int) -> None:
        assert (await ask(port, sent)).startswith(b"HTTP/1.1 408 ")

    served(steps, timeout_s=0.05)


def test_a_client_that_takes_no_answer_is_disconnected() -> None:
    async def steps(server: HttpServer, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(request("/large"))
        while not server.connections:
            await asyncio.sleep(0)
        while server.connections:
            await asyncio.sleep(0)
        received = 0
        with suppress(ConnectionError):
            while data := await reader.read(1 << 20):
                received += len(data)
        assert received < 64 << 20
        await close(writer)

    served(steps, timeout_s=0.1)


def test_a_connection_too_many_is_closed_and_the_others_are_served() -> None:
    async def steps(_: HttpServer, port: int) -> None:
        many = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX)]
        refused = b""
        with suppress(ConnectionError):
            refused = await ask(port, request("/page"))
        assert refused == b""
        for reader, writer in many:
            writer.write(request("/page"))
            assert (await reader.read()).endswith(b"the page\n")
            await close(writer)

    served(steps)


def test_a_stop_closes_idle_connections() -> None:
    async def run() -> None:
        server = HttpServer(PAGES)
        reader, writer = await asyncio.open_connection("127.0.0.1", await server.listen("127.0.0.1", 0))
        await server.stop()
        with suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
        await close(writer)

    asyncio.run(run())
    assert http.TIMEOUT_S < PATIENCE_S
