"""The crash simulation of the real store: crash seeded workloads at every durable operation, in every way.

    python tests/support/crash_sim.py                 everything, as `make crash-sim` does
    python tests/support/crash_sim.py quick           less than half of it, as CI does
    python tests/support/crash_sim.py compactions 1500  so many random histories with moves and removals
    python tests/support/crash_sim.py workload 17     one workload again, as a violation names it
    python tests/support/crash_sim.py history 17      one random history again
    python tests/support/crash_sim.py compaction 17   one random history with moves and removals again
    python tests/support/crash_sim.py compacted 17    one workload with moves and removals again
    python tests/support/crash_sim.py truncation 17   one random history with truncations too again
    python tests/support/crash_sim.py truncated 17    one workload with truncations too again

A workload runs once. Before each of its operations a copy of the disk is kept, with what was promised by
then. Each copy is then subjected to a kill and to power cuts in every way that matters. The resulting disk is
opened, read, cut again, added to, and opened once more. A disk that was seen before is not opened or counted
again."""

from __future__ import annotations

import logging
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from multiprocessing import get_context
from os import cpu_count
from random import Random
from typing import TYPE_CHECKING

from collecting_world import CollectingWorld, index_is_ahead, torn_headers
from simulated_store import PromiseBroken, SimulatedWorld, Trouble, open_session, random_fault
from store_internals import StoreInternals
from store_promises import ObservedStore, difference, glance, look
from truncating_world import TruncatingWorld

from recovery.crashlab import FailedSync, KeepAll, LoseAll, Pages, RandomFate, Stopped, Tearing, Verb, When
from recovery.directory.layout import Layout
from storage.disk import filenames
from storage.errors import StoreError
from storage.runtime.worker import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from simulated_store import WorldShape
    from store_promises import StorePromises

    from recovery.crashlab import Fate, Fault, Operation, SimulatedDisk
    from storage.disk.files import Directory
    from storage.store import Store

STEPS = 120
HISTORY_STEPS = 150
ADDED_TO = 5
"""The ledger that gets an entry after each recovery; no workload adds to it."""

_VIOLATIONS_MAX = 20
_COUNTS = (
    "workloads",
    "operations",
    "moments",
    "raw",
    "kills",
    "nested",
    "rebuilt",
    "faults",
    "histories",
    "crashes",
    "moved",
    "removed",
    "purged",
    "truncated",
)


@dataclass
class SimulationFigures:
    """How much was explored. Disk images are kept as hashes, so that several runs can be added up."""

    workloads: int = 0
    operations: int = 0
    moments: int = 0
    raw: int = 0
    kills: int = 0
    nested: int = 0
    rebuilt: int = 0
    faults: int = 0
    histories: int = 0
    crashes: int = 0
    moved: int = 0
    """Entries that a collector has moved."""
    removed: int = 0
    """Logs that it has removed."""
    purged: int = 0
    """Tombstones that it has purged."""
    truncated: int = 0
    """Truncations that were answered."""
    images: set[bytes] = field(default_factory=set)
    violations: list[str] = field(default_factory=list)

    def add(self, other: SimulationFigures) -> None:
        """Add the other's numbers. An image that both have seen counts once."""
        self.images |= other.images
        self.violations += other.violations
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def __str__(self) -> str:
        return (
            f"{self.workloads} workloads · {self.operations:,} operations · {self.moments:,} moments · "
            f"{self.raw:,} raw states · {len(self.images):,} distinct images · {self.kills:,} kills · "
            f"{self.nested:,} nested crashes · {self.rebuilt:,} indexes rebuilt · {self.faults:,} faults · "
            f"{self.histories:,} histories with {self.crashes:,} crashes · "
            f"{self.moved:,} entries moved · {self.removed:,} logs removed · {self.purged:,} tombstones · "
            f"{self.truncated:,} truncations · "
            f"{len(self.violations)} violations"
        )


@dataclass(frozen=True)
class CrashMoment:
    """A copy of the disk before an operation, and the promises at that time."""

    what: str
    verb: Verb | None
    disk: SimulatedDisk
    promises: StorePromises


@dataclass(frozen=True, slots=True)
class OpeningOutcome:
    """The content that an opening shows, or what is wrong with it or with a later opening."""

    seen: ObservedStore | None
    problem: str = ""
    without_index: ObservedStore | None = None
    """The content that is shown if the index is lost as well, if that was tried."""


def record(
    seed: int, steps: int, kind: type[SimulatedWorld] = SimulatedWorld
) -> tuple[SimulatedWorld, list[CrashMoment]]:
    """Run a workload without faults, and return it with its moments."""
    world, moments = kind(seed, Trouble.REOPENINGS), []

    def keep(operation: Operation) -> None:
        what = f"step {len(world.happened)}, before {operation.number}, {operation.verb} {operation.path}"
        moments.append(CrashMoment(what, operation.verb, world.disk.copy(), world.promises.copy()))

    world.disk.watch(keep)
    world.play(steps)
    moments.append(CrashMoment("at the end", None, world.disk.copy(), world.promises.copy()))
    return world, moments


class SimulationJudge:
    """Opens each distinct disk once, and compares the result with every moment that led to this disk."""

    def __init__(self, seed: int, shape: WorldShape, figures: SimulationFigures) -> None:
        self.seed = seed
        self.shape = shape
        self._figures = figures
        self._outcomes: dict[str, OpeningOutcome] = {}

    def outcome(self, after: SimulatedDisk) -> OpeningOutcome:
        """Return the outcome of opening a disk after a power cut."""
        image = after.image()
        found = self._outcomes.get(image)
        if found is None:
            self._figures.images.add(bytes.fromhex(image))
            twin = after.copy()
            found = self._recover(after)
            if found.seen is not None and not found.problem and len(self._outcomes) % 8 == 0:
                found = self._without_index(twin, found.seen)
            self._outcomes[image] = found
        return found

    def _without_index(self, disk: SimulatedDisk, expected: ObservedStore) -> OpeningOutcome:
        """Open the disk without its index, and compare. If the index was ahead of the mark, compare answered
        entries only.

        The reason: an opening may checkpoint entries that it has read and that were never acknowledged. If
        the power fails before the mark moves, these entries may be in the index and the entry logs only.
        """
        ledgers = Layout(disk.root()).ledgers
        if not {filenames.INDEX, filenames.LAST_MARK} <= set(_names(ledgers)):
            return OpeningOutcome(expected)
        self._figures.rebuilt += 1
        is_ahead, torn = index_is_ahead(ledgers), torn_headers(ledgers)
        ledgers.remove(filenames.INDEX)
        ledgers.sync()
        try:
            # Two losses at once: a power cut while a log is sealed destroys the sector of its header, and the
            # index is lost too. The loss is reported, and the logs' content is still shown.
            seen = glance(self._open(disk, lambda finding: finding.startswith(torn)))
        except (StoreError, OSError, AssertionError) as error:
            return OpeningOutcome(None, f"refused without its index: {error!r}")
        wrong = "" if is_ahead else difference(expected, seen)
        problem = f"without its index it differs: {wrong}" if wrong else ""
        return OpeningOutcome(expected, problem, without_index=seen)

    def _recover(self, disk: SimulatedDisk) -> OpeningOutcome:
        try:
            store = self._open(disk)
            first = look(store)
            if len(self._outcomes) % 3 == 0:
                disk.power_cut(LoseAll())
                store = self._open(disk)
                second = glance(store)
                if first != second:
                    return OpeningOutcome(first, f"opened again it differs: {difference(first, second)}")
            if StoreInternals(store).frozen_table is not None:
                _write_down(store)
                second = glance(store)
                if first != second:
                    return OpeningOutcome(first, f"written down it differs: {difference(first, second)}")
            ledger = store.ledger(ADDED_TO)
            added = ledger.read(ledger.append(b"after recovery"))
            disk.power_cut(LoseAll())
            third = glance(self._open(disk))
        except (StoreError, OSError, AssertionError) as error:
            return OpeningOutcome(None, f"refused: {error!r}")
        expected = {**first.entries, (ADDED_TO, added.entry_id): added}
        lost = [ids for ids in expected if third.entries.get(ids) != expected[ids]]
        return OpeningOutcome(
            first, f"opened after an add it has lost {lost}" if third.entries != expected else ""
        )

    def _open(self, disk: SimulatedDisk, is_expected: Callable[[str], bool] = lambda _: False) -> Store:
        dice = Random(f"{self.seed} {len(disk.trace)}")
        return open_session(disk, self.shape.config, dice, is_expected).store

    # ── what may happen at a moment ───────────────────────────────────────────────────────────────────

    def cut(self, moment: CrashMoment, fates: list[Fate]) -> Iterator[str]:
        """Yield everything that is wrong after any of these power cuts."""
        for fate in fates:
            self._figures.raw += 1
            after = moment.disk.copy()
            after.power_cut(fate)
            outcome = self.outcome(after)
            yield from self._wrong(moment, f"power cut, {getattr(fate, 'label', fate)}", outcome)

    def _wrong(self, moment: CrashMoment, how: str, outcome: OpeningOutcome) -> Iterator[str]:
        problems = [outcome.problem] if outcome.problem else []
        if outcome.seen is not None:
            problems += moment.promises.violations(outcome.seen)
        if outcome.without_index is not None:
            violations = moment.promises.violations(outcome.without_index)
            problems += [f"without its index: {violation}" for violation in violations]
        for problem in problems:
            yield f"workload {self.seed}, {moment.what} · {how} · {problem}"

    def kill(self, moment: CrashMoment, fates: list[Fate]) -> Iterator[str]:
        """Kill, open, then cut the power: everything that was read after the opening must still be there."""
        self._figures.kills += 1
        killed = moment.disk.copy()
        killed.kill()
        try:
            seen = look(self._open(killed))
        except (StoreError, OSError, AssertionError) as error:
            yield f"workload {self.seed}, {moment.what} · kill · refused: {error!r}"
            return
        yield from self._wrong(moment, "kill", OpeningOutcome(seen))
        for fate in fates:
            self._figures.raw += 1
            after = killed.copy()
            after.power_cut(fate)
            outcome = self.outcome(after)
            yield from self._same(moment, f"kill, opening, power cut {fate}", seen, outcome)

    def _same(
        self, moment: CrashMoment, how: str, expected: ObservedStore, outcome: OpeningOutcome
    ) -> Iterator[str]:
        problem = outcome.problem
        if outcome.seen is not None and outcome.seen != expected:
            problem = f"what was read differs: {difference(expected, outcome.seen)}"
        if problem:
            yield f"workload {self.seed}, {moment.what} · {how} · {problem}"

    def nest(self, moment: CrashMoment, fate: Fate) -> Iterator[str]:
        """Crash at every operation of a recovery. The next opening must show the same."""
        cut = moment.disk.copy()
        cut.power_cut(fate)
        expected = self.outcome(cut.copy()).seen
        if expected is None:
            return
        first = len(cut.trace) + 1
        whole = cut.copy()
        self._open(whole)
        for operation in whole.trace[first - 1 :]:
            self._figures.nested += 1
            yield from self._crash_within(moment, cut.copy(), operation, expected)

    def _crash_within(
        self, moment: CrashMoment, disk: SimulatedDisk, operation: Operation, expected: ObservedStore
    ) -> Iterator[str]:
        dice = Random(f"nested {self.seed} {operation.number}")
        dice.choice([disk.stop_before, disk.stop_within])(operation.number)
        with suppress(Stopped):
            self._open(disk)
        some = RandomFate(dice.getrandbits(32), self.shape.tearing)
        fates: list[Fate] = [LoseAll(), KeepAll(), some]
        fate = dice.choice(fates)
        how = f"crash in the recovery at {operation.number}, {operation.verb} {operation.path}, then {fate}"
        if dice.random() < 0.3:
            disk.kill()
            try:
                seen = glance(self._open(disk))
            except (StoreError, OSError, AssertionError) as error:
                yield f"workload {self.seed}, {moment.what} · {how} · killed, refused: {error!r}"
                return
            yield from self._same(moment, f"{how}, killed", expected, OpeningOutcome(seen))
        disk.power_cut(fate)
        yield from self._same(moment, how, expected, self.outcome(disk))


def _write_down(store: Store) -> None:
    """Make the checkpoint that writes down a journal-backed table."""
    while StoreInternals(store).step_checkpoint() == AT_ONCE:
        pass


def _names(directory: Directory) -> list[str]:
    try:
        return directory.names()
    except FileNotFoundError:
        return []


def _fates(moment: CrashMoment, seed: int) -> list[Fate]:
    fates: list[Fate] = [*moment.disk.fates()] if moment.verb in _SYNCS else [LoseAll()]
    dice = Random(f"fates {seed} {moment.what}")
    return fates + [
        RandomFate(dice.getrandbits(32), tearing)
        for tearing in Tearing
        for _ in range(2 if moment.verb in _SYNCS else 0)
    ]


_SYNCS = {Verb.SYNC, Verb.SYNC_DIRECTORY, None}


def explore(
    seed: int,
    steps: int = STEPS,
    stride: int = 1,
    violations_max: int = _VIOLATIONS_MAX,
    kind: type[SimulatedWorld] = SimulatedWorld,
) -> SimulationFigures:
    """Explore every moment of a workload (or every `stride`-th) with every fate, nested crashes and
    faults."""
    figures = SimulationFigures(workloads=1)
    try:
        world, moments = record(seed, steps, kind)
    except PromiseBroken as broken:
        figures.violations.append(f"{broken}")
        return figures
    figures.operations, figures.moments = len(world.disk.trace), len(moments)
    judge = SimulationJudge(seed, world.shape, figures)
    found = chain(_walked(judge, moments, stride), _with_faults(seed, steps, world, figures, stride))
    figures.violations += islice(found, violations_max)
    return figures


def _walked(judge: SimulationJudge, moments: Sequence[CrashMoment], stride: int) -> Iterator[str]:
    for number, moment in enumerate(moments):
        if number % stride == judge.seed % stride:
            is_nested = number % (16 * stride) == judge.seed % stride
            yield from _explored(judge, moment, number, nested=is_nested)


def _explored(judge: SimulationJudge, moment: CrashMoment, number: int, *, nested: bool) -> Iterator[str]:
    yield from judge.cut(moment, _fates(moment, judge.seed))
    some = [RandomFate(judge.seed * 1000 + number + one, judge.shape.tearing) for one in range(2)]
    yield from judge.kill(moment, [LoseAll(), *some])
    if nested:
        yield from judge.nest(moment, some[0])


def _with_faults(
    seed: int, steps: int, world: SimulatedWorld, figures: SimulationFigures, stride: int
) -> Iterator[str]:
    """Run the workload again and again, each time with one failing operation and a crash at the end."""
    dice = Random(f"faults {seed}")
    for operation in world.disk.trace[world.founded :: 6 * stride]:
        figures.faults += 1
        try:
            type(world)(seed, Trouble.REOPENINGS, fault=_fault(operation, dice)).run(steps)
        except PromiseBroken as broken:
            yield f"{broken}"


def _fault(operation: Operation, dice: Random) -> Fault:
    when = When(number=operation.number)
    if operation.verb in {Verb.SYNC, Verb.SYNC_DIRECTORY} and dice.random() < 0.8:
        return FailedSync(when, seed=dice.getrandbits(32), pages=dice.choice(list(Pages)))
    return random_fault(dice, when)


def history(seed: int, steps: int = HISTORY_STEPS) -> SimulationFigures:
    """Run a random history with crashes, disk errors and full disks."""
    figures = SimulationFigures(histories=1)
    world = SimulatedWorld(seed, Trouble.FAULTS if seed % 2 else Trouble.CRASHES)
    try:
        world.run(steps)
    except PromiseBroken as broken:
        figures.violations.append(f"{broken}")
    figures.crashes = world.crashes
    return figures


def compaction(
    seed: int, steps: int = 4 * HISTORY_STEPS, kind: type[CollectingWorld] = CollectingWorld
) -> SimulationFigures:
    """Run a random history with moves, removals and purges, in which indexes are lost too."""
    figures = SimulationFigures(histories=1)
    world = kind(seed, Trouble.FAULTS if seed % 3 == 0 else Trouble.CRASHES)
    try:
        world.run(steps)
    except PromiseBroken as broken:
        figures.violations.append(f"{broken}")
    figures.crashes, figures.rebuilt = world.crashes, world.lost_indexes
    figures.moved, figures.removed, figures.purged = world.moved, world.removed, world.purged
    figures.truncated = world.truncated if isinstance(world, TruncatingWorld) else 0
    return figures


# ── the run ───────────────────────────────────────────────────────────────────────────────────────────────

WORKLOADS = 37
HISTORIES = 500
COMPACTIONS = 600
QUICK = (7, 200, 150)


def _task(task: tuple[str, int]) -> SimulationFigures:
    logging.disable()  # a store that is closed while its disk fails logs a warning
    what, seed = task
    if what == "compaction":
        return compaction(seed)
    if what == "compacted":
        return explore(seed, kind=CollectingWorld)
    if what == "truncation":
        return compaction(seed, kind=TruncatingWorld)
    if what == "truncated":
        return explore(seed, kind=TruncatingWorld)
    if what == "first":  # for callers that only ask whether there is one
        return explore(seed, violations_max=1)
    return explore(seed) if what == "workload" else history(seed)


def run_all(
    jobs: int, workloads: int = WORKLOADS, histories: int = HISTORIES, compactions: int = COMPACTIONS
) -> SimulationFigures:
    """Run everything in this number of processes. The result does not depend on the number."""
    tasks = [("workload", seed) for seed in range(workloads)]
    tasks += [("history", seed) for seed in range(histories)]
    tasks += [("compaction", seed) for seed in range(compactions)]
    tasks += [("compacted", seed) for seed in range(compactions // 100)]
    tasks += [("truncation", seed) for seed in range(compactions // 2)]
    tasks += [("truncated", seed) for seed in range(compactions // 100)]
    total = SimulationFigures()
    with get_context("spawn").Pool(jobs) as pool:
        for figures in pool.imap_unordered(_task, tasks):
            total.add(figures)
    return total


def main(arguments: list[str]) -> int:
    started = time.monotonic()
    jobs = cpu_count() or 1
    match arguments:
        case ["quick"]:
            total = run_all(jobs, *QUICK)
        case ["compactions", number]:
            total = run_all(jobs, workloads=0, histories=0, compactions=int(number))
        case [what, seed]:
            total = _task((what, int(seed)))
        case _:
            total = run_all(jobs)
    for violation in total.violations[:_VIOLATIONS_MAX]:
        print(violation)
    print(f"crash-sim: {total} · {time.monotonic() - started:.0f} s")
    return 1 if total.violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
