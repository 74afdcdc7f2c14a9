"""`ledgerstore autorecovery enable`, `disable`, `delay`, `trigger`: the switches in the metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from recovery.shell.cluster_metadata import MetadataConnection, connection, uri
from recovery.shell.exit_codes import say

if TYPE_CHECKING:
    from storage.cluster.metadata.address import MetadataAddress
    from storage.cluster.metadata.znodes import Znodes


@click.command()
@uri
@connection
def enable(address: str, connection: MetadataConnection) -> None:
    """Let ledgers be marked and repaired again.

    The command ends with 3 if that is not disabled.

    \b
    Examples:
      ledgerstore autorecovery enable zk://localhost:2181/ledgers
    """

    async def work(znodes: Znodes, cluster: MetadataAddress) -> None:
        from storage.cluster.metadata import underreplication

        await underreplication.enable(znodes, cluster.root)

    connection.run("autorecovery enable", address, work)
    say("autorecovery enable: ledgers are repaired")


@click.command()
@uri
@connection
def disable(address: str, connection: MetadataConnection) -> None:
    """Let no ledger be marked or repaired, for example while bookies are being restarted.

    It holds for all auditors and workers of the cluster, also those of Apache BookKeeper. Ours stop repairs
    that are under way. The command ends with 3 if that is disabled already.

    \b
    Examples:
      ledgerstore autorecovery disable zk://localhost:2181/ledgers
    """

    async def work(znodes: Znodes, cluster: MetadataAddress) -> None:
        from storage.cluster.metadata import underreplication

        await underreplication.prepare(znodes, cluster.root)
        await underreplication.disable(znodes, cluster.root)

    connection.run("autorecovery disable", address, work)
    say("autorecovery disable: no ledger is repaired until `ledgerstore autorecovery enable`")


@click.command()
@uri
@click.option("--set", "seconds", type=click.IntRange(0, 2**31 - 1), metavar="SECONDS", help="The new delay.")
@connection
def delay(address: str, seconds: int | None, connection: MetadataConnection) -> None:
    """Show or set how long a lost bookie may take to come back before its ledgers are marked.

    It holds for one lost bookie. If several are lost their ledgers are marked at once. To set 0, or the value
    that it has, lets the auditor look at all ledgers now.

    \b
    Examples:
      ledgerstore autorecovery delay zk://localhost:2181/ledgers
      ledgerstore autorecovery delay zk://localhost:2181/ledgers --set 600
    """

    async def work(znodes: Znodes, cluster: MetadataAddress) -> int:
        from storage.cluster.metadata import underreplication
        from storage.cluster.metadata.znodes import Gone

        if seconds is not None:
            await underreplication.prepare(znodes, cluster.root)
            await underreplication.set_delay(znodes, cluster.root, seconds)
            return seconds
        found = await underreplication.read_delay(znodes, cluster.root)
        return 0 if isinstance(found, Gone) else found

    found = connection.run("autorecovery delay", address, work)
    say(f"autorecovery delay: {found} s")


@click.command()
@uri
@connection
def trigger(address: str, connection: MetadataConnection) -> None:
    """Let the auditor look at all ledgers now, and mark those of bookies that are not registered.

    As Apache BookKeeper's `triggeraudit` does, it writes the delay again with the value that it has. Marked
    ledgers that were given up are tried again.

    \b
    Examples:
      ledgerstore autorecovery trigger zk://localhost:2181/ledgers
    """

    async def work(znodes: Znodes, cluster: MetadataAddress) -> str | None:
        from storage.cluster.metadata import underreplication
        from storage.cluster.metadata.election import read_auditor
        from storage.cluster.metadata.znodes import Gone

        await underreplication.prepare(znodes, cluster.root)
        found = await underreplication.read_delay(znodes, cluster.root)
        await underreplication.set_delay(znodes, cluster.root, 0 if isinstance(found, Gone) else found)
        auditor = await read_auditor(znodes, cluster.root)
        return None if isinstance(auditor, Gone) else auditor

    auditor = connection.run("autorecovery trigger", address, work)
    outcome = f"{auditor} audits now" if auditor else "no auditor runs: the next one begins with an audit"
    say(f"autorecovery trigger: {outcome}")
