"""Random ledgers that are replicated on several stores, as single entries and as runs."""

from __future__ import annotations

import atexit
from dataclasses import dataclass, field, replace
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from recovery.audit.checks.replica_copies import ComparedStore, ReplicaChecks
from recovery.audit.engines.sql import DuckSql
from recovery.audit.model import tables
from recovery.audit.model.ensemble import LedgerEnsembles, LedgerProgress, Segment
from recovery.audit.model.fingerprint import fingerprints
from recovery.audit.model.runs import RUN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from recovery.audit.engines.sql import SqlEngine
    from recovery.audit.model.runs import Runs

    Key = tuple[int, int]

STORES = ("bk1", "bk2", "bk3", "bk4", "bk5", "bk6")
ENTRIES = 24
NO_PROGRESS: Mapping[int, LedgerProgress] = MappingProxyType({})


def segment_of(ledger: LedgerEnsembles, entry_id: int) -> Segment | None:
    """Return the segment that an entry belongs to, or `None` if it is before the first segment."""
    found = [segment for segment in ledger.segments if segment.first_entry <= entry_id]
    return found[-1] if found else None


@dataclass(frozen=True)
class RunCutting:
    """The division of entries into runs: the share of runs with consecutive ids, and the chance that a run
    continues."""

    finer: float = 0.3
    goes_on: float = 0.9


ANYHOW = RunCutting()
AS_SCANNED = RunCutting(finer=0.0)
WHOLE_RUNS = RunCutting(finer=0.0, goes_on=1.0)


@dataclass
class StoreCopies:
    """One store: the digest of each of its entries, the unreadable ones, and additional copies."""

    entries: dict[Key, int] = field(default_factory=dict)
    bad: set[Key] = field(default_factory=set)
    doubles: list[Key] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class HeldRuns:
    """What one store serves, and what its files hold, as runs. They are one array if it has no index."""

    name: str
    served: Runs
    files: Runs

    @property
    def is_indexed(self) -> bool:
        return self.served is not self.files

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield tables.runs_batch(self.name, "log", self.files)
        if self.is_indexed:
            yield tables.runs_batch(self.name, "index", self.served)


_EMBEDDED: list[SqlEngine] = []
# DuckDB complains about connections that are still there when the interpreter has ended.
atexit.register(_EMBEDDED.clear)


def embedded() -> SqlEngine:
    """Return one engine for many comparisons, each of which replaces all tables."""
    if not _EMBEDDED:
        _EMBEDDED.append(DuckSql(threads=1))
    return _EMBEDDED[0]


def checks_of(
    ensembles: Iterable[LedgerEnsembles],
    held: Sequence[HeldRuns],
    progress: Mapping[int, LedgerProgress] = NO_PROGRESS,
    sql: SqlEngine | None = None,
) -> ReplicaChecks:
    sql = sql or embedded()
    sql.put("runs", tables.RUNS.joined(batch for one in held for batch in one.batches()))
    stores = [ComparedStore(one.name, f"/{one.name}", one.is_indexed) for one in held]
    checks = ReplicaChecks(sql, ensembles, stores)
    if progress:
        checks.take_progress(progress)
    return checks


@dataclass
class SimulatedCluster:
    ensembles: list[LedgerEnsembles]
    shelves: dict[str, StoreCopies]
    progress: dict[int, LedgerProgress]

    def held(self, random: Random, cutting: RunCutting = ANYHOW) -> list[HeldRuns]:
        steps = {one.ledger_id: one.step for one in self.ensembles}
        return [held(name, shelf, steps, random, cutting) for name, shelf in self.shelves.items()]

    def checks(self, seed: int = 0, cutting: RunCutting = ANYHOW) -> ReplicaChecks:
        return checks_of(self.ensembles, self.held(Random(seed), cutting), self.progress)

    def moved(self, by: int) -> SimulatedCluster:
        """Return the same cluster with other ledger ids, so that many of them can be one."""
        shelves = {
            name: StoreCopies(
                {(ledger + by, entry): value for (ledger, entry), value in shelf.entries.items()},
                {(ledger + by, entry) for ledger, entry in shelf.bad},
                [(ledger + by, entry) for ledger, entry in shelf.doubles],
            )
            for name, shelf in self.shelves.items()
        }
        ensembles = [replace(one, ledger_id=one.ledger_id + by) for one in self.ensembles]
        return SimulatedCluster(
            ensembles, shelves, {ledger + by: far for ledger, far in self.progress.items()}
        )


def together(clusters: Iterable[SimulatedCluster]) -> SimulatedCluster:
    """Return one cluster that has the ledgers of all, because one query over many is faster than many."""
    all_of_them = SimulatedCluster([], {name: StoreCopies() for name in STORES}, {})
    for one in clusters:
        all_of_them.ensembles += one.ensembles
        all_of_them.progress |= one.progress
        for name, shelf in one.shelves.items():
            there = all_of_them.shelves[name]
            there.entries |= shelf.entries
            there.bad |= shelf.bad
            there.doubles += shelf.doubles
    return all_of_them


def digest(ledger_id: int, entry_id: int) -> int:
    return (ledger_id * 1_000_003 + entry_id * 7919) & 0xFFFF_FFFF


def random_ensembles(random: Random, ledger_id: int) -> LedgerEnsembles:
    size = random.randint(1, 5)
    write = random.randint(1, size)
    count = random.choice([1, 1, 2, 3, 4])
    firsts = sorted(random.sample(range(1, ENTRIES), count - 1))
    start = random.choice([0, 0, 0, min([*firsts, 4]) - 1])
    segments = tuple(Segment(first, tuple(random.sample(STORES, size))) for first in (start, *firsts))
    last = random.choice([None, random.randint(segments[-1].first_entry - 1, ENTRIES)])
    return LedgerEnsembles(ledger_id, write, random.randint(1, write), segments, last)


def sound(ensembles: Iterable[LedgerEnsembles], until: int = ENTRIES) -> SimulatedCluster:
    """Make a cluster in which every entry has all its copies; in open ledgers up to `until`."""
    world = SimulatedCluster(list(ensembles), {name: StoreCopies() for name in STORES}, {})
    for one in world.ensembles:
        for entry_id, segment in owed(one, until):
            for store in one.places(segment, entry_id):
                world.shelves[store].entries[one.ledger_id, entry_id] = digest(one.ledger_id, entry_id)
    return world


def owed(one: LedgerEnsembles, until: int) -> Iterator[tuple[int, Segment]]:
    for entry_id in range(until if one.last_entry is None else one.last_entry + 1):
        segment = segment_of(one, entry_id)
        if segment is not None:
            yield entry_id, segment


def random_world(random: Random) -> SimulatedCluster:
    """Make a cluster with missing, surplus, bad and double copies, and with any progress."""
    ids = random.sample(range(10), random.randint(1, 3))
    world = sound([random_ensembles(random, ledger_id) for ledger_id in ids], random.randint(0, ENTRIES))
    share = random.choice([0.0, 0.02, 0.3])
    for shelf in world.shelves.values():
        for key in list(shelf.entries):
            if random.random() < share:
                del shelf.entries[key]
            elif random.random() < share / 2:
                shelf.bad.add(key)
            elif random.random() < share / 2:
                shelf.doubles.append(key)
        for _ in range(random.choice([0, 0, 6])):
            key = random.choice([*ids, 99]), random.randrange(ENTRIES + 6)
            shelf.entries[key] = digest(*key)
    for one in world.ensembles:
        if one.last_entry is None and random.random() < 0.7:
            confirmed = random.randint(one.segments[-1].first_entry - 1, ENTRIES + 2)
            world.progress[one.ledger_id] = LedgerProgress(confirmed, confirmed - random.choice([0, 0, 2, 5]))
    return world


def held(
    name: str, shelf: StoreCopies, steps: dict[int, int], random: Random, cutting: RunCutting = ANYHOW
) -> HeldRuns:
    """Return the readable entries as served ones, and the fingerprints of all entries."""
    good = {key: value for key, value in shelf.entries.items() if key not in shelf.bad}
    file_runs = random_runs({key: good.get(key) for key in shelf.entries}, steps, random, cutting)
    doubles = random_runs({key: shelf.entries[key] for key in shelf.doubles}, steps, random, cutting)
    served = np.concatenate([random_runs(dict(good), steps, random, cutting), doubles])
    return HeldRuns(name, served, np.concatenate([file_runs, doubles]))


def random_runs(
    entries: dict[Key, int | None], steps: dict[int, int], random: Random, cutting: RunCutting = ANYHOW
) -> Runs:
    """Return the entries as runs in random order. Entries whose digest is `None` are bad."""
    left, rows = dict(entries), []
    for ledger_id, entry_id in sorted(entries):
        if (ledger_id, entry_id) not in left:
            continue
        step = 1 if random.random() < cutting.finer else steps.get(ledger_id, 1)
        ids = [entry_id]
        while (ledger_id, ids[-1] + step) in left and random.random() < cutting.goes_on:
            ids.append(ids[-1] + step)
        rows.append(run(ledger_id, step, ids, [left.pop((ledger_id, one)) for one in ids]))
    random.shuffle(rows)
    return np.array(rows, dtype=RUN)


def run(ledger_id: int, step: int, ids: list[int], digests: list[int | None]) -> tuple[int, ...]:
    good = [(one, value) for one, value in zip(ids, digests, strict=True) if value is not None]
    fingerprint = (
        np.bitwise_xor.reduce(fingerprints([ledger_id] * len(good), *zip(*good, strict=True))) if good else 0
    )
    bad = len(ids) - len(good)
    return (0, ledger_id, step, ids[0], ids[-1], len(ids), 0, 0, int(fingerprint), bad)
