"""Our store as a contender whose size on disk and in memory is measured."""

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

    from contest.result import Figures

    from storage.store import Store

_INDEX = "ledgers/current/index"
_OF_THE_INDEX = ("data.mdb", "sums")
_STATM = Path("/proc/self/statm")


class FootprintContender:
    """Fills stores with default settings, each below its place, and returns the space that they take."""

    def __init__(self, place: Path, size: int, ledgers: int, seed: int) -> None:
        self._place = place
        self._size = size
        self._ledgers = range(1, ledgers + 1)
        self._random = random.Random(seed)  # noqa: S311 - repeatable on purpose

    def index(self, entries: int, run: int) -> Figures:
        """Return the bytes of the index for each entry.

        Each checkpoint adds a run of entries to every ledger.
        """
        with open_store(self._place / "indexed") as store:
            for _ in range(entries // (run * len(self._ledgers))):
                self._add(store, run)
                store.checkpoint()
        files = self._place / "indexed" / _INDEX
        return {"index_by_entry": sum((files / name).stat().st_size for name in _OF_THE_INDEX) / entries}

    def traced(self, entries: int, run: int) -> Figures:
        """Return the bytes of Python objects for each entry in memory, without its payload."""
        tracemalloc.start()
        try:
            return {"memory_by_entry": self._grown(_traced, entries, run)}
        finally:
            tracemalloc.stop()

    def resident(self, entries: int, run: int) -> Figures:
        """Return the same for resident memory of the process, or nothing if the system does not report it."""
        return {"resident_by_entry": self._grown(_resident, entries, run)} if _resident() else {}

    def _grown(self, look: Callable[[], int], entries: int, run: int) -> float:
        with open_store(self._place / look.__name__) as store:
            self._add(store, run)  # the first entries allocate memory that does not depend on their number
            before, rounds = look(), entries // (run * len(self._ledgers))
            for _ in repeat(None, rounds):
                self._add(store, run)
            return (look() - before) / (rounds * run * len(self._ledgers)) - self._size

    def _add(self, store: Store, run: int) -> None:
        """Add payloads to which only the store keeps references, so that they count as its memory."""
        for ledger_id in self._ledgers:
            payloads = [self._random.randbytes(self._size) for _ in range(run)]
            store.ledger(ledger_id).append_many(payloads)

    def close(self) -> None:
        """Do nothing, because no store is open between two requests."""


def _traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def _resident() -> int:
    gc.collect()
    with suppress(OSError):
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
