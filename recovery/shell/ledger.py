"""`ledgerstore ledger`: everything about one ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from recovery.shell import ledger_rows, options
from recovery.shell.exits import Exit, say
from recovery.shell.look import looking_at, must_exist
from recovery.shell.tally import counted
from recovery.shell.writers import writer

if TYPE_CHECKING:
    from recovery.shell.writers import Form


@click.command()
@click.argument("ledger_id", metavar="ID", type=options.NumberType())
@click.argument("directory", metavar="[DIR]", default=".")
@click.option("--all", "everything", is_flag=True, help="All ranges of ids, however many there are.")
@options.output
@click.pass_context
def command(ctx: click.Context, ledger_id: int, directory: str, everything: object, form: Form) -> None:
    """Show what is known of a ledger, and where its entries are.

    DIR is a store, perhaps open in another process, or a bookie's directory. The rows: the ledger itself, its
    ids in ranges without a gap, the journal and the entry logs that hold its entries, where its newest entry
    stands, and the tombstone of an earlier ledger of that id.

    \b
    Examples:
      ledgerstore ledger 7 /data/store
      ledgerstore ledger 7 /data/store --json | jq '.[] | select(.kind == "log")'
    """
    with looking_at(directory) as view:
        must_exist(view, ledger_id)
        out = writer(form, ledger_rows.COLUMNS)
        unreadable, words = 0, ""
        for row in ledger_rows.rows(view, ledger_id, *([None] if everything else [])):
            out.row(row)
            unreadable += row["flaw"] is not None
            if row["kind"] == "ledger":
                words = counted(int(row["entries"] or 0), "entry", "entries")
        out.end()
        say(f"ledger {ledger_id}: {words}" + (", not all of it can be read" if unreadable else ""))
        ctx.exit(Exit.FINDINGS if unreadable or view.findings else Exit.CLEAN)
