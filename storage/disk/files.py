"""The ports to the file system: files and directories, with the durability of each verb stated.

There are two adapters: `storage.disk.posix`, and the simulated disk of `recovery.crashlab.model.disk`, which
loses everything that a sentence here does not promise. Every verb raises `OSError` when the system refuses.
After a failed `write` or `sync` the content of the file is indeterminate, and a later `sync` that succeeds
proves nothing about the earlier bytes; the same holds for the names of a directory after its `sync` failed.
Bytes that an earlier process wrote and did not sync can be read but cannot be made durable, so a caller that
needs them writes them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """The space of a file system, in bytes."""

    free: int
    """The bytes that this process could still write."""
    size: int


class Closing(Protocol):
    """Closed by a `with`. Closing makes nothing durable."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class File(Closing, Protocol):
    """A file of either kind."""

    @property
    def name(self) -> str:
        """The name of the file for messages."""


class ReadFile(File, Protocol):
    """A file open for reading, perhaps while another process writes it."""

    def size(self) -> int:
        """Return the number of bytes in the file at this moment."""

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset`; fewer only where the file ends.

        Promises nothing about durability.
        """

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Read into a buffer, which costs less for many bytes; return how many were read."""


class WriteFile(File, Protocol):
    """A file open for writing, at any offset."""

    def write(self, offset: int, buffers: Iterable[bytes | bytearray | memoryview]) -> None:
        """Write all of the buffers one after the other, or raise `OSError`.

        Not durable until `sync` returns.
        """

    def start_writeback(self, offset: int, size: int) -> None:
        """Have the system begin to write out this range, so that `sync` has less to wait for.

        Waits for nothing, raises nothing and promises nothing: `sync` reports what goes wrong.
        """

    def zero_fill(self, offset: int, size: int) -> None:
        """Write zeros that occupy their blocks, so that writing there later changes no metadata.

        Not durable until `sync` returns.
        """

    def sync(self) -> None:
        """Make everything written and the size durable.

        The file's name is not made durable: see `Directory.sync`.
        """


class Lock(Closing, Protocol):
    """The exclusive lock of a directory. It is released when it is closed, or when the process ends."""


class Directory(Protocol):
    """One directory. A change of names is not durable until `sync` returns.

    Before that a power cut may undo any of the changes, in any order, but each only as a whole.
    """

    @property
    def path(self) -> str:
        """The name of the directory for messages."""

    def names(self) -> list[str]:
        """Return the present names, sorted.

        A power cut may still take one of them away, or bring one back.
        """

    def directory(self, name: str) -> Directory:
        """Return the directory of that name inside this one. It need not exist yet."""

    def make(self) -> None:
        """Make this directory unless it exists. Its name is durable after the parent's `sync`."""

    def open(self, name: str) -> ReadFile:
        """Open the file of that name for reading; `FileNotFoundError` if there is none."""

    def create(self, name: str) -> WriteFile:
        """Create an empty file; `FileExistsError` if the name is taken. The name is durable after `sync`."""

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, in one step, and replace the file that had it. Durable after `sync`."""

    def remove(self, name: str) -> None:
        """Remove the name. Until `sync` returns, a power cut may bring the file back."""

    def sync(self) -> None:
        """Make the names in this directory durable.

        The content of its files is not made durable: see `WriteFile.sync`.
        """

    def space(self) -> DiskSpace:
        """Return the space of the file system that the directory is on. Quotas need not be included."""

    def lock(self, name: str) -> Lock:
        """Take the exclusive lock kept in that file, or raise `StoreLocked` at once."""
