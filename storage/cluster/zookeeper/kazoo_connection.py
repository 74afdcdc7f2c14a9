"""A client of kazoo as we need it: no request is repeated, no warning either, and TLS verifies the server."""

from __future__ import annotations

import logging
import socket
import ssl
from typing import TYPE_CHECKING, Any

from storage.cluster.tls import client_context
from storage.cluster.zookeeper.kazoo_names import KazooClient, KazooRetry, SequentialThreadingHandler

if TYPE_CHECKING:
    from storage.cluster.tls import ClientTls
    from storage.cluster.zookeeper.client import ClientConfig

_LOG = logging.getLogger("ledgerstore.zookeeper")
_RECONNECT_DELAY_MAX_S = 1.0


def kazoo_client(config: ClientConfig, log: OncePerOutage, tls: TlsHandler | None) -> KazooClient:
    """Return a client that is not connected yet. It connects again by itself, and never repeats a request."""
    return KazooClient(
        hosts=",".join(config.hosts) + config.chroot,
        timeout=config.session_timeout_s,
        logger=log,
        connection_retry=KazooRetry(
            max_tries=-1,
            delay=config.reconnect_delay_s,
            max_delay=_RECONNECT_DELAY_MAX_S,
        ),
        handler=tls,
        sasl_options=None if config.sasl is None else dict(config.sasl),
    )


class OncePerOutage(logging.LoggerAdapter[logging.Logger]):
    """kazoo's log, in which a warning that each attempt to connect repeats is there once."""

    def __init__(self) -> None:
        super().__init__(_LOG)
        self._said: set[str] = set()

    def log(self, level: int, msg: object, *args: object, **rest: Any) -> None:
        warning = repr((msg, args))
        if level < logging.WARNING or warning not in self._said:
            if level >= logging.WARNING:
                self._said.add(warning)
            super().log(level, msg, *args, **rest)

    def forget(self) -> None:
        """Let all warnings through again, because there is a connection."""
        self._said.clear()


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads, with connections by TLS that verify the server as all our clients do.

    kazoo's own would trust the authorities of the system beside those that were named, would take the
    certificate of any host, and would leave the socket of a failed handshake to the garbage collector.
    """

    def __init__(self, tls: ClientTls) -> None:
        """Raise `InvalidConfig` if the files cannot be used."""
        super().__init__()
        self._context = client_context(tls)
        self.failure: ssl.SSLError | None = None
        """Why the last handshake has failed. Set in kazoo's connection thread."""

    def create_connection(
        self, address: tuple[str, int], timeout: float, hostname: str | None = None, **_: object
    ) -> ssl.SSLSocket:
        plain = socket.create_connection(address, timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._context.wrap_socket(plain, server_hostname=hostname)
        except BaseException as error:
            plain.close()
            if isinstance(error, ssl.SSLError):
                self.failure = error
            raise
