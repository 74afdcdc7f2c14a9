"""Faults of every kind, planted one at a time in copies of a store, and how many of them an audit finds.

The store is one that is made for it, or a given one: the whole of it if it is small, else a sample. What is
given is only read. First of all the undamaged copy has to come out without a finding.
"""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from recovery.audit import ensembles
from recovery.audit.asked import Asked
from recovery.audit.faults import in_replicas, samples
from recovery.audit.faults.chart import chart_of
from recovery.audit.faults.copies import size_of
from recovery.audit.faults.kinds import Fault
from recovery.audit.faults.planted import shown
from recovery.audit.faults.planting import HOW, plant
from recovery.audit.inspect import inspect
from recovery.audit.local import Serial
from recovery.audit.ways import Ways

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from recovery.audit.faults.planted import Planted
    from recovery.audit.task import Engine
    from recovery.verify.finding import Finding

SMALL = 256 << 20
"""A store up to this size is copied as it is; of a larger one nothing is, and a sample is made instead."""


@dataclass(frozen=True, slots=True)
class Score:
    """What became of the faults of one kind."""

    fault: Fault
    planted: int
    found: int
    located: int

    @property
    def missed(self) -> int:
        return self.planted - self.located


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTest:
    """What the trials have come to."""

    what: str
    """In which store they were planted, for people."""
    seed: int
    scores: tuple[Score, ...]
    misses: tuple[str, ...]
    """One text for each fault that was not told, with its seed."""
    false_alarms: tuple[Finding, ...]
    """What is said to be wrong with the undamaged copy."""
    not_planted: tuple[Fault, ...] = ()
    """Kinds that the store has no place for."""

    @property
    def is_passed(self) -> bool:
        return not self.misses and not self.false_alarms

    @property
    def planted(self) -> int:
        return sum(score.planted for score in self.scores)

    @property
    def located(self) -> int:
        return sum(score.located for score in self.scores)


def _nowhere(_: int, __: int) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """How to go about it."""

    seed: int = 1
    count: int = 200
    engine: Engine = field(default_factory=Serial)
    passwords: Mapping[int, bytes] = field(default_factory=dict)
    password: bytes | None = None
    watch: Callable[[int, int], None] = _nowhere
    """Hears how many trials of how many are over."""

    def findings(self, root: Path) -> tuple[Finding, ...]:
        """What the audit says of a store."""
        ways = Ways(passwords=self.passwords, password=self.password)
        return inspect(Asked((str(root),), ways=ways, engine=self.engine)).findings

    def compared(self, root: Path) -> tuple[Finding, ...]:
        """What it says of stores that should hold the same."""
        replicas = ensembles.load(root / in_replicas.ENSEMBLES)
        return inspect(Asked(tuple(replicas.stores.values()), engine=self.engine, replicas=replicas)).findings


def self_test(path: Path | None, trials: Trials) -> SelfTest:
    """Plants faults in a copy of the store at `path`, or in stores made for it, and looks for them."""
    with TemporaryDirectory(prefix="ledgerstore-self-test-") as name:
        return _Run(path, trials, Path(name)).run()


class _Run:
    """One self-test, its stores below `scratch`."""

    def __init__(self, path: Path | None, trials: Trials, scratch: Path) -> None:
        self._trials = trials
        self._scratch = scratch
        self._tally = _Tally()
        self._stores = [scratch / "closed", scratch / "killed"]
        self._replicas: Path | None = scratch / "replicas"
        self._what = "two small stores made for it, one closed and one as a kill leaves it"
        if path is not None and size_of(path) <= SMALL:
            self._copy(path)
        else:
            self._make()
        if path is not None and self._replicas is not None:
            self._what += f": {path} is too large to be copied for each fault"
        known = self._trials
        self._charts = [chart_of(store, known.passwords, known.password) for store in self._stores]

    def _copy(self, path: Path) -> None:
        self._stores, self._replicas = [self._scratch / "store"], None
        shutil.copytree(path, self._stores[0])
        self._what = f"a copy of {path}"

    def _make(self) -> None:
        closed, killed = self._stores
        seed = self._trials.seed
        samples.build(closed, seed)
        samples.build_killed(killed, seed, self._scratch / "running")
        self._trials = replace(self._trials, passwords=samples.PASSWORDS, password=None)

    def run(self) -> SelfTest:
        alarms = [one for store in self._stores for one in self._trials.findings(store) if one.is_wrong]
        faults = tuple(Fault) if self._replicas is not None else tuple(HOW)
        for number in range(self._trials.count):
            self._try(faults[number % len(faults)], number, number // len(faults))
            self._trials.watch(number + 1, self._trials.count)
        return SelfTest(
            what=self._what,
            seed=self._trials.seed,
            scores=self._tally.scores(faults),
            misses=tuple(self._tally.misses),
            false_alarms=tuple(alarms),
            not_planted=tuple(one for one in faults[: self._trials.count] if not self._tally.planted[one]),
        )

    def _try(self, fault: Fault, number: int, turn: int) -> None:
        root = self._scratch / "damaged"
        seed = self._trials.seed * 1_000_000 + number
        if fault in in_replicas.FAULTS:
            planted: Planted | None = in_replicas.plant(fault, seed, root)
        else:
            planted = self._planted(fault, seed, root, turn)
        if planted is not None:
            look = self._trials.compared if fault in in_replicas.FAULTS else self._trials.findings
            self._tally.add(planted, look(root), seed)
        shutil.rmtree(root, ignore_errors=True)

    def _planted(self, fault: Fault, seed: int, root: Path, turn: int) -> Planted | None:
        """In one store after the other; in another one where it has no place."""
        for offset in range(len(self._charts)):
            planted = plant(self._charts[(turn + offset) % len(self._charts)], fault, seed, root)
            if planted is not None:
                return planted
            shutil.rmtree(root)
        return None


class _Tally:
    """Counts what was planted, found and located."""

    def __init__(self) -> None:
        self.planted: Counter[Fault] = Counter()
        self.misses: list[str] = []
        self._found: Counter[Fault] = Counter()
        self._located: Counter[Fault] = Counter()

    def add(self, planted: Planted, findings: Sequence[Finding], seed: int) -> None:
        fault = planted.fault
        self.planted[fault] += 1
        self._found[fault] += planted.is_found_by(findings)
        strays = planted.strays_of(findings)
        if planted.is_told_by(findings) and not strays:
            self._located[fault] += 1
            return
        lines = [f"  too much: {shown(finding)}" for finding in strays]
        self.misses.append("\n".join([f"seed {seed}: {planted.why_not(findings)}", *lines]))

    def scores(self, faults: Sequence[Fault]) -> tuple[Score, ...]:
        return tuple(
            Score(fault, self.planted[fault], self._found[fault], self._located[fault])
            for fault in faults
            if self.planted[fault]
        )
