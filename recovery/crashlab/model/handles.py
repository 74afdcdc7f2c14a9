"""Open files and locks of a simulated disk. They are valid as long as their process lives."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Self

from recovery.crashlab.model.disk_errors import FirstBytes, ShortWrite, SomeUnits, When
from recovery.crashlab.model.operations import Verb

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from recovery.crashlab.model.content import Content
    from recovery.crashlab.model.disk_errors import Extent, Fault
    from recovery.crashlab.model.machine import SimulatedMachine
    from recovery.crashlab.model.names import Names
    from recovery.crashlab.model.platter import Platter


class _Handle:
    """A file that was opened in one boot of a machine."""

    def __init__(self, machine: SimulatedMachine, file: int, name: str) -> None:
        self._machine = machine
        self._boot = machine.boot
        self._file = file
        self._open = True
        self.name = name

    def close(self) -> None:
        self._open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def _platter(self) -> Platter:
        self._machine.check(self._boot)
        if not self._open:
            raise system_error(errno.EBADF, self.name)
        return self._machine.platter


class SimulatedReadFile(_Handle):
    """A file open for reading."""

    def size(self) -> int:
        return self._platter().files[self._file].size

    def read(self, offset: int, size: int) -> bytes:
        platter = self._platter()
        self._machine.look(Verb.READ, self.name)
        return platter.files[self._file].read(offset, size)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        data = self.read(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)


class SimulatedWriteFile(_Handle):
    """A file open for writing."""

    def write(self, offset: int, buffers: Iterable[bytes | bytearray | memoryview]) -> None:
        self._put(Verb.WRITE, offset, b"".join(buffers))

    def start_writeback(self, offset: int, size: int) -> None:  # noqa: ARG002 - the port's signature
        self._platter()  # nothing to do: unsynced data may reach the platter at any time anyway

    def zero_fill(self, offset: int, size: int) -> None:
        self._put(Verb.ZERO_FILL, offset, bytes(size))

    def _put(self, verb: Verb, offset: int, data: bytes) -> None:
        platter = self._platter()
        if not data:
            return

        def put(extent: Extent) -> None:
            granted = extent.size if isinstance(extent, FirstBytes) else len(data)
            platter.file_to_change(self._file).write(offset, data[:granted])

        operation = self._machine.attempt(verb, self.name, self._file, offset=offset, data=data)
        self._machine.perform(operation, put, self._full(platter.files[self._file], offset, len(data)))

    def _full(self, content: Content, offset: int, size: int) -> Fault | None:
        room = self._machine.room()
        if room is None:
            return None
        granted = content.allocated + room - room % content.sector_size - offset
        return ShortWrite(When(), errno.ENOSPC, max(0, granted)) if granted < size else None

    def sync(self) -> None:
        platter = self._platter()

        def write_back(extent: Extent) -> None:
            write_back_pending(platter.file_to_change(self._file), extent)

        self._machine.perform(self._machine.attempt(Verb.SYNC, self.name, self._file), write_back)


class SimulatedLock(_Handle):
    """A lock, held until it is closed or its process ends."""

    def close(self) -> None:
        # After a reboot a living process may hold this lock, so a handle of an earlier boot must not release
        # it.
        if self._open and self._boot == self._machine.boot:
            self._machine.locked.discard(self._file)
        super().close()


def write_back_pending(layers: Content | Names, extent: Extent) -> None:
    """Write the pending data to the platter: all of it, or the part that a failing sync writes."""
    if isinstance(extent, SomeUnits):
        layers.fail_sync(extent.seed, extent.pages)
    else:
        layers.sync()


def system_error(number: int, path: str) -> OSError:
    """Return the error that the system would raise."""
    return OSError(number, os.strerror(number), path)
