"""`ledgerstore autorecovery status`: what the metadata say of auto-recovery.

enabled            whether ledgers are marked and repaired
auditor            the process that is elected; null if none runs
candidates         processes that run, the auditor among them
delay_s            how long one lost bookie may take to come back
writable           bookies that take adds
read_only          bookies that serve reads only
lost               bookies with a cookie that are not registered
marked             ledgers that may have too few copies
locked             those of them that are being repaired
oldest_s           the age of the oldest mark
last_check         when the last complete check of all ledgers began, in UTC
last_entry_check   the same for the check of all entries
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from recovery.shell import options
from recovery.shell.cluster_metadata import MetadataConnection, connection, uri
from recovery.shell.exit_codes import Exit, say
from recovery.shell.output import Align, Column, Form, counted, free_text, key_value_rows, row_writer

if TYPE_CHECKING:
    from recovery.shell.output import Row
    from storage.cluster.metadata.address import MetadataAddress
    from storage.cluster.metadata.znodes import Znodes

_COLUMNS = [Column("figure"), Column("value", Align.RIGHT), Column("meaning", text=free_text)]
_MEANINGS = {
    "enabled": "whether ledgers are marked and repaired",
    "auditor": "the process that is elected",
    "candidates": "processes that run, the auditor among them",
    "delay_s": "seconds that one lost bookie may take to come back",
    "writable": "bookies that take adds",
    "read_only": "bookies that serve reads only",
    "lost": "bookies with a cookie that are not registered",
    "marked": "ledgers that may have too few copies",
    "locked": "those of them that are being repaired",
    "oldest_s": "seconds since the oldest mark",
    "last_check": "when the last complete check of all ledgers began",
    "last_entry_check": "when the last complete check of all entries began",
}


@click.command()
@uri
@options.output
@connection
@click.pass_context
def command(ctx: click.Context, address: str, form: Form, connection: MetadataConnection) -> None:
    """Show the auditor, the switches, lost bookies and marked ledgers of the cluster at URI.

    It ends with 1 if a bookie is lost or a ledger is marked. `ledgerstore underreplicated` lists the ledgers.

    \b
    Examples:
      ledgerstore autorecovery status zk://localhost:2181/ledgers
      watch -n 2 ledgerstore autorecovery status zk://localhost:2181/ledgers
    """
    row = connection.run("autorecovery status", address, _look)
    out = row_writer(form, _COLUMNS if form is Form.TABLE else [])
    for line in key_value_rows(row, _MEANINGS, ("marked",)) if form is Form.TABLE else [row]:
        out.row(line)
    out.end()
    marked = int(row["marked"] or 0)
    say(f"autorecovery status: {counted(marked, 'ledger')} marked, lost bookies: {row['lost'] or 'none'}")
    ctx.exit(Exit.FINDINGS if marked or row["lost"] else Exit.CLEAN)


async def _look(znodes: Znodes, address: MetadataAddress) -> Row:
    from recovery.shell.listing.marked_ledgers import marked_rows
    from storage.cluster.metadata import underreplication
    from storage.cluster.metadata.cookies import list_cookies
    from storage.cluster.metadata.election import election_path, read_auditor
    from storage.cluster.metadata.registration import read_bookies
    from storage.cluster.metadata.underreplication import CheckKind
    from storage.cluster.metadata.znodes import Gone

    root = address.root
    bookies = await read_bookies(znodes, root)
    lost = sorted(frozenset(await list_cookies(znodes, root)) - bookies.all)
    auditor = await read_auditor(znodes, root)
    votes = await znodes.children(election_path(root))
    delay = await underreplication.read_delay(znodes, root)
    marked = locked = 0
    oldest: int | None = None
    async for row in marked_rows(znodes, root, int(time.time() * 1000)):
        marked += 1
        locked += row["locked_by"] is not None
        if isinstance(age := row["age_s"], int):
            oldest = age if oldest is None else max(oldest, age)
    return {
        "enabled": await underreplication.is_enabled(znodes, root),
        "auditor": None if isinstance(auditor, Gone) else auditor,
        "candidates": 0 if isinstance(votes, Gone) else len(votes.names),
        "delay_s": 0 if isinstance(delay, Gone) else delay,
        "writable": len(bookies.writable),
        "read_only": len(bookies.read_only),
        "lost": ",".join(lost) or None,
        "marked": marked,
        "locked": locked,
        "oldest_s": oldest,
        "last_check": _time(await underreplication.read_check_time(znodes, root, CheckKind.ALL_LEDGERS)),
        "last_entry_check": _time(await underreplication.read_check_time(znodes, root, CheckKind.REPLICAS)),
    }


def _time(time_ms: int | None) -> str | None:
    if time_ms is None:
        return None
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")
