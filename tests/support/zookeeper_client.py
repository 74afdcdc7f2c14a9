"""A client of ZooKeeper's protocol that hides nothing: it sends the bytes of a test, and keeps every answer.

kazoo and the real client retry, re-register watches and reorder. This one does not, so that a test compares
what a server does and not what a client makes of it.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from storage.cluster.zookeeper.jute import (
    FRAME_LENGTH,
    REPLY_HEADER,
    REQUEST_HEADER,
    JuteReader,
    encode,
    encode_frame,
    encode_request,
)
from storage.cluster.zookeeper.records import (
    AUTH_XID,
    NOTIFICATION_XID,
    OPEN_ACL,
    PING_XID,
    ConnectRequest,
    ConnectResponse,
    Create,
    ErrorCode,
    OpCode,
    PathAndVersion,
    PathAndWatch,
    SetData,
    WatcherEvent,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    Record = tuple[Any, ...]

NO_PASSWORD = bytes(16)
_AT_ONCE = (PING_XID, AUTH_XID)


class Reply(NamedTuple):
    """The answer to one request."""

    zxid: int
    error: int
    record: Record | None


class Notified(NamedTuple):
    """A watch event, as it arrived."""

    type: int
    path: str
    zxid: int


class ConnectionCut(Exception):
    """The connection was closed before the answer came."""


class RawClient(asyncio.Protocol):
    """One connection. Requests are answered in the order in which they were sent."""

    def __init__(self) -> None:
        self.received: list[Reply | Notified] = []
        """Everything that has arrived after the first frame, in its order."""
        self.session = ConnectResponse(0, 0, 0, None)
        self.zxid_seen = 0
        """The largest zxid that any frame has shown."""
        self.closed = asyncio.Event()
        self._data = bytearray()
        self._asked: list[tuple[int, int, asyncio.Future[Reply]]] = []
        self._next_xid = 1
        self._connected: asyncio.Future[ConnectResponse] = asyncio.get_running_loop().create_future()

    # ── the connection ────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set()
        waiting: list[asyncio.Future[Any]] = [self._connected, *(one for _, _, one in self._asked)]
        for future in waiting:
            if not future.done():
                future.set_exception(ConnectionCut)
                future.exception()  # a test that waits for none of them is not to be warned
        self._asked.clear()

    async def begin(
        self,
        timeout_ms: int = 10_000,
        session_id: int = 0,
        password: bytes | None = NO_PASSWORD,
        last_zxid_seen: int = 0,
    ) -> ConnectResponse:
        """Begin a session, or take one over; return the server's answer."""
        request = ConnectRequest(0, last_zxid_seen, timeout_ms, session_id, password)
        self.transport.write(encode_frame(encode(request) + b"\x00"))
        self.session = await self._connected
        return self.session

    def close(self) -> None:
        """Close the connection; the session stays."""
        self.transport.abort()

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────

    def send(self, opcode: int, record: Record | bytes, xid: int | None = None) -> asyncio.Future[Reply]:
        """Send a request without waiting for the answer. `record` may also be bytes, right or wrong."""
        if xid is None:
            xid, self._next_xid = self._next_xid, self._next_xid + 1
        body = record if isinstance(record, bytes) else encode_request(opcode, record)
        future = self.expect(xid, opcode)
        self.transport.write(encode_frame(REQUEST_HEADER.pack(xid, opcode) + body))
        return future

    def expect(self, xid: int, opcode: int) -> asyncio.Future[Reply]:
        """Return the answer to a request that the test sends in a way of its own."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._asked.append((xid, opcode, future))
        return future

    async def ask(self, opcode: int, record: Record | bytes) -> Reply:
        """Send a request and return the answer, also if it is an error."""
        return await self.send(opcode, record)

    async def create(self, path: str, data: bytes = b"", flags: int = 0) -> str:
        """Create a node and return its path."""
        reply = await self.ask(OpCode.CREATE, Create(path, data, OPEN_ACL, flags))
        assert reply.record is not None, ErrorCode(reply.error)
        return str(reply.record[0])

    async def set_data(self, path: str, data: bytes, version: int = -1) -> Reply:
        return await self.ask(OpCode.SET_DATA, SetData(path, data, version))

    async def delete(self, path: str, version: int = -1) -> Reply:
        return await self.ask(OpCode.DELETE, PathAndVersion(path, version))

    async def exists(self, path: str, *, watch: bool = False) -> bool:
        reply = await self.ask(OpCode.EXISTS, PathAndWatch(path, watch))
        assert reply.error in (0, ErrorCode.NO_NODE)
        return reply.error == 0

    async def data(self, path: str) -> bytes | None:
        reply = await self.ask(OpCode.GET_DATA, PathAndWatch(path, False))
        assert reply.record is not None, ErrorCode(reply.error)
        data: bytes | None = reply.record[0]
        return data

    async def children(self, path: str) -> list[str]:
        reply = await self.ask(OpCode.GET_CHILDREN, PathAndWatch(path, False))
        assert reply.record is not None, ErrorCode(reply.error)
        return sorted(reply.record[0])

    async def end(self) -> Reply:
        """Close the session."""
        return await self.ask(OpCode.CLOSE_SESSION, b"")

    @property
    def events(self) -> list[tuple[int, str]]:
        """The watch events that have arrived."""
        return [(one.type, one.path) for one in self.received if isinstance(one, Notified)]

    # ── what arrives ──────────────────────────────────────────────────────────────────────────────────

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= FRAME_LENGTH.size:
            (size,) = FRAME_LENGTH.unpack_from(self._data)
            if len(self._data) < FRAME_LENGTH.size + size:
                return
            frame = bytes(self._data[FRAME_LENGTH.size : FRAME_LENGTH.size + size])
            del self._data[: FRAME_LENGTH.size + size]
            self._take(frame)

    def _take(self, frame: bytes) -> None:
        if not self._connected.done():
            self._connected.set_result(JuteReader(frame).record(ConnectResponse))
            return
        xid, zxid, error = REPLY_HEADER.unpack_from(frame)
        self.zxid_seen = max(self.zxid_seen, zxid)
        reader = JuteReader(frame, REPLY_HEADER.size)
        if xid == NOTIFICATION_XID:
            event = reader.record(WatcherEvent)
            self.received.append(Notified(event.type, event.path, zxid))
            return
        # A server answers pings and authentication at once, also before requests that came earlier.
        at = next(
            at
            for at, (asked, _, _) in enumerate(self._asked)
            if asked == xid or (xid not in _AT_ONCE and asked not in _AT_ONCE)
        )
        asked, opcode, future = self._asked.pop(at)
        if asked != xid:
            future.set_exception(AssertionError(f"the answer to {xid} came before that to {asked}"))
            return
        record = None if error or not reader.rest else reader.response(opcode)
        reply = Reply(zxid, error, record)
        self.received.append(reply)
        if not future.done():
            future.set_result(reply)


async def open_client(port: int, peer: str = "127.0.0.1") -> RawClient:
    """Return a connection without a session. `peer` is the address from which it comes."""
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(RawClient, "127.0.0.1", port, local_addr=(peer, 0))
    return client


@asynccontextmanager
async def session(port: int, timeout_ms: int = 10_000, peer: str = "127.0.0.1") -> AsyncIterator[RawClient]:
    """Return a connection with a new session; the connection is closed at the end, the session is not."""
    client = await open_client(port, peer)
    await client.begin(timeout_ms)
    try:
        yield client
    finally:
        client.close()
        await client.closed.wait()
