"""`ledgerstore`: the group of commands, each loaded when it is called.

Nothing but click is imported here: `ledgerstore --help` and a completion in the shell have to be instant.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from recovery.shell.exits import Exit, refusal

if TYPE_CHECKING:
    from io import TextIOWrapper


class _Entry(NamedTuple):
    module: str
    short_help: str


# In the order in which one meets a store: what it promises, what is here, where replay begins, what the files
# hold, one record; then what changes something.
COMMANDS = {
    "demo": _Entry("recovery.shell.demo", "Write, kill the writer, recover, count what was lost."),
    "files": _Entry("recovery.shell.files", "What a directory holds: journals, entry logs, marks."),
    "mark": _Entry("recovery.shell.mark", "Where replay begins: the lastMark of each ledger directory."),
    "journal": _Entry("recovery.shell.journal", "List a journal's records and check their digests."),
    "log": _Entry("recovery.shell.log", "List an entry log's entries, or its bytes per ledger."),
    "ledgers": _Entry("recovery.shell.ledgers", "List a store's ledgers: entries, bytes, fenced, where."),
    "ledger": _Entry("recovery.shell.ledger", "Show what is known of a ledger, and where its entries are."),
    "read": _Entry("recovery.shell.read", "Read a ledger's entries and check their digests."),
    "explain": _Entry("recovery.shell.explain", "The bytes around an offset; what a finding means."),
    "verify": _Entry("recovery.shell.verify", "Read a store or a file whole, and say what is wrong in it."),
    "audit": _Entry("recovery.shell.audit", "The same for many stores, on Spark too, with a report."),
    "rebuild-index": _Entry("recovery.shell.rebuild_index", "Make the index again from logs and journals."),
    "handover": _Entry("recovery.shell.handover", "Make a store ready for an Apache BookKeeper bookie."),
    "crash": _Entry("recovery.shell.crash", "Crash a store in every way, and say what it lost."),
}

# BookieShell's names, for hands that know them.
ALIASES = {
    "lastmark": ["mark"],
    "readjournal": ["journal"],
    "readlog": ["log"],
    "readlogmetadata": ["log", "--metadata"],
    "listfilesondisc": ["files"],
    "listledgers": ["ledgers"],
    "readledger": ["read"],
    "localconsistencycheck": ["verify"],
    "rebuild-db-ledger-locations-index": ["rebuild-index"],
    "rebuild-db-ledgers-index": ["rebuild-index"],
}


class Shell(click.Group):
    """A group that knows its commands by name and loads one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[cmd_name].module).command
        command.short_help = COMMANDS[cmd_name].short_help
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        return super().resolve_command(ctx, [*ALIASES.get(args[0], args[:1]), *args[1:]])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.short_help) for name, entry in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Whoever read our output has seen enough.
            _discard_stdout()
            ctx.exit(Exit.CLEAN)
        except KeyboardInterrupt:
            ctx.exit(Exit.INTERRUPTED)
        except OSError as error:
            raise refusal(error) from error


def _discard_stdout() -> None:
    """What is still buffered must not meet the closed pipe again when the interpreter ends."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def _show_version(ctx: click.Context, _: click.Parameter, wanted: object) -> None:
    if wanted:
        from storage._version import __version__

        click.echo(f"ledgerstore {__version__}")
        ctx.exit(Exit.CLEAN)


@click.group(cls=Shell, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """Look into the files of a ledger store or of an Apache BookKeeper bookie.

    Every command but demo, rebuild-index, handover and crash opens a store's files for reading only, and
    works beside a live writer. Rows go to stdout, everything else to stderr; --json and --ndjson print the
    same rows for programs.

    \b
    Exit codes: 0 clean, 1 findings, 2 usage, 3 could not do the job, 4 stopped part-way,
    130 interrupted.
    """


def main() -> None:
    """The entry point of the `ledgerstore` script."""
    stdout: TextIOWrapper = sys.stdout  # type: ignore[assignment]
    # A path that is not UTF-8, or a terminal that cannot show a letter, is no reason to fail.
    stdout.reconfigure(errors="backslashreplace")
    cli.main(prog_name="ledgerstore")
