"""Reports each 256 KiB block of a file to the throttle the first time it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

    from recovery.audit.engines.task import ReadThrottle
    from storage.disk.files import ReadFile

_GRAIN = 256 << 10


class MeteredFile:
    """Wraps a file. Only first reads are throttled, because later reads hit the page cache."""

    def __init__(self, file: ReadFile, throttle: ReadThrottle) -> None:
        self.name = file.name
        self._file = file
        self._throttle = throttle
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
            self._throttle.read(min(new * _GRAIN, self._size))

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()
