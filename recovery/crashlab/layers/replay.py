"""Replays a violation that was written earlier, in a worker as when it was found."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from recovery.crashlab.judge import damage_verdict
from recovery.crashlab.judge.oracles import Breach, OpenSucceedsOrNamed
from recovery.crashlab.judge.outcome import Answered, Died, Hung
from recovery.crashlab.model import real_tree
from recovery.crashlab.record import tape
from recovery.crashlab.record.crash import platter_before_crash
from recovery.crashlab.run.image_checker import ImageChecker, difference, failure_of
from recovery.crashlab.run.workers import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.crashlab.judge.occurrence import Occurrence
    from recovery.crashlab.judge.outcome import Outcome
    from recovery.crashlab.layers.violation import Violation
    from recovery.crashlab.run.runner import ProgramRun, Runner
    from recovery.crashlab.run.task import WorkerContext


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of a replay."""

    is_same_image: bool
    """Whether the rebuilt image is the stored one, byte for byte."""
    breaches: tuple[Breach, ...]
    expected: Breach
    shown: str
    """The present answer of the store, as text."""

    @property
    def shows(self) -> bool:
        """Return whether the same kind of breach shows again."""
        return any(breach.kind == self.expected.kind for breach in self.breaches)


@dataclass(frozen=True)
class ReplayTask:
    """Replays one violation."""

    violation: Violation

    def work(self, context: WorkerContext) -> Iterator[ReplayResult]:
        yield replay(self.violation, context.runner)


def replayed(violation: Violation) -> ReplayResult:
    """Replay a violation in a process of its own. Raise `LabError` if that is impossible."""
    found: list[ReplayResult] = []
    with WorkerPool(violation.spec, 1) as pool:
        pool.run([ReplayTask(violation)], found.append, lambda: None)
    return found[0]


# ── in the worker ──────────────────────────────────────────────────────────────────────────────────────────


def replay(violation: Violation, runner: Runner) -> ReplayResult:
    """Rebuild the image and open it. After a kill or an error the workload runs again."""
    occurrence = violation.occurrence
    image, run = _rebuilt(violation, runner)
    checker = ImageChecker(violation.spec, runner)
    digest, lay_out = real_tree.digest(image), partial(real_tree.write_tree, image)
    outcome = checker.of(digest, lay_out).outcome
    # A workload that runs again has a history of its own.
    history = occurrence.history if run is None else run.history
    breaches = [
        *checker.breaches_of(digest, lay_out, history),
        *_breaches_by_comparison(violation, checker, outcome),
        *([] if run is None else _breaches_of_the_run(occurrence, run.outcome)),
    ]
    is_same = digest == real_tree.digest(occurrence.image)
    return ReplayResult(is_same, tuple(breaches), occurrence.breach, f"{outcome}")


def _rebuilt(violation: Violation, runner: Runner) -> tuple[real_tree.Tree, ProgramRun | None]:
    """Return the image, and the run that made it, if a run was needed."""
    occurrence, spec = violation.occurrence, violation.spec
    if occurrence.crashes:
        return _left_by(violation, len(occurrence.crashes)), None
    if occurrence.orders is None or occurrence.layer == "cut":
        return occurrence.image, None
    root = runner.root()
    run = runner.record(spec.workloads[occurrence.workload], root, occurrence.orders)
    return real_tree.read_tree(root, spec.ignored), run


def _left_by(violation: Violation, count: int) -> real_tree.Tree:
    """Return what the first `count` crashes leave."""
    crashes, spec = violation.occurrence.crashes[:count], violation.spec
    tapes = [list(tape.decode(one)) for one in violation.tapes[:count]]
    platter = platter_before_crash(crashes, tapes, spec.profile, spec.ignored)
    survivors = crashes[-1].survivors
    return real_tree.visible_tree(platter if survivors is None else platter.after_cut(survivors))


def _breaches_of_the_run(occurrence: Occurrence, outcome: Outcome) -> Iterator[Breach]:
    """Yield a breach if the fault killed the workload or made it hang; a kill is expected to kill it."""
    if occurrence.layer == "errors" and isinstance(outcome, Died | Hung):
        yield Breach("HANG" if isinstance(outcome, Hung) else "SIGNAL", f"the workload {outcome}")


def _breaches_by_comparison(
    violation: Violation, checker: ImageChecker, outcome: Outcome
) -> Iterator[Breach]:
    """Yield breaches that show only in comparison with another image."""
    occurrence = violation.occurrence
    if occurrence.undamaged is not None:
        yield from _damage_breaches(violation, _outcome_of(occurrence.undamaged, checker), outcome)
    elif len(occurrence.crashes) > 1 and occurrence.breach.kind == "DIFFERS" and failure_of(outcome) is None:
        expected = _outcome_of(_left_by(violation, _crashes_to_expected_state(occurrence)), checker)
        if expected != outcome:
            yield Breach("DIFFERS", f"a crash in the recovery: {difference(expected, outcome)}")


def _outcome_of(image: real_tree.Tree, checker: ImageChecker) -> Outcome:
    return checker.of(real_tree.digest(image), partial(real_tree.write_tree, image)).outcome


def _crashes_to_expected_state(occurrence: Occurrence) -> int:
    """Return how many of the crashes lead to the state that the store must show in the end.

    That is the state after the first power cut, because a kill leaves more than a power cut may. If the last
    crash is the only power cut, it is the state that the recovery before it showed.
    """
    cuts = [number for number, crash in enumerate(occurrence.crashes, 1) if crash.survivors is not None]
    return cuts[0] if cuts and cuts[0] < len(occurrence.crashes) else len(occurrence.crashes) - 1


def _damage_breaches(violation: Violation, undamaged: Outcome, outcome: Outcome) -> Iterator[Breach]:
    if not isinstance(undamaged, Answered):
        yield Breach("REFUSED", f"without the damage it {undamaged}")
        return
    history = violation.occurrence.history
    rule = violation.spec.rule(OpenSucceedsOrNamed) or OpenSucceedsOrNamed()
    found = damage_verdict.verdict_on_damage(
        undamaged.answer, outcome, history, rule, _damaged(violation.occurrence)
    )
    if not found.is_good:
        first = None
        if isinstance(outcome, Answered):
            first = next(damage_verdict.harmful_differences(undamaged.answer, outcome.answer, history), None)
        yield Breach(found.name, f"{first or outcome}")


def _damaged(occurrence: Occurrence) -> str:
    """Return the path of the file that the rot layer damaged."""
    before, now = occurrence.undamaged or {}, occurrence.image
    return next((path for path in {**before, **now} if before.get(path) != now.get(path)), "")
