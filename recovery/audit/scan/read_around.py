"""A file whose unreadable blocks are read as damage, so that one bad sector hides nothing else."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

    from storage.disk.files import ReadFile

BLOCK = 4096
"""The page cache reads no less, so a bad sector makes a whole page unreadable."""

_FILL = b"\xa5"
"""Not zero, because zeros may be the end of the data. As a length it is negative, and begins no record."""


class ReadAroundFile:
    """Wraps a file. Blocks that the disk cannot read are noted, and filled with bytes that are no record."""

    def __init__(self, file: ReadFile) -> None:
        self.name = file.name
        self._file = file
        self._unreadable: set[int] = set()

    def size(self) -> int:
        return self._file.size()

    def read(self, offset: int, size: int) -> bytes:
        try:
            return self._file.read(offset, size)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
        return self._read_around(offset, min(size, max(0, self.size() - offset)))

    def read_into(self, offset: int, buffer: memoryview) -> int:
        try:
            return self._file.read_into(offset, buffer)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
        data = self.read(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def unreadable(self) -> tuple[tuple[int, int], ...]:
        """Return the extents that could not be read up to now, in their order."""
        found: list[tuple[int, int]] = []
        for number in sorted(self._unreadable):
            start, end = number * BLOCK, min((number + 1) * BLOCK, self.size())
            if found and found[-1][1] == start:
                start = found.pop()[0]
            found.append((start, end))
        return tuple(found)

    def _read_around(self, offset: int, size: int) -> bytes:
        end = offset + size
        pieces = []
        while offset < end:
            count = min(end, (offset // BLOCK + 1) * BLOCK) - offset
            try:
                pieces.append(self._file.read(offset, count))
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                self._unreadable.add(offset // BLOCK)
                pieces.append(_FILL * count)
            offset += count
        return b"".join(pieces)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()
