"""A file that is read through one buffer: a walk along it holds half a megabyte, whatever the file's size."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.disk.files import ReadFile

CHUNK_SIZE = 512 << 10
"""A larger buffer would be returned to the system between two chunks, and each chunk would pay for page
faults."""

_ZEROS = bytes(CHUNK_SIZE)

KEPT_BEFORE = 64 << 10
"""Bytes kept before the requested ones, so that a reader that looks ahead and comes back still finds them."""


class Window:
    """Reads ahead in chunks.

    The size is that of the moment of opening, because a live writer may add more.
    """

    def __init__(self, file: ReadFile, chunk_size: int = CHUNK_SIZE) -> None:
        self._file = file
        self._chunk_size = chunk_size
        self._buffer = memoryview(b"")
        self._start = 0
        self.size = file.size()

    def view(self, offset: int, size: int) -> memoryview:
        """Return `size` bytes from `offset`, fewer only where the file ends. Valid until the next call."""
        size = min(size, self.size - offset)
        if size <= 0:
            return memoryview(b"")
        begin = offset - self._start
        if begin < 0 or begin + size > len(self._buffer):
            self._load(offset, size)
            begin = offset - self._start
        return self._buffer[begin : begin + size]

    def rest(self, offset: int) -> memoryview:
        """Return the buffered bytes from `offset` on, up to a chunk; read only if there are none.

        As `view`.
        """
        begin = offset - self._start
        if not 0 <= begin < len(self._buffer):
            return self.view(offset, self._chunk_size)
        return self._buffer[begin : begin + self._chunk_size]

    def ahead(self, offset: int) -> memoryview:
        """Return a chunk from `offset` on, less only where the file ends. As `view`.

        For a reader that never goes back, because nothing before the offset stays in memory.
        """
        begin, size = offset - self._start, min(self._chunk_size, self.size - offset)
        if size > 0 and (begin < 0 or begin + size > len(self._buffer)):
            self._load(offset, size, before=0)
        return self.rest(offset)

    def peek(self, offset: int, size: int) -> memoryview:
        """Return a few bytes that may lie anywhere, without moving the window."""
        begin = offset - self._start
        if begin >= 0 and begin + size <= len(self._buffer):
            return self._buffer[begin : begin + size]
        size = min(size, self.size - offset)
        return memoryview(self._file.read(offset, size) if size > 0 else b"")

    def refresh(self) -> None:
        """Forget what was read, because beside a live writer zeros may have become data."""
        self._buffer = memoryview(b"")

    def _load(self, offset: int, size: int, before: int = KEPT_BEFORE) -> None:
        start = max(0, offset - before)
        wanted = offset - start + max(size, min(self._chunk_size, self.size - offset))
        self._buffer = memoryview(self._file.read(start, wanted))
        self._start = start
        if start + len(self._buffer) < offset + size:
            raise OSError(errno.EIO, "the file became shorter while it was read", self._file.name)

    def pieces(self, start: int, end: int) -> Iterator[tuple[int, memoryview]]:
        """Return the bytes of a range piece by piece, each with its offset."""
        while start < end:
            piece = self.view(start, min(self._chunk_size, end - start))
            if not piece:
                return
            yield start, piece
            start += len(piece)

    def first_nonzero(self, start: int) -> int | None:
        """Return the offset of the first byte from `start` on that is not zero; `None` if there is none."""
        for offset, piece in self.pieces(start, self.size):
            # The whole piece is compared first, because most of a journal may be zeros, and `lstrip` goes
            # byte by byte.
            rest = b"" if _ZEROS.startswith(piece) else bytes(piece).lstrip(b"\0")
            if rest:
                return offset + len(piece) - len(rest)
        return None
