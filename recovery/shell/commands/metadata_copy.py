"""`ledgerstore metadata copy`: move a stopped cluster to other servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from recovery.shell import cluster_metadata
from recovery.shell.exit_codes import say
from recovery.shell.output import counted

if TYPE_CHECKING:
    from recovery.shell.cluster_metadata import MetadataConnection
    from storage.cluster.metadata.address import MetadataAddress
    from storage.cluster.metadata.format import SavedNode
    from storage.cluster.metadata.znodes import Znodes


@click.command()
@click.argument("source", metavar="FROM-URI")
@click.argument("target", metavar="TO-URI")
@cluster_metadata.connection
def command(source: str, target: str, connection: MetadataConnection) -> None:
    """Copy the metadata of a stopped cluster, for example from one server to an ensemble of ZooKeeper.

    No bookie may be registered at FROM-URI, and nothing may be at the root of TO-URI. Afterwards only the
    address in the configuration of bookies and clients has to be changed. The source is not changed; never
    start bookies on both.

    \b
    Examples:
      ledgerstore metadata copy zk://localhost:2181/ledgers zk://a,b,c/ledgers
    """
    from storage.cluster.metadata.format import check_stopped, restore, save

    async def read(znodes: Znodes, at: MetadataAddress) -> list[SavedNode]:
        await check_stopped(znodes, at.root)
        return [node async for node in save(znodes, at.root)]

    nodes = connection.run("metadata copy", source, read)
    count = connection.run("metadata copy", target, lambda znodes, at: restore(znodes, at.root, nodes))
    say(f"metadata copy: {counted(count, 'node')} at {target}")
