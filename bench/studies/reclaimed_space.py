"""Measures how fast space is reclaimed without a rate, and how large the index is after compactions.

    .venv/bin/python -m bench.studies.reclaimed_space [MB]

Three figures: megabytes of records of 1 KB that a move copies in a second, gigabytes of dead logs that are
proven and removed in a second from the page cache, and the bytes of index in use for each entry after three
compactions of the whole store. The two rates are also given for a second of processor time of the process,
which a machine that is busy with other work does not change much.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import ledgerstore
from storage.config import StoreConfig
from storage.disk.posix import PosixDirectory
from storage.entry.read_result import Damaged
from storage.index.lmdb import page_checksums, page_walk

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from storage.engine import Engine
    from storage.store import Store

T = TypeVar("T")

PAYLOAD = bytes(1024)
LEDGERS = 100
LOG_SIZE = 64 << 20


@dataclass(frozen=True, slots=True)
class Rate:
    """Megabytes in a second of the clock, and in a second of processor time."""

    by_clock: float
    by_processor: float

    def __str__(self) -> str:
        return f"{self.by_clock:.0f} MB/s ({self.by_processor:.0f} MB in a second of processor time)"


class Stopwatch:
    """Both times since it was made."""

    def __init__(self) -> None:
        self._clock, self._processor = time.perf_counter(), time.process_time()

    def rate(self, size: int) -> Rate:
        """Return the rate of so many bytes."""
        clock, processor = time.perf_counter() - self._clock, time.process_time() - self._processor
        return Rate(size / clock / 1e6, size / processor / 1e6)


@dataclass(frozen=True, slots=True)
class ReclaimFigures:
    """The figures of one run."""

    moved: Rate
    removed: Rate
    index_bytes_per_entry: float

    def __str__(self) -> str:
        return (
            f"moved {self.moved} · removed dead logs {self.removed} · "
            f"{self.index_bytes_per_entry:.1f} bytes of index in use for each entry after three compactions"
        )


def measure(directory: Path, size_mb: int) -> ReclaimFigures:
    """Fill a store, compact it three times, delete everything, and remove its logs."""
    config = StoreConfig(entry_log_size_max=LOG_SIZE, memtable_size_max=64 << 20, checkpoint_interval_s=None)
    with ledgerstore.open(directory, config) as store:
        store.pause_collection()
        count = (size_mb << 20) // len(PAYLOAD) // LEDGERS
        for first in range(0, count, 500):
            for ledger_id in range(LEDGERS):
                store.ledger(ledger_id).append_many([PAYLOAD] * min(500, count - first))
        store.checkpoint()
        moved = [_move_all(store) for _ in range(3)]
        store.checkpoint()
        in_use = _index_in_use(directory) / (count * LEDGERS)
        for ledger_id in range(LEDGERS):
            store.ledger(ledger_id).delete()
        store.checkpoint()
        removed = _remove(store, _victims(store))
    return ReclaimFigures(max(moved, key=lambda one: one.by_clock), removed, in_use)


def _engine_of(store: Store) -> Engine:
    engine: Engine = attrgetter("_engine")(store)
    return engine


def _take_all_steps(verb: Generator[float | None, None, T]) -> T:
    """Take the steps of an operation as a collector without a rate does, beside the store's worker."""
    while True:
        try:
            if next(verb) is None:
                time.sleep(0.0002)
        except StopIteration as end:
            result: T = end.value
            return result


def _victims(store: Store) -> list[int]:
    state = _engine_of(store).checkpointer.state
    return [one for one in sorted(state.log_ends) if one != state.last_log]


def _move_all(store: Store) -> Rate:
    """Move the records of all logs but the last one, and remove these logs; return the rate of the moves."""
    compactor, logs, size = _engine_of(store).compactor, _victims(store), 0
    watch = Stopwatch()
    for log_id in logs:
        moved = _take_all_steps(compactor.move(log_id))
        assert moved.why_kept is None, moved
        size += moved.bytes_moved
    rate = watch.rate(size)
    _remove(store, logs)
    return rate


def _remove(store: Store, logs: Iterable[int]) -> Rate:
    """Remove logs; return the rate."""
    watch = Stopwatch()
    removed = _take_all_steps(_engine_of(store).compactor.remove(logs))
    assert not removed.why_kept, removed.why_kept
    return watch.rate(removed.bytes_removed)


def _index_in_use(directory: Path) -> int:
    """Return the bytes of the pages of the index that are not free."""
    index = PosixDirectory(directory / "ledgers" / "current" / "index")
    with index.open("data.mdb") as data:
        current = page_checksums.read_current_meta(data)
        assert not isinstance(current, Damaged)
        meta = current.meta
        free = page_walk.free_pages(data, meta.page_size, meta.last_page, current.trees[0])
        assert not isinstance(free, Damaged)
        return (meta.last_page + 1 - len(free)) * meta.page_size


def main(arguments: list[str]) -> None:
    """Measure in a temporary directory, and print the figures."""
    with tempfile.TemporaryDirectory() as directory:
        print(measure(Path(directory) / "store", int(arguments[0]) if arguments else 1024))


if __name__ == "__main__":
    main(sys.argv[1:])
