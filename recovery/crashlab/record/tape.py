"""The tape: every change that a program made below its root, in the order in which they took effect.

    ├ size u32 ┼ call u16 ┼ flags u16 ┼ thread i32 ┼ error i32 ┼ inode u64 ┼ offset u64 ┼ length u64
    ┼ number i64 ┼ path size u16 ┼ target size u16 ┼ data size u32 ┼ path ┼ target ┼ data ┤

Little-endian; the size is that of the whole event. Calls are numbered from 1; kills, faults and crash points
refer to these numbers. Marks have none. `preload/recorder.c` writes the tapes.
"""

from __future__ import annotations

import errno
import os
import struct
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_HEADER = struct.Struct("<IHHiiQQQqHHI")


class Call(IntEnum):
    """The recorded calls. The numbers are those of the recorder."""

    CREATE = 1
    WRITE = 2
    TRUNCATE = 3
    ALLOCATE = 4
    SYNC = 5
    DATASYNC = 6
    RENAME = 7
    LINK = 8
    UNLINK = 9
    MKDIR = 10
    RMDIR = 11
    SYMLINK = 12
    MAP = 13
    MSYNC = 14
    SYNC_ALL = 15
    SYNC_RANGE = 16
    EXCHANGE = 17
    MARK = 18


SYNCS = frozenset({Call.SYNC, Call.DATASYNC, Call.SYNC_ALL})
NOT_MODELLED = frozenset({Call.SYMLINK, Call.MAP, Call.EXCHANGE})


class Flag(IntFlag):
    """Properties of a call. The upper byte of the flags of an allocation is its mode."""

    DURABLE = 1  # a write to a file that was opened with O_DSYNC or O_SYNC
    DIRECTORY = 2
    INJECTED = 4  # it failed, or wrote less, because the laboratory injected a fault


@dataclass(frozen=True, slots=True)
class Event:
    """One call, or one mark, whose line is the data."""

    call: Call
    number: int = 0
    path: str = ""
    target: str = ""
    inode: int = 0
    offset: int = 0
    length: int = 0
    flags: int = 0
    error: int = 0
    thread: int = 0
    data: bytes = field(default=b"", repr=False)

    @property
    def is_sync(self) -> bool:
        """Return whether the call makes something durable."""
        return self.call in SYNCS or (self.call is Call.WRITE and bool(self.flags & Flag.DURABLE))

    @property
    def is_injected(self) -> bool:
        return bool(self.flags & Flag.INJECTED)

    def __str__(self) -> str:
        arrow = f" -> {self.target}" if self.target else ""
        size = f", {self.length} bytes at {self.offset}" if self.length else ""
        durable = ", durable" if self.call is Call.WRITE and self.flags & Flag.DURABLE else ""
        error = f", {errno.errorcode.get(self.error, self.error)}" if self.error else ""
        return f"{self.number}, {self.call.name.lower()} {self.path}{arrow}{size}{durable}{error}"


def encode(event: Event) -> bytes:
    """Return the event as it is stored on a tape."""
    path, target = os.fsencode(event.path), os.fsencode(event.target)
    size = _HEADER.size + len(path) + len(target) + len(event.data)
    header = _HEADER.pack(
        size,
        event.call,
        event.flags,
        event.thread,
        event.error,
        event.inode,
        event.offset,
        event.length,
        event.number,
        len(path),
        len(target),
        len(event.data),
    )
    return b"".join((header, path, target, event.data))


def encode_all(events: Iterable[Event]) -> bytes:
    """Return a whole tape."""
    return b"".join(map(encode, events))


def decode(tape: bytes) -> Iterator[Event]:
    """Yield the events of a tape. An incomplete last event is dropped: its writer died."""
    at = 0
    while at + _HEADER.size <= len(tape):
        size, *_ = fields = _HEADER.unpack_from(tape, at)
        if size < _HEADER.size or at + size > len(tape):
            return
        yield _event(fields, tape[at + _HEADER.size : at + size])
        at += size


def _event(fields: tuple[int, ...], rest: bytes) -> Event:
    _, call, flags, thread, error, inode, offset, length, number, path, target, _ = fields
    return Event(
        Call(call),
        number,
        os.fsdecode(rest[:path]),
        os.fsdecode(rest[path : path + target]),
        inode,
        offset,
        length,
        flags,
        error,
        thread,
        rest[path + target :],
    )
