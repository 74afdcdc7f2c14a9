"""`ledgerstore`: the list of commands, each imported when it is called.

This module imports nothing but click, so that `ledgerstore --help` and completion in the shell stay fast.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import click

from recovery.shell.exit_codes import Exit, NotInstalled, Unexpected, failure_of
from recovery.shell.lazy_group import CommandEntry, LazyGroup

if TYPE_CHECKING:
    from collections.abc import Sequence
    from io import TextIOWrapper


# The order is that of a first visit: try the promise, list files, find where replay begins, look into files,
# then into one record. Commands that change a store come last.
COMMANDS = {
    "demo": CommandEntry(
        "recovery.shell.commands.demo", "Write, kill the writer, recover, count what was lost."
    ),
    "files": CommandEntry(
        "recovery.shell.commands.files", "List the files of a store: journals, entry logs, marks."
    ),
    "mark": CommandEntry(
        "recovery.shell.commands.mark", "Show where replay begins: the lastMark of each directory."
    ),
    "journal": CommandEntry(
        "recovery.shell.commands.journal", "List the records of a journal and check their digests."
    ),
    "log": CommandEntry(
        "recovery.shell.commands.log", "List the entries of an entry log, or its bytes per ledger."
    ),
    "ledgers": CommandEntry(
        "recovery.shell.commands.ledgers", "List the ledgers of a store or of a cluster."
    ),
    "ledger": CommandEntry(
        "recovery.shell.commands.ledger", "Show one ledger, and where its entries are stored."
    ),
    "read": CommandEntry(
        "recovery.shell.commands.read", "Read the entries of a ledger and check their digests."
    ),
    "stats": CommandEntry(
        "recovery.shell.commands.stats", "Show the figures of a store: ledgers, entries, files."
    ),
    "du": CommandEntry("recovery.shell.commands.du", "Show what takes the space of a store, live and dead."),
    "gc": CommandEntry(
        "recovery.shell.commands.gc", "Show why each entry log is still there; with --run, give space back."
    ),
    "explain": CommandEntry(
        "recovery.shell.commands.explain", "Show the bytes at an offset, or what a finding means."
    ),
    "verify": CommandEntry("recovery.shell.commands.verify", "Check every byte of a store or of a file."),
    "audit": CommandEntry(
        "recovery.shell.commands.audit", "Check many stores, also on Spark, and write a report."
    ),
    "rebuild-index": CommandEntry(
        "recovery.shell.commands.rebuild_index", "Rebuild the index from logs and journals."
    ),
    "handover": CommandEntry(
        "recovery.shell.commands.handover", "Prepare a store for an Apache BookKeeper bookie."
    ),
    "metadata": CommandEntry(
        "recovery.shell.commands.metadata", "Serve, save and restore the metadata of a cluster."
    ),
    "cluster": CommandEntry(
        "recovery.shell.commands.cluster", "Run a cluster on this machine, or make one in ZooKeeper."
    ),
    "topic": CommandEntry("recovery.shell.commands.topic", "Write, read and manage topics."),
    "bookie": CommandEntry("recovery.shell.commands.bookie", "Run a bookie on one directory."),
    "cookie": CommandEntry(
        "recovery.shell.commands.cookie", "Show, create and delete the cookies of a cluster's bookies."
    ),
    "autorecovery": CommandEntry(
        "recovery.shell.commands.autorecovery", "Copy what a lost bookie held to other bookies."
    ),
    "check": CommandEntry(
        "recovery.shell.commands.check", "Read the copies of ledgers at each bookie, and verify them."
    ),
    "recover": CommandEntry(
        "recovery.shell.commands.empty_bookie", "Copy what a lost bookie held, in this process.", "recover"
    ),
    "decommission": CommandEntry(
        "recovery.shell.commands.empty_bookie",
        "Remove a bookie that is gone from a cluster.",
        "decommission",
    ),
    "underreplicated": CommandEntry(
        "recovery.shell.commands.underreplicated", "List the ledgers that are marked for repair."
    ),
    "top": CommandEntry("recovery.shell.commands.top", "Show what the bookies of a cluster do, live."),
    "crash": CommandEntry(
        "recovery.shell.commands.crash", "Crash a store in every way, and report what it lost."
    ),
    "cluster-sim": CommandEntry(
        "recovery.shell.commands.cluster_sim", "Play the cluster client against failing bookies."
    ),
}

# Operators know these names from Apache BookKeeper's BookieShell.
ALIASES = {
    "lastmark": ["mark"],
    "readjournal": ["journal"],
    "readlog": ["log"],
    "readlogmetadata": ["log", "--metadata"],
    "listfilesondisc": ["files"],
    "listledgers": ["ledgers"],
    "ledgermetadata": ["ledger"],
    "metaformat": ["metadata", "format"],
    "initnewcluster": ["cluster", "init"],
    "nukeexistingcluster": ["metadata", "nuke"],
    "listunderreplicated": ["underreplicated"],
    "decommissionbookie": ["decommission"],
    "triggeraudit": ["autorecovery", "trigger"],
    "cookie_get": ["cookie", "show"],
    "cookie_create": ["cookie", "create"],
    "cookie_delete": ["cookie", "delete"],
    "whoisauditor": ["autorecovery", "status", "--once"],
    "readledger": ["read"],
    "localconsistencycheck": ["verify"],
    "rebuild-db-ledger-locations-index": ["rebuild-index"],
    "rebuild-db-ledgers-index": ["rebuild-index"],
}

_INSTALLED_BY = {
    "duckdb": "ledgerstore",
    "kazoo": "'ledgerstore[cluster]'",
    "numpy": "ledgerstore",
    "pyarrow": "'ledgerstore[audit]'",
    "pyspark": "'ledgerstore[audit]'",
}


class Shell(LazyGroup):
    """The group of all commands. It turns every exception into an exit code and one line on stderr."""

    entries = COMMANDS
    aliases = ALIASES

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002 - click's signature
        **extra: Any,
    ) -> Any:
        """Run the command and end the process, as click does, but with the exit codes of `Exit`."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        words = sys.argv[1:] if args is None else list(args)
        try:
            code = super().main(words, prog_name, complete_var, standalone_mode=False, **extra)
        except click.Abort:
            code = Exit.INTERRUPTED
        except click.ClickException as error:
            _show(_with_near_options(error) if isinstance(error, click.NoSuchOption) else error, words)
            code = error.exit_code
        sys.exit(code if isinstance(code, int) else Exit.CLEAN)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError:
            # The reader of the pipe has closed it, for example `head`: that is no error.
            _discard_stdout()
            ctx.exit(Exit.CLEAN)
        except KeyboardInterrupt:
            ctx.exit(Exit.INTERRUPTED)
        except Exception as error:
            _refuse(error, ctx)


def _refuse(error: Exception, ctx: click.Context) -> NoReturn:
    """Raise the error again as one that click prints in one line."""
    if ctx.params["debug"]:
        import traceback

        traceback.print_exception(error)
    if isinstance(error, OSError):
        raise failure_of(error) from error
    if isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        if package in _INSTALLED_BY:
            message = f"{package} is not installed: pip install {_INSTALLED_BY[package]}"
            raise NotInstalled(message) from error
    raise Unexpected(error) from error


def _with_near_options(error: click.NoSuchOption) -> click.NoSuchOption:
    """Return the error with those of its suggestions whose names are near also without the two dashes.

    click compares the dashes too, so that it takes --conf for a mistyped --json.
    """
    from difflib import get_close_matches

    names = {option.lstrip("-"): option for option in error.possibilities or ()}
    near = get_close_matches(error.option_name.lstrip("-"), names)
    return click.NoSuchOption(error.option_name, error.message, [names[name] for name in near], error.ctx)


def _show(error: click.ClickException, words: Sequence[str]) -> None:
    """Print the error as text, or as JSON if the arguments ask for JSON."""
    if not {"--json", "--ndjson"} & set(words):
        error.show()
        return
    import json

    sys.stdout.flush()
    fields = {"error": error.format_message(), "exit_code": int(error.exit_code)}
    click.echo(json.dumps(fields, ensure_ascii=False), err=True)


def _discard_stdout() -> None:
    """Send buffered output to /dev/null, otherwise the interpreter meets the closed pipe when it ends."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def _show_version(ctx: click.Context, _: click.Parameter, is_given: object) -> None:
    if is_given:
        from storage import __version__

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
@click.option(
    "--debug", is_flag=True, envvar="LEDGERSTORE_DEBUG", help="Print the traceback of an unexpected error."
)
def cli(debug: object) -> None:
    """Inspect, check and repair ledger stores and the directories of Apache BookKeeper bookies.

    STORE is the same in every command: the directory of a store, or of a bookie. It is the last argument. The
    default is $LEDGERSTORE_DIR, or the current directory if that variable is not set. rebuild-index,
    handover, bookie and metadata serve change the store or make it, therefore they never use the current
    directory by default.

    All commands except demo, gc --run, rebuild-index, handover, topic, metadata serve, bookie, cluster up,
    cluster restart and crash only read the files of a store, and can run while another process writes to it.
    Rows go to stdout, everything else to stderr. With --json or --ndjson the same rows are printed as JSON,
    and an error is one JSON object on stderr.

    \b
    Exit codes:
      0    done, and nothing is wrong
      1    done, and something is wrong: see the rows and the last line
      2    usage error
      3    not possible: no such file, no permission, not a store
      4    stopped before the end
      69   a package that the command needs is not installed
      70   unexpected error: a bug in ledgerstore; --debug prints the traceback
      130  interrupted

    \b
    Completion in the shell:
      bash  eval "$(_LEDGERSTORE_COMPLETE=bash_source ledgerstore)"
      zsh   eval "$(_LEDGERSTORE_COMPLETE=zsh_source ledgerstore)"
      fish  _LEDGERSTORE_COMPLETE=fish_source ledgerstore | source
    """


def main() -> None:
    """The entry point of the `ledgerstore` script."""
    stdout: TextIOWrapper = sys.stdout  # type: ignore[assignment]
    # Escape characters that stdout cannot encode, such as those of a path that is not UTF-8, instead of
    # failing.
    stdout.reconfigure(errors="backslashreplace")
    cli.main(prog_name="ledgerstore")
