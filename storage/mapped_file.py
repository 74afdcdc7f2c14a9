"""Files that are read through memory: without a call to the system, as long as it has their pages at hand.

Only for files that nobody cuts, as entry logs, which only grow until they are removed. What a reader pays for
it: a page that the disk does not give kills the process (SIGBUS) where a `pread` would have said why, and a
page that is not at hand is waited for with the interpreter held, so that every other thread waits too.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from mmap import ACCESS_READ, mmap

from storage.posix_files import PosixReadFile

_GROWTH_PARTS = 8
"""A file that has grown by so large a part of it is mapped anew; of what it has grown by less is read."""


class MappedFile(PosixReadFile):
    """A file open for reading. Threads may share it. It may grow, and must not shrink."""

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
            # Whoever reads in the old one goes on with it.
            self._map = mmap(self._descriptor, length, access=ACCESS_READ)
        return super().read(offset, size)

    def close(self) -> None:
        super().close()
        with suppress(BufferError):  # somebody is copying from it: it goes when they are done
            self._map.close()


def _closed() -> OSError:
    return OSError(errno.EBADF, os.strerror(errno.EBADF))


def open_mapped(path: str | os.PathLike[str]) -> MappedFile:
    """The file at a path, which must not be empty."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return MappedFile(descriptor, os.fspath(path))
    except BaseException:
        os.close(descriptor)
        raise
