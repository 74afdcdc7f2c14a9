"""`ledgerstore explain`: the bytes around an offset, field by field; or what a finding means."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recovery.shell import options
from recovery.shell.exhibit import COLUMNS
from recovery.shell.exits import CannotDo, Exit, say
from recovery.shell.explain_files import explain_cookie, explain_mark, explain_rows
from recovery.shell.explain_records import explain_journal, explain_log
from recovery.shell.journal import journal_id
from recovery.shell.passwords import Keyring
from recovery.shell.places import any_file
from recovery.shell.writers import writer
from storage import filenames
from storage.codec import entrylog, journal
from storage.filenames import FileKind
from storage.posix_files import open_file

if TYPE_CHECKING:
    from recovery.shell.exhibit import Exhibit
    from recovery.shell.passwords import Passwords
    from recovery.shell.writers import Form
    from storage.files import ReadFile

_ID = re.compile(r"[A-Za-z]{3}-\d{3}")
_JOURNALS = (FileKind.JOURNAL, FileKind.JOURNAL_DRAFT)
_LOGS = (
    FileKind.ENTRY_LOG,
    FileKind.ENTRY_LOG_DRAFT,
    FileKind.COMPACTING_LOG,
    FileKind.COMPACTED_LOG,
)
_MARKS = (FileKind.LAST_MARK, FileKind.LAST_MARK_DRAFT)
_ROWS = (FileKind.LEDGER_ROWS, FileKind.LEDGER_ROWS_DRAFT)


@click.command()
@click.argument("place", metavar="FILE[@OFFSET]|FINDING", required=False)
@click.option("--findings", is_flag=True, help="List all kinds of findings.")
@options.directory
@options.passwords
@options.output
@click.pass_context
def command(
    ctx: click.Context,
    place: str | None,
    findings: object,
    directory: str,
    passwords: Passwords,
    form: Form,
) -> None:
    """The bytes around an offset, field by field; or what a finding means.

    FILE is a journal, an entry log, a lastMark, a VERSION or a ledgers.rows: a path, or a name somewhere in
    --dir. OFFSET is decimal or 0x hexadecimal, and any byte of the record will do; without it the header is
    explained.

    FINDING is the id of a kind of finding, as `verify` and `audit` tell it: what it means, what to do,
    and how to look at such a place.

    \b
    Examples:
      ledgerstore explain 1a1ed5a57fa.txn@512
      ledgerstore explain --dir /data/bookie 0.log@0x404
      ledgerstore explain ledgers/current/lastMark
      ledgerstore explain JRN-003
    """
    if findings or (place is not None and _ID.fullmatch(place) and not Path(place).exists()):
        _explain_findings(None if findings else place, form)
        return
    if place is None:
        raise click.UsageError("name a FILE, a FILE@OFFSET, a FINDING, or --findings")
    name, offset = _split(place)
    path = any_file(name, directory)
    with open_file(path) as file:
        exhibit = _explain(path, file, offset, Keyring(passwords, say))
    out = writer(form, COLUMNS)
    for row in exhibit.rows():
        out.row(row)
    out.end()
    say(f"{path.name}@{offset}: {exhibit.finding}")
    ctx.exit(Exit.FINDINGS if exhibit.is_wrong else Exit.CLEAN)


def _explain_findings(kind: str | None, form: Form) -> None:
    from recovery.shell.explain_findings import explain_kind, list_kinds

    if kind is None:
        list_kinds(form)
    else:
        explain_kind(kind, form)


def _split(place: str) -> tuple[str, int]:
    name, at, offset = place.rpartition("@")
    if not at:
        return place, 0
    try:
        number = int(offset, 0)
    except ValueError:
        number = -1
    if number < 0:
        raise click.BadParameter(f"{offset!r} is no offset", param_hint="FILE@OFFSET")
    return name, number


def _explain(path: Path, file: ReadFile, offset: int, keyring: Keyring) -> Exhibit:
    name = filenames.parse(path.name)
    kind = name.kind if name.kind is not FileKind.UNKNOWN else _kind_by_magic(file)
    if kind in _JOURNALS:
        return explain_journal(file, journal_id(path, file), offset, keyring)
    if kind in _LOGS:
        return explain_log(file, name.number or 0, offset, keyring)
    if kind in _MARKS:
        return explain_mark(file)
    if kind in _ROWS:
        return explain_rows(file, offset)
    if kind is FileKind.COOKIE:
        return explain_cookie(file)
    raise CannotDo(f"{path} is none of the files that can be explained")


def _kind_by_magic(file: ReadFile) -> FileKind:
    """A copy under another name still tells what it is."""
    magic = file.read(0, 4)
    return {journal.MAGIC: FileKind.JOURNAL, entrylog.MAGIC: FileKind.ENTRY_LOG}.get(magic, FileKind.UNKNOWN)
