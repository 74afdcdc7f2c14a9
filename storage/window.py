"""A file seen through one buffer: whoever walks along it holds half a megabyte of it, whatever its size."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.files import ReadFile

CHUNK_SIZE = 512 << 10
"""A larger buffer goes back to the system between two chunks: its page faults would be paid each time."""

_ZEROS = bytes(CHUNK_SIZE)

LOOK_BEHIND = 64 << 10
"""Kept in front of what is asked for: a reader that looks ahead and comes back finds it still there."""


class Window:
    """Reads ahead in chunks. The size is that of the moment it was opened: a live writer may add more."""

    def __init__(self, file: ReadFile, chunk_size: int = CHUNK_SIZE) -> None:
        self._file = file
        self._chunk_size = chunk_size
        self._buffer = memoryview(b"")
        self._start = 0
        self.size = file.size()

    def view(self, offset: int, size: int) -> memoryview:
        """`size` bytes from `offset`, fewer only where the file ends. Valid until the next call."""
        size = min(size, self.size - offset)
        if size <= 0:
            return memoryview(b"")
        begin = offset - self._start
        if begin < 0 or begin + size > len(self._buffer):
            self._load(offset, size)
            begin = offset - self._start
        return self._buffer[begin : begin + size]

    def rest(self, offset: int) -> memoryview:
        """What is held from `offset` on, up to a chunk, without reading unless that is nothing. As `view`."""
        begin = offset - self._start
        if not 0 <= begin < len(self._buffer):
            return self.view(offset, self._chunk_size)
        return self._buffer[begin : begin + self._chunk_size]

    def ahead(self, offset: int) -> memoryview:
        """A chunk from `offset` on, less only where the file ends, for who never comes back. As `view`."""
        begin = offset - self._start
        if begin < 0 or begin + min(self._chunk_size, self.size - offset) > len(self._buffer):
            self._load(offset, min(self._chunk_size, self.size - offset), behind=0)
        return self.rest(offset)

    def peek(self, offset: int, size: int) -> memoryview:
        """The same, for a few bytes that may lie anywhere: does not move the window."""
        begin = offset - self._start
        if begin >= 0 and begin + size <= len(self._buffer):
            return self._buffer[begin : begin + size]
        size = min(size, self.size - offset)
        return memoryview(self._file.read(offset, size) if size > 0 else b"")

    def refresh(self) -> None:
        """Forgets what was read: beside a live writer zeros may have become data."""
        self._buffer = memoryview(b"")

    def _load(self, offset: int, size: int, behind: int = LOOK_BEHIND) -> None:
        start = max(0, offset - behind)
        wanted = offset - start + max(size, min(self._chunk_size, self.size - offset))
        self._buffer = memoryview(self._file.read(start, wanted))
        self._start = start
        if start + len(self._buffer) < offset + size:
            raise OSError(errno.EIO, "the file became shorter while it was read", self._file.name)

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, memoryview]]:
        """The bytes of a range, piece by piece, each with its offset."""
        while start < end:
            piece = self.view(start, min(self._chunk_size, end - start))
            if not piece:
                return
            yield start, piece
            start += len(piece)

    def first_nonzero(self, start: int) -> int | None:
        """The first byte from `start` on that is not zero; `None` when only zeros are left."""
        for offset, piece in self.pieces(start, self.size):
            # Compared as a whole first: most of a journal may be zeros, and stripping goes byte by byte.
            behind = b"" if _ZEROS.startswith(piece) else bytes(piece).lstrip(b"\0")
            if behind:
                return offset + len(piece) - len(behind)
        return None
