"""`ledgerstore check`: the copies of a cluster's ledgers, read at each bookie.

ledger       its id
segment      the first entry of the segment
index        of the bookie in the ensemble
bookie       whose copies these are
state        lost (not registered), incomplete (certainly missing or damaged entries), or unreachable
entries      that it should have
read         of them
missing      of those that were read
damaged      of those that were read
reason       why an entry could not be read
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from recovery.shell import options
from recovery.shell.cluster_metadata import MetadataConnection, bookie_tls, connection, options_of, uri
from recovery.shell.exit_codes import Exit, say
from recovery.shell.output import Column, Form, counted, free_text, number_column, row_writer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from recovery.autorecovery.audits import Flaw, LedgerOfCluster
    from recovery.autorecovery.check import FragmentFinding
    from recovery.shell.output import Row
    from storage.cluster.client.connections import ConnectionOptions
    from storage.cluster.metadata.address import MetadataAddress
    from storage.cluster.metadata.paths import LedgerPaths
    from storage.cluster.metadata.znodes import Znodes
    from storage.cluster.tls import ClientTls

_COLUMNS = [
    number_column("ledger", width=8),
    number_column("segment", width=8),
    number_column("index", rank=1),
    Column("bookie", width=15),
    Column("state", width=11),
    number_column("entries", width=8),
    number_column("read", width=8),
    number_column("missing", width=8),
    number_column("damaged", width=8),
    Column("reason", text=free_text, rank=2),
]
_PERCENT = {"ends": 0, "all": 100}


@click.command()
@uri
@click.argument("ledger_id", metavar="[LEDGER]", type=click.IntRange(0), required=False)
@click.option("--all", "every", is_flag=True, help="Check all ledgers of the cluster.")
@click.option(
    "--entries",
    type=click.Choice([*_PERCENT]),
    default="ends",
    show_default=True,
    help="Which entries of each copy are read: the first and the last, or all.",
)
@options.output
@connection
@bookie_tls
@click.pass_context
def command(
    ctx: click.Context,
    address: str,
    ledger_id: int | None,
    every: object,
    entries: str,
    form: Form,
    connection: MetadataConnection,
    bookies: ClientTls | None,
) -> None:
    """Read the copies of a ledger, or of all ledgers, at each bookie, and verify their digests.

    Only copies that are not whole are listed. Nothing is changed, and no ledger is marked. The last segment
    of a ledger that is not closed is left out, because it may still change. The command ends with 1 if a copy
    is lost, incomplete or unreachable.

    \b
    Examples:
      ledgerstore check zk://localhost:2181/ledgers 7
      ledgerstore check zk://localhost:2181/ledgers --all
      ledgerstore check zk://localhost:2181/ledgers --all --entries all --json
    """
    if (ledger_id is None) == (not every):
        raise click.UsageError("name one LEDGER, or give --all")

    async def work(znodes: Znodes, cluster: MetadataAddress) -> tuple[int, int, int]:
        return await _check(znodes, cluster, options_of(bookies), ledger_id, _PERCENT[entries], form)

    ledgers, bad, unreadable = connection.run("check", address, work)
    flaws = f", {counted(unreadable, 'node')} that cannot be read" if unreadable else ""
    say(f"check: {counted(ledgers, 'ledger')}, {counted(bad, 'copy is', 'copies are')} not whole{flaws}")
    ctx.exit(Exit.FINDINGS if bad or unreadable else Exit.CLEAN)


async def _check(
    znodes: Znodes,
    address: MetadataAddress,
    connections: ConnectionOptions,
    ledger_id: int | None,
    percent: int,
    form: Form,
) -> tuple[int, int, int]:
    from recovery.autorecovery.audits import check_ledger
    from storage.cluster.client.cluster import open_cluster
    from storage.cluster.metadata.paths import LedgerPaths, read_tree
    from storage.cluster.metadata.registration import read_bookies

    paths = LedgerPaths(address.root, address.tree or await read_tree(znodes, address.root))
    out, ledgers, bad = row_writer(form, _COLUMNS), 0, 0
    problems: list[Flaw] = []
    async with open_cluster(znodes, address.root, paths.tree, connections) as cluster:
        async for ledger in _ledgers(znodes, paths, ledger_id, problems.append):
            ledgers += 1
            bookies = await read_bookies(znodes, address.root)
            for finding in await check_ledger(cluster, ledger, bookies, percent):
                bad += 1
                out.row(_row(ledger.ledger_id, finding))
    out.end()
    for problem in problems:
        say(f"check: {problem}")
    return ledgers, bad, len(problems)


async def _ledgers(
    znodes: Znodes, paths: LedgerPaths, ledger_id: int | None, unreadable: Callable[[Flaw], None]
) -> AsyncIterator[LedgerOfCluster]:
    from recovery.autorecovery.audits import LedgerOfCluster, read_chunks
    from storage.cluster.metadata.update import read_ledger

    if ledger_id is not None:
        yield LedgerOfCluster(ledger_id, (await read_ledger(znodes, paths, ledger_id)).value)
        return
    async for chunk in read_chunks(znodes, paths, unreadable):
        for ledger in chunk:
            yield ledger


def _row(ledger_id: int, finding: FragmentFinding) -> Row:
    fragment = finding.fragment
    return {
        "ledger": ledger_id,
        "segment": fragment.key.segment,
        "index": fragment.key.index,
        "bookie": fragment.bookie,
        "state": finding.state.value,
        "entries": fragment.count,
        "read": finding.read,
        "missing": len(finding.missing),
        "damaged": len(finding.damaged),
        "reason": finding.unreachable,
        "tone": "bad",
    }
