"""`ledgerstore log`: list the entries of an entry log and check them, or list its bytes per ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from recovery.shell import options
from recovery.shell.exit_codes import Exit, say
from recovery.shell.listing.log import (
    METADATA_COLUMNS,
    LogListing,
    load_metadata,
    log_columns,
    log_verdict,
    metadata_rows,
)
from recovery.shell.listing.record import reason
from recovery.shell.options import RowFilter
from recovery.shell.output import ByteProgressBar, counted, row_writer
from recovery.shell.passwords import Keyring
from recovery.shell.places import check_is_log, log_file
from storage.disk import filenames
from storage.disk.posix import open_file
from storage.entry.digest_inference import EntryVerifier
from storage.entry.read_result import Damaged
from storage.entrylog.reader import EntryLogReader
from storage.entrylog.scan import MapSource

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.shell.output import Form
    from recovery.shell.passwords import Passwords
    from storage.disk.files import ReadFile


@click.command()
@click.argument("log", metavar="FILE|ID")
@click.option("--metadata", is_flag=True, help="List the header and the bytes per ledger, not the entries.")
@options.store_of_file
@options.filters
@options.passwords
@options.output
@click.pass_context
def command(
    ctx: click.Context,
    log: str,
    metadata: object,
    store: str,
    row_filter: RowFilter,
    passwords: Passwords,
    form: Form,
) -> None:
    """List the entries of an entry log, or its bytes per ledger.

    Give the path of the log, or its hexadecimal id in STORE. OFFSET is the offset of the length word,
    LOCATION is the value in the index, SIZE includes the length word. OK is ok, BAD, or ? if the digest
    cannot be checked. Damaged bytes are listed as holes with their exact extent, and the listing continues
    after them.

    \b
    Examples:
      ledgerstore log 1f /data/bookie
      ledgerstore log 1f.log --ledger 7 --password-file secrets
      ledgerstore log --metadata 1f.log --json
    """
    if metadata and row_filter != RowFilter():
        raise click.UsageError("--metadata covers the whole log and cannot be used with filters")
    path = log_file(log, store)
    with open_file(path) as file:
        check_is_log(path, file)
        ctx.exit(
            _list_metadata(path, file, form) if metadata else _list(path, file, row_filter, passwords, form)
        )


def _list(path: Path, file: ReadFile, row_filter: RowFilter, passwords: Passwords, form: Form) -> Exit:
    out = row_writer(form, log_columns(row_filter.payload, file.size()))
    keyring = Keyring(passwords, say)
    with ByteProgressBar(path.name, file.size()) as progress:
        listing = LogListing(file, _log_id(path), row_filter, keyring, progress.reach)
        for row in listing.rows():
            out.row(row)
    out.end()
    verdict = log_verdict(listing)
    say(f"log {path.name.removesuffix('.log')}: {verdict.words}")
    return Exit.FINDINGS if verdict.is_finding or keyring.misfits else Exit.CLEAN


def _list_metadata(path: Path, file: ReadFile, form: Form) -> Exit:
    reader = EntryLogReader(file, _log_id(path), EntryVerifier())
    metadata = load_metadata(reader)
    out = row_writer(form, METADATA_COLUMNS)
    for row in metadata_rows(reader, metadata):
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
        say(f"the name {path.name} has no log id: locations are those of log 0")
        return 0
    return name.number
