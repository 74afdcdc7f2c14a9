"""`ledgerstore journal`: list the records of a journal and check them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from recovery.shell import options
from recovery.shell.exit_codes import Exit, say
from recovery.shell.listing.journal import JournalListing, journal_columns, journal_id, journal_verdict
from recovery.shell.output import ByteProgressBar, row_writer
from recovery.shell.passwords import Keyring
from recovery.shell.places import check_is_journal, journal_file
from storage.disk.posix import open_file

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.shell.options import RowFilter
    from recovery.shell.output import Form
    from recovery.shell.passwords import Passwords
    from storage.disk.files import ReadFile


@click.command()
@click.argument("journal", metavar="FILE|ID")
@options.store_of_file
@options.filters
@options.passwords
@options.output
@click.pass_context
def command(
    ctx: click.Context, journal: str, store: str, row_filter: RowFilter, passwords: Passwords, form: Form
) -> None:
    """List the records of a journal and check their digests.

    Give the path of the journal, or its hexadecimal id in STORE. SIZE includes the length word, so that
    OFFSET plus SIZE is the offset of the next record. OK is ok, BAD, or ? if the digest cannot be checked. A
    torn tail, which an interrupted write leaves, is no finding; damage before sound records is a finding.

    \b
    Examples:
      ledgerstore journal 1a1ed5a57fa /data/bookie
      ledgerstore journal 1a1ed5a57fa.txn --ledger 7 --entry 100..200 --payload text
      ledgerstore journal 1a1ed5a57fa.txn --ndjson | jq 'select(.ok == false)'
    """
    path = journal_file(journal, store)
    with open_file(path) as file:
        check_is_journal(path, file)
        ctx.exit(_list(path, file, row_filter, passwords, form))


def _list(path: Path, file: ReadFile, row_filter: RowFilter, passwords: Passwords, form: Form) -> Exit:
    out = row_writer(form, journal_columns(row_filter.payload, file.size()))
    keyring = Keyring(passwords, say)
    with ByteProgressBar(path.name, file.size()) as progress:
        listing = JournalListing(file, journal_id(path, file), row_filter, keyring, progress.reach)
        for row in listing.rows():
            out.row(row)
    out.end()
    verdict = journal_verdict(listing)
    say(f"journal {path.name.removesuffix('.txn')}: {verdict.words}")
    return Exit.FINDINGS if verdict.is_finding or keyring.misfits else Exit.CLEAN
