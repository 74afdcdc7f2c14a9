"""`ledgerstore explain`: show the bytes at an offset, field by field, or the meaning of a finding.

The rows of a file: offset, size, bytes, name, value, meaning of each field. The rows of findings:

id, severity, title, counts     counts: what the count of such a finding is a number of
cause, remedy, look             what it means, what to do, and the command that shows the place
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recovery.audit.findings.catalogue import KINDS
from recovery.audit.report.commands import example
from recovery.shell import options
from recovery.shell.commands.explain_files import (
    FIELD_COLUMNS,
    explain_cookie,
    explain_journal,
    explain_lineage,
    explain_log,
    explain_mark,
    explain_rows,
)
from recovery.shell.exit_codes import CannotDo, Exit, say
from recovery.shell.listing.journal import journal_id
from recovery.shell.output import Column, Form, free_text, row_writer
from recovery.shell.passwords import Keyring
from recovery.shell.places import any_file
from storage.disk import filenames
from storage.disk.filenames import FileKind
from storage.disk.posix import open_file
from storage.entrylog import format as entrylog_format
from storage.entrylog import lineage_format
from storage.journal import format as journal_format

if TYPE_CHECKING:
    from recovery.audit.findings.catalogue import Kind
    from recovery.shell.commands.explain_files import Explanation
    from recovery.shell.output import Row
    from recovery.shell.passwords import Passwords
    from storage.disk.files import ReadFile


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
@click.argument("place", metavar="[FILE[@OFFSET]|FINDING]", required=False)
@click.option("--findings", is_flag=True, help="List all kinds of findings.")
@options.store_of_file
@options.passwords
@options.output
@click.pass_context
def command(
    ctx: click.Context,
    place: str | None,
    findings: object,
    store: str,
    passwords: Passwords,
    form: Form,
) -> None:
    """Show the bytes at an offset, field by field, or what a finding means.

    FILE is a journal, an entry log, a lastMark, a VERSION, a lineage or a ledgers.rows: a path, or the name
    of a file in STORE. OFFSET is the offset of any byte of the record, decimal or hexadecimal with 0x.
    Without OFFSET the header is shown.

    FINDING is the id of a kind of finding, as `verify` and `audit` print it. The command says what it means,
    what to do about it, and how to look at the place.

    \b
    Examples:
      ledgerstore explain 1a1ed5a57fa.txn@512
      ledgerstore explain 0.log@0x404 /data/bookie
      ledgerstore explain ledgers/current/lastMark
      ledgerstore explain JRN-003
    """
    if findings or (place is not None and _ID.fullmatch(place) and not Path(place).exists()):
        _explain_findings(None if findings else place, form)
        return
    if place is None:
        raise click.UsageError("give a FILE, a FILE@OFFSET, a FINDING, or --findings")
    name, offset = _split(place)
    path = any_file(name, store)
    with open_file(path) as file:
        explanation = _explain(path, file, offset, Keyring(passwords, say))
    out = row_writer(form, FIELD_COLUMNS)
    for row in explanation.rows():
        out.row(row)
    out.end()
    say(f"{path.name}@{offset}: {explanation.finding}")
    ctx.exit(Exit.FINDINGS if explanation.is_wrong else Exit.CLEAN)


def _explain_findings(kind: str | None, form: Form) -> None:

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
        raise click.BadParameter(f"{offset!r} is not an offset", param_hint="FILE@OFFSET")
    return name, number


def _explain(path: Path, file: ReadFile, offset: int, keyring: Keyring) -> Explanation:
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
    if kind in (FileKind.LINEAGE, FileKind.LINEAGE_DRAFT):
        return explain_lineage(file)
    if kind is FileKind.COOKIE:
        return explain_cookie(file)
    if kind in (FileKind.RESERVE, FileKind.RESERVE_DRAFT):
        raise CannotDo(f"{path} is zeros: space that the store keeps for a full disk")
    raise CannotDo(f"{path} is not a file that can be explained")


def _kind_by_magic(file: ReadFile) -> FileKind:
    """Return the kind by the first bytes of the file, for a copy under another name."""
    magic = file.read(0, 4)
    return {
        journal_format.MAGIC: FileKind.JOURNAL,
        entrylog_format.MAGIC: FileKind.ENTRY_LOG,
        lineage_format.MAGIC: FileKind.LINEAGE,
    }.get(magic, FileKind.UNKNOWN)


_LIST_COLUMNS = [Column("id"), Column("severity"), Column("counts", rank=1), Column("title", text=free_text)]
_KIND_COLUMNS = [Column("what"), Column("words", text=free_text)]
_WORDS = {"cause": "meaning", "remedy": "what to do", "counts": "counted", "look": "look at it"}


def explain_kind(place: str, form: Form) -> None:
    """Print one kind of finding."""
    kind = KINDS.get(place.upper())
    if kind is None:
        raise CannotDo(f"unknown finding {place}: `ledgerstore explain --findings` lists all kinds")
    row = _row(kind)
    out = row_writer(form, _KIND_COLUMNS)
    for line in _lines(row) if form is Form.TABLE else [row]:
        out.row(line)
    out.end()
    say(f"{kind.id}: {row['severity']}, {kind.title}")


def list_kinds(form: Form) -> None:
    """Print all kinds of findings."""
    out = row_writer(form, _LIST_COLUMNS)
    for kind in KINDS.values():
        out.row(_row(kind))
    out.end()
    say(f"findings: {len(KINDS)} kinds")


def _row(kind: Kind) -> Row:
    return {
        "id": kind.id,
        "severity": kind.severity.name.lower(),
        "counts": kind.counts,
        "title": kind.title,
        "cause": kind.cause,
        "remedy": kind.remedy,
        "look": example(kind.id),
    }


def _lines(row: Row) -> list[Row]:
    return [{"what": words, "words": row[name]} for name, words in _WORDS.items()]
