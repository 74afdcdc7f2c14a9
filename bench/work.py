"""What is added: the same sizes, and the same pseudo-random payloads, for every contender."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from itertools import cycle
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_POOL_SIZE = 8 << 20
_POOL_BATCHES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Adds of one kind, each synced before it is acknowledged."""

    size: int
    """Bytes of a payload."""
    batch: int = 1
    """Entries that are acknowledged together."""
    writers: int = 1
    """Each writes to a ledger of its own."""
    ledgers: int = 1
    """How many a single writer takes in turn, batch by batch."""
    seed: int = 1

    def settings(self) -> dict[str, int]:
        return asdict(self)

    def payloads(self, number: int = 0) -> list[bytes]:
        """One batch, from the seed alone."""
        made = random.Random(self.seed * 1_000_003 + number)  # noqa: S311 - repeatable on purpose
        return [made.randbytes(self.size) for _ in range(self.batch)]

    def batches(self) -> Iterator[list[bytes]]:
        """Batches without end. They repeat: making a payload must not be part of what is timed."""
        return cycle(self._pool())

    def _pool(self) -> list[list[bytes]]:
        count = max(1, min(_POOL_BATCHES, _POOL_SIZE // (self.size * self.batch)))
        return [self.payloads(number) for number in range(count)]

    def each(self) -> Iterator[bytes]:
        """The payloads of batches of one."""
        assert self.batch == self.ledgers == 1, "so are all that add one by one"
        return cycle([payload for batch in self._pool() for payload in batch])

    def ledger_ids(self, writer: int) -> Iterator[int]:
        """The ledger of each of a writer's batches, without end."""
        return cycle(range(1, self.ledgers + 1)) if self.ledgers > 1 else cycle((writer + 1,))

    def runs(self, writer: int) -> Iterator[tuple[int, range]]:
        """The ledger of each of a writer's batches, and the ids of its entries, for who is not given any."""
        ends: dict[int, int] = {}
        for ledger_id in self.ledger_ids(writer):
            first = ends.get(ledger_id, 0)
            ends[ledger_id] = first + self.batch
            yield ledger_id, range(first, first + self.batch)

    def calls(self, size: int) -> int:
        """How many batches have so many bytes of payload."""
        return max(1, size // (self.size * self.batch))
