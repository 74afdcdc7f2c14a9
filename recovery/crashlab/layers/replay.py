"""Replaying: a violation that was written down is made again, in a worker as when it was found."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from recovery.crashlab import rebuild, tape, tree, verdict
from recovery.crashlab.crew import Crew
from recovery.crashlab.judge import Judge, difference, trouble
from recovery.crashlab.oracles import Breach, OpenSucceedsOrNamed
from recovery.crashlab.outcome import Answered, Died, Hung
from recovery.crashlab.shown import as_shown
from recovery.crashlab.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.crashlab.layers.task import Bench, Sighting
    from recovery.crashlab.outcome import Outcome
    from recovery.crashlab.running import Run, Runner
    from recovery.crashlab.violation import Violation


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of trying again."""

    is_same_image: bool
    """Whether the image that was made again is the one that was kept, byte for byte."""
    breaches: tuple[Breach, ...]
    expected: Breach
    shown: str
    """What the store answers now, in words."""

    @property
    def shows(self) -> bool:
        """Whether the same kind of breach shows."""
        return any(breach.kind == self.expected.kind for breach in self.breaches)


@dataclass(frozen=True)
class ReplayTask:
    """One violation."""

    violation: Violation

    def work(self, bench: Bench) -> Iterator[Replayed]:
        yield replay(self.violation, bench.runner)


def replayed(violation: Violation) -> Replayed:
    """What comes of trying again, in a process of its own. `LabError` when it cannot be tried."""
    found: list[Replayed] = []
    with Crew(violation.spec, 1) as crew:
        crew.run([ReplayTask(violation)], found.append, lambda: None)
    return found[0]


# ── in the worker ──────────────────────────────────────────────────────────────────────────────────────────


def replay(violation: Violation, runner: Runner) -> Replayed:
    """Makes the image again and opens it; behind a kill or an error the workload is run again."""
    sighting = violation.sighting
    image, run = _made_again(violation, runner)
    judge = Judge(violation.spec, runner)
    digest, lay_out = tree.digest(image), partial(tree.write_tree, image)
    outcome = judge.of(digest, lay_out).outcome
    # A workload that is run again has made its own promises.
    history = sighting.history if run is None else run.history
    breaches = [
        *judge.breaches_of(digest, lay_out, history),
        *_breaches_beside(violation, judge, outcome),
        *([] if run is None else _breaches_of_the_run(sighting, run.outcome)),
    ]
    is_same = digest == tree.digest(sighting.image)
    return Replayed(is_same, tuple(breaches), sighting.breach, f"{outcome}")


def _made_again(violation: Violation, runner: Runner) -> tuple[tree.Tree, Run | None]:
    """The image, and the run that has made it, if it took one."""
    sighting, spec = violation.sighting, violation.spec
    if sighting.crashes:
        return _left_by(violation, len(sighting.crashes)), None
    if sighting.orders is None or sighting.layer == "cut":
        return sighting.image, None
    root = runner.root()
    run = runner.record(spec.workloads[sighting.workload], root, sighting.orders)
    return tree.read_tree(root, spec.ignored), run


def _left_by(violation: Violation, count: int) -> tree.Tree:
    """What so many of its crashes leave."""
    crashes, spec = violation.sighting.crashes[:count], violation.spec
    tapes = [list(tape.decode(one)) for one in violation.tapes[:count]]
    platter = rebuild.before(crashes, tapes, spec.profile, spec.ignored)
    survivors = crashes[-1].survivors
    return tree.seen_tree(platter if survivors is None else platter.after_cut(survivors))


def _breaches_of_the_run(sighting: Sighting, outcome: Outcome) -> Iterator[Breach]:
    """A fault must neither kill the workload nor keep it for ever; a kill does."""
    if sighting.layer == "errors" and isinstance(outcome, Died | Hung):
        yield Breach("HANG" if isinstance(outcome, Hung) else "SIGNAL", f"the workload {outcome}")


def _breaches_beside(violation: Violation, judge: Judge, outcome: Outcome) -> Iterator[Breach]:
    """What is wrong only beside what the store shows of another image."""
    sighting = violation.sighting
    if sighting.undamaged is not None:
        yield from _rotten(violation, _shown_of(sighting.undamaged, judge), outcome)
    elif len(sighting.crashes) > 1 and sighting.breach.kind == "DIFFERS" and trouble(outcome) is None:
        expected = _shown_of(_left_by(violation, _undisturbed(sighting)), judge)
        if expected != outcome:
            yield Breach("DIFFERS", f"a crash in the recovery: {difference(expected, outcome)}")


def _shown_of(image: tree.Tree, judge: Judge) -> Outcome:
    return judge.of(tree.digest(image), partial(tree.write_tree, image)).outcome


def _undisturbed(sighting: Sighting) -> int:
    """How many of the crashes it takes to what the store must show in the end, as if there were no more.

    That is the first power cut; a kill leaves more than a power cut may. Where the last crash is the only
    power cut, it is what the recovery in front of it had shown.
    """
    cuts = [number for number, crash in enumerate(sighting.crashes, 1) if crash.survivors is not None]
    return cuts[0] if cuts and cuts[0] < len(sighting.crashes) else len(sighting.crashes) - 1


def _rotten(violation: Violation, undamaged: Outcome, outcome: Outcome) -> Iterator[Breach]:
    if not isinstance(undamaged, Answered):
        yield Breach("REFUSED", f"without the damage it {undamaged}")
        return
    history = violation.sighting.history
    rule = violation.spec.rule(OpenSucceedsOrNamed) or OpenSucceedsOrNamed()
    found = verdict.judge(undamaged.answer, outcome, history, rule)
    if not found.is_good and not (found is Verdict.SILENT and _is_reported(undamaged, outcome)):
        first = None
        if isinstance(outcome, Answered):
            first = next(verdict.differences(undamaged.answer, outcome.answer, history), None)
        yield Breach(found.name, f"{first or outcome}")


def _is_reported(undamaged: Answered, outcome: Outcome) -> bool:
    assert isinstance(outcome, Answered)
    return bool(set(as_shown(outcome.answer).notes) - set(as_shown(undamaged.answer).notes))
