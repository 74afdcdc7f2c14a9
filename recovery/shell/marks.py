"""The rows of lastMark files.

dir, mark               the directory, and the file in it
journal                 the hexadecimal id of the journal in which replay begins
file, offset            its name, and the place in it
state                   ok, no mark, empty (replay everything), torn, damaged, journal missing
valid                   true, false, or null where there is no mark to judge
generation, newest_journal, log, log_end, rows_sequence      our trailer's, else null
flaw, detail            a stable name of what is wrong; words
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.shell.columns import Column, numbers
from recovery.shell.entry_cells import free_text
from recovery.shell.exits import CannotDo
from recovery.shell.places import current_directories
from recovery.shell.tally import reason
from storage import filenames, lastmark
from storage.codec import mark as codec
from storage.filenames import FileKind
from storage.outcome import Damaged, Torn
from storage.posix_files import PosixDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from recovery.shell.columns import Row
    from recovery.shell.places import Place


COLUMNS = [
    Column("dir"),
    Column("mark", rank=2),
    Column("journal", width=11, rank=1),
    Column("file"),
    numbers("offset"),
    Column("state"),
    Column("valid"),
    Column("detail", text=free_text),
]

_ALL = "replay begins with the oldest journal"


def rows(path: Path) -> Iterator[Row]:
    """The marks that a path means: one file, or those of all ledger directories."""
    if path.is_file():
        yield row(path.parent, path.name, _journals_beside(path.parent))
        return
    places = current_directories(path)
    ledgers = [place.path for place in places if place.holds_ledgers]
    if not ledgers:
        raise CannotDo(f"no ledger directory in {path}")
    journals = _journals(places)
    for directory in ledgers:
        known = journals or _journals_beside(directory)
        for name in _mark_names(directory):
            yield row(directory, name, known)


def _mark_names(directory: Path) -> list[str]:
    found = [entry.name for entry in directory.iterdir()]
    return sorted(name for name in found if filenames.parse(name).kind is FileKind.LAST_MARK) or [
        filenames.LAST_MARK
    ]


def _journals(places: list[Place]) -> list[Path]:
    return [place.path for place in places if place.holds_journals]


def _journals_beside(directory: Path) -> list[Path]:
    """Journals in the directory itself, or where a store keeps them beside it."""
    beside = directory.resolve().parent.parent / filenames.JOURNAL_DIRECTORY / filenames.CURRENT
    return [found for found in (directory, beside) if found.is_dir() and any(found.glob("*.txn"))]


def row(directory: Path, name: str, journals: list[Path]) -> Row:
    """One mark. `journals` are the directories to look for its journal; none when they are not known."""
    mark = lastmark.load(PosixDirectory(directory), name)
    cells = _blank(directory, name)
    match mark:
        case lastmark.NoMark():
            return cells | {"state": "no mark", "detail": _ALL}
        case codec.EmptyMark():
            return cells | {"state": "empty", "detail": _ALL}
        case Torn() | Damaged():
            state = "torn" if isinstance(mark, Torn) else "damaged"
            return cells | {
                "state": state,
                "valid": False,
                "flaw": mark.flaw.name,
                "detail": reason(mark),
            }
        case codec.Mark():
            return cells | _position(mark) | _trailer(mark.trailer) | _standing(mark, journals)


def _blank(directory: Path, name: str) -> Row:
    cells: Row = {"dir": str(directory), "mark": name}
    rest = ("journal", "file", "offset", "state", "valid", "generation", "newest_journal", "log", "log_end")
    return cells | dict.fromkeys((*rest, "rows_sequence", "flaw", "detail"))


def _position(mark: codec.Mark) -> Row:
    journal_id = mark.position.journal_id
    if journal_id == 0:
        return {"offset": mark.position.offset, "detail": _ALL}
    return {
        "journal": f"{journal_id:x}",
        "file": filenames.journal(journal_id),
        "offset": mark.position.offset,
    }


def _trailer(trailer: codec.Trailer | None) -> Row:
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


def _standing(mark: codec.Mark, journals: list[Path]) -> Row:
    """Whether the journal it names is there. Journal 0 names none: it is the mark of a fresh directory."""
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
