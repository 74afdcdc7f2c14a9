"""`ledgerstore autorecovery`: the group of the commands for the repair of lost copies."""

from __future__ import annotations

from typing import ClassVar

import click

from recovery.shell.lazy_group import CommandEntry, LazyGroup

_SWITCHES = "recovery.shell.commands.autorecovery_switches"


class AutoRecoveryGroup(LazyGroup):
    """The commands for auto-recovery."""

    entries: ClassVar = {
        "run": CommandEntry(
            "recovery.shell.commands.autorecovery_run", "Run an auditor's candidate and a worker."
        ),
        "status": CommandEntry(
            "recovery.shell.commands.autorecovery_status", "Show the auditor, the switches and the marks."
        ),
        "enable": CommandEntry(_SWITCHES, "Let ledgers be repaired again.", "enable"),
        "disable": CommandEntry(_SWITCHES, "Let no ledger be repaired.", "disable"),
        "delay": CommandEntry(_SWITCHES, "Show or set the delay after a bookie was lost.", "delay"),
        "trigger": CommandEntry(_SWITCHES, "Let the auditor look at all ledgers now.", "trigger"),
    }


@click.group(cls=AutoRecoveryGroup)
def command() -> None:
    """Copy what a lost bookie held to other bookies, and show and control that (docs/autorecovery.md).

    One process of the cluster is elected auditor: it marks the ledgers of lost bookies. The workers of all
    processes take marked ledgers, copy what is missing, and change the metadata. Auditors and workers of
    Apache BookKeeper use the same marks and locks.

    \b
    Examples:
      ledgerstore autorecovery run zk://localhost:2181/ledgers
      ledgerstore autorecovery status zk://localhost:2181/ledgers
      ledgerstore autorecovery disable zk://localhost:2181/ledgers
    """
