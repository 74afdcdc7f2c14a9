"""Where the time of an add goes, and what the slowest adds wait for: the profile behind the table.

    python bench/where.py [--rounds N]

First one writer: how long the raw limit takes, and our add with its sync, its write, and what is computed,
in rounds that take turns. What our write and sync take beyond the raw limit is the disk's and the system's;
what is computed is ours, and twice as much behind a sync as in a loop without one. Then coroutines and reads.
At last batches beside checkpoints: of the slowest thousandth, whose syncs were under way meanwhile.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import threading
import time
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import lmdb
from our_store import Ours, OursAsync
from raw import RawFile
from rich.console import Console
from rich.table import Table
from scratch import scratch
from timing import Limit

from recovery import open_store
from storage import ReadMode, StoreConfig
from storage.codec import plain
from storage.posix_files import PosixWriteFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_KIB = 1 << 10
_FILE = 256 << 20
_TURN = 24 << 20
_LEAST = 40
_US = 1000.0
_LEDGERS, _ENTRIES, _READS = 100, 2000, 50_000
_SUSTAINED = 6000
_SLOWEST = 1000
_HEAD = 4
_clock = time.perf_counter_ns


class Span(NamedTuple):
    """A call of some thread."""

    what: str
    thread: int
    start: int
    end: int


class Watch:
    """Notes every write and sync of a file while it is in use."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def __enter__(self) -> Watch:
        self._write, self._sync = PosixWriteFile.write, PosixWriteFile.sync
        write, sync, say = self._write, self._sync, self.spans.append

        def noted_write(file: PosixWriteFile, offset: int, buffers: Sequence[bytes]) -> None:
            start = _clock()
            write(file, offset, buffers)
            say(Span(f"write {_kind(file)}", threading.get_ident(), start, _clock()))

        def noted_sync(file: PosixWriteFile) -> None:
            start = _clock()
            sync(file)
            say(Span(f"sync {_kind(file)}", threading.get_ident(), start, _clock()))

        PosixWriteFile.write, PosixWriteFile.sync = noted_write, noted_sync  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *_: object) -> None:
        PosixWriteFile.write, PosixWriteFile.sync = self._write, self._sync  # type: ignore[method-assign]

    def microseconds(self, what: str, thread: int) -> float:
        """What the calls of that kind took together, of one thread."""
        return (
            sum(one.end - one.start for one in self.spans if one.what == what and one.thread == thread) / _US
        )


def _kind(file: PosixWriteFile) -> str:
    """Of a file by its name, which a journal keeps from before it had its own."""
    name = Path(file.name).name
    return "journal" if ".txn" in name else "entry log" if ".log" in name else "other"


# ── one writer, and coroutines ───────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Parts:
    """Microseconds of one call in a round."""

    raw: float
    ours: float
    write: float
    sync: float

    @property
    def computed(self) -> float:
        return self.ours - self.write - self.sync


def _one_writer(place: Path, batch: int, size: int, rounds: int) -> Iterator[Parts]:
    work = {"size": size, "batch": batch}
    (place / "raw").mkdir(parents=True)
    raw, ours = RawFile(place / "raw", _FILE, **work), Ours(place, "journals-only", _FILE, **work)
    calls = max(_LEAST, _TURN // (batch * (size + 100) + 4096))
    for number in range(rounds + 1):
        told = raw.add(10, calls)
        ours.prepare(calls * (batch * (size + 100) + 8192))
        with Watch() as watch:
            timed = ours.run(Limit(10, calls))
        if number:  # the first is for warming up
            each = [watch.microseconds(what, threading.get_ident()) / calls for what in _JOURNAL]
            yield Parts(told["seconds"] * 1e6 / told["calls"], timed.elapsed / _US / calls, *each)
    ours.close()
    raw.close()


_JOURNAL = ("write journal", "sync journal")


def _coroutines(place: Path, writers: int, rounds: int) -> Iterator[Parts]:
    """The same of one add of many at once, whose group is shared."""
    work = {"size": _KIB, "writers": writers}
    (place / "raw").mkdir(parents=True)
    raw, ours = RawFile(place / "raw", _FILE, **work), OursAsync(place, "journals-only", _FILE, **work)
    calls = _TURN // (_KIB + 100)
    for number in range(rounds + 1):
        told = raw.add(10, calls)
        ours.prepare(2 * _TURN)
        with Watch() as watch:
            timed = ours.run(Limit(10, calls // writers))
        if number:
            made = len(timed.latencies)
            each = [watch.microseconds(what, threading.get_ident()) / made for what in _JOURNAL]
            yield Parts(1e6 / told["rate"], timed.elapsed / _US / made, *each)
    ours.close()
    raw.close()


def _show_parts(console: Console, rows: dict[str, list[Parts]]) -> None:
    table = Table(title="microseconds a call, medians", title_justify="left")
    table.add_column("")
    for name in ("raw limit", "ours", "its sync", "its write", "computed", "write and sync ÷ raw"):
        table.add_column(name, justify="right")
    for name, found in rows.items():
        columns = (
            [one.raw for one in found],
            [one.ours for one in found],
            [one.sync for one in found],
            [one.write for one in found],
            [one.computed for one in found],
        )
        told = [f"{statistics.median(column):.1f}" for column in columns]
        disk = statistics.median([(one.write + one.sync) / one.raw for one in found])
        table.add_row(name, *told, f"{disk:.2f}")
    console.print(table)


# ── reads ────────────────────────────────────────────────────────────────────────────────────────────────


def _reads(place: Path, rounds: int) -> dict[str, float]:
    """Microseconds of a read, and of its parts by themselves, each the best of some rounds."""
    place.mkdir()
    payloads = [random.Random(number).randbytes(_KIB) for number in range(_ENTRIES)]  # noqa: S311 - repeatable
    with open_store(place / "store") as store:
        for ledger_id in range(_LEDGERS):
            store.ledger(ledger_id).append_many(payloads)
    order = random.Random(1)  # noqa: S311 - the same
    asked = [(order.randrange(_LEDGERS), order.randrange(_ENTRIES)) for _ in range(_READS)]
    found = {}
    with open_store(place / "store") as store:
        ledgers = [store.ledger(number).read for number in range(_LEDGERS)]
        found["read"] = _best(lambda ledger_id, entry_id: ledgers[ledger_id](entry_id), asked, rounds)
        reading, cache = store._parts.reading, store._parts.reading._cache  # noqa: SLF001 - a profile looks inside
        logs = reading._logs  # noqa: SLF001
        places = {at: cache.known(*at) for at in asked}

        def fetched(ledger_id: int, entry_id: int) -> bytes:
            here, following = places[ledger_id, entry_id]
            return logs.read(here, following - here if 0 < following - here < 8 * _KIB else 2 * _KIB)

        one = {at: fetched(*at) for at in asked}
        found["of it: its place, cached"] = _best(cache.known, asked, rounds)
        found["of it: the log, by pread"] = _best(fetched, asked, rounds)
        found["of it: verified, taken apart"] = _best(lambda *at: plain.decode(one[at], *at), asked, rounds)
    with open_store(place / "store", StoreConfig(read_mode=ReadMode.MMAP)) as store:
        ledgers = [store.ledger(number).read for number in range(_LEDGERS)]
        found["read, mapped"] = _best(lambda ledger_id, entry_id: ledgers[ledger_id](entry_id), asked, rounds)
    found["LMDB, nothing verified"] = _lmdb(place / "lmdb", payloads, asked, rounds)
    return found


def _lmdb(place: Path, payloads: Sequence[bytes], asked: Sequence[tuple[int, int]], rounds: int) -> float:
    with lmdb.open(str(place), map_size=1 << 30) as environment:
        with environment.begin(write=True) as change:
            for ledger_id in range(_LEDGERS):
                for entry_id, payload in enumerate(payloads):
                    change.put(_key(ledger_id, entry_id), payload)
        with environment.begin() as view:
            return _best(lambda ledger_id, entry_id: view.get(_key(ledger_id, entry_id)), asked, rounds)


def _key(ledger_id: int, entry_id: int) -> bytes:
    return ledger_id.to_bytes(8, "big") + entry_id.to_bytes(8, "big")


def _best(act: Callable[[int, int], object], asked: Sequence[tuple[int, int]], rounds: int) -> float:
    laps = []
    for _ in range(rounds + 1):
        start = _clock()
        for ledger_id, entry_id in asked:
            act(ledger_id, entry_id)
        laps.append(_clock() - start)
    return min(laps) / len(asked) / _US


def _show_reads(console: Console, found: dict[str, float]) -> None:
    table = Table(title="microseconds a read, 1 KB, warm, the best round", title_justify="left")
    table.add_column("")
    table.add_column("µs", justify="right")
    for name, microseconds in found.items():
        table.add_row(name, f"{microseconds:.2f}")
    console.print(table)


# ── the slowest ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Slow:
    """One of the slowest batches, in microseconds."""

    whole: float
    own_sync: float
    beside: dict[str, float]
    """What others did meanwhile."""


def _slowest(place: Path) -> tuple[dict[str, float], list[Slow]]:
    """Batches of 64 beside checkpoints, filling and rolls: how long they take, and what the slowest meet."""
    work = {"size": _KIB, "batch": 64, "ledgers": _LEDGERS}
    place.mkdir()
    ours = Ours(place, "default", 0, **work)
    ours.run(Limit(60, _SUSTAINED // 10))
    add, calls = ours.writer(0), []
    with Watch() as watch:
        for _ in range(_SUSTAINED):
            start = _clock()
            add()
            calls.append((start, _clock()))
    ours.close()
    took = sorted(end - start for start, end in calls)
    told = {name: took[int(share * len(took))] / _US for name, share in _SHARES.items()}
    worst = sorted(calls, key=lambda call: call[0] - call[1])[: max(1, len(calls) // _SLOWEST)]
    return told, [_met(call, watch.spans, threading.get_ident()) for call in worst]


_SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}


def _met(call: tuple[int, int], spans: Sequence[Span], writer: int) -> Slow:
    start, end = call
    own, beside = 0.0, dict[str, float]()
    # In the order in which they ended.
    for span in spans[bisect_left(spans, start, key=lambda one: one.end) :]:
        shared = (min(end, span.end) - max(start, span.start)) / _US
        if shared <= 0:
            continue
        if span.thread != writer:
            what = span.what.replace("journal", "next journal")
            beside[what] = beside.get(what, 0.0) + shared
        elif span.what.startswith("sync"):
            own += shared
    return Slow((end - start) / _US, own, beside)


def _show_slowest(console: Console, told: dict[str, float], found: Sequence[Slow]) -> None:
    words = ", ".join(f"{name} {value:,.0f} µs" for name, value in told.items())
    console.print(f"batches of 64 beside checkpoints: {words}, {told['p99.9'] / told['p50']:.1f} × p50")
    table = Table(title="the slowest thousandth, in microseconds", title_justify="left")
    for name in ("batch", "its own sync", "meanwhile in other threads"):
        table.add_column(name, justify="left" if name.startswith("mean") else "right")
    for one in found:
        most = sorted(one.beside.items(), key=lambda item: -item[1])[:_HEAD]
        beside = ", ".join(f"{what} {value:,.0f}" for what, value in most)
        table.add_row(f"{one.whole:,.0f}", f"{one.own_sync:,.0f}", beside or "nothing of ours")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Where the time of an add goes, and what the slowest wait for."
    )
    parser.add_argument("--rounds", type=int, default=7, help="of which medians are taken")
    rounds = parser.parse_args().rounds
    console = Console(width=None if os.isatty(1) else 120, highlight=False)
    with scratch(Path.cwd()) as place:
        rows = {
            "add, 1 KB": list(_one_writer(place / "one", 1, _KIB, rounds)),
            "batch 64 × 1 KB": list(_one_writer(place / "some", 64, _KIB, rounds)),
            "batch 1,000 × 1 KB": list(_one_writer(place / "many", 1000, _KIB, rounds)),
            "1 of 64 coroutines": list(_coroutines(place / "coroutines", 64, rounds)),
        }
        _show_parts(console, rows)
        _show_reads(console, _reads(place / "reads", rounds))
        _show_slowest(console, *_slowest(place / "slowest"))


if __name__ == "__main__":
    main()
