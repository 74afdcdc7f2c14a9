"""The boundaries of messages in the bytes of a connection, and the version of each message.

    frame = length u32 (big-endian, itself not included) · that many bytes

The limit counts the length word, as BookKeeper's does. A frame of version 3 begins with its header, which is
field 1 of a message and so the byte 0x0a; one of version 2 begins with its version, a byte below 3.
"""

from __future__ import annotations

import struct
import sys
from typing import NamedTuple

from storage.cluster.wire.messages import Protocol

FRAME_SIZE_MAX = 5 << 20
"""The default of BookKeeper's `nettyMaxFrameSizeBytes`."""

LENGTH = struct.Struct(">I")
_LENGTH_SIZE = LENGTH.size
V3_FIRST = b"\x0a"
"""How each message of version 3 begins."""
_V2_VERSION_MAX = 2


class Frames(NamedTuple):
    """The whole frames in a buffer."""

    bodies: list[bytes]
    """The bodies of all whole frames."""
    consumed: int
    """Where these frames end; the rest begins the next frame."""
    flaw: str | None
    """Why nothing after them can be a frame: then the connection has to be closed."""


def split(data: bytes, size_max: int = FRAME_SIZE_MAX, at: int = 0, count_max: int = sys.maxsize) -> Frames:
    """Return the frames in these bytes, in which a frame begins at `at`."""
    bodies: list[bytes] = []
    end = len(data)
    unpack_from, append = LENGTH.unpack_from, bodies.append
    while end - at >= _LENGTH_SIZE and len(bodies) < count_max:
        (length,) = unpack_from(data, at)
        if not 0 < length <= size_max - _LENGTH_SIZE:
            return Frames(bodies, at, f"a frame of {length} bytes; the limit is {size_max}")
        begin = at + _LENGTH_SIZE
        if begin + length > end:
            break
        at = begin + length
        append(data[begin:at])
    return Frames(bodies, at, None)


def size_of_first(data: bytes) -> int:
    """Return how many bytes the first frame takes, or as many as it needs to tell."""
    return _LENGTH_SIZE + LENGTH.unpack_from(data)[0] if len(data) >= _LENGTH_SIZE else _LENGTH_SIZE


def protocol_of(body: bytes) -> Protocol | None:
    """Return the version of a message; `None` if it has neither."""
    if body.startswith(V3_FIRST):
        return Protocol.V3
    return Protocol.V2 if body[0] <= _V2_VERSION_MAX else None
