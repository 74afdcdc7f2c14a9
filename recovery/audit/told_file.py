"""A file that tells which of its bytes were read for the first time, whoever reads it, and however often."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

    from recovery.audit.task import Pace
    from storage.files import ReadFile

_GRAIN = 256 << 10


class ToldFile:
    """Stands in for the file. What a pace holds back is the first reading: the second comes from memory."""

    def __init__(self, file: ReadFile, pace: Pace) -> None:
        self.name = file.name
        self._file = file
        self._pace = pace
        self._size = file.size()
        self._seen = bytearray(-(-self._size // _GRAIN))

    def size(self) -> int:
        return self._file.size()

    def read(self, offset: int, size: int) -> bytes:
        data = self._file.read(offset, size)
        self._tell(offset, len(data))
        return data

    def read_into(self, offset: int, buffer: memoryview) -> int:
        count = self._file.read_into(offset, buffer)
        self._tell(offset, count)
        return count

    def _tell(self, offset: int, size: int) -> None:
        first, last = offset // _GRAIN, min(len(self._seen), -(-(offset + size) // _GRAIN))
        new = self._seen[first:last].count(0)
        if new:
            self._seen[first:last] = bytes([1]) * (last - first)
            self._pace.read(min(new * _GRAIN, self._size))

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()
