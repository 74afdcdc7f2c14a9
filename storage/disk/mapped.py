"""Files that are read through a memory map, without a system call as long as their pages are in memory.

Only for files that are never shortened, such as entry logs, which only grow until they are removed. The
price: a page that the disk cannot read kills the process (SIGBUS), where `pread` would raise an error; and a
page that is not in memory is loaded while the interpreter lock is held, so that every other thread waits too.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from mmap import ACCESS_READ, mmap

from storage.disk.posix import PosixReadFile, open_regular

_GROWTH_PARTS = 8
"""A file that has grown by this part of its size is mapped again; after less growth the new bytes are
read."""


class MappedFile(PosixReadFile):
    """A file open for reading. Threads may share it. It may grow, but must not shrink."""

    def __init__(self, descriptor: int, name: str) -> None:
        super().__init__(descriptor, name)
        self._map = mmap(descriptor, 0, access=ACCESS_READ)

    def read(self, offset: int, size: int) -> bytes:
        try:
            data = self._map[offset : offset + size]
        except ValueError:
            raise _closed() from None
        return data if len(data) == size else self._read_beyond(offset, size)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        try:
            mapped = memoryview(self._map)
        except ValueError:
            raise _closed() from None
        with mapped:
            if offset + len(buffer) <= len(mapped):
                buffer[:] = mapped[offset : offset + len(buffer)]
                return len(buffer)
        return super().read_into(offset, buffer)

    def _read_beyond(self, offset: int, size: int) -> bytes:
        length = self.size()
        if length - len(self._map) > len(self._map) // _GROWTH_PARTS:
            # Other threads that read in the old map go on with it.
            self._map = mmap(self._descriptor, length, access=ACCESS_READ)
        return super().read(offset, size)

    def close(self) -> None:
        super().close()
        with suppress(BufferError):  # another thread copies from it, and frees it when it is done
            self._map.close()


def _closed() -> OSError:
    return OSError(errno.EBADF, os.strerror(errno.EBADF))


def open_mapped(path: str | os.PathLike[str]) -> MappedFile:
    """Open the file at a path, which must not be empty."""
    descriptor = open_regular(path)
    try:
        return MappedFile(descriptor, os.fspath(path))
    except BaseException:
        os.close(descriptor)
        raise
