"""`ledgerstore ledgers`: list the ledgers of a store, or of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from recovery.shell import cluster_metadata, options
from recovery.shell.exit_codes import Exit, say
from recovery.shell.listing.ledger import COLUMNS, ledger_cells
from recovery.shell.listing.store_view import open_store_view
from recovery.shell.output import counted, row_writer

if TYPE_CHECKING:
    from recovery.shell.cluster_metadata import MetadataConnection
    from recovery.shell.output import Form, Row


@click.command()
@options.store
@click.option("--metadata", "with_metadata", is_flag=True, help="Of a cluster: also print the metadata.")
@cluster_metadata.connection
@options.output
@click.pass_context
def command(
    ctx: click.Context, store: str, with_metadata: object, connection: MetadataConnection, form: Form
) -> None:
    """List the ledgers of a store, with the entries that are only in its journals.

    STORE is a store, which another process may have open, or a bookie's directory. BYTES is the length of all
    payloads, as the last entry states it. LAC is the largest last add confirmed that the writer of the ledger
    has stated. PROVEN is no if the key of the ledger is not known; such a ledger accepts no more entries. IN
    is where its entries are: in a journal after the mark, in an entry log, or in both.

    If the directory has no index of ledgerstore, all entry logs are read to build one in memory.

    STORE can also be the address of a cluster's metadata: then the ids of all its ledgers are listed,
    ascending, and with --metadata what the metadata says of each. Nodes that are no ledgers, and metadata
    that cannot be read, are listed with the reason, and the command ends with 1. The options of the
    connection are for this.

    \b
    Examples:
      ledgerstore ledgers /data/store
      ledgerstore ledgers /data/bookie --ndjson | jq 'select(.fenced | not)'
      ledgerstore ledgers zk://localhost:2181/ledgers --metadata
    """
    if cluster_metadata.is_address(store):
        from recovery.shell.listing.cluster_ledgers import list_ids, list_metadata

        list_all = list_metadata if with_metadata else list_ids
        listed = connection.run("ledgers", store, lambda znodes, at: list_all(znodes, at, form))
        say(f"ledgers: {listed}")
        ctx.exit(Exit.FINDINGS if listed.flaws else Exit.CLEAN)
    counts = _LedgerCounts()
    with open_store_view(store) as view:
        out = row_writer(form, COLUMNS)
        for ledger_id in view.ledgers():
            row = ledger_cells(view, ledger_id)
            out.row(row)
            counts.count(row)
        out.end()
        say(f"ledgers: {counts}")
        ctx.exit(Exit.FINDINGS if counts.unreadable or view.findings else Exit.CLEAN)


class _LedgerCounts:
    """Counts of the listing, for its last line."""

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
