"""`ledgerstore underreplicated`: the ledgers that are marked for repair.

ledger      its id
age_s       seconds since it was marked, or the mark was renewed
suspects    the bookies that are suspected to lack entries
locked_by   the process that repairs it now
flaw        what is wrong with the mark or the lock
why         why the last repair has failed, as a worker says, and which one
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from recovery.shell import options
from recovery.shell.cluster_metadata import MetadataConnection, connection, uri
from recovery.shell.exit_codes import Exit, say
from recovery.shell.output import Form, counted, row_writer

if TYPE_CHECKING:
    from storage.cluster.metadata.address import MetadataAddress
    from storage.cluster.metadata.znodes import Znodes


@click.command()
@uri
@options.output
@connection
@click.pass_context
def command(ctx: click.Context, address: str, form: Form, connection: MetadataConnection) -> None:
    """List the ledgers of the cluster at URI that are marked, because they may have too few copies.

    It ends with 1 if there are any.

    \b
    Examples:
      ledgerstore underreplicated zk://localhost:2181/ledgers
      ledgerstore underreplicated zk://localhost:2181/ledgers --json | jq 'length'
    """

    async def work(znodes: Znodes, cluster: MetadataAddress) -> int:
        from recovery.shell.listing.marked_ledgers import COLUMNS, marked_rows

        out, count = row_writer(form, COLUMNS), 0
        async for row in marked_rows(znodes, cluster.root, int(time.time() * 1000)):
            out.row(row)
            count += 1
        out.end()
        return count

    count = connection.run("underreplicated", address, work)
    say(f"underreplicated: {counted(count, 'ledger')} marked")
    ctx.exit(Exit.FINDINGS if count else Exit.CLEAN)
