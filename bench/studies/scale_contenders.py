"""The stores that `scale.py` measures. Each class runs in a process of its own.

All of them use the public face only, except that the rows of 200,000 deleted ledgers are written into the
file in one call: deleting so many takes minutes, and only opening them is measured.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
import tracemalloc
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

from contest.resource_usage import settle

from recovery import open_async_store, open_store
from storage.config import StoreConfig
from storage.disk.posix import PosixDirectory
from storage.errors import StoreError
from storage.ledgers import metadata_log
from storage.ledgers.metadata_log import MetadataLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from contest.result import Figures

    from storage.aio import AsyncStore
    from storage.ledger import Ledger

WRITTEN, WAITED_FOR = 1, 2
_PAYLOAD = bytes(1 << 10)
_SMALL = bytes(16)
_BATCH = 1_000
_NEVER = 1 << 40
_WITHOUT_CHECKPOINTS = StoreConfig(memtable_size_max=1 << 30, checkpoint_interval_s=None)
_US, _MS = 1e6, 1e3
_clock = time.perf_counter


class AddingBesideThreads:
    """One writer of one ledger, while threads wait for another one."""

    def __init__(self, place: Path, entries: int, confirmed: int, following: int) -> None:
        self._store = open_store(place / "store", _WITHOUT_CHECKPOINTS)
        other = self._store.ledger(WAITED_FOR)
        _grow(other, entries)
        self._store.checkpoint()
        self._append = self._store.ledger(WRITTEN).append
        threads = [Thread(target=_wait, args=(other, Event()), daemon=True) for _ in range(confirmed)]
        threads += [Thread(target=_drain, args=(other, entries), daemon=True) for _ in range(following)]
        for thread in threads:
            thread.start()
        settle()

    def add(self, count: int) -> Figures:
        cpu, laps = time.process_time(), []
        for _ in range(count):
            start = _clock()
            self._append(_PAYLOAD)
            laps.append(_clock() - start)
        return _figures(laps, time.process_time() - cpu)

    def close(self) -> None:
        self._store.close()


class AddingWhileWaitBegins:
    """One writer, alone and when a thread begins to wait for a large ledger, whose end it has to find."""

    def __init__(self, place: Path) -> None:
        self._store = open_store(place / "store", _WITHOUT_CHECKPOINTS)
        self._append = self._store.ledger(WRITTEN).append
        self._next = WAITED_FOR

    def add(self, entries: int, count: int) -> Figures:
        """Return the time of the longest of so many adds, alone and after the thread has begun to wait."""
        other, self._next = self._store.ledger(self._next), self._next + 1
        _grow(other, 10)
        _confirmed(other)
        _grow(other, entries)
        self._store.checkpoint()
        settle()
        alone = self._longest(count)
        has_begun = Event()
        Thread(target=_wait, args=(other, has_begun), daemon=True).start()
        has_begun.wait()
        return {"alone": alone * _MS, "beside": self._longest(count) * _MS}

    def _longest(self, count: int) -> float:
        laps = []
        for _ in range(count):
            start = _clock()
            self._append(_PAYLOAD)
            laps.append(_clock() - start)
        return max(laps)

    def close(self) -> None:
        self._store.close()


class AddingBesideCoroutines:
    """One coroutine that adds, while others follow another ledger."""

    def __init__(self, place: Path, entries: int, following: int) -> None:
        self._runner = asyncio.Runner()
        self._end = AsyncExitStack()
        self._store = self._runner.run(self._open(place / "store"))
        self._followers = self._runner.run(self._follow(entries, following))
        settle()

    async def _open(self, path: Path) -> AsyncStore:
        return await self._end.enter_async_context(open_async_store(path, _WITHOUT_CHECKPOINTS))

    async def _follow(self, entries: int, count: int) -> list[asyncio.Task[None]]:
        other = self._store.ledger(WAITED_FOR)
        await other.append_many([_SMALL] * entries)

        async def drain() -> None:
            async for _ in other.follow(entries):
                pass

        tasks = [asyncio.create_task(drain()) for _ in range(count)]
        await asyncio.sleep(0)
        return tasks

    def add(self, count: int) -> Figures:
        return self._runner.run(self._add(count))

    async def _add(self, count: int) -> Figures:
        append = self._store.ledger(WRITTEN).append
        await append(_PAYLOAD)  # all followers are waiting now
        cpu, laps = time.process_time(), []
        for _ in range(count):
            start = _clock()
            await append(_PAYLOAD)
            laps.append(_clock() - start)
        return _figures(laps, time.process_time() - cpu)

    def close(self) -> None:
        self._runner.run(self._end.aclose())
        self._runner.close()


class AddingBesideDeletes:
    """One writer, alone and while another thread deletes small ledgers."""

    def __init__(self, place: Path) -> None:
        self._store = open_store(place / "store", _WITHOUT_CHECKPOINTS)
        self._append = self._store.ledger(WRITTEN).append
        self._next = WAITED_FOR

    def add(self, deletes: int, seconds: float) -> Figures:
        """Return the adds per second, first alone for that time, then until so many ledgers are deleted."""
        made = [self._store.ledger(self._next + number) for number in range(deletes)]
        self._next += deletes
        for ledger in made:
            ledger.append(_SMALL)
        self._store.checkpoint()
        settle()
        until = _clock() + seconds
        alone = self._rate(lambda: _clock() < until)
        thread = Thread(target=_delete, args=(made,))
        start = _clock()
        thread.start()
        beside = self._rate(thread.is_alive)
        per_delete = (_clock() - start) / deletes * _MS if deletes else 0.0
        return {"alone": alone, "beside": beside, "ms_per_delete": per_delete}

    def _rate(self, continues: Callable[[], bool]) -> float:
        start, count = _clock(), 0
        while continues():
            self._append(_PAYLOAD)
            count += 1
        return count / (_clock() - start)

    def close(self) -> None:
        self._store.close()


class OpeningWithTombstones:
    """A store of deleted ledgers, made in one process and opened in others."""

    def __init__(self, place: Path, deleted: int) -> None:
        self._path, self._warm, self._deleted = place / "store", place / "warm", deleted

    def make(self) -> None:
        with open_store(self._path) as store:
            for ledger_id in (WRITTEN, WAITED_FOR):
                store.ledger(ledger_id).append(_SMALL)
            if self._deleted:
                store.ledger(WAITED_FOR).delete()
        if self._deleted:
            self._multiply()
        open_store(self._path).close()  # writes the rows into the index, too

    def _multiply(self) -> None:
        """Write copies of the deleted ledger's row, for as many other ledgers as requested."""
        directory = PosixDirectory(self._path / "ledgers" / "current")
        found = metadata_log.load(directory, 0)
        one = found.rows[WAITED_FOR]
        rows = MetadataLog(directory, found.rows, found.sequence)
        rows.append(
            [
                replace(one, ledger_id=WAITED_FOR + number, change=found.highest_change + number)
                for number in range(1, self._deleted)
            ]
        )
        rows.close()

    def open(self) -> Figures:
        open_store(self._warm).close()  # so that the imports of the first opening are not measured
        start = _clock()
        store = open_store(self._path)
        seconds = _clock() - start
        store.close()
        return {"seconds": seconds}

    def close(self) -> None:
        """Do nothing, because no store is open."""


class ReadingAbsentLedgers:
    """Reads of ledgers that do not exist. One process for each figure: tracing takes memory itself."""

    def __init__(self, place: Path) -> None:
        self._store = open_store(place / "store")
        self._store.ledger(WRITTEN).append(_SMALL)
        self._next = WAITED_FOR

    def traced(self, count: int) -> Figures:
        self._read(_BATCH)
        tracemalloc.start()
        before = self._traced()
        self._read(count)
        return {"bytes": self._traced() - before}

    def resident(self, count: int) -> Figures:
        self._read(_BATCH)
        before = self._resident()
        self._read(count)
        return {"bytes": self._resident() - before}

    def _read(self, count: int) -> None:
        for ledger_id in range(self._next, self._next + count):
            try:
                self._store.ledger(ledger_id).read(0)
            except StoreError:
                continue
            raise AssertionError(f"ledger {ledger_id} exists")
        self._next += count

    def _traced(self) -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    def _resident(self) -> int:
        gc.collect()
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) << 10

    def close(self) -> None:
        self._store.close()


class ConfirmingAfterGrowth:
    """The time that the last add confirmed takes after a ledger has grown."""

    def __init__(self, place: Path) -> None:
        self._store = open_store(place / "store")
        self._next = WRITTEN

    def confirm(self, more: int) -> Figures:
        ledger, self._next = self._store.ledger(self._next), self._next + 1
        _grow(ledger, 10)
        _confirmed(ledger)
        _grow(ledger, more)
        self._store.checkpoint()
        settle()
        return {"ms": _confirmed(ledger), "ms_again": _confirmed(ledger)}

    def close(self) -> None:
        self._store.close()


def _confirmed(ledger: Ledger) -> float:
    start = _clock()
    assert ledger.last_add_confirmed >= 0
    return (_clock() - start) * _MS


def _grow(ledger: Ledger, entries: int) -> None:
    for _ in range(0, entries, _BATCH):
        ledger.append_many([_SMALL] * min(_BATCH, entries))


def _wait(ledger: Ledger, has_begun: Event) -> None:
    has_begun.set()
    ledger.wait_for_last_add_confirmed(_NEVER)


def _delete(ledgers: list[Ledger]) -> None:
    for ledger in ledgers:
        ledger.delete()


def _drain(ledger: Ledger, entries: int) -> None:
    for _ in ledger.follow(entries):
        pass


def _figures(laps: list[float], cpu: float) -> Figures:
    return {
        "us": statistics.median(laps) * _US,
        "mean_us": statistics.fmean(laps) * _US,
        "cpu_us": cpu / len(laps) * _US,
    }
