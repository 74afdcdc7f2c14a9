"""Makes entry logs for the audit benchmarks: complete records of many ledgers with valid digests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from crc32c import crc32c

from storage.entry.format import HEAD
from storage.entry.position import LENGTH_WORD_SIZE
from storage.entry.record_format import FRONT_SIZE
from storage.entrylog import format as entrylog_format

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LEDGERS = 200
_AT_ONCE = 20_000
_FLUSHED = 64
"""Number of consecutive entries of a ledger in a sorted log."""


@dataclass(frozen=True, slots=True)
class LogShape:
    """The content of a log. Payload sizes are at least `smallest` and less than `size_limit`."""

    name: str
    smallest: int
    size_limit: int
    floor: float | None = None
    """Minimum speed of the kernel, as a share of the speed of C."""
    is_sorted: bool = False
    """Whether entries of a ledger are consecutive, as a store and most bookies write them."""


def write(path: Path, shape: LogShape, size: int) -> int:
    """Write a log of about `size` bytes. Return its number of entries."""
    random = np.random.default_rng(1)
    done = np.zeros(LEDGERS, dtype=np.int64)
    count = 0
    with path.open("wb") as file:
        file.write(entrylog_format.encode_header())
        while file.tell() < size:
            ledgers = _ledgers(random, shape)
            file.writelines(_records(random, shape, ledgers, done))
            count += len(ledgers)
    return count


def _ledgers(random: np.random.Generator, shape: LogShape) -> Any:
    if shape.is_sorted:
        return np.repeat(random.permutation(LEDGERS), _FLUSHED)
    return random.integers(0, LEDGERS, _AT_ONCE)


def _records(random: np.random.Generator, shape: LogShape, ledgers: Any, done: Any) -> Iterator[bytes]:
    """Yield records. `done` is the number of entries that each ledger has already."""
    sizes = random.integers(shape.smallest, shape.size_limit, len(ledgers)).tolist()
    noise = memoryview(random.bytes(sum(sizes)))
    at = 0
    for ledger_id, size in zip(ledgers.tolist(), sizes, strict=True):
        payload = noise[at : at + size]
        at += size
        entry_id = int(done[ledger_id])
        done[ledger_id] += 1
        head = HEAD.pack(ledger_id, entry_id, entry_id - 1, size * (entry_id + 1))
        length = (FRONT_SIZE - LENGTH_WORD_SIZE + size).to_bytes(LENGTH_WORD_SIZE, "big")
        digest = crc32c(payload, crc32c(head)).to_bytes(4, "big")
        yield b"".join((length, head, digest, payload))
