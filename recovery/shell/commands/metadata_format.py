"""`ledgerstore metadata format`: make a cluster, or erase what one holds.

root, instance_id, tree     of the cluster
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import click

from recovery.shell import cluster_metadata, options
from recovery.shell.commands.cluster_init import COLUMNS
from recovery.shell.exit_codes import say
from recovery.shell.output import row_writer

if TYPE_CHECKING:
    from recovery.shell.cluster_metadata import MetadataConnection
    from recovery.shell.output import Form
    from storage.cluster.metadata.address import MetadataAddress
    from storage.cluster.metadata.paths import LedgerTree
    from storage.cluster.metadata.znodes import Znodes


@click.command()
@cluster_metadata.uri
@click.option(
    "--erase",
    metavar="INSTANCE-ID",
    help="Erase the cluster that is there; this is the content of its node INSTANCEID.",
)
@cluster_metadata.tree
@cluster_metadata.connection
@options.output
def command(
    address: str, erase: str | None, tree: str | None, connection: MetadataConnection, form: Form
) -> None:
    """Make a cluster at URI, or erase the ledgers, cookies and marks of the one that is there.

    This is BookKeeper's metaformat. A cluster that is there is erased only if --erase names its instance
    id, and if no bookie is registered. It then has a new instance id, so that bookies with the old one do
    not start. Ids of ledgers go on from where they were. A cluster without INSTANCEID is named by its root.

    \b
    Examples:
      ledgerstore metadata format zk://localhost:2181/ledgers
      ledgerstore metadata format zk://localhost:2181/ledgers --erase dbb9caa0-7082-4059-a307-ed1d8c4f2257
    """
    from storage.cluster.metadata.format import format_cluster

    instance_id = str(uuid4())

    async def work(znodes: Znodes, at: MetadataAddress) -> tuple[str, LedgerTree]:
        chosen = cluster_metadata.chosen_tree(tree, at)
        await format_cluster(znodes, at.root, instance_id, erase, chosen)
        return at.root, chosen

    root, chosen = connection.run("metadata format", address, work)
    out = row_writer(form, COLUMNS)
    out.row({"root": root, "instance_id": instance_id, "tree": cluster_metadata.tree_word(chosen)})
    out.end()
    say(f"metadata format: an empty cluster at {address}")
