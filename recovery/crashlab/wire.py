"""Values between the laboratory and its workers: pickled, each behind its size."""

from __future__ import annotations

import struct
from typing import IO, Any

import cloudpickle

_SIZE = struct.Struct("<Q")


def send(pipe: IO[bytes], value: object) -> None:
    """In one piece."""
    said = cloudpickle.dumps(value)
    pipe.write(_SIZE.pack(len(said)) + said)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """The next value; `EOFError` where there will be none."""
    (size,) = _SIZE.unpack(_exactly(pipe, _SIZE.size))
    return cloudpickle.loads(_exactly(pipe, size))


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = pipe.read(size)  # of a pipe that is not buffered, perhaps less
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
