"""The entries to add: the same sizes and the same pseudo-random payloads for every contender."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from itertools import cycle
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_POOL_SIZE = 8 << 20
_POOL_BATCHES = 8


class WrongAnswer(Exception):
    """A store answered something else than what was added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Adds of one kind, each synced before it is acknowledged."""

    size: int
    """Size of a payload in bytes."""
    batch: int = 1
    """Number of entries that are acknowledged together."""
    writers: int = 1
    """Number of writers. Each writes to a ledger of its own."""
    ledgers: int = 1
    """Number of ledgers to which a single writer adds batches in turn."""
    seed: int = 1

    def settings(self) -> dict[str, int]:
        return asdict(self)

    def payloads(self, number: int = 0) -> list[bytes]:
        """Return the payloads of a batch. They depend on the seed only."""
        made = random.Random(self.seed * 1_000_003 + number)  # noqa: S311 - repeatable on purpose
        return [made.randbytes(self.size) for _ in range(self.batch)]

    def batches(self) -> Iterator[list[bytes]]:
        """Return an endless iterator of batches.

        They repeat, so that making payloads is not part of the timing.
        """
        return cycle(self._pool())

    def _pool(self) -> list[list[bytes]]:
        count = max(1, min(_POOL_BATCHES, _POOL_SIZE // (self.size * self.batch)))
        return [self.payloads(number) for number in range(count)]

    def each(self) -> Iterator[bytes]:
        """Return an endless iterator of payloads, for batches of one entry."""
        assert self.batch == self.ledgers == 1, "only for single entries of one ledger"
        return cycle([payload for batch in self._pool() for payload in batch])

    def ledger_ids(self, writer: int) -> Iterator[int]:
        """Return an endless iterator of the ledger of each batch of a writer."""
        return cycle(range(1, self.ledgers + 1)) if self.ledgers > 1 else cycle((writer + 1,))

    def runs(self, writer: int) -> Iterator[tuple[int, range]]:
        """Yield the ledger and the entry ids of each batch of a writer, for stores that do not assign ids."""
        ends: dict[int, int] = {}
        for ledger_id in self.ledger_ids(writer):
            first = ends.get(ledger_id, 0)
            ends[ledger_id] = first + self.batch
            yield ledger_id, range(first, first + self.batch)

    def calls(self, size: int) -> int:
        """Return the number of batches with `size` bytes of payload in total."""
        return max(1, size // (self.size * self.batch))
