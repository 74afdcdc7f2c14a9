"""Opens a connection to a bookie, with TLS if the client wants it.

TLS begins with a request of version 3 in plain text, START_TLS, also on a connection of version 2. The bookie
answers it in plain text, and the handshake follows.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

from storage.cluster.wire import frames, v3
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import StartTls
from storage.cluster.wire.protobuf import Malformed

if TYPE_CHECKING:
    from storage.cluster.metadata.registration import Endpoint

_ANSWER_SIZE_MAX = 64 << 10
"""No answer to START_TLS is larger."""


class TlsFailed(ConnectionError):
    """The connection has no TLS, so nothing was sent on it."""


async def open_plain(protocol: asyncio.Protocol, endpoint: Endpoint) -> None:
    """Connect this protocol to a bookie."""
    await asyncio.get_running_loop().create_connection(lambda: protocol, endpoint.host, endpoint.port)


async def open_secure(protocol: asyncio.Protocol, endpoint: Endpoint, context: ssl.SSLContext) -> None:
    """Connect this protocol to a bookie with TLS. Raise `TlsFailed` if that is not possible."""
    loop = asyncio.get_running_loop()
    transport, upgrade = await loop.create_connection(_Upgrade, endpoint.host, endpoint.port)
    try:
        transport.write(v3.encode_request(StartTls(), 1))
        await upgrade.answered
        name = endpoint.host if context.check_hostname else None
        secured = await loop.start_tls(transport, protocol, context, server_hostname=name)
    except ssl.SSLCertVerificationError as error:
        raise TlsFailed(f"the certificate is refused: {error.verify_message}") from error
    except ssl.SSLError as error:
        raise TlsFailed(f"no TLS: {error.reason or error}") from error
    except BaseException:
        transport.abort()
        raise
    if secured is None:
        raise TlsFailed("the bookie has closed the connection during the handshake")
    protocol.connection_made(secured)


class _Upgrade(asyncio.Protocol):
    """Waits for the answer to START_TLS."""

    def __init__(self) -> None:
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the handshake may begin."""
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        found = frames.split(self._received, _ANSWER_SIZE_MAX)
        if not found.bodies and found.flaw is None:
            return
        answer = v3.decode_answer(found.bodies[0]) if found.bodies else None
        if answer is None or isinstance(answer, Malformed) or found.consumed < len(self._received):
            self._fail("the peer does not answer START_TLS as a bookie does")
        elif answer.code is not Code.OK:
            self._fail(f"the bookie does not offer TLS: {answer.code.name.lower().replace('_', ' ')}")
        elif not self.answered.done():
            self.answered.set_result(None)

    def connection_lost(self, _: Exception | None) -> None:
        self._fail("the bookie has closed the connection instead of beginning TLS")

    def _fail(self, reason: str) -> None:
        if not self.answered.done():
            self.answered.set_exception(TlsFailed(reason))
