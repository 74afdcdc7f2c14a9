"""`ledgerstore cluster`: the group of the commands for a cluster."""

from __future__ import annotations

from typing import ClassVar

import click

from recovery.shell.lazy_group import CommandEntry, LazyGroup

_MEMBERS = "recovery.shell.commands.cluster_members"


class ClusterGroup(LazyGroup):
    """The commands for a cluster, those of every day first."""

    entries: ClassVar = {
        "up": CommandEntry(
            "recovery.shell.commands.cluster_up", "Start a cluster on this machine, and show its processes."
        ),
        "status": CommandEntry(
            "recovery.shell.commands.cluster_status", "Show the processes of a cluster on this machine."
        ),
        "down": CommandEntry("recovery.shell.commands.cluster_down", "Stop all processes in order."),
        "kill": CommandEntry(_MEMBERS, "Kill one process without notice (SIGKILL).", "kill"),
        "pause": CommandEntry(_MEMBERS, "Halt one process, with its connections open (SIGSTOP).", "pause"),
        "resume": CommandEntry(_MEMBERS, "Let a paused process go on (SIGCONT).", "resume"),
        "restart": CommandEntry(_MEMBERS, "Stop one process in order if it runs, and start it.", "restart"),
        "init": CommandEntry("recovery.shell.commands.cluster_init", "Make the metadata of a new cluster."),
    }


@click.group(cls=ClusterGroup)
def command() -> None:
    """Run a cluster on this machine, and make failures happen (docs/bookie.md); init a cluster in ZooKeeper.

    `cluster up` starts a metadata server and bookies as processes. The other commands find them by the
    directory, and can be used from another terminal. `cluster init` only makes the metadata of a cluster,
    whose bookies are then started one by one.

    \b
    Examples:
      ledgerstore cluster up
      ledgerstore cluster kill 2
      ledgerstore cluster init zk://localhost:2181/ledgers
    """
