"""`ledgerstore autorecovery status`: the rows are those of `recovery.shell.listing.auto_recovery`."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from recovery.shell import options
from recovery.shell.cluster_metadata import MetadataConnection, connection, uri
from recovery.shell.exit_codes import Exit, say
from recovery.shell.output import Form, counted, drawn_table, key_value_rows, row_writer

if TYPE_CHECKING:
    from rich.console import Group

    from recovery.shell.listing.auto_recovery import AutoRecoveryLook
    from recovery.shell.output import Row
    from storage.cluster.metadata.address import MetadataAddress
    from storage.cluster.metadata.znodes import Znodes

_SHARE = 5
"""The pause is at least so many times as long as a look, because reading many marks takes long."""


@click.command()
@uri
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="The time until it is drawn or printed again.",
)
@click.option("--once", is_flag=True, help="Look once, and end.")
@options.output
@connection
@click.pass_context
def command(
    ctx: click.Context,
    address: str,
    interval: float,
    once: object,
    form: Form,
    connection: MetadataConnection,
) -> None:
    """Show the auditor, lost bookies, marks, workers and stuck ledgers of the cluster at URI.

    On a terminal the view goes on until Ctrl-C; else, and with --json, it is printed once. With --ndjson a
    row is printed after each interval. The rates and the reasons come from the workers, which publish them in
    the metadata every two seconds; processes of Apache BookKeeper do not.

    If it is printed once, the command ends with 1 if a bookie is lost or a ledger is marked. `ledgerstore
    underreplicated` lists all marked ledgers.

    \b
    Examples:
      ledgerstore autorecovery status zk://localhost:2181/ledgers
      ledgerstore autorecovery status zk://localhost:2181/ledgers --json | jq '.[0].bytes_per_s'
    """
    is_once = once or form is Form.JSON or (form is Form.TABLE and not sys.stdout.isatty())

    async def work(znodes: Znodes, cluster: MetadataAddress) -> AutoRecoveryLook:
        from recovery.shell.listing.auto_recovery import look

        if not is_once:
            await _repeat(znodes, cluster.root, interval, form)
        return await look(znodes, cluster.root, int(time.time() * 1000))

    found = connection.run("autorecovery status", address, work)
    _print(found, form)
    marked, lost = int(found.figures["marked"] or 0), found.figures["lost"]
    say(f"autorecovery status: {counted(marked, 'ledger')} marked, lost bookies: {lost or 'none'}")
    ctx.exit(Exit.FINDINGS if marked or lost else Exit.CLEAN)


async def _repeat(znodes: Znodes, root: str, interval: float, form: Form) -> None:
    """Look again and again until Ctrl-C, which ends the command."""
    import asyncio

    from rich.live import Live

    from recovery.shell.listing.auto_recovery import look
    from storage.cluster.errors import MetadataUnavailable, SessionExpired

    with ExitStack() as held:
        live = held.enter_context(Live(auto_refresh=False)) if form is Form.TABLE else None
        while True:
            began = time.monotonic()
            try:
                found = await look(znodes, root, int(time.time() * 1000))
            except SessionExpired:
                raise
            except MetadataUnavailable as error:
                say(f"autorecovery status: the metadata do not answer: {error}")
            else:
                if live is None:
                    _print(found, form)
                else:
                    live.update(drawn(found), refresh=True)
            await asyncio.sleep(max(interval, _SHARE * (time.monotonic() - began)))


def _figures(found: AutoRecoveryLook) -> list[Row]:
    from recovery.shell.listing.auto_recovery import MEANINGS

    return list(key_value_rows(found.figures, MEANINGS, ("lost", "marked", "marked_older", "stuck")))


def _print(found: AutoRecoveryLook, form: Form) -> None:
    from recovery.shell.listing.auto_recovery import FIGURES, STUCK, WORKERS

    if form is not Form.TABLE:
        out = row_writer(form, [])
        out.row(found.figures)
        out.end()
        return
    for columns, rows in ((FIGURES, _figures(found)), (WORKERS, found.workers), (STUCK, found.stuck)):
        if rows:
            if columns is not FIGURES:
                click.echo()
            out = row_writer(form, columns)
            for row in rows:
                out.row(row)
            out.end()


def drawn(found: AutoRecoveryLook) -> Group:
    """Return the tables as one that is drawn again in its place."""
    from rich.console import Group

    from recovery.shell.listing.auto_recovery import FIGURES, STUCK, WORKERS

    tables = [drawn_table(FIGURES, _figures(found))]
    for columns, rows in ((WORKERS, found.workers), (STUCK, found.stuck)):
        if rows:
            tables += [drawn_table([], []), drawn_table(columns, rows)]
    return Group(*tables)
