"""Schedules of the cluster laboratory whose bookies are real stores on simulated disks.

    python tests/support/real_store_schedules.py [N [FIRST]]    N schedules, 5,000 if not given

A crash is a power cut at any operation of the disk, or a kill, after which the real recovery runs. Reads,
copies that the oracles count, and fences after a crash come from the store. The clients, links and metadata
are those of the other schedules."""

from __future__ import annotations

import logging
import sys
import time
from contextlib import suppress
from multiprocessing import get_context
from os import cpu_count
from random import Random
from typing import TYPE_CHECKING

from simulated_store import SteppedSession, open_session

from recovery.clusterlab.bookies import ModelBookie, StoredLedger
from recovery.clusterlab.explorer import ViolatingSchedule, explore
from recovery.clusterlab.workload import Schedule
from recovery.crashlab import RandomFate, SimulatedDisk, Stopped, Tearing
from storage.cluster.wire.messages import AddEntry
from storage.config import StoreConfig
from storage.entry.digest import master_key
from storage.entry.format import HEAD
from storage.errors import NoSuchLedger, Overloaded, StoreError

if TYPE_CHECKING:
    from recovery.clusterlab.bookies import BookieMetadata, BookieOracles
    from recovery.clusterlab.world import World
    from storage.bookie import Bookie
    from storage.cluster.wire.messages import ReadEntry

SCHEDULES = 5_000

_LEDGER = 7
_KEY = master_key(b"")
_OPERATIONS_MAX = 24
_NEVER = 1 << 60
_CONFIG = StoreConfig(
    memtable_size_max=3000,
    entry_size_max=2048,
    group_size_max=800,
    journal_size=24 << 10,
    journal_alignment=512,
    entry_log_size_max=8 << 10,
    throttle_timeout_s=0,
    space_reserve=0,
    space_min_free=0,
)


class RealBookie(ModelBookie):
    """A bookie whose entries and fences are in a real store."""

    def __init__(
        self, name: str, world: World, oracles: BookieOracles, metadata: BookieMetadata | None = None
    ) -> None:
        super().__init__(name, world, oracles, metadata)
        self._dice = Random(f"{name} {world.choices.pick(1 << 30)}")
        self._disk = SimulatedDisk(sector_size=512)
        self._session: SteppedSession = open_session(self._disk, _CONFIG, self._dice)

    @property
    def _store(self) -> Bookie:
        return self._session.store.bookie

    def _make_durable(self, request: AddEntry | ReadEntry) -> None:
        self._change(request)
        super()._make_durable(request)
        if isinstance(request, AddEntry):
            kept = self._store.read(_LEDGER, request.entry_id)
            self.ledgers[_LEDGER].entries[request.entry_id] = kept
        for worker in self._session.workers:
            # Checkpoints and the other work in the background take their steps in between.
            if worker.is_awake and self._dice.random() < 0.3:
                worker.play()

    def _change(self, request: AddEntry | ReadEntry) -> None:
        """Let the store do what the request asks for. If its tables are full, checkpoints come first."""
        while True:
            try:
                if not isinstance(request, AddEntry):
                    self._store.fence(_LEDGER, _KEY)
                elif request.options.is_recovery:
                    self._store.recover(request.entry, _KEY)
                else:
                    self._store.add(request.entry, _KEY)
            except Overloaded:
                self._play_workers()
            else:
                return

    def _play_workers(self) -> None:
        for worker in self._session.workers:
            if worker.is_awake:
                worker.play()

    def crash(self) -> None:
        unsynced, self._unsynced = self._unsynced, []
        super().crash()
        stop = self._dice.choice([self._disk.stop_before, self._disk.stop_within])
        stop(len(self._disk.trace) + 1 + self._dice.randrange(_OPERATIONS_MAX))
        try:
            for request, _ in unsynced:
                self._change(request)
            self._play_workers()
        except (Stopped, StoreError):
            pass
        self._reopen()

    def _reopen(self) -> None:
        """Cut the power or kill the process, until an opening gets through, and look at what is left."""
        while True:
            if self._dice.random() < 0.2:
                self._disk.kill()
            else:
                tearing = self._dice.choice(list(Tearing))
                self._disk.power_cut(RandomFate(self._dice.getrandbits(32), tearing))
            if self._dice.random() < 0.2:
                self._disk.stop_before(len(self._disk.trace) + 1 + self._dice.randrange(_OPERATIONS_MAX))
            with suppress(Stopped):
                self._session = open_session(self._disk, _CONFIG, self._dice)
                self.ledgers = self._found()
                self._disk.stop_before(_NEVER)
                return

    def _found(self) -> dict[int, StoredLedger]:
        store = self._store
        try:
            ids = [one for some in store.entry_ids(_LEDGER) for one in some]
            is_fenced = store.is_fenced(_LEDGER)
        except NoSuchLedger:
            return {}
        entries = {entry_id: store.read(_LEDGER, entry_id) for entry_id in ids}
        lac = max((HEAD.unpack_from(one)[2] for one in entries.values()), default=-1)
        return {_LEDGER: StoredLedger(entries, is_fenced, is_fenced, lac)}


class RealStoreSchedule(Schedule):
    """A schedule on real stores."""

    bookie_kind = RealBookie


def _play(seed: int) -> tuple[list[ViolatingSchedule], float]:
    logging.disable()
    began = time.process_time()
    failures = list(explore([seed], RealStoreSchedule))
    return failures, time.process_time() - began


def main(words: list[str]) -> int:
    count = int(words[0]) if words else SCHEDULES
    first = int(words[1]) if len(words) > 1 else 0
    violations, took = 0, 0.0
    with get_context("fork").Pool(cpu_count()) as pool:
        for failures, seconds in pool.imap(_play, range(first, first + count), chunksize=20):
            took += seconds
            for failure in failures:
                violations += 1
                print(f"seed {failure.seed}: {failure.text}", flush=True)
    rate = f"{count / took:,.0f} in a second of processor time"
    print(f"cluster-stores: {count:,} schedules on real stores, {violations} violations, {rate}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
