"""What the demo writes: ledgers whose entries follow from their ids, so that nobody has to remember them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, NamedTuple

from storage.config import StoreConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCH = 64
PAYLOAD_SIZE_MAX = 1 << 20

_BATCH_SIZE_MAX = 1 << 20
_TABLE_SIZE = 8 << 20
_JOURNAL_SIZE = 8 << 20
_CHECKPOINT_INTERVAL_S = 0.5
# What an entry, its length word and its part of a group's padding take beside the payload, and some to spare.
_OVERHEAD = 128
# Of the alignment: a header, a seal, and what rounds up.
_JOURNAL_OVERHEAD = 8 * 4096


class Batch(NamedTuple):
    """How many entries a ledger gets at once."""

    ledger_id: int
    entries: int


@dataclass(frozen=True, slots=True)
class Workload:
    """How many entries, of what size, to how many ledgers."""

    entries: int = 50_000
    """About: writing goes on until the kill. The size of tables and journals follows from it."""
    size: int = 1024
    ledgers: int = 4

    @property
    def ledger_ids(self) -> range:
        return range(1, self.ledgers + 1)

    def payload(self, ledger_id: int, entry_id: int) -> bytes:
        """Of no other entry: a place mixed up in recovery would not go unseen."""
        seed = hashlib.blake2b(b"%d/%d" % (ledger_id, entry_id)).digest()
        return (seed * (self.size // len(seed) + 1))[: self.size]

    def batches(self) -> Iterator[Batch]:
        """Without end: a batch for each ledger in turn, and a single entry behind it."""
        count = max(1, min(BATCH, _BATCH_SIZE_MAX // self.size))
        for ledger_id in cycle(self.ledger_ids):
            yield Batch(ledger_id, count)
            yield Batch(ledger_id, 1)

    @property
    def config(self) -> StoreConfig:
        """Tables and journals so small that several of them are filled before the kill."""
        record = self.size + _OVERHEAD
        group = max(record, min(BATCH * record, _BATCH_SIZE_MAX))
        total = self.entries * self.size
        return StoreConfig(
            memtable_size_max=max(record, min(_TABLE_SIZE, total // 5)),
            entry_size_max=record,
            group_size_max=group,
            journal_size=max(group + _JOURNAL_OVERHEAD, min(_JOURNAL_SIZE, total // 4)),
            checkpoint_interval_s=_CHECKPOINT_INTERVAL_S,
        )
