"""The rows of a directory.

kind                    what the name stands for; unknown for what neither we nor a bookie would write
path                    relative to the directory that was asked for; a directory ends in /
bytes                   of the file, or of everything in the directory
sealed                  of an entry log: true or false; else null
owner                   ours, or bookie, where the file tells; else null
version                 of the journal's, the log's or the cookie's format
flaw, detail            a stable name of what is wrong; words
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.shell.columns import Column, numbers
from recovery.shell.entry_cells import free_text
from recovery.shell.log_metadata import origin_words
from recovery.shell.tally import reason
from storage import cookie, filenames, lastmark
from storage.codec import entrylog, journal, mark
from storage.codec.cookie import Cookie
from storage.codec.survey import EntryVerifier
from storage.entrylog_reader import EntryLogReader
from storage.filenames import CURRENT, FileKind, FileName
from storage.journal_reader import JournalReader
from storage.outcome import Damaged, Torn
from storage.posix_files import PosixDirectory, open_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from recovery.shell.columns import Row


COLUMNS = [
    Column("kind"),
    Column("path"),
    numbers("bytes"),
    Column("sealed"),
    Column("owner"),
    numbers("version", rank=1),
    Column("detail", text=free_text),
]

_OURS = "ours"
_BOOKIE = "bookie"
_JOURNALS = (FileKind.JOURNAL, FileKind.JOURNAL_DRAFT)
_LOGS = (
    FileKind.ENTRY_LOG,
    FileKind.ENTRY_LOG_DRAFT,
    FileKind.COMPACTING_LOG,
    FileKind.COMPACTED_LOG,
)


def rows(root: Path) -> Iterator[Row]:
    """Every file of a store or of one of its directories; what is none of its own is one row."""
    yield from _below(root, root)


def _below(directory: Path, root: Path) -> Iterator[Row]:
    for path in sorted(directory.iterdir(), key=_order):
        if path.is_dir() and not path.is_symlink() and _is_part_of_store(path):
            yield from _below(path, root)
        else:
            row = _row(path, root)
            if row is not None:
                yield row


def _is_part_of_store(path: Path) -> bool:
    return path.name == CURRENT or (path / CURRENT).is_dir()


def _order(path: Path) -> tuple[str, int, str]:
    """Files of one kind by number: 10.log comes behind 9.log. Directories of the store by name."""
    if path.is_dir() and _is_part_of_store(path):
        return "", -1, path.name
    name = filenames.parse(path.name)
    return name.kind.value, -1 if name.number is None else name.number, path.name


def _row(path: Path, root: Path) -> Row | None:
    """`None` for a file that a live writer has removed in the meantime."""
    name = filenames.parse(path.name)
    relative = str(path.relative_to(root))
    try:
        if path.is_dir():
            size = sum(found.stat().st_size for found in path.rglob("*") if found.is_file())
            return _blank(name, relative + "/", size)
        row = _blank(name, relative, path.stat().st_size)
        return row | _header_cells(path, name)
    except FileNotFoundError:
        return None if not path.is_symlink() else _blank(name, relative, 0) | {"detail": "a dangling link"}


def _blank(name: FileName, path: str, size: int) -> Row:
    row: Row = {"kind": name.kind.value, "path": path, "bytes": size}
    return row | dict.fromkeys(("sealed", "owner", "version", "flaw", "detail"))


def _header_cells(path: Path, name: FileName) -> Row:
    if name.kind in _JOURNALS:
        return _journal_cells(path, name.number or 0)
    if name.kind in _LOGS:
        return _log_cells(path, name.number or 0)
    if name.kind is FileKind.LAST_MARK:
        return _mark_cells(path)
    return _cookie_cells(path) if name.kind is FileKind.COOKIE else {}


def _mark_cells(path: Path) -> Row:
    match lastmark.load(PosixDirectory(path.parent), path.name):
        case mark.Mark(trailer=trailer):
            return {"owner": _BOOKIE if trailer is None else _OURS}
        case mark.EmptyMark():
            return {"detail": "empty: every journal is replayed"}
        case Torn() | Damaged() as wrong:
            return _flaw(wrong)
    return {}


def _cookie_cells(path: Path) -> Row:
    match cookie.load(PosixDirectory(path.parent)):
        case Cookie(layout_version=version, bookie_host=host):
            return {"version": version, "detail": host}
        case Torn() | Damaged() as wrong:
            return _flaw(wrong)
    return {}


def _flaw(wrong: Torn | Damaged) -> Row:
    return {"flaw": wrong.flaw.name, "detail": reason(wrong)}


def _journal_cells(path: Path, journal_id: int) -> Row:
    with open_file(path) as file:
        header = JournalReader(file, journal_id).header
    match header:
        case journal.Header(version=version, salt=salt):
            return {"owner": _BOOKIE if salt is None else _OURS, "version": version}
        case journal.Void():
            return {"detail": "void: nothing was ever written"}
        case Damaged():
            return _flaw(header)


def _log_cells(path: Path, log_id: int) -> Row:
    with open_file(path) as file:
        header = EntryLogReader(file, log_id, EntryVerifier()).header
    match header:
        case entrylog.Header(version=version, map_offset=map_offset, origin=origin):
            return {
                "sealed": map_offset > 0,
                "owner": _OURS if origin else _BOOKIE,
                "version": version,
                "detail": ", ".join(origin_words(header)) or None,
            }
        case entrylog.EmptyLog():
            return {"sealed": False, "detail": "allocated ahead and never written"}
        case Damaged():
            return _flaw(header)
