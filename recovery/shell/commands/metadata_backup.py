"""`ledgerstore metadata backup`: save a cluster's metadata in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from recovery.shell import cluster_metadata
from recovery.shell.exit_codes import CannotDo, failure_of, say
from recovery.shell.output import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recovery.shell.cluster_metadata import MetadataConnection
    from storage.cluster.metadata.address import MetadataAddress
    from storage.cluster.metadata.format import SavedNode
    from storage.cluster.metadata.znodes import Znodes


@click.command()
@cluster_metadata.uri
@click.argument("file")
@cluster_metadata.connection
def command(address: str, file: str, connection: MetadataConnection) -> None:
    """Save the metadata of the cluster at URI in FILE, as lines of JSON with a checksum.

    FILE must not exist; it appears when it is whole. Ephemeral nodes are left out: registered bookies,
    locks and votes. The nodes of a cluster that is in use are not of one moment, which is said.

    \b
    Examples:
      ledgerstore metadata backup zk://localhost:2181/ledgers ledgers.backup
    """
    from storage.cluster.errors import BookiesRegistered
    from storage.cluster.metadata.format import check_stopped, encode_backup, save

    async def work(znodes: Znodes, at: MetadataAddress) -> tuple[str, list[SavedNode], str | None]:
        in_use = None
        try:
            await check_stopped(znodes, at.root)
        except BookiesRegistered as error:
            in_use = str(error)
        return at.root, [node async for node in save(znodes, at.root)], in_use

    path = Path(file)
    _check_free(path)
    root, nodes, in_use = connection.run("metadata backup", address, work)
    _write(path, encode_backup(root, nodes))
    if in_use is not None:
        say(f"the backup is not of one moment: {in_use}")
    say(f"metadata backup: {counted(len(nodes), 'node')} in {path}")


def _check_free(path: Path) -> None:
    if path.exists():
        raise CannotDo(f"{path} exists already: nothing was saved")
    if not path.parent.is_dir():
        raise CannotDo(f"no such directory: {path.parent}")


def _write(path: Path, lines: Iterable[bytes]) -> None:
    from storage.disk.posix import PosixDirectory
    from storage.disk.replace import publish_draft, write_draft

    directory = PosixDirectory(path.parent)
    try:
        write_draft(directory, path.name, [b"".join(lines)])
        publish_draft(directory, path.name)
    except OSError as error:
        raise failure_of(error) from error
