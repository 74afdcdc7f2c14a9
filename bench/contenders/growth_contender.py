"""A growing store as a contender: filled to a size, and measured at that size."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

from contest.resource_usage import settle
from contest.workload import Work, WrongAnswer

from recovery import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from contest.result import Figures

    from storage.store import Store

_US = 1e6
_MS = 1000
_clock = time.perf_counter


class GrowthContender:
    """Opens a store with default settings, and adds batches to each ledger in turn."""

    def __init__(self, place: Path, entries: int, **work: int) -> None:
        self._place = place
        self._entries = entries
        self._work = Work(**work)
        self._store: Store | None = None

    def grow(self, path: str) -> None:
        """Add entries until the store at the path has as many as requested, and close it."""
        with open_store(Path(path)) as store:
            for ledger_id, batch in self._batches(sum(ends(store).values()), self._entries):
                store.ledger(ledger_id).append_many(batch)

    def open(self, name: str) -> Figures:
        """Return the time from the opening until the first entry is read."""
        start = _clock()
        self._store = open_store(self._place / name)
        self._check(self._store.ledger(1).read(0).payload)
        return {"ms": (_clock() - start) * _MS}

    def read(self, count: int) -> Figures:
        """Return the time of a random read, when the same entries are read for the second time."""
        store = self._opened()
        reads = {ledger_id: store.ledger(ledger_id).read for ledger_id in store.ledgers()}
        made = random.Random(self._work.seed)  # noqa: S311 - repeatable on purpose
        chosen = made.choices(list(ends(store).items()), k=count)
        requests = [(reads[ledger_id], made.randrange(end)) for ledger_id, end in chosen]
        for read, entry_id in requests:
            self._check(read(entry_id).payload)
        start = _clock()
        for read, entry_id in requests:
            self._check(read(entry_id).payload)
        return {"us_per_read": (_clock() - start) / count * _US}

    def add(self, entries: int) -> Figures:
        """Return the time of an add, until all added entries are in entry logs and index."""
        store = self._opened()
        has = sum(ends(store).values())
        settle()
        batches = self._batches(has, has + entries)
        start = _clock()
        for ledger_id, batch in batches:
            store.ledger(ledger_id).append_many(batch)
        added = _clock() - start
        store.checkpoint()
        whole = _clock() - start
        return {
            "rate": entries / whole,
            "us_per_add": whole / entries * _US,
            "us_acknowledged": added / entries * _US,
        }

    def close(self) -> None:
        if self._store is not None:
            self._store.close()

    def _opened(self) -> Store:
        assert self._store is not None
        return self._store

    def _batches(self, start: int, end: int) -> Iterator[tuple[int, list[bytes]]]:
        batches = self._work.batches()
        size, ledgers = self._work.batch, self._work.ledgers
        for number in range(start // size, end // size):
            yield number % ledgers + 1, next(batches)

    def _check(self, payload: bytes) -> None:
        if len(payload) != self._work.size:
            raise WrongAnswer(f"{len(payload)} bytes instead of {self._work.size}")


def ends(store: Store) -> dict[int, int]:
    """Return for each ledger the id after its last entry."""
    last = {ledger_id: store.ledger(ledger_id).last_entry_id for ledger_id in store.ledgers()}
    return {ledger_id: entry_id + 1 for ledger_id, entry_id in last.items() if entry_id is not None}
