"""Entries of a chunk as columns in the order of the file: the walk fills them, its listener reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from recovery.audit.model.runs import Fingerprints, Mask, Numbers


CAPACITY = 16 << 10
"""So few that the columns, and the arrays made from them, stay in the processor's caches."""


class ChunkColumns:
    """Space for a number of entries. It is overwritten after `clear`, so that nothing is allocated twice."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self.count = 0
        self.bad = 0
        """The number of entries that do not carry the digest of their bytes."""
        self.offsets: Numbers = np.empty(capacity, dtype=np.int64)
        """Offsets of length words in the file."""
        self.sizes: Numbers = np.empty(capacity, dtype=np.int64)
        """Sizes of records, length words included."""
        self.ledgers: Numbers = np.empty(capacity, dtype=np.int64)
        self.entries: Numbers = np.empty(capacity, dtype=np.int64)
        self.confirmed: Numbers = np.empty(capacity, dtype=np.int64)
        self.lengths: Numbers = np.empty(capacity, dtype=np.int64)
        self.digests: Fingerprints = np.empty(capacity, dtype=np.uint64)
        """As `recovery.audit.model.runs` counts them."""
        self.good: Mask = np.ones(capacity, dtype=np.bool_)

    @property
    def room(self) -> int:
        return self.capacity - self.count

    def append(self, offset: int, size: int, head: tuple[int, int, int, int], digest: int) -> None:
        """Append one entry as good. `head` is ledger, entry, last add confirmed and length."""
        at = self.count
        self.offsets[at], self.sizes[at], self.digests[at] = offset, size, digest
        self.ledgers[at], self.entries[at], self.confirmed[at], self.lengths[at] = head
        self.count += 1

    def mark_last_bad(self) -> None:
        """Mark the last entry as bad."""
        self.good[self.count - 1] = False
        self.bad += 1

    def clear(self) -> None:
        if self.bad:
            self.good[:] = True
        self.count = self.bad = 0
