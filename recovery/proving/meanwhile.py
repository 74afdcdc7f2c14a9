"""Directories that let something else happen before each change of a file, as another thread would.

Between two calls of a step nobody else comes in a single thread, and just there orders are broken that only a
crash behind an acknowledged add shows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.posix_files import PosixDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from storage.files import Directory, WriteFile

    Notice = Callable[[str], None]


class AttendedFile:
    """A file open for writing, that tells of each change before it is made."""

    def __init__(self, file: WriteFile, name: str, notice: Notice) -> None:
        self._file = file
        self._base = name
        self._notice = notice
        self.name = file.name

    def write(self, offset: int, buffers: Iterable[bytes | bytearray | memoryview]) -> None:
        self._notice(self._base)
        self._file.write(offset, buffers)

    def start_writeback(self, offset: int, size: int) -> None:
        self._file.start_writeback(offset, size)

    def zero_fill(self, offset: int, size: int) -> None:
        self._notice(self._base)
        self._file.zero_fill(offset, size)

    def sync(self) -> None:
        self._notice(self._base)
        self._file.sync()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()


class AttendedDirectory(PosixDirectory):
    """A directory of the file system that does; so do those below it. Its own sync is told as its path."""

    def __init__(self, path: str | Path, notice: Notice) -> None:
        super().__init__(path)
        self._notice = notice

    def directory(self, name: str) -> Directory:
        return AttendedDirectory(f"{self.path}/{name}", self._notice)

    def create(self, name: str) -> WriteFile:
        self._notice(name)
        return AttendedFile(super().create(name), name, self._notice)

    def rename(self, old: str, new: str) -> None:
        self._notice(old)
        super().rename(old, new)

    def remove(self, name: str) -> None:
        self._notice(name)
        super().remove(name)

    def sync(self) -> None:
        self._notice(self.path)
        super().sync()
