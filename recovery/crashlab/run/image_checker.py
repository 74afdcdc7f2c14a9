"""Recovers each distinct image once, and checks the result against every history that leads to it."""

from __future__ import annotations

import shutil
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from recovery.crashlab.judge.oracles import (
    Breach,
    ContinueAfterRecovery,
    FsckClean,
    Idempotent,
    added_by,
    key_text,
)
from recovery.crashlab.judge.outcome import Answered, Died, Hung, Outcome, observed_state_of
from recovery.crashlab.model.real_tree import write_tree
from recovery.crashlab.run.spec import Command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from recovery.crashlab.judge.occurrence import Occurrence
    from recovery.crashlab.judge.outcome import Key
    from recovery.crashlab.model.real_tree import Tree
    from recovery.crashlab.record.history import History
    from recovery.crashlab.run.runner import ProgramRun, Runner
    from recovery.crashlab.run.spec import Program, Spec


@dataclass(frozen=True, slots=True)
class RecoveryResult:
    """The result of recovering one image: the outcome, and the breaches that do not depend on the history."""

    outcome: Outcome
    breaches: tuple[Breach, ...] = ()
    continued: ProgramRun | None = None
    """The workload that ran after the recovery, if any, and the state of the store after it."""
    after_continuing: Outcome | None = None


def failure_of(outcome: Outcome) -> Breach | None:
    """Return the breach that this outcome is by itself; None if the recovery answered."""
    match outcome:
        case Answered():
            return None
        case Died():
            return Breach("SIGNAL", f"{outcome}")
        case Hung():
            return Breach("HANG", "the recovery did not end")
        case _:
            return Breach("REFUSED", f"{outcome}")


@dataclass(frozen=True, slots=True)
class CrashImage:
    """An image to check, the history before it, and how to report a breach."""

    image: str
    lay_out: Callable[[Path], object]
    history: History
    occurrence: Callable[[Breach], Occurrence]


class ProgramRunner(Protocol):
    """Runs runner: a `Runner` in a child for each, or an `InProcessRunner` many in one child."""

    def recover(self, program: Program, root: Path) -> Outcome: ...

    def work(self, program: Program, root: Path) -> ProgramRun: ...


class ImageChecker:
    """Checks images for one worker. It recovers each image once and remembers the result."""

    def __init__(self, spec: Spec, runner: Runner) -> None:
        self._spec = spec
        self._runner = runner
        self._known: dict[str, RecoveryResult] = {}
        self._shared: set[str] = set()  # images that were recovered in one child together with others
        self._batches = not any(isinstance(one, Command) for one in (spec.recover, *_programs(spec)))

    def check(self, cases: Sequence[CrashImage]) -> Iterator[Occurrence]:
        """Yield every breach of these images. Each shows also if its image is recovered alone."""
        self._recover_in_one_child({case.image: case.lay_out for case in cases})
        for case in cases:
            for breach in self.breaches_of(case.image, case.lay_out, case.history):
                yield case.occurrence(breach)

    def breaches_of(self, image: str, lay_out: Callable[[Path], object], history: History) -> list[Breach]:
        """Return everything that is wrong with an image after that history."""
        found = self._breaches(history, self.of(image, lay_out))
        if found and image in self._shared:
            # One child opened many stores, so confirm the breach in a process of its own.
            self._shared.discard(image)
            del self._known[image]
            found = self._breaches(history, self.of(image, lay_out))
        return found

    def of(self, image: str, lay_out: Callable[[Path], object]) -> RecoveryResult:
        """Return the result for an image; `lay_out` creates the image in an empty directory if it is new."""
        if image not in self._known:
            with self._laid_out(lay_out) as root:
                self._known[image] = self._check(self._runner, root, _sample_key(image))
        return self._known[image]

    def outcomes(self, images: Sequence[Tree]) -> list[Outcome]:
        """Return the outcome of recovering each of these images. They are not remembered."""
        if not self._batches:
            return [self.outcome_of(image) for image in images]
        with ExitStack() as stack:
            roots = [stack.enter_context(self._laid_out(partial(write_tree, image))) for image in images]
            answers = self._runner.batch([partial(self._recover, root) for root in roots])
        self._runner.recoveries += len(images)
        return [
            self.outcome_of(image) if outcome is None else outcome
            for image, outcome in zip(images, answers, strict=True)
        ]

    def outcome_of(self, image: Tree) -> Outcome:
        """Return the outcome of recovering one image in a process of its own."""
        with self._laid_out(partial(write_tree, image)) as root:
            return self._runner.recover(self._spec.recover, root)

    def _recover(self, root: Path, runner: ProgramRunner) -> Outcome:
        return runner.recover(self._spec.recover, root)

    def _breaches(self, history: History, result: RecoveryResult) -> list[Breach]:
        found = list(result.breaches)
        if isinstance(result.outcome, Answered):
            found += self._spec.breaches(history, result.outcome.answer)
            if result.continued is not None and isinstance(result.after_continuing, Answered):
                found += self._breaches_after_continuing(history, result.continued, result.after_continuing)
        return found

    def _breaches_after_continuing(
        self, history: History, continued: ProgramRun, after_continuing: Answered
    ) -> Iterator[Breach]:
        for breach in self._spec.breaches(history.then(continued.history), after_continuing.answer):
            yield Breach(breach.kind, f"{breach.what}, after working on")

    # ── many images ───────────────────────────────────────────────────────────────────────────────────

    def _recover_in_one_child(self, images: Mapping[str, Callable[[Path], object]]) -> None:
        new = {image: lay_out for image, lay_out in images.items() if image not in self._known}
        if not self._batches or len(new) < 2:
            return
        with ExitStack() as stack:
            jobs = [
                partial(
                    self._check_in_child, stack.enter_context(self._laid_out(lay_out)), _sample_key(image)
                )
                for image, lay_out in new.items()
            ]
            answers = self._runner.batch(jobs)
        self._runner.recoveries += len(new)
        for image, result in zip(new, answers, strict=True):
            if result is not None:
                self._known[image] = result
                self._shared.add(image)

    def _check_in_child(self, root: Path, sample_key: int, runner: ProgramRunner) -> RecoveryResult:
        return self._check(runner, root, sample_key)

    # ── one image ─────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def _laid_out(self, lay_out: Callable[[Path], object]) -> Iterator[Path]:
        root = self._runner.root()
        lay_out(root)
        try:
            yield root
        finally:
            shutil.rmtree(root, ignore_errors=True)

    def _check(self, runner: ProgramRunner, root: Path, sample_key: int) -> RecoveryResult:
        outcome = runner.recover(self._spec.recover, root)
        if breach := failure_of(outcome):
            return RecoveryResult(outcome, (breach,))
        breaches = (
            *self._recovered_again(runner, root, outcome, sample_key),
            *self._verified(runner, root, sample_key),
        )
        rule = self._spec.rule(ContinueAfterRecovery)
        if breaches or rule is None or sample_key % rule.every:
            return RecoveryResult(outcome, breaches)
        continued = runner.work(rule.go_on, root)
        if breach := failure_of(continued.outcome):
            return RecoveryResult(outcome, (Breach(breach.kind, f"{breach.what}, working on"),))
        after_continuing = runner.recover(self._spec.recover, root)
        if breach := failure_of(after_continuing):
            return RecoveryResult(outcome, (Breach(breach.kind, f"{breach.what}, after working on"),))
        return RecoveryResult(
            outcome,
            tuple(_lost_after_continuing(outcome, continued, after_continuing)),
            continued,
            after_continuing,
        )

    def _recovered_again(
        self, runner: ProgramRunner, root: Path, outcome: Outcome, sample_key: int
    ) -> Iterator[Breach]:
        rule = self._spec.rule(Idempotent)
        if rule is None or sample_key % rule.every:
            return
        for _ in range(rule.times):
            again = runner.recover(self._spec.recover, root)
            if again != outcome:
                yield failure_of(again) or Breach("DIFFERS", f"recovered again: {difference(outcome, again)}")
                return

    def _verified(self, runner: ProgramRunner, root: Path, sample_key: int) -> Iterator[Breach]:
        rule = self._spec.rule(FsckClean)
        if rule is None or sample_key % rule.every:
            return
        is_command = isinstance(rule.verify, Command)
        answer = runner.recover(rule.verify if is_command else partial(_lines, rule.verify), root)
        if breach := failure_of(answer):
            yield Breach(breach.kind, f"{breach.what}, verifying")
        elif isinstance(answer, Answered) and answer.answer:
            lines = [f"{line}" for line in answer.answer]  # type: ignore[attr-defined]
            yield Breach("UNSOUND", f"the store's own verifier says: {'; '.join(lines[:3])}")


def _sample_key(image: str) -> int:
    """Return a number from the image's digest, by which rules choose their share of the images."""
    return int(image[:8], 16)


def _programs(spec: Spec) -> Iterator[Program]:
    for kind, program in ((ContinueAfterRecovery, "go_on"), (FsckClean, "verify")):
        rule = spec.rule(kind)
        if rule is not None:
            yield getattr(rule, program)


def _lines(verify: Callable[..., Iterable[str]], root: Path) -> list[str]:
    """Return all lines of a verifier. It may be a generator, which cannot be sent to another process."""
    answer = verify(root) or ()
    return [answer] if isinstance(answer, str) else [f"{line}" for line in answer]


def _lost_after_continuing(
    first: Outcome, continued: ProgramRun, after_continuing: Outcome
) -> Iterator[Breach]:
    """Yield values that the recovery showed, that were not deleted since, and that are missing now."""
    assert isinstance(first, Answered)
    assert isinstance(after_continuing, Answered)
    before, after = (
        observed_state_of(first.answer).entries,
        observed_state_of(after_continuing.answer).entries,
    )
    added = {key for op in continued.history.of("add", "add_all") for key, _ in added_by(op)}
    deleted = [op.args for op in continued.history.of("delete")]

    def is_touched(key: Key) -> bool:
        return key in added or any(key[: len(args)] == args for args in deleted)

    for key, value in before.items():
        if after.get(key) != value and not is_touched(key):
            yield Breach("LOST", f"{key_text(key)}, which the recovery had shown, after working on")


def difference(first: Outcome, second: Outcome) -> str:
    """Describe the first difference of two outcomes for people."""
    if not (isinstance(first, Answered) and isinstance(second, Answered)):
        return f"{second}, where it {first}"
    before, after = observed_state_of(first.answer), observed_state_of(second.answer)
    for key in dict.fromkeys((*before.entries, *after.entries)):
        one, other = before.entries.get(key, "nothing"), after.entries.get(key, "nothing")
        if one != other:
            return f"{key_text(key)} is {other!r:.60}, and was {one!r:.60}"
    if before != after:
        return f"fenced {sorted(map(repr, before.fenced ^ after.fenced))}, confirmed {after.confirmed}"
    return f"{second.answer!r:.80}, and was {first.answer!r:.80}"
