"""`ledgerstore bookie`: a store as a bookie of a BookKeeper cluster."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import click

from recovery.shell import options
from recovery.shell.bookie_process import run_bookie
from recovery.shell.cluster_metadata import bookie_tls, options_of, tls_options
from recovery.shell.exit_codes import CannotDo, StoreRefused, check_installed, say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from storage.cluster.bookie.config import BookieOptions


@click.command()
@click.argument("store", metavar="[STORE]", required=False, envvar=options.STORE_VARIABLE)
@click.option(
    "--conf", metavar="FILE", help="Read a Java bookie's configuration file. Options take precedence over it."
)
@click.option(
    "--metadata",
    metavar="URI",
    envvar="LEDGERSTORE_METADATA",
    help="The cluster, such as zk://localhost:2181/ledgers.  [default: $LEDGERSTORE_METADATA]",
)
@click.option("--host", metavar="HOST", help="The address to listen on.  [default: 127.0.0.1]")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="The port; 0 for any free one, which needs --bookie-id.  [default: 3181]",
)
@click.option("--advertised", metavar="HOST", help="The address that clients get, if it is another one.")
@click.option("--bookie-id", metavar="ID", help="The name in the cluster.  [default: HOST:PORT]")
@click.option(
    "--session-timeout",
    type=click.FloatRange(0.1, 3600),
    metavar="SECONDS",
    help="How long the cluster waits for this bookie before it is lost.  [default: 10]",
)
@click.option(
    "--collect-every",
    type=click.FloatRange(0.1, 1e7),
    metavar="SECONDS",
    help="How often to look for ledgers that the metadata no longer have; the second look deletes them."
    "  [default: 900]",
)
@click.option(
    "--auto-recovery",
    is_flag=True,
    help="Repair ledgers in this process, too, as `ledgerstore autorecovery run` does.",
)
@click.option("--tls-certificate", metavar="FILE", help="Offer TLS with this certificate chain (PEM).")
@click.option("--tls-key", metavar="FILE", help="The key of the certificate, if it is in another file.")
@click.option("--tls-client-ca", metavar="FILE", help="Ask clients for certificates signed by these (PEM).")
@click.option(
    "--tls-clients",
    type=click.Choice(["required", "optional"]),
    default="required",
    show_default=True,
    help="Whether each client with TLS must have a certificate.",
)
@click.option("--require-tls", is_flag=True, help="Refuse requests in plain text.")
@click.option(
    "--authorized-role",
    "roles",
    multiple=True,
    metavar="ROLE",
    help="Only serve clients whose certificates name one of these roles. May be repeated.",
)
@tls_options("--metadata-tls", "the metadata", "metadata_tls")
@bookie_tls
@click.option("--read-only", is_flag=True, help="Refuse the adds of writers; recoveries may add.")
@click.option(
    "--http-port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="The port of /metrics, /healthz and /state; 0 for any free one. Without it there is no HTTP.",
)
@click.option(
    "--http-host",
    metavar="HOST",
    help="The address of that port. HTTP has neither TLS nor passwords: see docs/bookie.md."
    "  [default: 127.0.0.1]",
)
def command(conf: str | None, **given: Any) -> None:
    """Run a bookie on one directory, until SIGTERM or Ctrl-C.

    Clients of Apache BookKeeper and Pulsar use it like a Java bookie, with both versions of the protocol. The
    directory is made if it does not exist. A cookie in it and one in the metadata say that they belong
    together: a bookie that has lost its directory, or that has got another cluster's, does not start.

    The line `serves clients on HOST:PORT` on stderr says that the bookie is registered. SIGTERM unregisters
    it, answers what it has taken, and closes the store.

    --conf reads the keys of a Java bookie's bk_server.conf, with their units; docs/bookie.md lists their
    effect. Keys without an effect are named. A key is refused if the bookie would be less safe without it.

    \b
    Examples:
      ledgerstore metadata serve /data/metadata
      ledgerstore cluster init zk://localhost:2181/ledgers
      ledgerstore bookie /data/bookie-1 --metadata zk://localhost:2181/ledgers --port 3181
      ledgerstore bookie /data/bookie-1 --conf bk_server.conf
    """
    import asyncio

    from storage.cluster.bookie import config as bookie_config
    from storage.cluster.bookie.identity import BookieIdentity
    from storage.cluster.metadata.address import parse_address
    from storage.cluster.metadata.registration import is_bookie_id
    from storage.cluster.tls import TlsContexts
    from storage.config import StoreConfig
    from storage.disk.posix import PosixDirectory
    from storage.errors import CorruptionError, StoreError

    try:
        said, store_config = _options(given), StoreConfig()
        if conf is not None:
            found = bookie_config.load(conf, said, socket.getfqdn)
            said, store_config = found.options, found.store_config
            for remark in found.remarks:
                say(remark)
        wanted = said.over(_environment())
        if conf is None and (wanted.store is None or wanted.metadata is None):
            raise click.UsageError(
                "a bookie needs STORE and --metadata, or a configuration file that has both (--conf)"
            )
        config = wanted.complete()
        if config.http_port is not None:
            check_installed("bookie --http-port", "cluster", "prometheus_client")
        if config.bookie_id is None and config.port == 0:
            raise click.UsageError(
                "--port 0 needs --bookie-id, because the id must be the same at each start"
            )
        shown = f"{config.shown_host}:{config.port}"
        name = config.bookie_id or shown
        if not is_bookie_id(name):
            raise click.UsageError(f"{name!r} is no id of a bookie: letters, digits, and . : - _ @")
        others = {f"{socket.gethostname()}:{config.port}", shown} - {name} if config.bookie_id else ()
        identity = BookieIdentity(name, tuple(others), PosixDirectory(config.store))
        tls = None if config.tls is None else TlsContexts(config.tls)
        for warning in config.warnings:
            say(f"warning: {warning}")
        connections = options_of(config.bookie_tls)
        cluster = parse_address(config.metadata)
        asyncio.run(run_bookie(config, store_config, identity, cluster, tls, connections))
        say("bookie: stopped")
    except CorruptionError as error:
        raise StoreRefused(str(error)) from error
    except StoreError as error:
        raise CannotDo(str(error)) from error


def _options(given: Mapping[str, Any]) -> BookieOptions:
    """Return the options of the command line, without the environment: a file takes precedence over that."""
    from storage.cluster.bookie.access import Channels
    from storage.cluster.bookie.config import AutoRecoveryOptions, BookieOptions
    from storage.cluster.metadata.registration import BookieMode
    from storage.cluster.tls import ClientCertificates, TlsConfig

    source = click.get_current_context().get_parameter_source
    ambient = click.core.ParameterSource.ENVIRONMENT
    tls = None
    if certificate := given["tls_certificate"]:
        clients = ClientCertificates.NOT_ASKED
        if given["tls_client_ca"]:
            clients = ClientCertificates[given["tls_clients"].upper()]
        tls = TlsConfig(given["tls_key"] or certificate, certificate, given["tls_client_ca"], clients)
    elif given["tls_key"] or given["tls_client_ca"]:
        raise click.UsageError("--tls-key and --tls-client-ca need --tls-certificate")
    return BookieOptions(
        None if source("store") is ambient else given["store"],
        None if source("metadata") is ambient else given["metadata"],
        given["host"],
        given["port"],
        given["advertised"],
        given["bookie_id"],
        given["session_timeout"],
        given["collect_every"],
        http_host=given["http_host"],
        http_port=given["http_port"],
        tls=tls,
        metadata_tls=given["metadata_tls"],
        channels=Channels.TLS_ONLY if given["require_tls"] else None,
        roles=frozenset(given["roles"]) or None,
        mode=BookieMode.READ_ONLY if given["read_only"] else None,
        bookie_tls=given["bookies"],
        auto_recovery=AutoRecoveryOptions() if given["auto_recovery"] else None,
    )


def _environment() -> BookieOptions:
    from storage.cluster.bookie.config import BookieOptions

    params = click.get_current_context().params
    return BookieOptions(params["store"], params["metadata"])
