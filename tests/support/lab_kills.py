"""The kills of a laboratory one by one: as many as a test has time for, and those of recoveries too."""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

from recovery.crashlab import tree
from recovery.crashlab.crew import Crew
from recovery.crashlab.judge import Case, difference
from recovery.crashlab.layers.kill import KillTask, every_kill
from recovery.crashlab.layers.record import RecordTask
from recovery.crashlab.layers.task import Counted, Recording, Share, Sighting, Tabled, grouped
from recovery.crashlab.oracles import Breach
from recovery.crashlab.preload import Orders

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.crashlab import CrashLab
    from recovery.crashlab.history import History
    from recovery.crashlab.layers.task import Bench, Message
    from recovery.crashlab.running import Run
    from recovery.crashlab.tape import Event
    from recovery.crashlab.tree import Tree


@dataclass
class Found:
    """What came of some kills."""

    counts: Counter[str] = field(default_factory=Counter)
    breaches: list[str] = field(default_factory=list)
    outcomes: set[str] = field(default_factory=set)

    def hear(self, message: Any) -> None:
        if isinstance(message, Counted):
            self.counts.update(message.counts)
        elif isinstance(message, Sighting):
            where = f"{message.workload}, {message.how}, {message.call}"
            self.breaches.append(f"{message.breach} · {where}")
        elif isinstance(message, Tabled):
            self.outcomes.add(message.row)


class Kills:
    """A worker for the store of a laboratory, with its workloads recorded. For one thread; close it."""

    def __init__(self, lab: CrashLab) -> None:
        self._place = TemporaryDirectory(prefix="tapes-")
        self._crew = Crew(lab.spec, 1)
        place = Path(self._place.name)
        self._crew.run([RecordTask(place)], lambda _: None, lambda: None)
        self.recordings = tuple(Recording(name, place / f"{name}.tape") for name in lab.spec.workloads)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._crew.__exit__(None, None, None)
        self._place.cleanup()

    def of_workloads(self, every: int = 1) -> Found:
        """Kills the workloads around each so-many-th call."""
        return self._of(KillTask(self.recordings, Share(0, every)))

    def of_recoveries(self, every: int = 1, every_call: int = 1) -> Found:
        """Behind each so-many-th of these kills, kills the recovery around each so-many-th of its calls."""
        return self._of(_RecoveryKillTask(self.recordings, Share(0, every), Share(0, every_call)))

    def of_calls_in(self, directory: str) -> Found:
        """Kills the workloads around each call that touches that directory, and tells what was shown then."""
        return self._of(_ShownTask(self.recordings, f"/{directory}/"))

    def _of(self, task: Any) -> Found:
        found = Found()
        self._crew.run([task], found.hear, lambda: None)
        return found


@dataclass(frozen=True)
class _ShownTask:
    recordings: tuple[Recording, ...]
    where: str

    def work(self, bench: Bench) -> Iterator[Message]:
        for recording in self.recordings:
            for event, action in every_kill(recording.events()):
                if self.where in event.path or self.where in event.target:
                    yield from self._killed(bench, recording.name, Orders(event.number, action))

    def _killed(self, bench: Bench, workload: str, orders: Orders) -> Iterator[Message]:
        with _root(bench, {}) as root:
            assert bench.runner.record(bench.spec.workloads[workload], root, orders).was_killed
            yield Tabled(f"{bench.runner.recover(bench.spec.recover, root)}", "")
        yield Counted({"kills": 1})


@dataclass(frozen=True)
class _RecoveryKillTask:
    recordings: tuple[Recording, ...]
    share: Share
    of_calls: Share

    def work(self, bench: Bench) -> Iterator[Message]:
        known: set[str] = set()
        kills = [
            (recording.name, event, action)
            for recording in self.recordings
            for event, action in every_kill(recording.events())
        ]
        for workload, event, action in self.share.mine(kills):
            with _root(bench, {}) as root:
                orders = Orders(event.number, action)
                died = bench.runner.record(bench.spec.workloads[workload], root, orders)
                left = tree.read_tree(root, bench.ignored)
            if tree.digest(left) not in known:
                known.add(tree.digest(left))
                yield from self._recovered(bench, _Killed(workload, event, left, died.history))

    def _recovered(self, bench: Bench, killed: _Killed) -> Iterator[Message]:
        with _root(bench, killed.left) as root:
            whole = bench.runner.record_recovery(bench.spec.recover, root, Orders())
        inner = [
            (event, Orders(event.number, action))
            for event, action in self.of_calls.mine(every_kill(whole.events))
        ]
        for group in grouped(inner):
            cases = [killed.again(bench, event, orders) for event, orders in group]
            yield Counted({"kills of recoveries": len(cases)})
            yield from bench.judge.check(cases)
            for case in cases:
                yield from _differing(bench, case, whole)


@dataclass(frozen=True)
class _Killed:
    """A workload that was killed, and what it left."""

    workload: str
    event: Event
    left: Tree
    history: History

    def again(self, bench: Bench, event: Event, orders: Orders) -> Case:
        """The same, and then the recovery was killed."""
        with _root(bench, self.left) as root:
            died = bench.runner.record_recovery(bench.spec.recover, root, orders)
            left = tree.read_tree(root, bench.ignored)
        assert died.was_killed, f"{died.outcome}, not killed at {event}"

        def sighting(breach: Breach) -> Sighting:
            how = f"{orders.action.name} {event} of the recovery"
            number, call = self.event.number, f"{self.event}"
            return Sighting("kill", self.workload, number, call, breach, how, left, self.history)

        return Case(tree.digest(left), partial(tree.write_tree, left), self.history, sighting)


def _differing(bench: Bench, case: Case, whole: Run) -> Iterator[Sighting]:
    outcome = bench.judge.of(case.image, case.lay_out).outcome
    if outcome != whole.outcome:
        yield case.sighting(Breach("DIFFERS", difference(whole.outcome, outcome)))


@contextmanager
def _root(bench: Bench, files: Tree) -> Iterator[Path]:
    root = bench.runner.root()
    tree.write_tree(files, root)
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)
