"""The directories of a store without the names that cannot be read as files.

A named pipe, a directory or a dangling link may have the name of a journal, and the system may refuse to read
a mark. The audit reports each of them and goes on as if the name were not there, because one such name must
not keep all other files from being verified.
"""

from __future__ import annotations

import errno
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.audit.scan.read_around import ReadAroundFile
from storage.disk import filenames
from storage.disk.filenames import FileKind
from storage.disk.posix import PosixDirectory, open_file

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    from recovery.directory.layout import Layout
    from storage.disk.files import Directory, ReadFile

_READ_WHOLE = frozenset({FileKind.LAST_MARK, FileKind.COOKIE, FileKind.LEDGER_ROWS, FileKind.LINEAGE})
"""Files that are read before the scan. The tasks that read journals and logs report errors themselves."""

_LOGS = frozenset({FileKind.JOURNAL, FileKind.ENTRY_LOG})
_INDEX_FILES = ("data.mdb", "lock.mdb", "sums")
_AT_ONCE = 1 << 20


class ReadableDirectory(PosixDirectory):
    """A directory without the names that were found unreadable, by their paths."""

    def __init__(self, path: str | os.PathLike[str], unreadable: Mapping[str, str]) -> None:
        super().__init__(path)
        self._unreadable = unreadable

    def names(self) -> list[str]:
        return [name for name in super().names() if f"{self.path}/{name}" not in self._unreadable]

    def directory(self, name: str) -> Directory:
        return ReadableDirectory(f"{self.path}/{name}", self._unreadable)

    def open(self, name: str) -> ReadFile:
        path = f"{self.path}/{name}"
        if path in self._unreadable:
            raise FileNotFoundError(errno.ENOENT, self._unreadable[path], path)
        # A bad sector costs no more than what it holds.
        return ReadAroundFile(super().open(name))


def find_unreadable(layout: Layout) -> dict[str, str]:
    """Return the paths in a store's directories that cannot be read as files, with the reason for each."""
    return {
        path: why
        for directory in (layout.journal, layout.ledgers)
        for name in directory.names()
        for path, why in _unreadable(f"{directory.path}/{name}", filenames.parse(name).kind)
    }


def _unreadable(path: str, kind: FileKind) -> Iterator[tuple[str, str]]:
    try:
        if kind in _READ_WHOLE:
            _read_whole(path)
        elif kind in _LOGS:
            _check_is_regular(path)
        elif kind is FileKind.INDEX:
            for name in _INDEX_FILES:
                _check_index_file(Path(path) / name)
    except OSError as error:
        refused = Path(error.filename or path)
        why = error.strerror or str(error)
        if isinstance(error, FileNotFoundError):
            if not refused.is_symlink():
                return  # a live store has removed it since its name was read
            why = "a link to nothing"
        yield path, why if refused == Path(path) else f"{refused.name}: {why}"


def _read_whole(path: str) -> None:
    with open_file(path) as file:
        offset = 0
        while piece := file.read(offset, _AT_ONCE):
            offset += len(piece)


def _check_is_regular(path: str) -> None:
    if not stat.S_ISREG(Path(path).stat().st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path)


def _check_index_file(path: Path) -> None:
    # A missing file is damage of the index, which the reader of the index reports.
    if path.is_symlink() or path.exists():
        _check_is_regular(str(path))
