"""Our store as a contender that is opened, after a crash or a clean close, in a fresh process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from contest.resource_usage import peak_memory

from recovery.opening.open_store import open_store
from storage import StoreConfig

if TYPE_CHECKING:
    from pathlib import Path

    from contest.result import Figures

    from storage.store import Store

PAYLOAD = bytes(range(256)) * 4
_BATCH = 1000
_JOURNALS_ONLY = StoreConfig(memtable_size_max=1 << 40, checkpoint_interval_s=None, idle_seal_s=None)


class ReopeningContender:
    """Fills stores and opens them. Paths are below its place."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._filled: Store | None = None

    def fill(self, name: str, size: int) -> None:
        """Fill a store with `size` bytes of payload in its journals and none in entry logs.

        Kill it afterwards.
        """
        self._filled = open_store(self._place / name, _JOURNALS_ONLY)
        self._append(self._filled, -(-size // (_BATCH * len(PAYLOAD))))

    def make(self, name: str, batches: int) -> None:
        """Make a store with this number of batches, and close it."""
        with open_store(self._place / name) as store:
            self._append(store, batches)

    def _append(self, store: Store, batches: int) -> None:
        ledger, batch = store.ledger(1), [PAYLOAD] * _BATCH
        for _ in range(batches):
            ledger.append_many(batch)

    def open(self, name: str) -> Figures:
        """Open the store with default settings and close it. Return what the opening cost."""
        start = time.perf_counter()
        with open_store(self._place / name) as store:
            seconds = time.perf_counter() - start
            peak = peak_memory()
        replayed = store.opened.bytes_replayed
        return {
            "ms": seconds * 1000,
            "replayed": replayed,
            "mb_per_s": replayed / 1e6 / seconds,
            "peak_memory": peak,
        }

    def close(self) -> None:
        """Do nothing. Between two requests only a store that will be killed is open."""
