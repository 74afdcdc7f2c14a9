"""`ledgerstore files`: list the files of a directory.

kind                    by the name; unknown if neither ledgerstore nor a bookie writes such a file
path                    relative to the directory that was given; a directory ends in /
bytes                   of the file, or of all files in the directory
sealed                  for an entry log true or false, otherwise null
owner                   ours or bookie, if the file says who wrote it, otherwise null
version                 version of the format of a journal, an entry log, a lineage or a cookie
flaw, detail            a stable name of what is wrong; an explanation
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recovery.shell import options
from recovery.shell.exit_codes import CannotDo, Exit, say
from recovery.shell.listing.log import origin_words
from recovery.shell.listing.record import reason
from recovery.shell.output import Column, counted, free_text, number_column, row_writer
from storage.checkpoint import mark as lastmark
from storage.checkpoint import mark_format
from storage.disk import cookie, filenames
from storage.disk.cookie_format import Cookie
from storage.disk.filenames import CURRENT, FileKind, FileName
from storage.disk.posix import PosixDirectory, open_file
from storage.entry.digest_inference import EntryVerifier
from storage.entry.read_result import Damaged, Torn
from storage.entrylog import format as entrylog_format
from storage.entrylog import lineage_format
from storage.entrylog.reader import EntryLogReader
from storage.journal import format as journal_format
from storage.journal.reader import JournalReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.shell.output import Form, Row


@click.command()
@options.store
@options.output
@click.pass_context
def command(ctx: click.Context, store: str, form: Form) -> None:
    """List the files of a store: journals, entry logs, marks.

    STORE is a store, a bookie's directory, or one of their `current` directories. A file that neither
    ledgerstore nor a bookie writes is listed as unknown.

    \b
    Examples:
      ledgerstore files /data/bookie
      ledgerstore files --ndjson | jq 'select(.kind == "entry log" and .sealed == false)'
    """
    root = Path(store)
    if not root.is_dir():
        raise CannotDo(f"{'not a directory' if root.exists() else 'no such directory'}: {store}")
    out = row_writer(form, _COLUMNS)
    kinds: Counter[str] = Counter()
    size = flawed = 0
    for row in file_rows(root):
        out.row(row)
        kinds[str(row["kind"])] += 1
        size += int(row["bytes"] or 0)
        flawed += row["flaw"] is not None
    out.end()
    some = [counted(kinds[kind], kind) for kind in ("journal", "entry log") if kinds[kind]]
    some += [f"{kinds['unknown']} unknown"] if kinds["unknown"] else []
    wrong = [f"{flawed} damaged"] if flawed else []
    say("files: " + ", ".join([counted(kinds.total(), "file"), counted(size, "byte"), *some, *wrong]))
    ctx.exit(Exit.FINDINGS if flawed else Exit.CLEAN)


_COLUMNS = [
    Column("kind"),
    Column("path"),
    number_column("bytes"),
    Column("sealed"),
    Column("owner"),
    number_column("version", rank=1),
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


def file_rows(root: Path) -> Iterator[Row]:
    """Yield a row for each file of a store or of one of its directories. Any other directory is one row."""
    yield from _rows_below(root, root)


def _rows_below(directory: Path, root: Path) -> Iterator[Row]:
    for path in sorted(directory.iterdir(), key=_sort_key):
        if path.is_dir() and not path.is_symlink() and _is_part_of_store(path):
            yield from _rows_below(path, root)
        else:
            row = _row(path, root)
            if row is not None:
                yield row


def _is_part_of_store(path: Path) -> bool:
    return path.name == CURRENT or (path / CURRENT).is_dir()


def _sort_key(path: Path) -> tuple[str, int, str]:
    """Return the sort key: files of one kind by number, so that 10.log follows 9.log; others by name."""
    if path.is_dir() and _is_part_of_store(path):
        return "", -1, path.name
    name = filenames.parse(path.name)
    return name.kind.value, -1 if name.number is None else name.number, path.name


def _row(path: Path, root: Path) -> Row | None:
    """Return the row of a file, or `None` if a running writer has removed it in the meantime."""
    name = filenames.parse(path.name)
    relative = str(path.relative_to(root))
    try:
        if path.is_dir():
            size = sum(found.stat().st_size for found in path.rglob("*") if found.is_file())
            return _empty_row(name, relative + "/", size)
        row = _empty_row(name, relative, path.stat().st_size)
        return row | _header_cells(path, name)
    except FileNotFoundError:
        return (
            None if not path.is_symlink() else _empty_row(name, relative, 0) | {"detail": "a dangling link"}
        )


def _empty_row(name: FileName, path: str, size: int) -> Row:
    row: Row = {"kind": name.kind.value, "path": path, "bytes": size}
    return row | dict.fromkeys(("sealed", "owner", "version", "flaw", "detail"))


def _header_cells(path: Path, name: FileName) -> Row:
    if name.kind in _JOURNALS:
        return _journal_cells(path, name.number or 0)
    if name.kind in _LOGS:
        return _log_cells(path, name.number or 0)
    if name.kind is FileKind.LAST_MARK:
        return _mark_cells(path)
    if name.kind is FileKind.LINEAGE:
        return _lineage_cells(path)
    return _cookie_cells(path) if name.kind is FileKind.COOKIE else {}


def _mark_cells(path: Path) -> Row:
    match lastmark.load(PosixDirectory(path.parent), path.name):
        case mark_format.Mark(trailer=trailer):
            return {"owner": _BOOKIE if trailer is None else _OURS}
        case mark_format.EmptyMark():
            return {"detail": "empty: all journals are replayed"}
        case Torn() | Damaged() as wrong:
            return _flaw(wrong)
    return {}


def _lineage_cells(path: Path) -> Row:
    data = path.read_bytes()
    match lineage_format.decode(data, lineage_format.written_by(data)):
        case Damaged() as wrong:
            return {"owner": _OURS} | _flaw(wrong)
        case known:
            logs = f"{counted(len(known.kept), 'entry log')} in generation {known.generation}"
            gone = ", ".join(map(filenames.entry_log, known.gone))
            return {
                "owner": _OURS,
                "version": lineage_format.VERSION,
                "detail": f"{logs}, being removed: {gone}" if gone else logs,
            }


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
        case journal_format.JournalHeader(version=version, salt=salt):
            return {"owner": _BOOKIE if salt is None else _OURS, "version": version}
        case journal_format.Void():
            return {"detail": "void: never written"}
        case Damaged():
            return _flaw(header)


def _log_cells(path: Path, log_id: int) -> Row:
    with open_file(path) as file:
        header = EntryLogReader(file, log_id, EntryVerifier()).header
    match header:
        case entrylog_format.LogHeader(version=version, map_offset=map_offset, origin=origin):
            return {
                "sealed": map_offset > 0,
                "owner": _OURS if origin else _BOOKIE,
                "version": version,
                "detail": ", ".join(origin_words(header)) or None,
            }
        case entrylog_format.EmptyLog():
            return {"sealed": False, "detail": "allocated in advance and never written"}
        case Damaged():
            return _flaw(header)
