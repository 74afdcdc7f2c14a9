"""`ledgerstore crash`: the crash laboratory's commands, each loaded when it is called."""

from __future__ import annotations

from importlib import import_module

import click

_COMMANDS = {
    "run": "Crash a store in every way, and see whether it keeps its promises.",
    "replay": "Try a violation again: does it still show?",
    "report": "Show the report of a run, and write its page anew.",
}


class Laboratory(click.Group):
    """A group that loads a command when it is called, as the one above it does."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = import_module(f"recovery.shell.crash_{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=Laboratory)
def command() -> None:
    """Crash a store in every way that matters, and say what it lost.

    A workload is recorded call by call. Then come power cuts at every call, kills, failing calls, crashes
    inside recoveries, rot, and, with root, power cuts of real file systems; after each the store is opened
    again and held against what it had acknowledged. The store is ours, or any other (docs/crashlab.md).

    \b
    Examples:
      ledgerstore crash run --budget 60s
      ledgerstore crash run my_store_lab.py:lab --layers model,kill
      ledgerstore crash replay crash-report/violations/model-1
    """
