"""`ledgerstore metadata restore`: make a cluster of a backup."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from recovery.shell import cluster_metadata
from recovery.shell.exit_codes import StoreRefused, failure_of, say
from recovery.shell.output import counted

if TYPE_CHECKING:
    from recovery.shell.cluster_metadata import MetadataConnection
    from storage.cluster.metadata.format import SavedNode


@click.command()
@click.argument("file")
@cluster_metadata.uri
@cluster_metadata.connection
def command(file: str, address: str, connection: MetadataConnection) -> None:
    """Make a cluster at URI of the backup in FILE. Nothing may be at the root.

    The whole file is checked first. Ids of ledgers go on from where they were when the backup was made, and
    the instance id is the same, so that the bookies of the cluster start. Ledgers that were made or deleted
    after the backup are as they were then.

    \b
    Examples:
      ledgerstore metadata restore ledgers.backup zk://localhost:2181/ledgers
    """
    from storage.cluster.metadata.format import restore

    nodes = _read(Path(file))
    count = connection.run("metadata restore", address, lambda znodes, at: restore(znodes, at.root, nodes))
    say(f"metadata restore: {counted(count, 'node')} at {address}")


def _read(path: Path) -> list[SavedNode]:
    from storage.cluster.errors import InvalidMetadata
    from storage.cluster.metadata.format import decode_backup

    try:
        with path.open("rb") as lines:
            return [*decode_backup(str(path), lines)]
    except OSError as error:
        raise failure_of(error) from error
    except InvalidMetadata as error:
        raise StoreRefused(str(error)) from error
