"""`ledgerstore journal`: what a journal holds, and whether it can be believed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from recovery.shell import options
from recovery.shell.exits import Exit, say
from recovery.shell.journal_rows import JournalListing, columns
from recovery.shell.journal_verdict import judge
from recovery.shell.passwords import Keyring
from recovery.shell.places import journal_file, refuse_the_other_kind
from recovery.shell.progress import ByteProgress
from recovery.shell.writers import writer
from storage import filenames
from storage.codec import entrylog
from storage.codec.journal import Header
from storage.codec.seal import StoredSeal
from storage.journal_reader import JournalReader, StoredPadding
from storage.posix_files import open_file

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.shell.passwords import Passwords
    from recovery.shell.wanted import Wanted
    from recovery.shell.writers import Form
    from storage.files import ReadFile


@click.command()
@click.argument("journal", metavar="FILE|ID")
@options.directory
@options.filters
@options.passwords
@options.output
@click.pass_context
def command(
    ctx: click.Context, journal: str, directory: str, wanted: Wanted, passwords: Passwords, form: Form
) -> None:
    """List a journal's records and check their digests.

    The journal is a file, or the hexadecimal id of one in --dir. SIZE counts the length word, so OFFSET plus
    SIZE is the next record. OK is ok, BAD, or ? where nothing can verify the digest. A tail that an
    interrupted write left is information; damage with something sound behind it is a finding.

    \b
    Examples:
      ledgerstore journal --dir /data/bookie 1a1ed5a57fa
      ledgerstore journal 1a1ed5a57fa.txn --ledger 7 --entry 100..200 --payload text
      ledgerstore journal 1a1ed5a57fa.txn --ndjson | jq 'select(.ok == false)'
    """
    path = journal_file(journal, directory)
    with open_file(path) as file:
        refuse_the_other_kind(file, entrylog.MAGIC, "entry log", "log")
        ctx.exit(_list(path, file, wanted, passwords, form))


def _list(path: Path, file: ReadFile, wanted: Wanted, passwords: Passwords, form: Form) -> Exit:
    out = writer(form, columns(wanted.payload, file.size()))
    keyring = Keyring(passwords, say)
    with ByteProgress(path.name, file.size()) as progress:
        listing = JournalListing(file, journal_id(path, file), wanted, keyring, progress.reach)
        for row in listing.rows():
            out.row(row)
    out.end()
    verdict = judge(listing)
    say(f"journal {path.name.removesuffix('.txn')}: {verdict.words}")
    return Exit.FINDINGS if verdict.is_finding or keyring.misfits else Exit.CLEAN


def journal_id(path: Path, file: ReadFile) -> int:
    """From the name; a renamed journal of ours says it in its first seal."""
    name = filenames.parse(path.name)
    if name.kind in (filenames.FileKind.JOURNAL, filenames.FileKind.JOURNAL_DRAFT):
        return name.number or 0
    reader = JournalReader(file, 0)
    if isinstance(reader.header, Header) and reader.header.salt is not None:
        for item in reader.items():
            if isinstance(item, StoredPadding) and isinstance(item.seal, StoredSeal):
                return item.seal.seal.journal_id
    return 0
