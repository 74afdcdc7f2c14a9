"""`ledgerstore metadata`: the group of the commands for what a cluster keeps in ZooKeeper."""

from __future__ import annotations

from typing import ClassVar

import click

from recovery.shell.lazy_group import CommandEntry, LazyGroup


class MetadataGroup(LazyGroup):
    """The commands for metadata."""

    entries: ClassVar = {
        "serve": CommandEntry(
            "recovery.shell.commands.metadata_serve", "Serve ZooKeeper's protocol from one directory."
        ),
        "status": CommandEntry(
            "recovery.shell.commands.metadata_status", "Show what the directory of a server holds."
        ),
        "format": CommandEntry(
            "recovery.shell.commands.metadata_format", "Make a cluster, or erase what one holds."
        ),
        "nuke": CommandEntry("recovery.shell.commands.metadata_nuke", "Delete a cluster's metadata."),
        "backup": CommandEntry("recovery.shell.commands.metadata_backup", "Save a cluster's metadata."),
        "restore": CommandEntry(
            "recovery.shell.commands.metadata_restore", "Make a cluster of a backup of its metadata."
        ),
        "copy": CommandEntry(
            "recovery.shell.commands.metadata_copy", "Move a stopped cluster to other servers."
        ),
    }


@click.group(cls=MetadataGroup)
def command() -> None:
    """Serve and look after the metadata of a cluster, as ZooKeeper keeps it (docs/metadata.md).

    \b
    Examples:
      ledgerstore metadata serve /data/metadata
      ledgerstore metadata status /data/metadata
      ledgerstore metadata backup zk://localhost:2181/ledgers ledgers.backup
    """
