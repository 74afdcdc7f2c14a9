"""Copy the index by reading its file, while LMDB's reader lock keeps its pages.

Pages read through LMDB's map, or by LMDB's own copying, stay in this process's memory: 16 bytes and more for
each entry. So LMDB only holds a reader's place in the meantime. While that exists, a writer overwrites no
page that the meta pages point at, neither those of that moment nor later ones.

    reader      its place is taken
    meta pages  read until they are the same twice, because a commit may be writing one of them
    pages       all others, in any state: the meta pages point only at those that do not change
"""

from __future__ import annotations

import errno
import shutil
from contextlib import closing
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from storage.disk import filenames
from storage.disk.posix import open_file
from storage.entry.read_result import Damaged
from storage.index.lmdb import page_checksums
from storage.index.lmdb.directory import LmdbIndexDirectory
from storage.index.lmdb.environment import view_environment
from storage.index.lmdb.index import LmdbIndex
from storage.index.lmdb.leaves import DATA

if TYPE_CHECKING:
    import os
    from typing import BinaryIO

    from storage.disk.files import Directory, ReadFile
    from storage.index.lmdb.environment import LmdbEnvironment
    from storage.index.port import NoIndex

_MAP_SIZE = 64 << 30
"""Address space."""

_AT_ONCE = 1 << 20
_LOOKS_MAX = 100
_COPIES_MAX = 10


def copy_verified(ledgers: Directory, into: Path) -> Path | NoIndex | Damaged:
    """Verify the index of a ledger directory and copy it into a new directory in `into`, which has nothing
    else.

    Return the directory of the copy, or why there is no index to copy. Repeats a copy that a writer has
    spoilt.
    """
    for _ in range(_COPIES_MAX):
        for spoilt in into.iterdir():
            shutil.rmtree(spoilt)
        index = LmdbIndexDirectory(ledgers, ledgers.path).view()
        if not isinstance(index, LmdbIndex):
            return index
        index.close()
        directory = Path(mkdtemp(prefix=filenames.INDEX, dir=into))
        if copy(Path(ledgers.path) / filenames.INDEX, directory):
            return directory
    raise OSError(errno.EAGAIN, "the index changes faster than it can be copied", ledgers.path)


def copy(index: Path, into: os.PathLike[str]) -> bool:
    """Copy the verified index of one directory into another, empty one. Nothing of the copy is durable.

    Return `False` if the copy must be made again, because a writer came that did not know of the reader.
    """
    environment = view_environment(index, _MAP_SIZE)
    if isinstance(environment, Damaged):
        return False  # it was whole a moment ago
    with closing(environment), open_file(index / DATA) as data:
        return _copied(environment, data, Path(into) / DATA)


def _copied(environment: LmdbEnvironment, data: ReadFile, target: Path) -> bool:
    with environment.reading():
        meta = _meta_pages(data)
        with target.open("wb") as copied:
            copied.write(meta)
            _copy(data, len(meta), data.size(), copied)
        if environment.is_locked:
            return True
        with open_file(target) as whole:
            return page_checksums.read_current_meta(data) == page_checksums.read_current_meta(whole)


def _meta_pages(data: ReadFile) -> bytes:
    """Return both meta pages, as they are between two commits."""
    size = 2 * _page_size(data)
    before = data.read(0, size)
    for _ in range(_LOOKS_MAX):
        again = data.read(0, size)
        if again == before:
            return again
        before = again
    raise OSError(errno.EAGAIN, "the index changes faster than it can be read", data.name)


def _page_size(data: ReadFile) -> int:
    head = page_checksums.read_current_meta(data)
    if isinstance(head, Damaged):
        raise OSError(errno.EIO, f"the index at {head.offset}: {head}", data.name)
    return head.meta.page_size


def _copy(data: ReadFile, at: int, end: int, copied: BinaryIO) -> None:
    room = memoryview(bytearray(_AT_ONCE))
    while at < end and (count := data.read_into(at, room[: end - at])):
        copied.write(room[:count])
        at += count
