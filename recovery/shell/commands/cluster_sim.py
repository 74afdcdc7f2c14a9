"""`ledgerstore cluster-sim`: the group of the cluster laboratory's commands."""

from __future__ import annotations

from typing import ClassVar

import click

from recovery.shell.lazy_group import CommandEntry, LazyGroup


class ClusterLaboratory(LazyGroup):
    """The commands of the cluster laboratory."""

    entries: ClassVar = {
        "run": CommandEntry(
            "recovery.shell.commands.cluster_sim_run", "Play random schedules and small worlds, and report."
        ),
        "replay": CommandEntry(
            "recovery.shell.commands.cluster_sim_replay", "Play one schedule again, message by message."
        ),
    }


@click.group(cls=ClusterLaboratory)
def command() -> None:
    """Play the client of several bookies against bookies, links and metadata that fail (docs/replication.md).

    Writers, recoveries and readers are the real state machines. Bookies, links and metadata are models:
    bookies crash, and messages are lost, late or repeated. The invariants are checked at every step. A
    schedule is its seed.

    \b
    Examples:
      ledgerstore cluster-sim run
      ledgerstore cluster-sim run --kind autorecovery --schedules 20000
      ledgerstore cluster-sim run --schedules 0 --worlds small
      ledgerstore cluster-sim replay 4599 --minimise
    """
