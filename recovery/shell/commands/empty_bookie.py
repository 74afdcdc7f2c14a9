"""`ledgerstore recover`, `decommission`: until no ledger names a bookie that is gone."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import click

from recovery.shell.auto_recovery import grace_option, print_log
from recovery.shell.cluster_metadata import MetadataConnection, bookie_tls, connection, options_of, uri
from recovery.shell.exit_codes import Exit, say
from recovery.shell.output import counted

if TYPE_CHECKING:
    from storage.cluster.client.connections import ConnectionOptions
    from storage.cluster.metadata.address import MetadataAddress
    from storage.cluster.metadata.znodes import Znodes
    from storage.cluster.tls import ClientTls

_bookie = click.argument("bookie", metavar="ID")


@click.command()
@uri
@_bookie
@grace_option
@connection
@bookie_tls
@click.pass_context
def recover(
    ctx: click.Context,
    address: str,
    bookie: str,
    grace: float,
    connection: MetadataConnection,
    bookies: ClientTls | None,
) -> None:
    """Copy what the bookie ID held to other bookies, in this process, and return when no ledger names it.

    The bookie must not be registered. No other process of auto-recovery is needed; those that run help. All
    marked ledgers are repaired, also those of other bookies. The command ends with 1 if ledgers have entries
    that no registered bookie has; they still name the bookie.

    \b
    Examples:
      ledgerstore recover zk://localhost:2181/ledgers 10.0.0.7:3181
      ledgerstore recover zk://localhost:2181/ledgers 10.0.0.7:3181 --grace 0
    """
    print_log()

    async def work(znodes: Znodes, cluster: MetadataAddress) -> frozenset[int]:
        return await _recover(znodes, cluster, options_of(bookies), bookie, grace)

    left = connection.run("recover", address, work)
    if left:
        some = ", ".join(map(str, sorted(left)[:5]))
        say(f"recover: {bookie} is still named by ledgers with entries that have no good copy: {some}")
    else:
        say(f"recover: no ledger names {bookie}")
    ctx.exit(Exit.FINDINGS if left else Exit.CLEAN)


@click.command()
@uri
@_bookie
@connection
def decommission(address: str, bookie: str, connection: MetadataConnection) -> None:
    """Remove the bookie ID, which is gone for good, from the cluster at URI.

    Its ledgers are marked. When the workers of auto-recovery have copied what it held, so that no ledger
    names it, its cookie is deleted: it can never come back with its old directories. The bookie must not be
    registered. The command waits for the workers; Ctrl-C ends it, and the marks stay.

    \b
    Examples:
      ledgerstore decommission zk://localhost:2181/ledgers 10.0.0.7:3181
    """

    async def work(znodes: Znodes, cluster: MetadataAddress) -> None:
        await _decommission(znodes, cluster, bookie)

    connection.run("decommission", address, work)
    say(f"decommission: no ledger names {bookie}, and the cluster has no cookie of it")


async def _recover(
    znodes: Znodes, address: MetadataAddress, connections: ConnectionOptions, bookie: str, grace: float
) -> frozenset[int]:
    import asyncio

    from recovery.autorecovery import decommission
    from recovery.autorecovery.config import AutoRecoveryConfig
    from recovery.autorecovery.worker import ReplicationWorker
    from storage.cluster.client.cluster import open_cluster
    from storage.cluster.metadata.paths import LedgerPaths, read_tree

    paths = LedgerPaths(address.root, address.tree or await read_tree(znodes, address.root))
    await decommission.mark_ledgers_of(znodes, paths, bookie, say)
    config = AutoRecoveryConfig(open_ledger_grace_s=grace)
    async with open_cluster(znodes, address.root, paths.tree, connections) as cluster:
        worker = ReplicationWorker(znodes, address.root, cluster, socket.gethostname(), config)
        running = asyncio.ensure_future(worker.run())
        waiting = asyncio.ensure_future(
            decommission.wait_until_empty(znodes, paths, bookie, worker.given_up, _say_left)
        )
        try:
            await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                await running  # it ends only with an error, which this raises
            return await waiting
        finally:
            for task in (running, waiting):
                task.cancel()
            await asyncio.gather(running, waiting, return_exceptions=True)


async def _decommission(znodes: Znodes, address: MetadataAddress, bookie: str) -> None:
    from recovery.autorecovery import decommission
    from storage.cluster.metadata.election import read_auditor
    from storage.cluster.metadata.paths import LedgerPaths, read_tree
    from storage.cluster.metadata.znodes import Gone

    paths = LedgerPaths(address.root, address.tree or await read_tree(znodes, address.root))
    marked = await decommission.mark_ledgers_of(znodes, paths, bookie, say)
    if marked and isinstance(await read_auditor(znodes, address.root), Gone):
        say("no process of auto-recovery runs: `ledgerstore autorecovery run` starts one")
    await decommission.wait_until_empty(znodes, paths, bookie, frozenset, _say_left)
    await decommission.remove_cookie(znodes, paths, bookie)


def _say_left(count: int) -> None:
    say(f"{counted(count, 'ledger names', 'ledgers name')} the bookie")
