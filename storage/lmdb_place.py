"""Where the index lies: a directory of its own in the ledger directory, opened, viewed, or made anew.

index           the index
index.draft     one under construction; it gets the name when it is whole and durable
index.damaged   what had the name before

In it LMDB's own files, and the checksums of their pages, `sums`: nothing is given to LMDB that is not what
LMDB wrote.
"""

from __future__ import annotations

import errno
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from storage import filenames, page_sums
from storage.codec import index_state as state_codec
from storage.index import NoIndex
from storage.lmdb_environment import LmdbEnvironment, make_environment, open_environment, view_environment
from storage.lmdb_index import LmdbChange, LmdbIndex
from storage.lmdb_leaves import DATA as _DATA
from storage.outcome import Damaged, Flaw
from storage.page_sums import PageSums
from storage.posix_files import PosixDirectory

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from storage.files import Directory, ReadFile

_DRAFT = filenames.draft(filenames.INDEX)
_DAMAGED = filenames.damaged(filenames.INDEX)
_LOOKS_MAX = 3


class LmdbPlace:
    """The index of the ledger directory `directory`, which LMDB finds by `path`: it opens files by itself.

    `map_size` is address space: only what is used of it takes space on the disk, and it grows by itself.
    """

    def __init__(self, directory: Directory, path: str | os.PathLike[str], map_size: int = 64 << 30) -> None:
        self._directory = directory
        self._path = Path(path)
        self._map_size = map_size

    def open(self) -> LmdbIndex | NoIndex | Damaged:
        return self._opened(self._open_for_writing)

    def view(self) -> LmdbIndex | NoIndex | Damaged:
        """The same for reading only, also beside another process that writes. Leaves every file as it is."""
        return self._opened(self._open_for_reading)

    def _opened(
        self, open_it: Callable[[Directory, ReadFile], LmdbIndex | Damaged]
    ) -> LmdbIndex | NoIndex | Damaged:
        if filenames.INDEX not in self._directory.names():
            return NoIndex()
        inner = self._directory.directory(filenames.INDEX)
        try:
            data = inner.open(_DATA)
        except (FileNotFoundError, NotADirectoryError):  # LMDB itself would make one
            return Damaged(0, Flaw.FILE_SHORT, f"no {_DATA}")
        with ExitStack() as unless_opened:
            unless_opened.callback(data.close)
            index = open_it(inner, data)
            if isinstance(index, LmdbIndex):
                unless_opened.pop_all()
        return index

    def _open_for_writing(self, inner: Directory, data: ReadFile) -> LmdbIndex | Damaged:
        sums = _verified(inner, data)
        if isinstance(sums, Damaged):
            return sums
        environment = _checked(open_environment(self._path / filenames.INDEX, self._map_size))
        if isinstance(environment, Damaged):
            return environment
        if sums.is_ahead:
            with ExitStack() as unless_durable:
                unless_durable.callback(environment.close)
                # What a killed process has written may be in the memory of the system alone. Durable before
                # its checksums are: those of what a power cut takes back would call what it leaves damaged.
                environment.sync()
                sums.rewrite()
                unless_durable.pop_all()
        return LmdbIndex(environment, sums, inner, self._directory)

    def _open_for_reading(self, inner: Directory, data: ReadFile) -> LmdbIndex | Damaged:
        with data:
            damage = _damage_beside_a_writer(inner, data)
        if damage:
            return damage
        environment = _checked(view_environment(self._path / filenames.INDEX, self._map_size))
        if isinstance(environment, Damaged):
            return environment
        return LmdbIndex(environment, None, inner, self._directory)

    def draft(self) -> LmdbDraft:
        inner = self._directory.directory(_DRAFT)
        inner.make()
        _empty(inner)
        environment = make_environment(self._path / _DRAFT, self._map_size)
        return LmdbDraft(self, environment, inner, self._directory)


def open_copy(path: str | os.PathLike[str], map_size: int = 64 << 30) -> LmdbIndex | Damaged:
    """A copy that lies still in that directory, for reading only. Verifies none of its pages."""
    environment = _checked(view_environment(Path(path), map_size))
    if isinstance(environment, Damaged):
        return environment
    inner = PosixDirectory(path)
    return LmdbIndex(environment, None, inner, inner)


def _verified(inner: Directory, data: ReadFile) -> PageSums | Damaged:
    """The checksums of a file that may be mapped."""
    head = page_sums.read_head(data)
    if isinstance(head, Damaged):
        return head
    # Whoever reads a page behind the file's end through a map is killed.
    end = head.meta.end
    size = data.size()  # asked last: another process may write, and its file only grows
    if size < end:
        return Damaged(size, Flaw.FILE_SHORT, f"{size} of {end} bytes")
    return page_sums.verified(inner, data, head)


def _damage_beside_a_writer(inner: Directory, data: ReadFile) -> Damaged | None:
    """What is damaged in an index that another process may be writing to.

    As long as the same transaction counts, nobody writes over what it leads to, and what is wrong is damage.
    If another one counts by now, then a writer lives, which has verified all of it when it came.
    """
    for _ in range(_LOOKS_MAX):
        before = page_sums.read_head(data)
        found = _verified(inner, data)
        if not isinstance(found, Damaged):
            return None
        if page_sums.read_head(data) == before:
            return found
    return None


def _checked(environment: LmdbEnvironment | Damaged) -> LmdbEnvironment | Damaged:
    """The environment, if its state is one; otherwise it is closed."""
    if isinstance(environment, Damaged):
        return environment
    state = state_codec.decode(environment.state())
    if isinstance(state, Damaged):
        environment.close()
        return state
    return environment


def _empty(directory: Directory) -> None:
    for name in directory.names():
        directory.remove(name)


class LmdbDraft:
    """An index under construction, in a directory that no reader looks into."""

    def __init__(
        self, place: LmdbPlace, environment: LmdbEnvironment, inner: Directory, directory: Directory
    ) -> None:
        self._place = place
        self._environment = environment
        self._inner = inner
        self._directory = directory

    def change(self) -> LmdbChange:
        # Its pages get their checksums when it is published: until then nobody believes it.
        return LmdbChange(self._environment.commit)

    def publish(self) -> LmdbIndex:
        # Before the rename: a durable name must never precede durable content.
        self._environment.sync()
        self._environment.close()
        self._sum_up()  # and LMDB's names become durable with that of the checksums
        self._put_aside()
        self._directory.rename(_DRAFT, filenames.INDEX)
        # Before anybody relies on it: LMDB never syncs a directory.
        self._directory.sync()
        index = self._place.open()
        assert isinstance(index, LmdbIndex), f"published as {index}"
        return index

    def _sum_up(self) -> None:
        with self._inner.open(_DATA) as data:
            pages = page_sums.all_pages(data)
            if isinstance(pages, Damaged):
                raise OSError(errno.EIO, f"the new index: {pages}", self._inner.path)
            sums = PageSums(self._inner, data, pages)
            sums.rewrite()
            sums.close()

    def _put_aside(self) -> None:
        names = self._directory.names()
        if filenames.INDEX in names:
            if _DAMAGED in names:
                _empty(self._directory.directory(_DAMAGED))  # a rename replaces an empty directory
            self._directory.rename(filenames.INDEX, _DAMAGED)

    def close(self) -> None:
        self._environment.close()
