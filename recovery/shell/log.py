"""`ledgerstore log`: what an entry log holds, and whether it can be believed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from recovery.shell import log_metadata, options
from recovery.shell.exits import Exit, say
from recovery.shell.log_rows import LogListing, columns
from recovery.shell.log_verdict import judge
from recovery.shell.passwords import Keyring
from recovery.shell.places import log_file, refuse_the_other_kind
from recovery.shell.progress import ByteProgress
from recovery.shell.tally import counted, reason
from recovery.shell.wanted import Wanted
from recovery.shell.writers import writer
from storage import filenames
from storage.codec import journal
from storage.codec.survey import EntryVerifier
from storage.entrylog_reader import EntryLogReader
from storage.entrylog_scan import MapSource
from storage.outcome import Damaged
from storage.posix_files import open_file

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.shell.passwords import Passwords
    from recovery.shell.writers import Form
    from storage.files import ReadFile


@click.command()
@click.argument("log", metavar="FILE|ID")
@click.option("--metadata", is_flag=True, help="Bytes per ledger and the header's facts, not the entries.")
@options.directory
@options.filters
@options.passwords
@options.output
@click.pass_context
def command(
    ctx: click.Context,
    log: str,
    metadata: object,
    directory: str,
    wanted: Wanted,
    passwords: Passwords,
    form: Form,
) -> None:
    """List an entry log's entries, or its bytes per ledger.

    The log is a file, or the hexadecimal id of one in --dir. OFFSET is that of the length word, LOCATION what
    the index holds. SIZE counts the length word. OK is ok, BAD, or ? where nothing can verify the digest.
    Damaged bytes are listed as holes with their exact extent, and the listing goes on behind them.

    \b
    Examples:
      ledgerstore log --dir /data/bookie 1f
      ledgerstore log 1f.log --ledger 7 --password-file secrets
      ledgerstore log --metadata 1f.log --json
    """
    if metadata and wanted != Wanted():
        raise click.UsageError("--metadata covers the whole log: it takes no filters")
    path = log_file(log, directory)
    with open_file(path) as file:
        refuse_the_other_kind(file, journal.MAGIC, "journal", "journal")
        ctx.exit(_sum_up(path, file, form) if metadata else _list(path, file, wanted, passwords, form))


def _list(path: Path, file: ReadFile, wanted: Wanted, passwords: Passwords, form: Form) -> Exit:
    out = writer(form, columns(wanted.payload, file.size()))
    keyring = Keyring(passwords, say)
    with ByteProgress(path.name, file.size()) as progress:
        listing = LogListing(file, _log_id(path), wanted, keyring, progress.reach)
        for row in listing.rows():
            out.row(row)
    out.end()
    verdict = judge(listing)
    say(f"log {path.name.removesuffix('.log')}: {verdict.words}")
    return Exit.FINDINGS if verdict.is_finding or keyring.misfits else Exit.CLEAN


def _sum_up(path: Path, file: ReadFile, form: Form) -> Exit:
    reader = EntryLogReader(file, _log_id(path), EntryVerifier())
    metadata = log_metadata.load(reader)
    out = writer(form, log_metadata.COLUMNS)
    for row in log_metadata.rows(reader, metadata):
        out.row(row)
    out.end()
    total = sum(metadata.sizes.values())
    words = f"{counted(len(metadata.sizes), 'ledger')}, {counted(total, 'byte')}, by {metadata.source.value}"
    wrong = reader.ledgers_map() if metadata.source is MapSource.SCAN else None
    flawed = next((it for it in (reader.header, wrong, metadata.stop) if isinstance(it, Damaged)), None)
    say(f"log {path.name.removesuffix('.log')}: {words}" + (f"; {reason(flawed)}" if flawed else ""))
    return Exit.CLEAN if flawed is None else Exit.FINDINGS


def _log_id(path: Path) -> int:
    name = filenames.parse(path.name)
    if name.kind in (filenames.FileKind.JOURNAL, filenames.FileKind.LAST_MARK) or name.number is None:
        say(f"{path.name} holds no log id: locations are those of log 0")
        return 0
    return name.number
