"""Measures what space reclamation gives back, what it costs the adds beside it, and how fast it is.

python bench/space.py [--only ROW ...] [--quick] [--json FILE] [--strict] [--list]

All stores are in one process and one after the other, on the disk of the current directory. A row that
compares adds with and without a compaction takes turns in one store. With `--strict` it ends with 1 if a bar
is missed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from scale import ScaleResult, run_rows

from recovery import open_store
from storage.config import StoreConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from storage.store import Store

PAYLOAD = 1000
RECORD = PAYLOAD + 4 + 32 + 4
"""The payload with its length word, head and digest."""

_MIB = 1 << 20
_BATCH = 16


@dataclass(frozen=True, slots=True)
class SpaceSizes:
    """The sizes of one run."""

    total: int = 5 << 30
    """Bytes of records in the row `waves`."""
    part: int = 1 << 30
    """Bytes of records in every other row."""
    log: int = 64 * _MIB
    memtable: int = 64 * _MIB
    ledgers: int = 1000
    waves: int = 10
    turns: int = 5
    turn_s: float = 4.0
    tombstones: int = 20_000


QUICK = SpaceSizes(
    total=500 * _MIB,
    part=200 * _MIB,
    log=16 * _MIB,
    memtable=16 * _MIB,
    turns=3,
    turn_s=1.0,
    tombstones=2_000,
)
"""For a first look: fewer and smaller logs, so that the fixed costs of each count more."""


def config(sizes: SpaceSizes, **settings: object) -> StoreConfig:
    return StoreConfig(
        memtable_size_max=sizes.memtable,
        entry_log_size_max=sizes.log,
        collection_interval_s=None,
        journal_max_backups=0,
        **{"compaction_rate": None, **settings},  # type: ignore[arg-type]
    )


def fill(store: Store, ledger_ids: Sequence[int], size: int) -> None:
    """Add so many bytes of records to these ledgers in turns, so that each log has some of each."""
    payloads = [bytes(PAYLOAD)] * _BATCH
    ledgers = [store.ledger(ledger_id) for ledger_id in ledger_ids]
    left = size // (RECORD * _BATCH)
    while left > 0:
        for ledger in ledgers[:left]:
            ledger.append_many(payloads)
        left -= len(ledgers)
    store.checkpoint()


def delete(store: Store, ledger_ids: Iterable[int]) -> None:
    """Delete ledgers from many threads, which share the syncs, and take them out of the index."""
    with ThreadPoolExecutor(64) as pool:
        list(pool.map(lambda ledger_id: store.ledger(ledger_id).delete(), ledger_ids))
    store.checkpoint()


def log_bytes(path: Path) -> int:
    total = 0
    for log in (path / "ledgers" / "current").glob("*.log"):
        try:
            total += log.stat().st_size
        except FileNotFoundError:  # a collection has removed it
            continue
    return total


@dataclass(slots=True)
class LargestSize:
    """The largest sum of the logs' sizes while it watches, looked at every few milliseconds."""

    path: Path
    largest: int = 0
    end: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.end.wait(0.005):
            self.largest = max(self.largest, log_bytes(self.path))


@contextmanager
def watching(path: Path) -> Iterator[LargestSize]:
    watch = LargestSize(path)
    thread = threading.Thread(target=watch.run)
    thread.start()
    try:
        yield watch
    finally:
        watch.end.set()
        thread.join()


# ── the rows ─────────────────────────────────────────────────────────────────────────────────────────────


def waves(sizes: SpaceSizes, place: Path) -> Iterator[ScaleResult]:
    """Delete 90 % in ten waves, and collect after each one. The bars allow for the logs that are written."""
    ids = list(range(sizes.ledgers))
    ids = ids[::7] + [one for one in ids if one % 7]  # a wave has ledgers from everywhere
    a_wave = sizes.ledgers * 9 // 10 // sizes.waves
    ends, worst, moved, taken = [], [], 0, 0.0
    with open_store(place, config(sizes)) as store:
        fill(store, ids, sizes.total)
        written = log_bytes(place)
        for wave in range(sizes.waves):
            some, ids = ids[:a_wave], ids[a_wave:]
            before = sizes.total * (len(ids) + len(some)) // sizes.ledgers
            delete(store, some)
            live = sizes.total * len(ids) // sizes.ledgers
            with watching(place) as watch:
                report = store.collect()
            moved, taken = moved + report.moved_bytes, taken + report.seconds
            ends.append((log_bytes(place) - 2 * sizes.log) / live)
            # Until then the logs have the entries of this wave, so the live bytes before it count.
            worst.append((watch.largest - 4 * sizes.log) / (live if wave else before))
        for ledger_id in ids[:: max(1, len(ids) // 20)]:
            assert all(len(one) == PAYLOAD for one in store.ledger(ledger_id).payloads())
    others = {"written": float(written), "moved": float(moved), "seconds": taken}
    title = f"{sizes.total / (1 << 30):.1f} GiB, 90 % deleted in {sizes.waves} waves"
    yield ScaleResult("waves", f"{title}: logs in the end less 2 logs ÷ live", "×", [ends[-1]], most=1.5)
    yield ScaleResult(
        "waves",
        f"{title}: logs at the worst moment less 4 logs ÷ live",
        "×",
        [max(worst)],
        most=2.2,
        others=others,
    )
    yield ScaleResult(
        "waves", f"{title}: bytes moved ÷ bytes that came back", "×", [moved / (written - log_bytes(place))]
    )


def beside(sizes: SpaceSizes, place: Path) -> Iterator[ScaleResult]:
    """Compare adds of one thread beside a compaction at the default rate with adds alone, in turns."""
    rate = StoreConfig().compaction_rate
    with open_store(place, config(sizes, compaction_rate=rate, compaction_major=0.95)) as store:
        ids = list(range(sizes.ledgers))
        fill(store, ids, sizes.part)
        delete(store, ids[::10])
        turns = []
        for _ in range(sizes.turns):
            alone = _adds(store, sizes.turn_s, lambda: True)
            collecting = threading.Thread(target=store.collect)
            store.resume_collection()
            collecting.start()
            with_it = _adds(store, sizes.turn_s, collecting.is_alive)
            store.pause_collection()
            collecting.join()
            turns.append((alone, with_it))
        moved = store.stats().collection.bytes_moved
    seconds = sum(sum(with_it) for _, with_it in turns)
    others = {
        "alone p50 us": statistics.median(_quantile(alone, 0.5) for alone, _ in turns) * 1e6,
        "alone p99 us": statistics.median(_quantile(alone, 0.99) for alone, _ in turns) * 1e6,
        "beside p50 us": statistics.median(_quantile(with_it, 0.5) for _, with_it in turns) * 1e6,
        "beside p99 us": statistics.median(_quantile(with_it, 0.99) for _, with_it in turns) * 1e6,
        "moved MB/s": moved / seconds / 1e6,
    }
    p99 = [_quantile(with_it, 0.99) / _quantile(alone, 0.99) for alone, with_it in turns]
    adds = [(len(with_it) / sum(with_it)) / (len(alone) / sum(alone)) for alone, with_it in turns]
    title = "beside a compaction at the default rate ÷ alone"
    yield ScaleResult("beside", f"p99 of adds of 1 KB {title}", "×", p99, most=3, others=others)
    yield ScaleResult("beside", f"adds/s {title}", "×", adds, least=0.85)


def _adds(store: Store, seconds: float, goes_on: Callable[[], bool]) -> list[float]:
    """Return the durations of adds for some time."""
    ledger, payload = store.ledger(1 << 20), bytes(PAYLOAD)
    durations = []
    began = now = time.perf_counter()
    while now - began < seconds and goes_on():
        ledger.append(payload)
        durations.append(-now + (now := time.perf_counter()))
    return durations or [0.0]


def _quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


_BLOCK = 256 << 10


def plain_copy(path: Path, size: int) -> float:
    """Return the bytes a second at which a loop copies this file again and again, with a sync for each
    megabyte."""
    copy, left = path.with_name("copy"), size
    began = time.perf_counter()
    with copy.open("wb", buffering=0) as target:
        while left > 0:
            with path.open("rb", buffering=0) as source:
                for number, block in enumerate(iter(lambda: source.read(_BLOCK), b""), 1):
                    target.write(block)
                    left -= len(block)
                    if number * _BLOCK % _MIB == 0:
                        os.fdatasync(target.fileno())
    seconds = time.perf_counter() - began
    copy.unlink()
    return (size - left) / seconds


def plain_removal(paths: Sequence[Path]) -> float:
    """Return the bytes a second at which a loop reads files from memory and removes them."""
    size, began = 0, time.perf_counter()
    buffer = bytearray(_BLOCK)
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                size += count
        path.unlink()
    return size / (time.perf_counter() - began)


def moving(sizes: SpaceSizes, place: Path) -> Iterator[ScaleResult]:
    """Time a compaction without a rate and without adds, and a plain loop that copies as much."""
    with open_store(place, config(sizes)) as store:
        ids = list(range(sizes.ledgers))
        fill(store, ids, sizes.part)
        delete(store, ids[: sizes.ledgers * 4 // 10])
        began = time.process_time()
        report = store.collect()
        processor = time.process_time() - began
    (place / "source").write_bytes(bytes(sizes.log))
    plain = plain_copy(place / "source", report.moved_bytes) / 1e6
    speed = report.moved_bytes / report.seconds / 1e6
    others = {"moved": float(report.moved_bytes), "freed": float(report.freed), "seconds": report.seconds}
    title = "live records of 1 KB moved, without a rate"
    yield ScaleResult("moving", title, "MB/s", [speed], least=100, others=others)
    yield ScaleResult("moving", f"{title}, by processor time", "MB/s", [report.moved_bytes / processor / 1e6])
    yield ScaleResult("moving", f"{title} ÷ a plain loop with as many syncs", "×", [speed / plain])


def removing(sizes: SpaceSizes, place: Path) -> Iterator[ScaleResult]:
    """Time the removal of dead logs that are in the page cache, and a plain loop that reads and removes."""
    with open_store(place, config(sizes)) as store:
        fill(store, range(sizes.ledgers), sizes.part)
        fill(store, [sizes.ledgers], 2 * sizes.log)
        delete(store, range(sizes.ledgers))
        began = time.process_time()
        report = store.collect()
        processor = time.process_time() - began
    files = [place / f"plain {number}" for number in range(len(report.removed))]
    for one in files:
        one.write_bytes(bytes(report.freed // len(files)))
    plain = plain_removal(files) / 1e9
    speed = report.freed / report.seconds / 1e9
    others = {"freed": float(report.freed), "seconds": report.seconds}
    title = "dead logs read, proved and removed"
    yield ScaleResult("removing", title, "GB/s", [speed], least=1, others=others)
    yield ScaleResult("removing", f"{title}, by processor time", "GB/s", [report.freed / processor / 1e9])
    yield ScaleResult("removing", f"{title} ÷ a plain loop that reads and removes", "×", [speed / plain])


def index(sizes: SpaceSizes, place: Path) -> Iterator[ScaleResult]:
    """Measure the part of the index that is in use after three compactions of everything."""
    with open_store(place, config(sizes, compaction_major=0.999)) as store:
        # 5,000 entries in each ledger, as in the row `waves`. A small ledger has pages that are hardly used.
        ids = list(range(max(6, sizes.part // (RECORD * 5000))))
        fill(store, ids, sizes.part)
        entries = sizes.part // (RECORD * _BATCH) * _BATCH
        a_ledger = entries / len(ids)
        found = [store.space().index.used / entries]
        for turn in range(3):
            # One ledger less, of which each log has some entries, so that all of them are compacted.
            delete(store, ids[turn : turn + 1])
            store.collect()
            found.append(store.space().index.used / (entries - (turn + 1) * a_ledger))
    title = "index in use for each entry"
    yield ScaleResult("index", f"{title} before", "B", [found[0]])
    yield ScaleResult("index", f"{title} after three compactions of everything", "B", [found[-1]], most=20)


def tombstones(sizes: SpaceSizes, place: Path) -> Iterator[ScaleResult]:
    """Time openings of a store whose ledgers were all deleted, before and after their tombstones went."""

    def opening(path: Path) -> float:
        times = []
        for _ in range(5):
            began = time.perf_counter()
            store = open_store(path, config(sizes))
            times.append(time.perf_counter() - began)
            store.close()
        return statistics.median(times) * 1000

    never, once = place / "never", place / "once"
    for path in (never, once):
        with open_store(path, config(sizes)) as store:
            store.ledger(1 << 20).append(b"x")
    with open_store(once, config(sizes)) as store:
        with ThreadPoolExecutor(64) as pool:
            list(pool.map(lambda ledger_id: store.ledger(ledger_id).append(b"x"), range(sizes.tombstones)))
        store.checkpoint()
        delete(store, range(sizes.tombstones))
    without, with_them = opening(never), opening(once)
    purged = 0
    for _ in range(3):  # a tombstone is purged when the last journal with its ledger is gone
        with open_store(once, config(sizes)) as store:
            store.ledger(1 << 20).append_many([bytes(PAYLOAD)] * 100)
            store.checkpoint()
            purged += store.collect().tombstones
    others = {"without": without, "with": with_them, "purged": float(purged)}
    words = f"{sizes.tombstones:,} tombstones"
    yield ScaleResult(
        "tombstones", f"opening with {words}, less without", "ms", [with_them - without], others=others
    )
    yield ScaleResult(
        "tombstones",
        f"the same when they were purged ({purged:,})",
        "ms",
        [opening(once) - without],
        most=20,
    )


ROWS: Mapping[str, Callable[[SpaceSizes, Path], Iterator[ScaleResult]]] = {
    "waves": waves,
    "beside": beside,
    "moving": moving,
    "removing": removing,
    "index": index,
    "tombstones": tombstones,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the selected rows. Return 1 if a bar is missed in a strict run, otherwise 0."""
    options = _parser().parse_args(arguments)
    if options.list:
        print("\n".join(ROWS))
        return 0
    return run_rows(ROWS, QUICK if options.quick else SpaceSizes(), options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure the reclamation of space.")
    parser.add_argument(
        "--only", nargs="+", choices=ROWS, metavar="ROW", help="run only these rows; see --list"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the size, for a first look")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write every figure, the machine and all sizes as JSON"
    )
    parser.add_argument("--strict", action="store_true", help="exit code 1 unless every bar is met")
    parser.add_argument("--list", action="store_true", help="list the names of all rows and exit")
    return parser


if __name__ == "__main__":
    sys.exit(main())
