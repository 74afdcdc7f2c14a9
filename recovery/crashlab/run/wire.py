"""Values sent between the laboratory and its workers: pickled, each after its size."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

import cloudpickle

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIZE = struct.Struct("<Q")


def send(pipe: IO[bytes], value: object) -> None:
    """Send a value in one write."""
    pickled = cloudpickle.dumps(value)
    pipe.write(_SIZE.pack(len(pickled)) + pickled)
    pipe.flush()


def receive(pipe: IO[bytes]) -> Any:
    """Return the next value; raise `EOFError` at the end."""
    (size,) = _SIZE.unpack(_exactly(pipe, _SIZE.size))
    return cloudpickle.loads(_exactly(pipe, size))


def receive_all(pipe: IO[bytes]) -> Iterator[Any]:
    """Yield every value up to the end, or up to an incomplete one."""
    with suppress(EOFError):
        while True:
            yield receive(pipe)


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = pipe.read(size)  # an unbuffered pipe may return less
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
