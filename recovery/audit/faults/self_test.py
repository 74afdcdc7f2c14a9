"""Plant faults of every kind in copies of a store, one at a time, and count how many an audit finds.

The store is made for the purpose, or a given one is copied if it is small. A given store is only read. The
undamaged copy has to be without findings.
"""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from recovery.audit.digests.policy import DigestPolicy
from recovery.audit.engines.local import Serial
from recovery.audit.faults import in_replicas, samples
from recovery.audit.faults.chart import chart_of
from recovery.audit.faults.kinds import Fault
from recovery.audit.faults.planted import shown
from recovery.audit.faults.planting import HOW, plant
from recovery.audit.faults.store_copy import size_of
from recovery.audit.pipeline import ensemble_file
from recovery.audit.pipeline.request import AuditRequest
from recovery.audit.pipeline.run_audit import run_audit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from recovery.audit.engines.task import TaskEngine
    from recovery.audit.faults.planted import Planted
    from recovery.audit.findings.finding import Finding

SMALL = 256 << 20
"""The largest store that is copied. For a larger one nothing is copied, and a sample store is
made instead.
"""


@dataclass(frozen=True, slots=True)
class FaultScore:
    """The results for the faults of one kind."""

    fault: Fault
    planted: int
    found: int
    located: int

    @property
    def missed(self) -> int:
        return self.planted - self.located


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfTest:
    """The result of a self-test."""

    what: str
    """A description of the stores, for users."""
    seed: int
    scores: tuple[FaultScore, ...]
    misses: tuple[str, ...]
    """One text for each fault that was not found in its place, with its seed."""
    false_alarms: tuple[Finding, ...]
    """Errors and warnings about the undamaged copy."""
    not_planted: tuple[Fault, ...] = ()
    """Kinds of faults that the store has no place for."""

    @property
    def is_passed(self) -> bool:
        return not self.misses and not self.false_alarms

    @property
    def planted(self) -> int:
        return sum(score.planted for score in self.scores)

    @property
    def located(self) -> int:
        return sum(score.located for score in self.scores)


def _ignore_trials(_: int, __: int) -> None:
    """Ignore progress: the default callback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """The options of a self-test."""

    seed: int = 1
    count: int = 200
    engine: TaskEngine = field(default_factory=Serial)
    passwords: Mapping[int, bytes] = field(default_factory=dict)
    password: bytes | None = None
    watch: Callable[[int, int], None] = _ignore_trials
    """Called with the number of finished trials and their total."""

    def findings(self, root: Path) -> tuple[Finding, ...]:
        """Return what the audit finds in a store."""
        policy = DigestPolicy(passwords=self.passwords, password=self.password)
        return run_audit(AuditRequest((str(root),), policy=policy, engine=self.engine)).findings

    def compared(self, root: Path) -> tuple[Finding, ...]:
        """Return what the audit finds in stores that should hold the same."""
        replicas = ensemble_file.load(root / in_replicas.ENSEMBLES)
        return run_audit(
            AuditRequest(tuple(replicas.stores.values()), engine=self.engine, replicas=replicas)
        ).findings


def self_test(path: Path | None, trials: Trials) -> SelfTest:
    """Plant faults in a copy of the store at `path`, or in stores made for the purpose, and audit them."""
    with TemporaryDirectory(prefix="ledgerstore-self-test-") as name:
        return _Run(path, trials, Path(name)).run()


class _Run:
    """One self-test, with its stores below `scratch`."""

    def __init__(self, path: Path | None, trials: Trials, scratch: Path) -> None:
        self._trials = trials
        self._scratch = scratch
        self._tally = _ScoreBoard()
        self._stores = [scratch / "closed", scratch / "killed"]
        self._replicas: Path | None = scratch / "replicas"
        self._what = "two small stores made for the test, one closed and one as a kill leaves it"
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
        """Plant in one store after the other, and in another one if it has no place."""
        for offset in range(len(self._charts)):
            planted = plant(self._charts[(turn + offset) % len(self._charts)], fault, seed, root)
            if planted is not None:
                return planted
            shutil.rmtree(root)
        return None


class _ScoreBoard:
    """Counts the faults that were planted, found and located."""

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
        if planted.is_located_by(findings) and not strays:
            self._located[fault] += 1
            return
        lines = [f"  unexpected: {shown(finding)}" for finding in strays]
        self.misses.append("\n".join([f"seed {seed}: {planted.why_not(findings)}", *lines]))

    def scores(self, faults: Sequence[Fault]) -> tuple[FaultScore, ...]:
        return tuple(
            FaultScore(fault, self.planted[fault], self._found[fault], self._located[fault])
            for fault in faults
            if self.planted[fault]
        )
