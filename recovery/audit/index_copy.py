"""A copy of the index that lies still, made by reading its file.

What is read through LMDB's map stays in this process's memory, and LMDB's own copying reads all of it there:
16 bytes and more an entry. Here LMDB only keeps a reader's place meanwhile. As long as that stands, a writer
writes over no page to which the meta pages led when it was taken, or do later.

    reader      its place is taken
    meta pages  read until they say the same twice: a commit may be writing one of them
    pages       all others, in whatever state: the meta pages lead only to those that lie still
"""

from __future__ import annotations

import errno
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from storage import page_sums
from storage.lmdb_environment import view_environment
from storage.lmdb_leaves import DATA
from storage.outcome import Damaged
from storage.posix_files import open_file

if TYPE_CHECKING:
    import os
    from typing import BinaryIO

    from storage.files import ReadFile
    from storage.lmdb_environment import LmdbEnvironment

_MAP_SIZE = 64 << 30
"""Address space."""

_AT_ONCE = 1 << 20
_LOOKS_MAX = 100


def copy(index: Path, into: os.PathLike[str]) -> bool:
    """Copies the index in that directory, which was verified, into an empty one; nothing of it is durable.

    `False`: not to be used, but to be made again, since a writer has come who did not know of the reading.
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
            return page_sums.read_head(data) == page_sums.read_head(whole)


def _meta_pages(data: ReadFile) -> bytes:
    """Both of them, as they are between two commits."""
    size = 2 * _page_size(data)
    before = data.read(0, size)
    for _ in range(_LOOKS_MAX):
        again = data.read(0, size)
        if again == before:
            return again
        before = again
    raise OSError(errno.EAGAIN, "it changes faster than it can be read", data.name)


def _page_size(data: ReadFile) -> int:
    head = page_sums.read_head(data)
    if isinstance(head, Damaged):
        raise OSError(errno.EIO, f"the index at {head.offset}: {head}", data.name)
    return head.meta.page_size


def _copy(data: ReadFile, at: int, end: int, copied: BinaryIO) -> None:
    room = memoryview(bytearray(_AT_ONCE))
    while at < end and (count := data.read_into(at, room[: end - at])):
        copied.write(room[:count])
        at += count
