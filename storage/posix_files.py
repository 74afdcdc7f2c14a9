"""Files and directories of a POSIX system: the only module that syncs, renames, locks or fills.

Writes are not buffered here, so what `write` has accepted is in the kernel and survives the process;
only `sync` makes it survive the machine.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Self

from storage.errors import StoreLocked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from storage.files import Directory, Lock, ReadFile, WriteFile

_BUFFERS_PER_WRITE = 1024  # IOV_MAX on Linux
_ZEROS = bytes(1 << 20)
_FLOCK = struct.Struct("hhqqi4x")  # type, whence, start, length, process


class _Descriptor:
    """A file descriptor that is closed once, by its `with`."""

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor = descriptor
        self.name = name

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()


class PosixReadFile(_Descriptor):
    """A file open for reading. Threads may share it: every read names its own offset."""

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read(self, offset: int, size: int) -> bytes:
        first = os.pread(self._descriptor, size, offset)
        if len(first) == size or not first:
            return first
        return b"".join([first, *self._rest(offset + len(first), size - len(first))])

    def read_into(self, offset: int, buffer: memoryview) -> int:
        done = 0
        while done < len(buffer) and (count := os.preadv(self._descriptor, [buffer[done:]], offset + done)):
            done += count
        return done

    def _rest(self, offset: int, size: int) -> Iterator[bytes]:
        # A signal or a large request can cut a pread short; only an empty answer means the end of the file.
        while size and (piece := os.pread(self._descriptor, size, offset)):
            yield piece
            offset += len(piece)
            size -= len(piece)


class PosixWriteFile(_Descriptor):
    """A file open for writing."""

    def write(self, offset: int, buffers: Iterable[bytes | bytearray | memoryview]) -> None:
        if isinstance(buffers, tuple) and len(buffers) == 1:
            # A group of the journal, or a piece of one: the write that callers wait for.
            (buffer,) = buffers
            written = os.pwrite(self._descriptor, buffer, offset)
            if written == len(buffer):
                return
            buffers = (memoryview(buffer)[written:],)
            offset += written
        pending = iter(buffers)
        while batch := [_as_bytes(buffer) for buffer in islice(pending, _BUFFERS_PER_WRITE)]:
            offset = self._write_all(offset, batch)

    def _write_all(self, offset: int, batch: list[bytes | memoryview]) -> int:
        while batch:
            written = os.pwritev(self._descriptor, batch, offset)
            offset += written
            batch = _behind(batch, written)
            if batch and not written:
                raise OSError(errno.EIO, "the system accepted no byte of a write", self.name)
        return offset

    def start_writeback(self, offset: int, size: int) -> None:
        # Linux begins to write out what it is told will not be needed, and drops only what is clean already.
        # An error of that writing is kept for the next sync of this descriptor.
        if _NOT_NEEDED is not None:
            with suppress(OSError):
                os.posix_fadvise(self._descriptor, offset, size, _NOT_NEEDED)

    def zero_fill(self, offset: int, size: int) -> None:
        # Written zeros, not fallocate: an overwrite of an unwritten extent moves metadata again and makes
        # each later sync wait for the file system's own journal.
        end = offset + size
        while offset < end:
            piece = memoryview(_ZEROS)[: min(len(_ZEROS), end - offset)]
            offset = self._write_all(offset, [piece])

    def sync(self) -> None:
        if self._descriptor < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))  # fdatasync itself answers with a ValueError
        # Content and size; the times of the file are worth no second write.
        if _FULL_SYNC is None:
            _sync_data(self._descriptor)
        else:
            _sync(self._descriptor, _sync_data)


class PosixLock(_Descriptor):
    """Held as long as the descriptor is open: the system releases it when the process ends."""


class PosixDirectory:
    """A directory of the file system."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # As text: an opening joins hundreds of names, and a path object for each is a fifth of its time.
        text = os.fspath(path)
        self.path = text.rstrip("/") or text or "."

    def _at(self, name: str) -> str:
        return f"{self.path}/{name}"

    def names(self) -> list[str]:
        return sorted(os.listdir(self.path))  # noqa: PTH208 - names are wanted, not paths

    def directory(self, name: str) -> Directory:
        return PosixDirectory(self._at(name))

    def make(self) -> None:
        Path(self.path).mkdir(exist_ok=True)

    def open(self, name: str) -> ReadFile:
        return open_file(self._at(name))

    def create(self, name: str) -> WriteFile:
        path = self._at(name)
        return PosixWriteFile(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), path)

    def rename(self, old: str, new: str) -> None:
        os.replace(self._at(old), self._at(new))  # noqa: PTH105 - the atomic one, by its own name

    def remove(self, name: str) -> None:
        Path(self._at(name)).unlink()

    def sync(self) -> None:
        # Names: without it a power cut takes back a create, a rename or a remove.
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _sync(descriptor, os.fsync)
        finally:
            os.close(descriptor)

    def lock(self, name: str) -> Lock:
        path = self._at(name)
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            with ExitStack() as unless_taken:
                unless_taken.callback(os.close, descriptor)
                _take(descriptor, path)
                # Whoever removed the file before we had it left us a lock that excludes nobody.
                if _is_still_at(descriptor, path):
                    unless_taken.pop_all()
                    return PosixLock(descriptor, path)


def open_file(path: str | os.PathLike[str]) -> PosixReadFile:
    """The file at a path, for reading."""
    return PosixReadFile(os.open(path, os.O_RDONLY), os.fspath(path))


def is_locked_elsewhere(path: str | os.PathLike[str]) -> bool:
    """Whether another process has the first byte of the file locked, as LMDB does while it is open.

    Only asks, takes nothing. Not for a file that this process may have locked: its locks go with any
    descriptor that it closes. Where the system cannot be asked it is taken for locked.
    """
    if sys.platform != "linux":
        return True
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        kind, *_ = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    finally:
        os.close(descriptor)
    return bool(kind != fcntl.F_UNLCK)


def _as_bytes(buffer: bytes | bytearray | memoryview) -> bytes | memoryview:
    """The buffer, counted and cut by its bytes."""
    return buffer if type(buffer) is bytes else memoryview(buffer).cast("B")


def _behind(batch: list[bytes | memoryview], written: int) -> list[bytes | memoryview]:
    """What is left of the buffers after a write that took only so many bytes."""
    if written == sum(map(len, batch)):
        return []
    for index, buffer in enumerate(batch):
        if written < len(buffer):
            return [memoryview(buffer)[written:], *batch[index + 1 :]]
        written -= len(buffer)
    return []


_sync_data: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
_NOT_NEEDED: int | None = os.POSIX_FADV_DONTNEED if sys.platform == "linux" else None
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


def _sync(descriptor: int, system_sync: Callable[[int], None]) -> None:
    if _FULL_SYNC is not None:  # macOS: fsync alone leaves the data in the drive's cache
        fcntl.fcntl(descriptor, _FULL_SYNC)
    else:
        system_sync(descriptor)


def _take(descriptor: int, path: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as busy:
        raise StoreLocked(path, _holder(descriptor)) from busy
    # For the message that the next opener gets. The lock itself is the flock: a full disk does not matter.
    with suppress(OSError):
        os.pwrite(descriptor, b"%-20d\n" % os.getpid(), 0)


def _is_still_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), Path(path).stat())
    except FileNotFoundError:
        return False


def _holder(descriptor: int) -> int | None:
    text = os.pread(descriptor, 32, 0).strip()
    return int(text) if text.isdigit() else None
