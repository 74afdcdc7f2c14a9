"""Entries as columns, in the order of the file: what a walk fills, and whoever watches it empties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from recovery.verify.runs import Fingerprints, Numbers

    Mask = np.ndarray[Any, np.dtype[np.bool_]]

CAPACITY = 16 << 10
"""So many entries that their columns, and what is made of them, stay in the processor's caches."""


class Columns:
    """Room for so many entries. What was emptied is written over: nothing is allocated twice."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self.count = 0
        self.bad = 0
        """How many of them do not carry the digest of their bytes."""
        self.offsets: Numbers = np.empty(capacity, dtype=np.int64)
        """Of length words, in the file."""
        self.sizes: Numbers = np.empty(capacity, dtype=np.int64)
        """Of records, length words included."""
        self.ledgers: Numbers = np.empty(capacity, dtype=np.int64)
        self.entries: Numbers = np.empty(capacity, dtype=np.int64)
        self.confirmed: Numbers = np.empty(capacity, dtype=np.int64)
        self.lengths: Numbers = np.empty(capacity, dtype=np.int64)
        self.digests: Fingerprints = np.empty(capacity, dtype=np.uint64)
        """As `recovery.verify.runs` counts them."""
        self.good: Mask = np.ones(capacity, dtype=np.bool_)

    @property
    def room(self) -> int:
        return self.capacity - self.count

    def append(self, offset: int, size: int, head: tuple[int, int, int, int], digest: int) -> None:
        """One entry, good until it is said to be bad. `head` are ledger, entry, confirmed and length."""
        at = self.count
        self.offsets[at], self.sizes[at], self.digests[at] = offset, size, digest
        self.ledgers[at], self.entries[at], self.confirmed[at], self.lengths[at] = head
        self.count += 1

    def is_bad(self) -> None:
        """Says so of the last one."""
        self.good[self.count - 1] = False
        self.bad += 1

    def clear(self) -> None:
        if self.bad:
            self.good[:] = True
        self.count = self.bad = 0
