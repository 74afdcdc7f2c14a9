"""Files in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType


class MemoryFile:
    """Bytes as a `ReadFile`."""

    def __init__(self, data: bytes, name: str = "memory") -> None:
        self._data = data
        self.name = name

    def become(self, data: bytes) -> None:
        """Changes the content of the file while it is open."""
        self._data = data

    def size(self) -> int:
        return len(self._data)

    def read(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size]

    def read_into(self, offset: int, buffer: memoryview) -> int:
        data = self.read(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()


class CountingFile(MemoryFile):
    """Counts the bytes that are read."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.count = 0

    def read(self, offset: int, size: int) -> bytes:
        self.count += size
        return super().read(offset, size)


class GrowingFile(MemoryFile):
    """A file of zeros into which a writer puts a journal after a number of reads."""

    def __init__(self, before: bytes, after: bytes, reads: int) -> None:
        super().__init__(before)
        self._after, self._reads = after, reads

    def read(self, offset: int, size: int) -> bytes:
        if self._reads == 0:
            self._data = self._after
        self._reads -= 1
        return super().read(offset, size)


class SparseFile:
    """A huge file that begins with a few bytes and is zero otherwise. Only the bytes that are read are
    allocated."""

    name = "sparse"

    def __init__(self, front: bytes, size: int) -> None:
        self._front, self._size = front, size
        self.largest = 0

    def size(self) -> int:
        return self._size

    def read(self, offset: int, size: int) -> bytes:
        self.largest = max(self.largest, size)
        size = min(size, self._size - offset)
        return self._front[offset : offset + size].ljust(size, b"\0")

    def read_into(self, offset: int, buffer: memoryview) -> int:
        data = self.read(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        pass

    def __enter__(self) -> SparseFile:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class WrittenFile(MemoryFile):
    """A `WriteFile` in memory."""

    def __init__(self) -> None:
        super().__init__(b"")

    def write(self, offset: int, buffers: Iterable[bytes | bytearray | memoryview]) -> None:
        data = b"".join(buffers)
        self._data = self._data[:offset].ljust(offset, b"\0") + data + self._data[offset + len(data) :]

    def start_writeback(self, offset: int, size: int) -> None:
        """Do nothing, because there is no disk."""

    def zero_fill(self, offset: int, size: int) -> None:
        self.write(offset, [bytes(size)])

    def sync(self) -> None:
        """Do nothing, because memory needs no sync."""
