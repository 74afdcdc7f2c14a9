"""The crash simulation of the real store: every durable operation of seeded workloads, every fate, no loss.

    python tests/support/crash_sim.py                 all of it, as `make crash-sim` does
    python tests/support/crash_sim.py quick           less than half of it, as CI does
    python tests/support/crash_sim.py workload 17     one workload again, as a violation names it
    python tests/support/crash_sim.py history 17      one random history again

A workload is run once; before each of its operations the disk is kept, with what was promised by then. Each
is then cut in every way that matters and killed, and what is left is opened, read, cut again, added to, and
opened once more. A disk that has been seen is not opened again, and not counted again.
"""

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

from file_index import FileIndex, FileIndexPlace
from promises import Seen, difference, glance, look
from simulated_store import Broken, Trouble, World, random_fault, sit_down

from recovery.crashlab import FailedSync, KeepAll, LoseAll, Pages, RandomFate, Stopped, Tearing, Verb, When
from recovery.founding import Layout
from recovery.lineage import read_header
from storage import filenames, lastmark
from storage.codec.mark import Mark
from storage.entry_logs import log_ids
from storage.errors import StoreError
from storage.outcome import Damaged
from storage.worker import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from promises import Promises
    from simulated_store import Shape

    from recovery.crashlab import Fate, Fault, Operation, SimulatedDisk
    from storage.files import Directory
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
)


@dataclass
class Figures:
    """How much was explored. Images are hashes, so that runs can be counted together."""

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
    images: set[bytes] = field(default_factory=set)
    violations: list[str] = field(default_factory=list)

    def add(self, other: Figures) -> None:
        """Counts the other in; what both have seen counts once."""
        self.images |= other.images
        self.violations += other.violations
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def __str__(self) -> str:
        return (
            f"{self.workloads} workloads · {self.operations:,} operations · {self.moments:,} moments · "
            f"{self.raw:,} raw states · {len(self.images):,} distinct images · {self.kills:,} kills · "
            f"{self.nested:,} nested crashes · {self.rebuilt:,} indexes rebuilt · {self.faults:,} faults · "
            f"{self.histories:,} histories with {self.crashes:,} crashes · {len(self.violations)} violations"
        )


@dataclass(frozen=True)
class Moment:
    """The disk before an operation, and what was promised by then."""

    what: str
    verb: Verb | None
    disk: SimulatedDisk
    promises: Promises


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an opening shows, or what is wrong with it or with those that follow it."""

    seen: Seen | None
    problem: str = ""
    without_index: Seen | None = None
    """What is shown where the index is lost as well, if that was tried."""


def record(seed: int, steps: int) -> tuple[World, list[Moment]]:
    """A workload without trouble, and its moments."""
    world, moments = World(seed, Trouble.REOPENINGS), []

    def keep(operation: Operation) -> None:
        what = f"step {len(world.happened)}, before {operation.number}, {operation.verb} {operation.path}"
        moments.append(Moment(what, operation.verb, world.disk.copy(), world.promises.copy()))

    world.disk.watch(keep)
    world.play(steps)
    moments.append(Moment("at the end", None, world.disk.copy(), world.promises.copy()))
    return world, moments


class Judge:
    """Opens each distinct disk once, and holds what it shows against every moment that led to it."""

    def __init__(self, seed: int, shape: Shape, figures: Figures) -> None:
        self.seed = seed
        self.shape = shape
        self._figures = figures
        self._outcomes: dict[str, Outcome] = {}

    def outcome(self, after: SimulatedDisk) -> Outcome:
        """Of a disk that was cut."""
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

    def _without_index(self, disk: SimulatedDisk, expected: Seen) -> Outcome:
        """Without the index the same is shown; where it was ahead of the mark, all that was answered.

        An opening that checkpoints what it has only read, and loses its power before the mark follows, may
        have the last trace of entries there that nobody was answered.
        """
        ledgers = Layout(disk.root()).ledgers
        if not {filenames.INDEX, filenames.LAST_MARK} <= set(_names(ledgers)):
            return Outcome(expected)
        self._figures.rebuilt += 1
        is_ahead, torn = _index_is_ahead(ledgers), _torn_headers(ledgers)
        ledgers.remove(filenames.INDEX)
        ledgers.sync()
        try:
            # Two losses at once: a cut that destroys the sector of a header while its log is sealed, and the
            # index. It is told, and what the logs hold is shown all the same.
            seen = glance(self._open(disk, lambda finding: finding.startswith(torn)))
        except (StoreError, OSError, AssertionError) as error:
            return Outcome(None, f"refused without its index: {error!r}")
        wrong = "" if is_ahead else difference(expected, seen)
        problem = f"without its index it differs: {wrong}" if wrong else ""
        return Outcome(expected, problem, without_index=seen)

    def _recover(self, disk: SimulatedDisk) -> Outcome:
        try:
            store = self._open(disk)
            first = look(store)
            if len(self._outcomes) % 3 == 0:
                disk.power_cut(LoseAll())
                store = self._open(disk)
                second = glance(store)
                if first != second:
                    return Outcome(first, f"opened again it differs: {difference(first, second)}")
            if store._parts.slot.tables.frozen is not None:
                _write_down(store)
                second = glance(store)
                if first != second:
                    return Outcome(first, f"written down it differs: {difference(first, second)}")
            ledger = store.ledger(ADDED_TO)
            added = ledger.read(ledger.append(b"after recovery"))
            disk.power_cut(LoseAll())
            third = glance(self._open(disk))
        except (StoreError, OSError, AssertionError) as error:
            return Outcome(None, f"refused: {error!r}")
        expected = {**first.entries, (ADDED_TO, added.entry_id): added}
        lost = [ids for ids in expected if third.entries.get(ids) != expected[ids]]
        return Outcome(first, f"opened after an add it has lost {lost}" if third.entries != expected else "")

    def _open(self, disk: SimulatedDisk, is_expected: Callable[[str], bool] = lambda _: False) -> Store:
        dice = Random(f"{self.seed} {len(disk.trace)}")
        return sit_down(disk, self.shape.config, dice, is_expected).store

    # ── what may happen at a moment ───────────────────────────────────────────────────────────────────

    def cut(self, moment: Moment, fates: list[Fate]) -> Iterator[str]:
        """Everything that is wrong after any of these power cuts."""
        for fate in fates:
            self._figures.raw += 1
            after = moment.disk.copy()
            after.power_cut(fate)
            outcome = self.outcome(after)
            yield from self._wrong(moment, f"power cut, {getattr(fate, 'label', fate)}", outcome)

    def _wrong(self, moment: Moment, how: str, outcome: Outcome) -> Iterator[str]:
        problems = [outcome.problem] if outcome.problem else []
        if outcome.seen is not None:
            problems += moment.promises.violations(outcome.seen)
        if outcome.without_index is not None:
            violations = moment.promises.violations(outcome.without_index)
            problems += [f"without its index: {violation}" for violation in violations]
        for problem in problems:
            yield f"workload {self.seed}, {moment.what} · {how} · {problem}"

    def kill(self, moment: Moment, fates: list[Fate]) -> Iterator[str]:
        """A kill, an opening, and power cuts behind it: what was read before must still be there."""
        self._figures.kills += 1
        killed = moment.disk.copy()
        killed.kill()
        try:
            seen = look(self._open(killed))
        except (StoreError, OSError, AssertionError) as error:
            yield f"workload {self.seed}, {moment.what} · kill · refused: {error!r}"
            return
        yield from self._wrong(moment, "kill", Outcome(seen))
        for fate in fates:
            self._figures.raw += 1
            after = killed.copy()
            after.power_cut(fate)
            outcome = self.outcome(after)
            yield from self._same(moment, f"kill, opening, power cut {fate}", seen, outcome)

    def _same(self, moment: Moment, how: str, expected: Seen, outcome: Outcome) -> Iterator[str]:
        problem = outcome.problem
        if outcome.seen is not None and outcome.seen != expected:
            problem = f"what was read differs: {difference(expected, outcome.seen)}"
        if problem:
            yield f"workload {self.seed}, {moment.what} · {how} · {problem}"

    def nest(self, moment: Moment, fate: Fate) -> Iterator[str]:
        """A crash at every operation of the recovery: the opening behind it shows the same."""
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
        self, moment: Moment, disk: SimulatedDisk, operation: Operation, expected: Seen
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
            yield from self._same(moment, f"{how}, killed", expected, Outcome(seen))
        disk.power_cut(fate)
        yield from self._same(moment, how, expected, self.outcome(disk))


def _index_is_ahead(ledgers: Directory) -> bool:
    index, mark = FileIndexPlace(ledgers).open(), lastmark.load(ledgers)
    assert isinstance(index, FileIndex)
    assert isinstance(mark, Mark)
    assert mark.trailer is not None
    return index.state().generation > mark.trailer.generation


def _torn_headers(ledgers: Directory) -> tuple[str, ...]:
    """How a finding begins that is about an entry log whose header is neither old nor new."""
    headers = {log_id: read_header(ledgers, log_id) for log_id in log_ids(ledgers)}
    torn = [log_id for log_id, header in headers.items() if isinstance(header, Damaged)]
    return tuple(f"ELG-001 {filenames.entry_log(log_id)}@0" for log_id in torn)


def _write_down(store: Store) -> None:
    """Makes the checkpoint for which a long replay waits."""
    while store._parts.checkpointer.step() == AT_ONCE:
        pass


def _names(directory: Directory) -> list[str]:
    try:
        return directory.names()
    except FileNotFoundError:
        return []


def _fates(moment: Moment, seed: int) -> list[Fate]:
    fates: list[Fate] = [*moment.disk.fates()] if moment.verb in _SYNCS else [LoseAll()]
    dice = Random(f"fates {seed} {moment.what}")
    return fates + [
        RandomFate(dice.getrandbits(32), tearing)
        for tearing in Tearing
        for _ in range(2 if moment.verb in _SYNCS else 0)
    ]


_SYNCS = {Verb.SYNC, Verb.SYNC_DIRECTORY, None}


def explore(seed: int, steps: int = STEPS, stride: int = 1, violations_max: int = _VIOLATIONS_MAX) -> Figures:
    """Every moment of a workload (or each so many), every fate; nested crashes and faults among them."""
    figures = Figures(workloads=1)
    try:
        world, moments = record(seed, steps)
    except Broken as broken:
        figures.violations.append(f"{broken}")
        return figures
    figures.operations, figures.moments = len(world.disk.trace), len(moments)
    judge = Judge(seed, world.shape, figures)
    found = chain(_walked(judge, moments, stride), _with_faults(seed, steps, world, figures, stride))
    figures.violations += islice(found, violations_max)
    return figures


def _walked(judge: Judge, moments: Sequence[Moment], stride: int) -> Iterator[str]:
    for number, moment in enumerate(moments):
        if number % stride == judge.seed % stride:
            is_nested = number % (16 * stride) == judge.seed % stride
            yield from _explored(judge, moment, number, nested=is_nested)


def _explored(judge: Judge, moment: Moment, number: int, *, nested: bool) -> Iterator[str]:
    yield from judge.cut(moment, _fates(moment, judge.seed))
    some = [RandomFate(judge.seed * 1000 + number + one, judge.shape.tearing) for one in range(2)]
    yield from judge.kill(moment, [LoseAll(), *some])
    if nested:
        yield from judge.nest(moment, some[0])


def _with_faults(seed: int, steps: int, world: World, figures: Figures, stride: int) -> Iterator[str]:
    """The same workload again, with one operation failing in one way; each time it ends with a crash."""
    dice = Random(f"faults {seed}")
    for operation in world.disk.trace[world.founded :: 6 * stride]:
        figures.faults += 1
        try:
            World(seed, Trouble.REOPENINGS, fault=_fault(operation, dice)).run(steps)
        except Broken as broken:
            yield f"{broken}"


def _fault(operation: Operation, dice: Random) -> Fault:
    when = When(number=operation.number)
    if operation.verb in {Verb.SYNC, Verb.SYNC_DIRECTORY} and dice.random() < 0.8:
        return FailedSync(when, seed=dice.getrandbits(32), pages=dice.choice(list(Pages)))
    return random_fault(dice, when)


def history(seed: int, steps: int = HISTORY_STEPS) -> Figures:
    """A random history with everything in it."""
    figures = Figures(histories=1)
    world = World(seed, Trouble.FAULTS if seed % 2 else Trouble.CRASHES)
    try:
        world.run(steps)
    except Broken as broken:
        figures.violations.append(f"{broken}")
    figures.crashes = world.crashes
    return figures


# ── the run ───────────────────────────────────────────────────────────────────────────────────────────────

WORKLOADS = 26
HISTORIES = 500
QUICK = (7, 200)


def _task(task: tuple[str, int]) -> Figures:
    logging.disable()  # a store that is closed while its disk fails says so
    what, seed = task
    if what == "first":  # for whoever only asks whether there is one
        return explore(seed, violations_max=1)
    return explore(seed) if what == "workload" else history(seed)


def run_all(jobs: int, workloads: int = WORKLOADS, histories: int = HISTORIES) -> Figures:
    """All of it, over so many processes; the same for any number of them."""
    tasks = [("workload", seed) for seed in range(workloads)]
    tasks += [("history", seed) for seed in range(histories)]
    total = Figures()
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
