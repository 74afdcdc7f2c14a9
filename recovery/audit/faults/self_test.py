"""Faults of every kind, planted one at a time in copies of a store, and how many of them an audit finds.

The store is one that is made for it, or a given one: the whole of it if it is small, else a sample. What is
given is only read. First of all the undamaged copy has to come out without a finding.
"""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from recovery.audit.asked import Asked
from recovery.audit.faults import samples
from recovery.audit.faults.chart import chart_of
from recovery.audit.faults.copies import size_of
from recovery.audit.faults.planted import shown
from recovery.audit.faults.planting import HOW, plant
from recovery.audit.inspect import inspect
from recovery.audit.local import Serial
from recovery.audit.ways import Ways

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from recovery.audit.faults.chart import Chart
    from recovery.audit.faults.kinds import Fault
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


def self_test(path: Path | None, trials: Trials) -> SelfTest:
    """Plants faults in a copy of the store at `path`, or in one that is made for it, and looks for them."""
    with TemporaryDirectory(prefix="ledgerstore-self-test-") as name:
        scratch = Path(name)
        stores, what, trials = _stores(path, scratch, trials)
        charts = [chart_of(store, trials.passwords, trials.password) for store in stores]
        alarms = [one for store in stores for one in trials.findings(store) if one.is_wrong]
        return _tried(charts, trials, scratch, (what, tuple(alarms)))


def _stores(path: Path | None, scratch: Path, trials: Trials) -> tuple[list[Path], str, Trials]:
    if path is not None and size_of(path) <= SMALL:
        copy = scratch / "store"
        shutil.copytree(path, copy)
        return [copy], f"a copy of {path}", trials
    closed, killed = scratch / "closed", scratch / "killed"
    samples.build(closed, trials.seed)
    samples.build_killed(killed, trials.seed, scratch / "running")
    what = "two small stores made for it, one closed and one as a kill leaves it"
    if path is not None:
        what += f": {path} is too large to be copied for each fault"
    made = Trials(
        seed=trials.seed,
        count=trials.count,
        engine=trials.engine,
        passwords=samples.PASSWORDS,
        watch=trials.watch,
    )
    return [closed, killed], what, made


def _tried(
    charts: Sequence[Chart], trials: Trials, scratch: Path, told: tuple[str, tuple[Finding, ...]]
) -> SelfTest:
    tally = _Tally()
    faults = tuple(HOW)
    for number in range(trials.count):
        fault = faults[number % len(faults)]
        chart = charts[number // len(faults) % len(charts)]
        root = scratch / "damaged"
        seed = trials.seed * 1_000_000 + number
        planted = plant(chart, fault, seed, root)
        if planted is not None:
            tally.add(planted, trials.findings(root), seed)
        shutil.rmtree(root)
        trials.watch(number + 1, trials.count)
    what, alarms = told
    return SelfTest(
        what=what,
        seed=trials.seed,
        scores=tally.scores(faults),
        misses=tuple(tally.misses),
        false_alarms=alarms,
        not_planted=tuple(fault for fault in faults[: trials.count] if not tally.planted[fault]),
    )


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
