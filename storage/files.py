"""What we ask of the outside: files and directories, with the durability of each verb stated.

Two adapters stand behind these ports: `storage.posix_files`, and the simulated disk of
`recovery.crashlab.disk`, which forgets whatever a sentence here does not promise. Every verb raises
`OSError` when the system refuses. After a failed `write` or `sync` the content of the file is
indeterminate, and a later `sync` that succeeds proves nothing about the earlier bytes; the same holds for
the names of a directory after its `sync` failed. Bytes that an earlier process wrote and did not sync can be
read, and cannot be made durable: whoever needs them writes them again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType


class Closing(Protocol):
    """Owned by a `with`; closing makes nothing durable."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class File(Closing, Protocol):
    """Either kind of file."""

    @property
    def name(self) -> str:
        """What a message calls the file."""


class ReadFile(File, Protocol):
    """A file open for reading, perhaps beside the process that writes it."""

    def size(self) -> int:
        """Bytes in the file at this moment."""

    def read(self, offset: int, size: int) -> bytes:
        """`size` bytes from `offset`; fewer only where the file ends. Says nothing about durability."""

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """The same, into a buffer, which costs less if it is large; how many bytes they are."""


class WriteFile(File, Protocol):
    """A file open for writing, at any offset."""

    def write(self, offset: int, buffers: Iterable[bytes | bytearray | memoryview]) -> None:
        """All of the buffers, one behind the other, or `OSError`. Not durable until `sync` returns."""

    def start_writeback(self, offset: int, size: int) -> None:
        """Has the system begin to write out what was written there, so that `sync` has less to wait for.

        Waits for nothing, raises nothing and promises nothing: what goes wrong is for `sync` to tell.
        """

    def zero_fill(self, offset: int, size: int) -> None:
        """Zeros that occupy their blocks, so that writing there later moves no metadata.

        Not durable until `sync` returns.
        """

    def sync(self) -> None:
        """When it returns, everything written and the size are durable.

        The file's name is not: see `Directory.sync`.
        """


class Lock(Closing, Protocol):
    """The exclusive lock of a directory; gone when closed, or when the process ends."""


class Directory(Protocol):
    """One directory. A change of names is not durable until `sync` returns.

    Until then any of the changes may be lost, in whatever order they were made, but each as a whole.
    """

    @property
    def path(self) -> str:
        """What a message calls the directory."""

    def names(self) -> list[str]:
        """The names in it now, sorted. A power cut may still take one of them away, or bring one back."""

    def directory(self, name: str) -> Directory:
        """The directory of that name inside this one; it need not exist yet."""

    def make(self) -> None:
        """Makes this directory unless it exists. Its name is durable after the parent's `sync`."""

    def open(self, name: str) -> ReadFile:
        """The file of that name, for reading; `FileNotFoundError` when there is none."""

    def create(self, name: str) -> WriteFile:
        """A new, empty file; `FileExistsError` when the name is taken. The name is durable after `sync`."""

    def rename(self, old: str, new: str) -> None:
        """Gives a file another name, replacing what had it, in one step. Durable after `sync`."""

    def remove(self, name: str) -> None:
        """Takes the name away. Until `sync` returns, a power cut may bring the file back."""

    def sync(self) -> None:
        """When it returns, the names in this directory are durable.

        The files' content is not: see `WriteFile.sync`.
        """

    def lock(self, name: str) -> Lock:
        """Takes the exclusive lock kept in that file, or raises `StoreLocked` at once."""
