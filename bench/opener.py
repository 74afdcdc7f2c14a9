"""What happens in a process of its own around an opening: a store that a crash leaves, and fresh memory."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from spending import peak_memory

from recovery.opening import open_store
from storage import StoreConfig

if TYPE_CHECKING:
    from pathlib import Path

    from result import Figures

    from storage.store import Store

PAYLOAD = bytes(range(256)) * 4
_BATCH = 1000
_JOURNALS_ONLY = StoreConfig(memtable_size_max=1 << 40, checkpoint_interval_s=None, idle_seal_s=None)


class Opener:
    """Fills stores and opens them; paths are below its place."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._filled: Store | None = None

    def fill(self, name: str, size: int) -> None:
        """A store with so many bytes of payload in its journals, and none in entry logs. To be killed."""
        self._filled = open_store(self._place / name, _JOURNALS_ONLY)
        self._append(self._filled, -(-size // (_BATCH * len(PAYLOAD))))

    def make(self, name: str, batches: int) -> None:
        """A store with so many batches that was closed in order."""
        with open_store(self._place / name) as store:
            self._append(store, batches)

    def _append(self, store: Store, batches: int) -> None:
        ledger, batch = store.ledger(1), [PAYLOAD] * _BATCH
        for _ in range(batches):
            ledger.append_many(batch)

    def open(self, name: str) -> Figures:
        """Opens the store with default settings, and closes it: what that has cost."""
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
        """Nothing is open between two questions, but for a store that waits to be killed."""
