"""`ledgerstore cluster init`: make the metadata of a new cluster.

root, instance_id, tree     of the cluster
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import click

from recovery.shell import cluster_metadata, options
from recovery.shell.exit_codes import say
from recovery.shell.output import Column, free_text, row_writer

if TYPE_CHECKING:
    from recovery.shell.cluster_metadata import MetadataConnection
    from recovery.shell.output import Form
    from storage.cluster.metadata.address import MetadataAddress
    from storage.cluster.metadata.paths import LedgerTree
    from storage.cluster.metadata.znodes import Znodes

COLUMNS = [Column("root"), Column("instance_id"), Column("tree", text=free_text)]


@click.command()
@cluster_metadata.uri
@cluster_metadata.tree
@cluster_metadata.connection
@options.output
def command(address: str, tree: str | None, connection: MetadataConnection, form: Form) -> None:
    """Make the metadata of a new cluster, as BookKeeper's initnewcluster does.

    URI is the address of the metadata, such as zk://host:2181,host2:2181/ledgers. The nodes are made with one
    request, all or none. The command ends with 3 if the root is there already.

    \b
    Examples:
      ledgerstore cluster init zk://localhost:2181/ledgers
      ledgerstore cluster init zk+longhierarchical://localhost/ledgers --json
    """
    from storage.cluster.metadata.format import init_cluster

    instance_id = str(uuid4())

    async def work(znodes: Znodes, at: MetadataAddress) -> tuple[str, LedgerTree]:
        chosen = cluster_metadata.chosen_tree(tree, at)
        await init_cluster(znodes, at.root, instance_id, chosen)
        return at.root, chosen

    root, chosen = connection.run("cluster init", address, work)
    out = row_writer(form, COLUMNS)
    out.row({"root": root, "instance_id": instance_id, "tree": cluster_metadata.tree_word(chosen)})
    out.end()
    say(f"cluster init: a new cluster at {address}")
