"""A client of the wire protocol for tests: one connection that sends frames and awaits their answers."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Self

from storage.aio.opening import AsyncOpening
from storage.cluster.bookie.access import AccessPolicy
from storage.cluster.bookie.server import BookieServer, ServerLimits
from storage.cluster.wire import frames, v2, v3
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import AddEntry, AddOptions, AnswerTo, Protocol, StartTls
from storage.config import StoreConfig
from storage.entry import format as entry_format
from storage.entry.digest import Digester, master_key
from storage.entry.model import DigestType, Entry

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator
    from pathlib import Path

    from storage.aio.store import AsyncStore
    from storage.cluster.bookie.adds import FirstAddCheck
    from storage.cluster.tls import TlsContexts
    from storage.cluster.wire.messages import Request
    from storage.entry.credentials import Purpose

KEY = master_key(b"secret")
PATIENCE_S = 20.0


def entry_bytes(ledger_id: int, entry_id: int, payload: bytes, lac: int = -1, length: int = 0) -> bytes:
    """Return an entry as a client makes it, with CRC-32C."""
    entry = Entry(ledger_id, entry_id, lac, length or len(payload), payload)
    return entry_format.encode(entry, Digester(DigestType.CRC32C))


def add_of(
    ledger_id: int,
    entry_id: int,
    payload: bytes,
    key: bytes = KEY,
    options: AddOptions = AddOptions(),  # noqa: B008 - immutable
    lac: int = -1,
) -> AddEntry:
    return AddEntry(ledger_id, entry_id, key, entry_bytes(ledger_id, entry_id, payload, lac), options, b"")


class RawBookieConnection:
    """One connection to a bookie. Answers are matched in the order in which they come."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._rest = b""
        self._arrived: deque[bytes] = deque()
        self._txn_id = 0

    @classmethod
    async def open(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def send(self, request: Request, protocol: Protocol) -> int:
        """Send a request; return its transaction id."""
        self._txn_id += 1
        frame = (
            v2.encode_request(request)
            if protocol is Protocol.V2
            else v3.encode_request(request, self._txn_id)
        )
        self.writer.write(frame)
        return self._txn_id

    async def answer(self) -> AnswerTo:
        """Return the next answer; `ConnectionError` if the bookie closes the connection."""
        body = await self.body()
        decode = v3.decode_answer if frames.protocol_of(body) is Protocol.V3 else v2.decode_answer
        found = decode(body)
        assert isinstance(found, AnswerTo), found
        return found

    async def body(self) -> bytes:
        """Return the body of the next frame."""
        while not self._arrived:
            data = await asyncio.wait_for(self.reader.read(1 << 16), PATIENCE_S)
            if not data:
                raise ConnectionError("closed")
            bodies, consumed, flaw = frames.split(self._rest + data)
            assert flaw is None, flaw
            self._rest = (self._rest + data)[consumed:]
            self._arrived.extend(bodies)
        return self._arrived.popleft()

    async def ask(self, request: Request, protocol: Protocol) -> AnswerTo:
        self.send(request, protocol)
        return await self.answer()

    async def start_tls(self, context: ssl.SSLContext) -> AnswerTo:
        """Ask for TLS and go on with it; return the answer. `ssl.SSLError` if the handshake fails."""
        answer = await self.ask(StartTls(), Protocol.V3)
        if answer.code is Code.OK:
            await asyncio.wait_for(self.writer.start_tls(context, server_hostname="127.0.0.1"), PATIENCE_S)
        return answer

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


async def any_ledger(_: int, __: Purpose) -> Code:
    """Allow the first add to any ledger."""
    return Code.OK


@asynccontextmanager
async def running_bookie(
    path: Path,
    limits: ServerLimits | None = None,
    check_first: FirstAddCheck = any_ledger,
    policy: AccessPolicy = AccessPolicy(),  # noqa: B008 - immutable
    tls: TlsContexts | None = None,
    config: StoreConfig = StoreConfig(),  # noqa: B008 - immutable
) -> AsyncIterator[tuple[AsyncStore, BookieServer, int]]:
    """Run a bookie on a port of its own for a block: its store, its server, its port."""
    from recovery import open_store

    async with AsyncOpening(lambda: open_store(path, config)) as store:
        server = BookieServer(store.bookie, store.path, 10.0, check_first, limits, policy, tls)
        port = await server.listen("127.0.0.1", 0)
        try:
            yield store, server, port
        finally:
            await server.stop()
