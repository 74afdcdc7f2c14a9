"""Files and directories of a POSIX system: the only module that syncs, renames, locks or fills.

Writes are not buffered here. So bytes that `write` has accepted are in the kernel and survive the process,
but only `sync` makes them survive the machine.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import sys
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Self

from storage.disk.files import DiskSpace
from storage.errors import AlreadyOpen, InvalidConfig, StoreLocked

try:
    import fcntl
except ModuleNotFoundError as error:
    raise ImportError(
        "ledgerstore runs on POSIX systems, such as Linux and macOS: "
        "this system has no module `fcntl`, so a store's directory cannot be locked"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from storage.disk.files import Directory, Lock, ReadFile, WriteFile

_BUFFERS_PER_WRITE = 1024  # IOV_MAX on Linux
_ZEROS = bytes(1 << 20)
_BLOCK = 512  # the unit of `st_blocks`
_FLOCK = struct.Struct("hhqqi4x")  # type, whence, start, length, process


class _Descriptor:
    """A file descriptor that is closed once."""

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
    """A file open for reading. Threads may share it, because every read names its own offset."""

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
        # A signal or a large request can cut a pread short. Only an empty result means the end of the file.
        while size and (piece := os.pread(self._descriptor, size, offset)):
            yield piece
            offset += len(piece)
            size -= len(piece)


class PosixWriteFile(_Descriptor):
    """A file open for writing."""

    def write(self, offset: int, buffers: Iterable[bytes | bytearray | memoryview]) -> None:
        if isinstance(buffers, tuple) and len(buffers) == 1:
            # A short cut for one buffer, a group of the journal or a piece of one, because callers wait for
            # this write.
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
            batch = _unwritten(batch, written)
            if batch and not written:
                raise OSError(errno.EIO, "the system accepted no byte of a write", self.name)
        return offset

    def start_writeback(self, offset: int, size: int) -> None:
        # Linux begins to write out pages that it is told will not be needed, and drops only clean ones. An
        # error of that writing is kept for the next sync of this descriptor.
        if _NOT_NEEDED is not None:
            with suppress(OSError):
                os.posix_fadvise(self._descriptor, offset, size, _NOT_NEEDED)

    def zero_fill(self, offset: int, size: int) -> None:
        # Zeros are written, and `fallocate` is not used, because overwriting an unwritten extent changes
        # metadata again, and each later sync would wait for the file system's own journal.
        end = offset + size
        while offset < end:
            offset = self._write_all(offset, [memoryview(_ZEROS)[: end - offset]])

    def sync(self) -> None:
        if self._descriptor < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))  # fdatasync would raise a ValueError
        # Content and size only, because the times of the file are not worth a second write.
        if _FULL_SYNC is None:
            _sync_data(self._descriptor)
        else:
            _sync(self._descriptor, _sync_data)


class PosixLock(_Descriptor):
    """A lock that is held as long as the descriptor is open. The system releases it when the process ends."""

    def __init__(self, descriptor: int, name: str) -> None:
        super().__init__(descriptor, name)
        _LOCKED[self] = _identity(descriptor)

    def close(self) -> None:
        super().close()
        _LOCKED.pop(self, None)


_LOCKED: dict[PosixLock, tuple[int, int]] = {}
"""Device and inode of each lock file that this process has locked. Needed because a process id alone does not
tell this process from one in another container."""


class PosixDirectory:
    """A directory of the file system."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # Text, because an opening joins hundreds of names, and a path object for each is a fifth of its time.
        self.path = absolute_path(path)

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
        # Without this sync a power cut undoes a create, a rename or a remove.
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _sync(descriptor, os.fsync)
        finally:
            os.close(descriptor)

    def space(self) -> DiskSpace:
        # Not `f_bfree`, because it includes what only root may use.
        status = os.statvfs(self.path)
        return DiskSpace(status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize)

    def lock(self, name: str) -> Lock:
        path = self._at(name)
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            with ExitStack() as unless_taken:
                unless_taken.callback(os.close, descriptor)
                _take_lock(descriptor, path)
                # If another process removed the file before this one had the lock, the lock is on a file
                # without a name, and excludes no process.
                if _is_still_at(descriptor, path):
                    unless_taken.pop_all()
                    return PosixLock(descriptor, path)


def absolute_path(path: str | os.PathLike[str]) -> str:
    """Return the path as text, made absolute now, so that a later `os.chdir` cannot lead to other files.

    `..` and symbolic links stay as they are, because taking `..` away can change what a path means. `~` is an
    ordinary name, as it is for `open`: `pathlib.Path.expanduser` replaces it. An empty path is
    `InvalidConfig`.
    """
    text = os.fspath(path)
    if not text:
        raise InvalidConfig("path", "an empty path; '.' names the current directory")
    if not text.startswith("/"):
        text = str(Path(text).absolute())
    return text.rstrip("/") or "/"


def open_file(path: str | os.PathLike[str]) -> PosixReadFile:
    """Open the regular file at a path for reading. Anything else at the path is an `OSError`."""
    return PosixReadFile(open_regular(path), os.fspath(path))


def open_regular(path: str | os.PathLike[str]) -> int:
    """Return a descriptor that reads the regular file at a path. Anything else there is an `OSError`."""
    # Without O_NONBLOCK the open of a named pipe waits for a writer, which never comes.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
    raise OSError(number, "not a regular file", os.fspath(path))


def lock_at(directory: int, name: str) -> Lock:
    """Take the lock kept in that file of an open directory, or raise `StoreLocked` at once.

    For a directory that another user may have written to: no symbolic link is followed, and nothing is
    written into the file.
    """
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=directory)
    with ExitStack() as unless_taken:
        unless_taken.callback(os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as busy:
            raise StoreLocked(name, None) from busy
        # A process that held the lock may have removed the file since it was opened here.
        if not os.path.samestat(os.fstat(descriptor), os.stat(name, dir_fd=directory, follow_symlinks=False)):
            raise StoreLocked(name, None)
        unless_taken.pop_all()
        return PosixLock(descriptor, name)


def is_locked_elsewhere(path: str | os.PathLike[str]) -> bool:
    """Return whether another process has locked the first byte of the file, as LMDB does while it is open.

    Takes no lock. Not for a file that this process may have locked, because its locks go with any descriptor
    that it closes. If the system cannot tell, the file counts as locked.
    """
    if sys.platform != "linux":
        return True
    try:
        descriptor = open_regular(path)
    except FileNotFoundError:
        return False
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        kind, *_ = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    finally:
        os.close(descriptor)
    return bool(kind != fcntl.F_UNLCK)


def allocate(path: str | os.PathLike[str], size: int) -> None:
    """Have the file occupy blocks for at least so many bytes, and make it if there is none.

    Its content stays. A write through a memory map to a file with holes kills the process if the disk is
    full, whereas this call raises `OSError`. It opens the file only if it has holes, because closing a
    descriptor releases the locks that this process has on the file.
    """
    with suppress(FileNotFoundError):
        status = Path(path).stat()
        if status.st_blocks * _BLOCK >= status.st_size >= size:
            return
    if not hasattr(os, "posix_fallocate"):
        return  # macOS
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        os.posix_fallocate(descriptor, 0, max(size, os.fstat(descriptor).st_size))
    finally:
        os.close(descriptor)


def _as_bytes(buffer: bytes | bytearray | memoryview) -> bytes | memoryview:
    """Return the buffer in a form that is counted and cut by bytes."""
    return buffer if type(buffer) is bytes else memoryview(buffer).cast("B")


def _unwritten(batch: list[bytes | memoryview], written: int) -> list[bytes | memoryview]:
    """Return the rest of the buffers after a write that accepted only so many bytes."""
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


def _take_lock(descriptor: int, path: str) -> None:
    is_own = _is_locked_here(descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as busy:
        # Checked before and after, because another thread may take or release the lock at any moment.
        if is_own or _is_locked_here(descriptor):
            raise AlreadyOpen(path, os.getpid()) from busy
        raise StoreLocked(path, _holder(descriptor)) from busy
    # The process id is for the message that the next opener gets. The lock itself is the flock, so a full
    # disk does not matter.
    with suppress(OSError):
        os.pwrite(descriptor, b"%-20d\n" % os.getpid(), 0)


def _is_locked_here(descriptor: int) -> bool:
    """Return whether this process has locked the file with another descriptor."""
    return _identity(descriptor) in tuple(_LOCKED.values())


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _is_still_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), Path(path).stat())
    except FileNotFoundError:
        return False


def _holder(descriptor: int) -> int | None:
    text = os.pread(descriptor, 32, 0).strip()
    return int(text) if text.isdigit() else None
