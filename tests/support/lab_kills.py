"""Run kills of a laboratory one by one: of workloads and of recoveries, as many as a test has time for."""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

from recovery.crashlab.judge.occurrence import Occurrence
from recovery.crashlab.judge.oracles import Breach
from recovery.crashlab.layers.kill import KillTask, every_kill
from recovery.crashlab.layers.record import RecordTask
from recovery.crashlab.model import real_tree
from recovery.crashlab.record.preload import Orders
from recovery.crashlab.record.recording import Recording
from recovery.crashlab.run.image_checker import CrashImage, difference
from recovery.crashlab.run.task import CountsReport, TableReport, WorkShare, batches
from recovery.crashlab.run.workers import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.crashlab import CrashLab
    from recovery.crashlab.model.real_tree import Tree
    from recovery.crashlab.record.history import History
    from recovery.crashlab.record.tape import Event
    from recovery.crashlab.run.runner import ProgramRun
    from recovery.crashlab.run.task import Message, WorkerContext


@dataclass
class KillResults:
    """The results of some kills."""

    counts: Counter[str] = field(default_factory=Counter)
    breaches: list[str] = field(default_factory=list)
    outcomes: set[str] = field(default_factory=set)

    def collect(self, message: Any) -> None:
        if isinstance(message, CountsReport):
            self.counts.update(message.counts)
        elif isinstance(message, Occurrence):
            where = f"{message.workload}, {message.how}, {message.call}"
            self.breaches.append(f"{message.breach} · {where}")
        elif isinstance(message, TableReport):
            self.outcomes.add(message.row)


class KillRunner:
    """A worker with the recorded workloads of a laboratory. Use it from one thread, and close it."""

    def __init__(self, lab: CrashLab) -> None:
        self._place = TemporaryDirectory(prefix="tapes-")
        self._pool = WorkerPool(lab.spec, 1)
        place = Path(self._place.name)
        self._pool.run([RecordTask(place)], lambda _: None, lambda: None)
        self.recordings = tuple(Recording(name, place / f"{name}.tape") for name in lab.spec.workloads)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.__exit__(None, None, None)
        self._place.cleanup()

    def of_workloads(self, every: int = 1) -> KillResults:
        """Kill the workloads before and after every `stride`-th call."""
        return self._of(KillTask(self.recordings, WorkShare(0, every)))

    def of_recoveries(self, every: int = 1, every_call: int = 1) -> KillResults:
        """After some of these kills, kill the recovery before and after some of its calls."""
        return self._of(_RecoveryKillTask(self.recordings, WorkShare(0, every), WorkShare(0, every_call)))

    def of_calls_in(self, directory: str) -> KillResults:
        """Kill the workloads around each call that touches that directory, and return what was shown then."""
        return self._of(_ShownTask(self.recordings, f"/{directory}/"))

    def _of(self, task: Any) -> KillResults:
        found = KillResults()
        self._pool.run([task], found.collect, lambda: None)
        return found


@dataclass(frozen=True)
class _ShownTask:
    recordings: tuple[Recording, ...]
    where: str

    def work(self, context: WorkerContext) -> Iterator[Message]:
        for recording in self.recordings:
            for event, action in every_kill(recording.events()):
                if self.where in event.path or self.where in event.target:
                    yield from self._killed(context, recording.name, Orders(event.number, action))

    def _killed(self, context: WorkerContext, workload: str, orders: Orders) -> Iterator[Message]:
        with _root(context, {}) as root:
            assert context.runner.record(context.spec.workloads[workload], root, orders).was_killed
            yield TableReport(f"{context.runner.recover(context.spec.recover, root)}", "")
        yield CountsReport({"kills": 1})


@dataclass(frozen=True)
class _RecoveryKillTask:
    recordings: tuple[Recording, ...]
    share: WorkShare
    of_calls: WorkShare

    def work(self, context: WorkerContext) -> Iterator[Message]:
        known: set[str] = set()
        kills = [
            (recording.name, event, action)
            for recording in self.recordings
            for event, action in every_kill(recording.events())
        ]
        for workload, event, action in self.share.mine(kills):
            with _root(context, {}) as root:
                orders = Orders(event.number, action)
                died = context.runner.record(context.spec.workloads[workload], root, orders)
                left = real_tree.read_tree(root, context.ignored)
            if real_tree.digest(left) not in known:
                known.add(real_tree.digest(left))
                yield from self._recovered(context, _Killed(workload, event, left, died.history))

    def _recovered(self, context: WorkerContext, killed: _Killed) -> Iterator[Message]:
        with _root(context, killed.left) as root:
            whole = context.runner.record_recovery(context.spec.recover, root, Orders())
        inner = [
            (event, Orders(event.number, action))
            for event, action in self.of_calls.mine(every_kill(whole.events))
        ]
        for group in batches(inner):
            cases = [killed.again(context, event, orders) for event, orders in group]
            yield CountsReport({"kills of recoveries": len(cases)})
            yield from context.checker.check(cases)
            for case in cases:
                yield from _differing(context, case, whole)


@dataclass(frozen=True)
class _Killed:
    """A killed workload, and the files that it left."""

    workload: str
    event: Event
    left: Tree
    history: History

    def again(self, context: WorkerContext, event: Event, orders: Orders) -> CrashImage:
        """Return the same with a kill of the recovery."""
        with _root(context, self.left) as root:
            died = context.runner.record_recovery(context.spec.recover, root, orders)
            left = real_tree.read_tree(root, context.ignored)
        assert died.was_killed, f"{died.outcome}, not killed at {event}"

        def occurrence(breach: Breach) -> Occurrence:
            how = f"{orders.action.name} {event} of the recovery"
            number, call = self.event.number, f"{self.event}"
            return Occurrence("kill", self.workload, number, call, breach, how, left, self.history)

        return CrashImage(
            real_tree.digest(left), partial(real_tree.write_tree, left), self.history, occurrence
        )


def _differing(context: WorkerContext, case: CrashImage, whole: ProgramRun) -> Iterator[Occurrence]:
    outcome = context.checker.of(case.image, case.lay_out).outcome
    if outcome != whole.outcome:
        yield case.occurrence(Breach("DIFFERS", difference(whole.outcome, outcome)))


@contextmanager
def _root(context: WorkerContext, files: Tree) -> Iterator[Path]:
    root = context.runner.root()
    real_tree.write_tree(files, root)
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)
