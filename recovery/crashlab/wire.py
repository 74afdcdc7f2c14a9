"""Values between the laboratory and its workers: pickled, each behind its size."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

import cloudpickle

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def receive_all(pipe: IO[bytes]) -> Iterator[Any]:
    """Every value up to the end, or up to one that is not whole."""
    with suppress(EOFError):
        while True:
            yield receive(pipe)


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = pipe.read(size)  # of a pipe that is not buffered, perhaps less
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
