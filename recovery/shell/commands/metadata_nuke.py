"""`ledgerstore metadata nuke`: delete a cluster's metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from recovery.shell import cluster_metadata
from recovery.shell.exit_codes import say
from recovery.shell.output import counted

if TYPE_CHECKING:
    from recovery.shell.cluster_metadata import MetadataConnection


@click.command()
@cluster_metadata.uri
@click.option("--erase", metavar="INSTANCE-ID", help="The content of the cluster's node INSTANCEID.")
@cluster_metadata.connection
def command(address: str, erase: str | None, connection: MetadataConnection) -> None:
    """Delete the metadata of the cluster at URI, with its root.

    This is BookKeeper's nukeexistingcluster. The cluster is deleted only if --erase names its instance id,
    and if no bookie is registered. A cluster without INSTANCEID is named by its root.

    \b
    Examples:
      ledgerstore metadata nuke zk://localhost:2181/ledgers --erase dbb9caa0-7082-4059-a307-ed1d8c4f2257
    """
    from storage.cluster.metadata.format import nuke_cluster

    count = connection.run("metadata nuke", address, lambda znodes, at: nuke_cluster(znodes, at.root, erase))
    say(f"metadata nuke: {counted(count, 'node')} deleted")
