"""The directory of the index, inside the ledger directory: opening, viewing and creating the index.

    index           the index
    index.draft     an index under construction; it gets the name when it is complete and durable
    index.damaged   the index that had the name before

The directory holds LMDB's own files, and `sums` with the checksums of their pages. All pages are verified
before LMDB opens the file.
"""

from __future__ import annotations

import errno
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from storage.disk import filenames
from storage.disk.posix import PosixDirectory
from storage.disk.replace import publish_draft
from storage.entry.read_result import Damaged, Flaw
from storage.index import state_format
from storage.index.lmdb import page_checksums
from storage.index.lmdb.environment import (
    LmdbEnvironment,
    make_environment,
    open_environment,
    view_environment,
)
from storage.index.lmdb.index import LmdbChange, LmdbIndex
from storage.index.lmdb.leaves import DATA as _DATA
from storage.index.lmdb.page_checksums import PageChecksums
from storage.index.port import NoIndex

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from storage.disk.files import Directory, ReadFile

_DRAFT = filenames.draft(filenames.INDEX)
_DAMAGED = filenames.damaged(filenames.INDEX)
_ATTEMPTS_MAX = 3


class LmdbIndexDirectory:
    """The place of the index in a ledger directory. LMDB opens its files itself, by `path`.

    `map_size` is address space: only the used part takes space on the disk, and the map grows when it is
    full.
    """

    def __init__(self, directory: Directory, path: str | os.PathLike[str], map_size: int = 64 << 30) -> None:
        self._directory = directory
        self._path = Path(path).absolute()
        self._map_size = map_size

    def open(self) -> LmdbIndex | NoIndex | Damaged:
        return self._opened(self._open_for_writing)

    def view(self) -> LmdbIndex | NoIndex | Damaged:
        """The same for reading only, also beside another process that writes. Changes no file."""
        return self._opened(self._open_for_reading)

    def _opened(
        self, open_it: Callable[[Directory, ReadFile], LmdbIndex | Damaged]
    ) -> LmdbIndex | NoIndex | Damaged:
        if filenames.INDEX not in self._directory.names():
            return NoIndex()
        inner = self._directory.directory(filenames.INDEX)
        try:
            data = inner.open(_DATA)
        except (FileNotFoundError, NotADirectoryError):  # LMDB would create the file
            return Damaged(0, Flaw.FILE_SHORT, f"no {_DATA}")
        with ExitStack() as unless_opened:
            unless_opened.callback(data.close)
            index = open_it(inner, data)
            if isinstance(index, LmdbIndex):
                unless_opened.pop_all()
        return index

    def _open_for_writing(self, inner: Directory, data: ReadFile) -> LmdbIndex | Damaged:
        sums = _verify_pages(inner, data)
        if isinstance(sums, Damaged):
            return sums
        environment = _checked(open_environment(self._path / filenames.INDEX, self._map_size))
        if isinstance(environment, Damaged):
            return environment
        if sums.is_ahead:
            with ExitStack() as unless_durable:
                unless_durable.callback(environment.close)
                # The pages of a killed process may only be in the page cache. They are synced before their
                # checksums, because after a power cut checksums of lost pages would report damage.
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
    """Open a copy of an index that no process writes to, for reading only. Verifies no page."""
    environment = _checked(view_environment(Path(path), map_size))
    if isinstance(environment, Damaged):
        return environment
    inner = PosixDirectory(path)
    return LmdbIndex(environment, None, inner, inner)


def _verify_pages(inner: Directory, data: ReadFile) -> PageChecksums | Damaged:
    """Verify all pages of the file, so that it may be mapped, and return their checksums."""
    head = page_checksums.read_current_meta(data)
    if isinstance(head, Damaged):
        return head
    # A process that reads beyond the end of a mapped file is killed.
    end = head.meta.end
    size = data.size()  # after the meta page, because a writer in another process may let the file grow
    if size < end:
        return Damaged(size, Flaw.FILE_SHORT, f"{size} of {end} bytes")
    return page_checksums.verify(inner, data, head)


def _damage_beside_a_writer(inner: Directory, data: ReadFile) -> Damaged | None:
    """Return the damage in an index that another process may be writing to.

    As long as the last transaction is the same, no writer overwrites its pages, so a difference is damage. If
    there is a newer transaction, a writer is running, and it has verified all pages when it opened the index.
    """
    for _ in range(_ATTEMPTS_MAX):
        before = page_checksums.read_current_meta(data)
        found = _verify_pages(inner, data)
        if not isinstance(found, Damaged):
            return None
        if page_checksums.read_current_meta(data) == before:
            return found
    return None


def _checked(environment: LmdbEnvironment | Damaged) -> LmdbEnvironment | Damaged:
    """Return the environment if its state can be decoded; close it otherwise."""
    if isinstance(environment, Damaged):
        return environment
    state = state_format.decode(environment.state())
    if isinstance(state, Damaged):
        environment.close()
        return state
    return environment


def _empty(directory: Directory) -> None:
    for name in directory.names():
        directory.remove(name)


class LmdbDraft:
    """An index under construction, in a directory that no reader opens."""

    def __init__(
        self, place: LmdbIndexDirectory, environment: LmdbEnvironment, inner: Directory, directory: Directory
    ) -> None:
        self._place = place
        self._environment = environment
        self._inner = inner
        self._directory = directory

    def change(self) -> LmdbChange:
        # The pages get their checksums when the draft is published, because no reader uses it before.
        return LmdbChange(self._environment.commit)

    def publish(self) -> LmdbIndex:
        # 1. LMDB's file. Before the rename, because a durable name must never precede durable content.
        self._environment.sync()
        self._environment.close()
        # 2. The checksums of all pages. Syncing their directory makes the names of LMDB's files durable too.
        self._write_checksums()
        # 3. The names, the old index first.
        self._keep_old_index()
        # Synced with the directory before anything relies on it, because LMDB never syncs a directory.
        publish_draft(self._directory, filenames.INDEX)
        index = self._place.open()
        assert isinstance(index, LmdbIndex), f"published as {index}"
        return index

    def _write_checksums(self) -> None:
        with self._inner.open(_DATA) as data:
            pages = page_checksums.snapshot_all_pages(data)
            if isinstance(pages, Damaged):
                raise OSError(errno.EIO, f"the new index: {pages}", self._inner.path)
            sums = PageChecksums(self._inner, data, pages)
            sums.rewrite()
            sums.close()

    def _keep_old_index(self) -> None:
        names = self._directory.names()
        if filenames.INDEX in names:
            if _DAMAGED in names:
                _empty(self._directory.directory(_DAMAGED))  # a rename can replace an empty directory only
            self._directory.rename(filenames.INDEX, _DAMAGED)

    def close(self) -> None:
        self._environment.close()
