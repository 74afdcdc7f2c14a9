"""What the path of a data source stands for: files, and what is known of their ledgers' digests."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from recovery import founding
from recovery.audit.ways import Ways
from recovery.founding import Layout
from storage import filenames, ledger_rows
from storage.entry import DigestType
from storage.errors import CorruptionError, NewerFormat
from storage.filenames import FileKind
from storage.posix_files import PosixDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from storage.row import LedgerRow

_LOGS = frozenset({FileKind.ENTRY_LOG, FileKind.COMPACTED_LOG, FileKind.COMPACTING_LOG})
_JOURNALS = frozenset({FileKind.JOURNAL})


@dataclass(frozen=True, slots=True)
class Located:
    """One file, and the id in its name."""

    path: str
    """From the root: it is opened by other processes, in directories of their own."""
    file_id: int


@dataclass(frozen=True, slots=True)
class Known:
    """What a store says of its own ledgers, wherever in it the path leads."""

    rows: Mapping[int, LedgerRow] = field(default_factory=dict)
    ways: Ways = field(default_factory=Ways)


def logs(path: str) -> list[Located]:
    """The entry logs of a store, a bookie, a directory of them; or the one that the path is."""
    return _files(path, filenames.LEDGER_DIRECTORY, FileKind.ENTRY_LOG, _LOGS)


def journals(path: str) -> list[Located]:
    """The same for journals."""
    return _files(path, filenames.JOURNAL_DIRECTORY, FileKind.JOURNAL, _JOURNALS)


def index(path: str) -> str:
    """The directory of the index of a store, of a directory with entry logs; or the path itself."""
    place = Path(path).absolute()
    found = _directory(place, filenames.LEDGER_DIRECTORY) / filenames.INDEX
    return str(found if found.is_dir() else place)


def known(path: str, given: Ways) -> Known:
    """What the store has written down that the path is in; of a bookie's nothing but what was given."""
    layout = next((one for one in _layouts(Path(path)) if founding.was_ours(one)), None)
    if layout is None or founding.is_marked_by_a_bookie(layout):
        return Known(ways=given)
    try:
        rows = ledger_rows.load(layout.ledgers, 0).rows
    except (CorruptionError, NewerFormat):
        # A ledger without a row is a plain one, unless its row is among those that are lost.
        return Known(ways=given)
    declared = {one: row.digest_type for one, row in rows.items() if row.digest_type is not None}
    undeclared = frozenset(one for one, row in rows.items() if row.digest_type is None)
    return Known(rows, replace(given, declared=declared, presumed=DigestType.CRC32C, open=undeclared))


def _layouts(path: Path) -> Iterator[Layout]:
    """The stores in which it may lie: at most three names below its root."""
    full = path.resolve()
    above = (one for one in (full, *list(full.parents)[:3]) if one.is_dir())
    return (Layout(PosixDirectory(one)) for one in above)


def _files(path: str, inner: str, listed: FileKind, taken: frozenset[FileKind]) -> list[Located]:
    place = Path(path).absolute()
    if not place.exists():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if not place.is_dir():
        name = filenames.parse(place.name)
        if name.kind not in taken or name.number is None:
            raise ValueError(f"{path}: neither a directory nor named like a file of this kind")
        return [Located(str(place), name.number)]
    directory = _directory(place, inner)
    names = ((one, filenames.parse(one.name)) for one in directory.iterdir())
    found = [Located(str(one), name.number or 0) for one, name in names if name.kind is listed]
    return sorted(found, key=lambda one: one.file_id)


def _directory(path: Path, inner: str) -> Path:
    """Where the files lie, if the path is a store's root, one of its two directories, or the innermost."""
    candidates = (path / inner / filenames.CURRENT, path / filenames.CURRENT)
    return next((one for one in candidates if one.is_dir()), path)
