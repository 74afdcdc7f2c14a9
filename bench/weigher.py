"""Our store as a contender that is weighed: on the disk, and in memory."""

from __future__ import annotations

import gc
import os
import random
import tracemalloc
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING

from recovery import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from result import Figures

    from storage.store import Store

_INDEX = "ledgers/current/index"
_OF_THE_INDEX = ("data.mdb", "sums")
_STATM = Path("/proc/self/statm")


class Weigher:
    """Fills stores with default settings, each below its place, and says what that has taken."""

    def __init__(self, place: Path, size: int, ledgers: int, seed: int) -> None:
        self._place = place
        self._size = size
        self._ledgers = range(1, ledgers + 1)
        self._random = random.Random(seed)  # noqa: S311 - repeatable on purpose

    def index(self, entries: int, run: int) -> Figures:
        """Bytes of the index for each entry. Every checkpoint finds a run of so many in every ledger."""
        with open_store(self._place / "indexed") as store:
            for _ in range(entries // (run * len(self._ledgers))):
                self._add(store, run)
                store.checkpoint()
        files = self._place / "indexed" / _INDEX
        return {"index_by_entry": sum((files / name).stat().st_size for name in _OF_THE_INDEX) / entries}

    def traced(self, entries: int, run: int) -> Figures:
        """Bytes that Python's objects take for each entry in memory, above those of its payload."""
        tracemalloc.start()
        try:
            return {"memory_by_entry": self._grown(_traced, entries, run)}
        finally:
            tracemalloc.stop()

    def resident(self, entries: int, run: int) -> Figures:
        """The same of the process; nothing where the system does not tell."""
        return {"resident_by_entry": self._grown(_resident, entries, run)} if _resident() else {}

    def _grown(self, look: Callable[[], int], entries: int, run: int) -> float:
        with open_store(self._place / look.__name__) as store:
            self._add(store, run)  # with the first of all comes what does not depend on their number
            before, rounds = look(), entries // (run * len(self._ledgers))
            for _ in repeat(None, rounds):
                self._add(store, run)
            return (look() - before) / (rounds * run * len(self._ledgers)) - self._size

    def _add(self, store: Store, run: int) -> None:
        """Payloads that nobody else holds: what the store keeps of them is what it takes."""
        for ledger_id in self._ledgers:
            payloads = [self._random.randbytes(self._size) for _ in range(run)]
            store.ledger(ledger_id).append_many(payloads)

    def close(self) -> None:
        """Nothing is open between two questions."""


def _traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def _resident() -> int:
    gc.collect()
    with suppress(OSError):
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
