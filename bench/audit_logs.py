"""Entry logs to be read by `audit_kernel.py`: whole records only, of many ledgers, every digest right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from crc32c import crc32c

from storage.codec import entrylog as codec
from storage.codec.entry import HEAD
from storage.codec.record import FRONT_SIZE, LENGTH_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LEDGERS = 200
_AT_ONCE = 20_000
_FLUSHED = 64
"""Entries of a ledger that stand together where a log is written sorted."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What stands in a log. Payloads between two sizes, the lower one included."""

    name: str
    smallest: int
    behind_largest: int
    floor: float | None = None
    """What the kernel has to reach of C."""
    is_sorted: bool = False
    """Whether entries of a ledger stand together, as a store and most bookies write them."""


def write(path: Path, shape: Shape, size: int) -> int:
    """A log of about that size; answers how many entries it has."""
    dice = np.random.default_rng(1)
    done = np.zeros(LEDGERS, dtype=np.int64)
    count = 0
    with path.open("wb") as file:
        file.write(codec.encode_header())
        while file.tell() < size:
            ledgers = _ledgers(dice, shape)
            file.writelines(_records(dice, shape, ledgers, done))
            count += len(ledgers)
    return count


def _ledgers(dice: np.random.Generator, shape: Shape) -> Any:
    if shape.is_sorted:
        return np.repeat(dice.permutation(LEDGERS), _FLUSHED)
    return dice.integers(0, LEDGERS, _AT_ONCE)


def _records(dice: np.random.Generator, shape: Shape, ledgers: Any, done: Any) -> Iterator[bytes]:
    """`done` are the entries that each ledger has already."""
    sizes = dice.integers(shape.smallest, shape.behind_largest, len(ledgers)).tolist()
    noise = memoryview(dice.bytes(sum(sizes)))
    at = 0
    for ledger_id, size in zip(ledgers.tolist(), sizes, strict=True):
        payload = noise[at : at + size]
        at += size
        entry_id = int(done[ledger_id])
        done[ledger_id] += 1
        head = HEAD.pack(ledger_id, entry_id, entry_id - 1, size * (entry_id + 1))
        length = (FRONT_SIZE - LENGTH_SIZE + size).to_bytes(LENGTH_SIZE, "big")
        digest = crc32c(payload, crc32c(head)).to_bytes(4, "big")
        yield b"".join((length, head, digest, payload))
