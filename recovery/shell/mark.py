"""`ledgerstore mark`: from where the journals must be replayed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from recovery.shell import marks, options
from recovery.shell.exits import Exit, say
from recovery.shell.tally import counted
from recovery.shell.writers import writer

if TYPE_CHECKING:
    from recovery.shell.writers import Form


@click.command()
@click.argument("path", metavar="[PATH]", default=".")
@options.output
@click.pass_context
def command(ctx: click.Context, path: str, form: Form) -> None:
    """Where replay begins: the lastMark of each ledger directory.

    PATH is a store or a bookie's directory, one `current` directory, or a lastMark file. Where the journals
    are known it is checked that the one named is there.

    \b
    Examples:
      ledgerstore mark /data/bookie
      ledgerstore mark /data/bookie/ledgers/current/lastMark --json
    """
    out = writer(form, marks.COLUMNS)
    states = []
    for row in marks.rows(Path(path)):
        out.row(row)
        states.append(row)
    out.end()
    wrong = [row for row in states if row["valid"] is False]
    words = (
        f"{len(wrong)} not to be believed"
        if wrong
        else ", ".join(sorted({str(row["state"]) for row in states}))
    )
    say(f"mark: {counted(len(states), 'mark')}, {words}")
    ctx.exit(Exit.FINDINGS if wrong else Exit.CLEAN)
