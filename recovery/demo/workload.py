"""The entries of the demo. Their payloads follow from their ids, so that no list of them is needed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, NamedTuple

from storage.config import StoreConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCH = 64

_BATCH_SIZE_MAX = 1 << 20
_TABLE_SIZE = 8 << 20
_JOURNAL_SIZE = 8 << 20
_CHECKPOINT_INTERVAL_S = 0.5
# The bytes that an entry, its length word and its part of a group's padding take beside the payload.
_OVERHEAD = 128
# The bytes that alignment takes: a header, a seal, and rounding.
_JOURNAL_OVERHEAD = 8 * 4096


class WriteBatch(NamedTuple):
    """The number of entries that a ledger gets at once."""

    ledger_id: int
    entries: int


@dataclass(frozen=True, slots=True)
class Workload:
    """The number of entries, their size, and the number of ledgers."""

    entries: int = 50_000
    """Approximate, because writing goes on until the kill.

    The size of tables and journals follows from it.
    """
    size: int = 1024
    ledgers: int = 4

    @property
    def ledger_ids(self) -> range:
        return range(1, self.ledgers + 1)

    def payload(self, ledger_id: int, entry_id: int) -> bytes:
        """Return the payload. All payloads differ, so that entries that recovery mixes up are noticed."""
        seed = hashlib.blake2b(b"%d/%d" % (ledger_id, entry_id)).digest()
        return (seed * (self.size // len(seed) + 1))[: self.size]

    def batches(self) -> Iterator[WriteBatch]:
        """Yield, without end, a batch for each ledger in turn, each followed by a single entry."""
        count = max(1, min(BATCH, _BATCH_SIZE_MAX // self.size))
        for ledger_id in cycle(self.ledger_ids):
            yield WriteBatch(ledger_id, count)
            yield WriteBatch(ledger_id, 1)

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
