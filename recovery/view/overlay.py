"""A directory with changes that stay in memory.

For reading a directory through code that writes its results. Nothing is changed on the disk, and the changes
end with the overlay.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, NoReturn, Self

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from storage.disk.files import Directory, DiskSpace, Lock, ReadFile, WriteFile


class Overlay:
    """One directory with its changes."""

    def __init__(self, below: Directory) -> None:
        self._below = below
        self._changed: dict[str, bytearray | None] = {}
        """The content of files that were made; `None` for names that were removed."""
        self._inner: dict[str, Overlay] = {}

    @property
    def path(self) -> str:
        return self._below.path

    def names(self) -> list[str]:
        gone = {name for name, content in self._changed.items() if content is None}
        return sorted({*self._below.names(), *self._changed} - gone)

    def directory(self, name: str) -> Directory:
        return self._inner.setdefault(name, Overlay(self._below.directory(name)))

    def make(self) -> None:
        self._refuse()

    def open(self, name: str) -> ReadFile:
        if name not in self._changed:
            return self._below.open(name)
        content = self._changed[name]
        if content is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{self.path}/{name}")
        return _OverlayFile(f"{self.path}/{name}", content)

    def create(self, name: str) -> WriteFile:
        if name in self.names():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), f"{self.path}/{name}")
        content = self._changed[name] = bytearray()
        return _OverlayFile(f"{self.path}/{name}", content)

    def rename(self, old: str, new: str) -> None:
        content = self._changed.get(old)
        assert content is not None, "only files that were made here are renamed"
        self._changed[new], self._changed[old] = content, None

    def remove(self, name: str) -> None:
        self._changed[name] = None

    def sync(self) -> None:
        pass

    def space(self) -> DiskSpace:
        return self._below.space()

    def lock(self, name: str) -> Lock:  # noqa: ARG002 - the port's signature
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), self.path)


class _OverlayFile:
    """A file in memory, open for reading and writing."""

    def __init__(self, name: str, content: bytearray) -> None:
        self.name = name
        self._content = content

    def size(self) -> int:
        return len(self._content)

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self._content[offset : offset + size])

    def read_into(self, offset: int, buffer: memoryview) -> int:
        data = self.read(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def write(self, offset: int, buffers: Iterable[bytes | bytearray | memoryview]) -> None:
        data = b"".join(buffers)
        self.zero_fill(len(self._content), offset - len(self._content))
        self._content[offset : offset + len(data)] = data

    def start_writeback(self, offset: int, size: int) -> None:
        pass

    def zero_fill(self, offset: int, size: int) -> None:
        self._content[offset : offset + size] = bytes(max(0, size))

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        pass
