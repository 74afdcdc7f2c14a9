"""`ledgerstore mark`: show where replay begins.

dir, mark               the directory, and the name of the lastMark file
journal                 hexadecimal id of the journal in which replay begins
file, offset            name of that journal, and the offset in it
state                   ok, no mark, empty (replay everything), torn, damaged, journal missing
valid                   true, false, or null if there is no mark
generation, newest_journal, log, log_end, rows_sequence      in the trailer of ledgerstore, otherwise null
flaw, detail            a stable name of what is wrong; an explanation
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from recovery.shell import options
from recovery.shell.exit_codes import CannotDo, Exit, say
from recovery.shell.listing.record import reason
from recovery.shell.output import Column, counted, free_text, number_column, row_writer
from recovery.shell.places import current_directories
from storage.checkpoint import mark as lastmark
from storage.checkpoint import mark_format
from storage.disk import filenames
from storage.disk.filenames import FileKind
from storage.disk.posix import PosixDirectory
from storage.entry.read_result import Damaged, Torn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.shell.output import Form, Row
    from recovery.shell.places import CurrentDirectory


@click.command()
@options.store
@options.output
@click.pass_context
def command(ctx: click.Context, store: str, form: Form) -> None:
    """Show where replay begins: the lastMark of each ledger directory.

    STORE is a store, a bookie's directory, one of their `current` directories, or a lastMark file. If the
    journals can be found, the command checks that the journal of the mark exists.

    \b
    Examples:
      ledgerstore mark /data/bookie
      ledgerstore mark /data/bookie/ledgers/current/lastMark --json
    """
    out = row_writer(form, _COLUMNS)
    states = []
    for row in mark_rows(Path(store)):
        out.row(row)
        states.append(row)
    out.end()
    wrong = [row for row in states if row["valid"] is False]
    words = f"{len(wrong)} not valid" if wrong else ", ".join(sorted({str(row["state"]) for row in states}))
    found = sum(row["state"] != "no mark" for row in states)
    say(f"mark: {counted(found, 'mark')}, {words}" if found else "mark: no mark")
    ctx.exit(Exit.FINDINGS if wrong else Exit.CLEAN)


_COLUMNS = [
    Column("dir"),
    Column("mark", rank=2),
    Column("journal", width=11, rank=1),
    Column("file"),
    number_column("offset"),
    Column("state"),
    Column("valid"),
    Column("detail", text=free_text),
]

_ALL = "replay begins with the oldest journal"


def mark_rows(path: Path) -> Iterator[Row]:
    """Yield the mark in a file, or the marks of all ledger directories below a directory."""
    if path.is_file():
        yield mark_row(path.parent, path.name, _journals_beside(path.parent))
        return
    places = current_directories(path)
    ledgers = [place.path for place in places if place.holds_ledgers]
    if not ledgers:
        raise CannotDo(f"no ledger directory in {path}")
    journals = _journals(places)
    for directory in ledgers:
        known = journals or _journals_beside(directory)
        for name in _mark_names(directory):
            yield mark_row(directory, name, known)


def _mark_names(directory: Path) -> list[str]:
    found = [entry.name for entry in directory.iterdir()]
    return sorted(name for name in found if filenames.parse(name).kind is FileKind.LAST_MARK) or [
        filenames.LAST_MARK
    ]


def _journals(places: list[CurrentDirectory]) -> list[Path]:
    return [place.path for place in places if place.holds_journals]


def _journals_beside(directory: Path) -> list[Path]:
    """Return the directories with journals: this one, or the journal directory of the same store."""
    beside = directory.resolve().parent.parent / filenames.JOURNAL_DIRECTORY / filenames.CURRENT
    return [found for found in (directory, beside) if found.is_dir() and any(found.glob("*.txn"))]


def mark_row(directory: Path, name: str, journals: list[Path]) -> Row:
    """Return the row of one mark.

    `journals` are the directories in which its journal may be, if they are known.
    """
    mark = lastmark.load(PosixDirectory(directory), name)
    cells = _empty_row(directory, name)
    match mark:
        case lastmark.NoMark():
            return cells | {"state": "no mark", "detail": _ALL}
        case mark_format.EmptyMark():
            return cells | {"state": "empty", "detail": _ALL}
        case Torn() | Damaged():
            state = "torn" if isinstance(mark, Torn) else "damaged"
            return cells | {
                "state": state,
                "valid": False,
                "flaw": mark.flaw.name,
                "detail": reason(mark),
            }
        case mark_format.Mark():
            return cells | _position(mark) | _trailer(mark.trailer) | _journal_state(mark, journals)


def _empty_row(directory: Path, name: str) -> Row:
    cells: Row = {"dir": str(directory), "mark": name}
    rest = ("journal", "file", "offset", "state", "valid", "generation", "newest_journal", "log", "log_end")
    return cells | dict.fromkeys((*rest, "rows_sequence", "flaw", "detail"))


def _position(mark: mark_format.Mark) -> Row:
    journal_id = mark.position.journal_id
    if journal_id == 0:
        return {"offset": mark.position.offset, "detail": _ALL}
    return {
        "journal": f"{journal_id:x}",
        "file": filenames.journal(journal_id),
        "offset": mark.position.offset,
    }


def _trailer(trailer: mark_format.Trailer | None) -> Row:
    if trailer is None:
        return {}
    end = trailer.log_end
    log = f"log {end.log_id:x} to {end.offset}" if end else "no log"
    return {
        "generation": trailer.generation,
        "newest_journal": f"{trailer.newest_journal:x}",
        "log": f"{end.log_id:x}" if end else None,
        "log_end": end.offset if end else None,
        "rows_sequence": trailer.rows_sequence,
        "detail": f"generation {trailer.generation}, newest journal {trailer.newest_journal:x}, {log}, "
        f"rows to group {trailer.rows_sequence}",
    }


def _journal_state(mark: mark_format.Mark, journals: list[Path]) -> Row:
    """Check that the journal of the mark exists. Journal 0 means none, as in a new directory."""
    name = filenames.journal(mark.position.journal_id)
    if mark.position.journal_id == 0 or not journals:
        return {"state": "ok", "valid": True}
    if any((directory / name).is_file() for directory in journals):
        return {"state": "ok", "valid": True}
    where = ", ".join(map(str, journals))
    return {
        "state": "journal missing",
        "valid": False,
        "flaw": "JOURNAL_MISSING",
        "detail": f"there is no {name} in {where}",
    }
