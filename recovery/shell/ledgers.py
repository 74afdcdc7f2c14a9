"""`ledgerstore ledgers`: all ledgers of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from recovery.shell import ledger_cells, options
from recovery.shell.exits import Exit, say
from recovery.shell.look import looking_at
from recovery.shell.tally import counted
from recovery.shell.writers import writer

if TYPE_CHECKING:
    from recovery.shell.columns import Row
    from recovery.shell.writers import Form


@click.command()
@click.argument("directory", metavar="[DIR]", default=".")
@options.output
@click.pass_context
def command(ctx: click.Context, directory: str, form: Form) -> None:
    """List the ledgers of a store, what is only in its journals included.

    DIR is a store, perhaps open in another process, or a bookie's directory. BYTES are those of all payloads,
    as the last entry counts them. LAC is the largest last add confirmed that the ledger's writer has said.
    PROVEN is no where nothing tells the ledger's key: it takes no more entries then. IN tells where the
    entries stand: in a journal from the mark on, in an entry log, or in both.

    A directory without an index of ours is read whole, and its index made in memory.

    \b
    Examples:
      ledgerstore ledgers /data/store
      ledgerstore ledgers /data/bookie --ndjson | jq 'select(.fenced | not)'
    """
    tally = _Tally()
    with looking_at(directory) as view:
        out = writer(form, ledger_cells.COLUMNS)
        for ledger_id in view.ledgers():
            row = ledger_cells.describe(view, ledger_id)
            out.row(row)
            tally.count(row)
        out.end()
        say(f"ledgers: {tally}")
        ctx.exit(Exit.FINDINGS if tally.unreadable or view.findings else Exit.CLEAN)


class _Tally:
    """What was listed, in one line."""

    def __init__(self) -> None:
        self.unreadable = 0
        self._ledgers = self._entries = self._bytes = 0

    def count(self, row: Row) -> None:
        self._ledgers += 1
        self._entries += int(row["entries"] or 0)
        self._bytes += int(row["bytes"] or 0)
        self.unreadable += row["flaw"] is not None

    def __str__(self) -> str:
        parts = [counted(self._ledgers, "ledger"), counted(self._entries, "entry", "entries")]
        parts.append(counted(self._bytes, "byte"))
        parts += [f"the last entry of {self.unreadable} UNREADABLE"] if self.unreadable else []
        return ", ".join(parts)
