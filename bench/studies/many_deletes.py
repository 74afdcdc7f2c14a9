"""Measures how long it takes to delete many ledgers: all at once, and a single one.

python -m bench.studies.many_deletes [LEDGERS] [ENTRIES]
"""

from __future__ import annotations

import sys
import tempfile
from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING

from recovery import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

LAPS = 5


def laps(ledgers: int, entries: int, path: str) -> Iterator[tuple[float, float, float]]:
    """Yield the seconds of a delete of new ledgers at once, its processor time, and those of one delete."""
    with open_store(path) as store:
        for lap in range(LAPS):
            ids = range(lap * (ledgers + 1), (lap + 1) * (ledgers + 1))
            for ledger_id in ids:
                store.ledger(ledger_id).append_many([b"x" * 100] * entries)
            store.checkpoint()
            started = perf_counter()
            store.ledger(ids[-1]).delete()
            single = perf_counter() - started
            started, processor = perf_counter(), process_time()
            store.delete(ids[:-1])
            yield perf_counter() - started, process_time() - processor, single
            assert store.ledgers() == []


def main() -> None:
    ledgers, entries = (*map(int, sys.argv[1:]), *(1000, 10)[len(sys.argv) - 1 :])
    with tempfile.TemporaryDirectory() as path:
        figures = [1000 * median(column) for column in zip(*laps(ledgers, entries, path), strict=True)]
    at_once, processor, single = figures
    print(f"{ledgers} ledgers at once: {at_once:.1f} ms, {processor:.1f} ms of processor time")
    print(f"one by itself: {single:.1f} ms")


if __name__ == "__main__":
    main()
