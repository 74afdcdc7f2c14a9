"""`ledgerstore metadata serve`: a server of ZooKeeper's protocol for one machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from recovery.shell import options
from recovery.shell.exit_codes import CannotDo, StoreRefused, listening, say

if TYPE_CHECKING:
    from ssl import SSLContext

    from storage.cluster.zookeeper.server import ServerConfig

_BANNER = (
    "one process, one disk: for laptops, tests, CI and small sites that accept it. For more run ZooKeeper: "
    "only the address changes"
)


@click.command()
@options.store_to_change
@click.option(
    "--host", metavar="HOST", default="127.0.0.1", show_default=True, help="The address to listen on."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    default=2181,
    show_default=True,
    help="The port; 0 for any free one.",
)
@click.option("--tls-certificate", metavar="FILE", help="Serve TLS with this certificate chain (PEM).")
@click.option("--tls-key", metavar="FILE", help="The key of the certificate, if it is in another file.")
@click.option("--tls-client-ca", metavar="FILE", help="Only take clients with a certificate signed by these.")
@click.option(
    "--session-timeouts",
    metavar="MIN..MAX",
    type=options.NumberRangeType(),
    default="4000..40000",
    show_default=True,
    help="The session time-outs that are granted, in milliseconds.",
)
@click.option(
    "--frame-size",
    metavar="BYTES",
    type=click.IntRange(4 << 10, 4_900_000),
    default=4 << 20,
    show_default=True,
    help="The largest request; a longer one closes its connection.",
)
def command(
    store: str,
    host: str,
    port: int,
    tls_certificate: str | None,
    tls_key: str | None,
    tls_client_ca: str | None,
    session_timeouts: options.NumberRange,
    frame_size: int,
) -> None:
    """Serve ZooKeeper's client protocol from one directory, until SIGTERM or Ctrl-C.

    STORE is a directory; it is made if it does not exist. Every change is durable there before it is
    answered, and sessions survive a restart. It is one process with one disk: for laptops, tests, CI and
    small sites that accept it. It is not replicated, and has no access control lists other than world:anyone
    and no quotas. For more run ZooKeeper: clients only need its address.

    The line `listens on HOST:PORT` on stderr says that clients are served, `metadata: stopped` that the
    store is closed.

    \b
    Examples:
      ledgerstore metadata serve /data/metadata
      ledgerstore metadata serve /data/metadata --port 0
      ledgerstore metadata serve /data/metadata --host 0.0.0.0 --tls-certificate server.pem
    """
    import asyncio

    from storage.cluster.tls import is_loopback
    from storage.cluster.zookeeper.server import ServerConfig
    from storage.cluster.zookeeper.sessions import TimeoutRange

    if tls_certificate is None and (tls_key is not None or tls_client_ca is not None):
        raise click.UsageError("--tls-key and --tls-client-ca need --tls-certificate")
    if session_timeouts.last is None or session_timeouts.first < 1:
        raise click.UsageError("--session-timeouts needs a least and a largest time, both above 0")
    tls = None if tls_certificate is None else _context(tls_certificate, tls_key, tls_client_ca)
    if tls is None and not is_loopback(host):
        say(f"warning: {host} is open to other machines, and without --tls-certificate nothing is encrypted")
    timeouts = TimeoutRange(session_timeouts.first, session_timeouts.last)
    config = ServerConfig(host=host, port=port, tls=tls, timeouts=timeouts, frame_size_max=frame_size)
    asyncio.run(_serve(store, config))
    say("metadata: stopped")


def _context(certificate: str, key: str | None, client_ca: str | None) -> SSLContext:
    from storage.cluster.tls import ClientCertificates, TlsConfig, TlsContexts
    from storage.errors import InvalidConfig

    clients = ClientCertificates.NOT_ASKED if client_ca is None else ClientCertificates.REQUIRED
    try:
        return TlsContexts(TlsConfig(key or certificate, certificate, client_ca, clients)).current()
    except InvalidConfig as error:
        raise CannotDo(str(error)) from error


def _check_that_no_bookie_has(path: str) -> None:
    """Refuse a bookie's directory, because its bookie would take the changes of the metadata for ledgers."""
    from recovery.directory.layout import Layout
    from storage.cluster.bookie.identity import EMBEDDED_HOST
    from storage.disk import cookie
    from storage.disk.cookie_format import Cookie
    from storage.disk.posix import PosixDirectory

    found = cookie.load(Layout(PosixDirectory(path)).ledgers)
    if isinstance(found, Cookie) and found.bookie_host != EMBEDDED_HOST:
        raise CannotDo(f"{path} is the directory of the bookie {found.bookie_host}: name another one")


async def _serve(path: str, config: ServerConfig) -> None:
    import asyncio
    import secrets
    import signal
    import time
    from functools import partial

    from recovery import open_async_store
    from storage.cluster.zookeeper.log import DamagedLog
    from storage.cluster.zookeeper.records import PASSWORD_SIZE
    from storage.cluster.zookeeper.server import Server
    from storage.errors import CorruptionError, StoreError

    _check_that_no_bookie_has(path)
    try:
        async with open_async_store(path) as store:
            server = Server(store, config, time.time, partial(secrets.token_bytes, PASSWORD_SIZE))
            with listening(config.host, config.port, "--"):
                await server.start()
            asked = asyncio.Event()
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, asked.set)
            say(_BANNER)
            say(f"listens on {config.host}:{server.port}")
            ended = asyncio.create_task(server.serve())
            stop = asyncio.create_task(asked.wait())
            await asyncio.wait([ended, stop], return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                await server.stop()
            stop.cancel()
            await ended
    except (CorruptionError, DamagedLog) as error:
        raise StoreRefused(str(error)) from error
    except StoreError as error:
        raise CannotDo(str(error)) from error
