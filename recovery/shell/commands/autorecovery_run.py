"""`ledgerstore autorecovery run`: a candidate for auditor and a worker, until it is stopped."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import click

from recovery.shell.auto_recovery import grace_option, print_log
from recovery.shell.cluster_metadata import bookie_tls, metadata_tls, options_of, uri
from recovery.shell.exit_codes import CannotDo, check_installed, say

if TYPE_CHECKING:
    from recovery.autorecovery.service import AutoRecovery
    from storage.cluster.tls import ClientTls

_MIB = 1 << 20
_DAYS = click.FloatRange(0.0, 3650.0)


@click.command()
@uri
@click.option(
    "--name", metavar="NAME", help="The name of this process in votes and locks.  [default: that of the host]"
)
@click.option(
    "--delay",
    type=click.IntRange(0, 10**6),
    default=0,
    show_default=True,
    metavar="SECONDS",
    help="How long one lost bookie may take to come back. Only for a cluster that has no delay yet.",
)
@grace_option
@click.option(
    "--check-every",
    type=_DAYS,
    default=7.0,
    show_default=True,
    metavar="DAYS",
    help="How often the first and the last entry of each copy are read; 0 for never.",
)
@click.option(
    "--check-entries-every",
    type=_DAYS,
    default=0.0,
    metavar="DAYS",
    help="How often every entry of each copy is read.  [default: never]",
)
@click.option(
    "--sample",
    type=click.IntRange(0, 100),
    default=0,
    show_default=True,
    metavar="PERCENT",
    help="How many of the entries in between the first check reads, too.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0.001, 1e6),
    metavar="MIB",
    help="The most MiB that one repair copies in a second.  [default: no limit]",
)
@click.option(
    "--repairs",
    type=click.IntRange(1, 100),
    default=2,
    show_default=True,
    metavar="N",
    help="How many ledgers are repaired at the same time.",
)
@click.option(
    "--session-timeout",
    type=click.FloatRange(0.1, 3600),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long the cluster waits for this process before another one takes over.",
)
@metadata_tls
@bookie_tls
def command(
    address: str,
    name: str | None,
    delay: int,
    grace: float,
    check_every: float,
    check_entries_every: float,
    sample: int,
    rate: float | None,
    repairs: int,
    session_timeout: float,
    tls: ClientTls | None,
    bookies: ClientTls | None,
) -> None:
    """Repair the ledgers of the cluster at URI until SIGTERM or Ctrl-C.

    Any number of these processes can run, also beside those of Apache BookKeeper. One of them is elected
    auditor. Losses, audits and repairs are printed to stderr. A part that fails is started again. The process
    ends with 0 after a signal, and with 3 if a part fails again and again.

    \b
    Examples:
      ledgerstore autorecovery run zk://localhost:2181/ledgers
      ledgerstore autorecovery run zk://localhost:2181/ledgers --delay 600 --rate 50
      ledgerstore autorecovery run zk://localhost:2181/ledgers --check-entries-every 30
      ledgerstore autorecovery run zk://localhost:2281/ledgers --tls-ca ca.pem --bookie-tls-ca ca.pem
    """
    check_installed("autorecovery run", "cluster", "kazoo")
    import asyncio
    from functools import partial

    from recovery.autorecovery.config import DAY_S, AutoRecoveryConfig
    from recovery.autorecovery.copying import CopyLimits
    from recovery.autorecovery.service import AutoRecovery, PartFailed
    from storage.cluster.errors import InvalidMetadataUri
    from storage.cluster.metadata.address import parse_address
    from storage.cluster.zookeeper.client import ClientConfig, connect
    from storage.errors import StoreError

    try:
        cluster = parse_address(address)
    except InvalidMetadataUri as error:
        raise click.UsageError(str(error)) from error
    config = AutoRecoveryConfig(
        lost_bookie_recovery_delay_s=delay,
        open_ledger_grace_s=grace,
        check_interval_s=check_every * DAY_S,
        check_percent=sample,
        entry_check_interval_s=check_entries_every * DAY_S,
        repairs_at_once=repairs,
        copying=CopyLimits(bytes_per_s=None if rate is None else int(rate * _MIB)),
    )
    client = ClientConfig(cluster.hosts, session_timeout, tls=tls)
    known_as = name or socket.gethostname()
    print_log()
    try:
        service = AutoRecovery(
            partial(connect, client), cluster.root, cluster.tree, known_as, config, options_of(bookies)
        )
        asyncio.run(_run(service))
    except (PartFailed, StoreError) as error:
        raise CannotDo(f"auto-recovery has stopped: {error}") from error
    say("autorecovery: stopped")


async def _run(service: AutoRecovery) -> None:
    import asyncio
    import signal

    running = asyncio.ensure_future(service.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, running.cancel)
    try:
        await running
    except asyncio.CancelledError:
        return
