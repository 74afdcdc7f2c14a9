"""Directories that call back before each change of a file, so that a workload can act there.

In a single thread nothing happens between two calls of a step. But some wrong orders lose an add only if it
is acknowledged just there, as another thread could do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.disk.posix import PosixDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from storage.disk.files import Directory, WriteFile

    BeforeChange = Callable[[str], None]


class WatchedFile:
    """A file open for writing that calls back before each change."""

    def __init__(self, file: WriteFile, name: str, before_change: BeforeChange) -> None:
        self._file = file
        self._base = name
        self._before_change = before_change
        self.name = file.name

    def write(self, offset: int, buffers: Iterable[bytes | bytearray | memoryview]) -> None:
        self._before_change(self._base)
        self._file.write(offset, buffers)

    def start_writeback(self, offset: int, size: int) -> None:
        self._file.start_writeback(offset, size)

    def zero_fill(self, offset: int, size: int) -> None:
        self._before_change(self._base)
        self._file.zero_fill(offset, size)

    def sync(self) -> None:
        self._before_change(self._base)
        self._file.sync()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()


class WatchedDirectory(PosixDirectory):
    """A directory of the file system that calls back before each change in it or below.

    Its own sync passes its path.
    """

    def __init__(self, path: str | Path, before_change: BeforeChange) -> None:
        super().__init__(path)
        self._before_change = before_change

    def directory(self, name: str) -> Directory:
        return WatchedDirectory(f"{self.path}/{name}", self._before_change)

    def create(self, name: str) -> WriteFile:
        self._before_change(name)
        return WatchedFile(super().create(name), name, self._before_change)

    def rename(self, old: str, new: str) -> None:
        self._before_change(old)
        super().rename(old, new)

    def remove(self, name: str) -> None:
        self._before_change(name)
        super().remove(name)

    def sync(self) -> None:
        self._before_change(self.path)
        super().sync()
