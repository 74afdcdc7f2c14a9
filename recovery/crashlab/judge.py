"""Recovers each distinct image once, and holds what comes out against every moment that led to it."""

from __future__ import annotations

import shutil
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from recovery.crashlab.oracles import (
    Breach,
    ContinueAfterRecovery,
    FsckClean,
    Idempotent,
)
from recovery.crashlab.outcome import Answered, Died, Hung, Outcome
from recovery.crashlab.possible import added_by, name
from recovery.crashlab.programs import Command
from recovery.crashlab.shown import as_shown
from recovery.crashlab.tree import write_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from recovery.crashlab.history import History
    from recovery.crashlab.layers.task import Sighting
    from recovery.crashlab.programs import Program
    from recovery.crashlab.running import Run, Runner
    from recovery.crashlab.shown import Key
    from recovery.crashlab.spec import Spec
    from recovery.crashlab.tree import Tree


@dataclass(frozen=True, slots=True)
class Aftermath:
    """What came out of one image: what it showed, and what is wrong whatever the history was."""

    outcome: Outcome
    breaches: tuple[Breach, ...] = ()
    went_on: Run | None = None
    """The work behind the recovery, if there was any, and what the store showed then."""
    later: Outcome | None = None


def trouble(outcome: Outcome) -> Breach | None:
    """Why this outcome is none for a state that a crash has left."""
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
class Case:
    """An image, what was promised before it, and what to say of a breach that it shows."""

    image: str
    lay_out: Callable[[Path], object]
    history: History
    sighting: Callable[[Breach], Sighting]


class Hands(Protocol):
    """Whoever runs programs: a runner, each in a child of its own, or a child that runs many."""

    def recover(self, program: Program, root: Path) -> Outcome: ...

    def work(self, program: Program, root: Path) -> Run: ...


class Judge:
    """For one worker; what it has seen it does not recover again."""

    def __init__(self, spec: Spec, runner: Runner) -> None:
        self._spec = spec
        self._runner = runner
        self._known: dict[str, Aftermath] = {}
        self._together: set[str] = set()  # images that were recovered in a child with others
        self._batches = not any(isinstance(one, Command) for one in (spec.recover, *_programs(spec)))

    def check(self, cases: Sequence[Case]) -> Iterator[Sighting]:
        """Every breach of these cases. None that shows only in the company of others."""
        self._recover_together({case.image: case.lay_out for case in cases})
        for case in cases:
            for breach in self.breaches_of(case.image, case.lay_out, case.history):
                yield case.sighting(breach)

    def breaches_of(self, image: str, lay_out: Callable[[Path], object], history: History) -> list[Breach]:
        """Everything that is wrong with an image behind that history."""
        found = self._breaches(history, self.of(image, lay_out))
        if found and image in self._together:
            # One child had many stores: only what shows in a process of its own is told.
            self._together.discard(image)
            del self._known[image]
            found = self._breaches(history, self.of(image, lay_out))
        return found

    def of(self, image: str, lay_out: Callable[[Path], object]) -> Aftermath:
        """The aftermath of an image; `lay_out` makes it in an empty directory where it is not known yet."""
        if image not in self._known:
            with self._laid_out(lay_out) as root:
                self._known[image] = self._aftermath(self._runner, root, _draw(image))
        return self._known[image]

    def outcomes(self, images: Sequence[Tree]) -> list[Outcome]:
        """What each of these shows, and nothing more asked; they are not remembered."""
        if not self._batches:
            return [self.outcome_of(image) for image in images]
        with ExitStack() as stack:
            roots = [stack.enter_context(self._laid_out(partial(write_tree, image))) for image in images]
            answers = self._runner.batch([partial(self._shown, root) for root in roots])
        self._runner.recoveries += len(images)
        return [
            self.outcome_of(image) if outcome is None else outcome
            for image, outcome in zip(images, answers, strict=True)
        ]

    def outcome_of(self, image: Tree) -> Outcome:
        """The same of one, in a process of its own."""
        with self._laid_out(partial(write_tree, image)) as root:
            return self._runner.recover(self._spec.recover, root)

    def _shown(self, root: Path, hands: Hands) -> Outcome:
        return hands.recover(self._spec.recover, root)

    def _breaches(self, history: History, aftermath: Aftermath) -> list[Breach]:
        found = list(aftermath.breaches)
        if isinstance(aftermath.outcome, Answered):
            found += self._spec.breaches(history, aftermath.outcome.answer)
            if aftermath.went_on is not None and isinstance(aftermath.later, Answered):
                found += self._later(history, aftermath.went_on, aftermath.later)
        return found

    def _later(self, history: History, went_on: Run, later: Answered) -> Iterator[Breach]:
        for breach in self._spec.breaches(history.then(went_on.history), later.answer):
            yield Breach(breach.kind, f"{breach.what}, after working on")

    # ── many images ───────────────────────────────────────────────────────────────────────────────────

    def _recover_together(self, images: Mapping[str, Callable[[Path], object]]) -> None:
        new = {image: lay_out for image, lay_out in images.items() if image not in self._known}
        if not self._batches or len(new) < 2:
            return
        with ExitStack() as stack:
            jobs = [
                partial(self._job, stack.enter_context(self._laid_out(lay_out)), _draw(image))
                for image, lay_out in new.items()
            ]
            answers = self._runner.batch(jobs)
        self._runner.recoveries += len(new)
        for image, aftermath in zip(new, answers, strict=True):
            if aftermath is not None:
                self._known[image] = aftermath
                self._together.add(image)

    def _job(self, root: Path, draw: int, hands: Hands) -> Aftermath:
        return self._aftermath(hands, root, draw)

    # ── one image ─────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def _laid_out(self, lay_out: Callable[[Path], object]) -> Iterator[Path]:
        root = self._runner.root()
        lay_out(root)
        try:
            yield root
        finally:
            shutil.rmtree(root, ignore_errors=True)

    def _aftermath(self, hands: Hands, root: Path, draw: int) -> Aftermath:
        outcome = hands.recover(self._spec.recover, root)
        if wrong := trouble(outcome):
            return Aftermath(outcome, (wrong,))
        breaches = (*self._again(hands, root, outcome, draw), *self._checked(hands, root, draw))
        rule = self._spec.rule(ContinueAfterRecovery)
        if breaches or rule is None or draw % rule.every:
            return Aftermath(outcome, breaches)
        went_on = hands.work(rule.go_on, root)
        if wrong := trouble(went_on.outcome):
            return Aftermath(outcome, (Breach(wrong.kind, f"{wrong.what}, working on"),))
        later = hands.recover(self._spec.recover, root)
        if wrong := trouble(later):
            return Aftermath(outcome, (Breach(wrong.kind, f"{wrong.what}, after working on"),))
        return Aftermath(outcome, tuple(_gone(outcome, went_on, later)), went_on, later)

    def _again(self, hands: Hands, root: Path, outcome: Outcome, draw: int) -> Iterator[Breach]:
        rule = self._spec.rule(Idempotent)
        if rule is None or draw % rule.every:
            return
        for _ in range(rule.times):
            again = hands.recover(self._spec.recover, root)
            if again != outcome:
                yield trouble(again) or Breach("DIFFERS", f"recovered again: {difference(outcome, again)}")
                return

    def _checked(self, hands: Hands, root: Path, draw: int) -> Iterator[Breach]:
        rule = self._spec.rule(FsckClean)
        if rule is None or draw % rule.every:
            return
        is_command = isinstance(rule.verify, Command)
        said = hands.recover(rule.verify if is_command else partial(_lines, rule.verify), root)
        if wrong := trouble(said):
            yield Breach(wrong.kind, f"{wrong.what}, verifying")
        elif isinstance(said, Answered) and said.answer:
            lines = [f"{line}" for line in said.answer]  # type: ignore[attr-defined]
            yield Breach("UNSOUND", f"the store's own verifier says: {'; '.join(lines[:3])}")


def _draw(image: str) -> int:
    """A number by which rules choose their share of the images."""
    return int(image[:8], 16)


def _programs(spec: Spec) -> Iterator[Program]:
    for kind, program in ((ContinueAfterRecovery, "go_on"), (FsckClean, "verify")):
        rule = spec.rule(kind)
        if rule is not None:
            yield getattr(rule, program)


def _lines(verify: Callable[..., Iterable[str]], root: Path) -> list[str]:
    """What a verifier says, all of it; it may be a generator, which lives in its process alone."""
    said = verify(root) or ()
    return [said] if isinstance(said, str) else [f"{line}" for line in said]


def _gone(first: Outcome, went_on: Run, later: Outcome) -> Iterator[Breach]:
    """What a reader was shown, and nobody has deleted since, must still be shown."""
    assert isinstance(first, Answered)
    assert isinstance(later, Answered)
    before, after = as_shown(first.answer).entries, as_shown(later.answer).entries
    added = {key for op in went_on.history.of("add", "add_all") for key, _ in added_by(op)}
    deleted = [op.args for op in went_on.history.of("delete")]

    def is_touched(key: Key) -> bool:
        return key in added or any(key[: len(args)] == args for args in deleted)

    for key, value in before.items():
        if after.get(key) != value and not is_touched(key):
            yield Breach("LOST", f"{name(key)}, which the recovery had shown, after working on")


def difference(first: Outcome, second: Outcome) -> str:
    """Where two outcomes part, for people."""
    if not (isinstance(first, Answered) and isinstance(second, Answered)):
        return f"{second}, where it {first}"
    before, after = as_shown(first.answer), as_shown(second.answer)
    for key in dict.fromkeys((*before.entries, *after.entries)):
        one, other = before.entries.get(key, "nothing"), after.entries.get(key, "nothing")
        if one != other:
            return f"{name(key)} is {other!r:.60}, and was {one!r:.60}"
    if before != after:
        return f"fenced {sorted(map(repr, before.fenced ^ after.fenced))}, confirmed {after.confirmed}"
    return f"{second.answer!r:.80}, and was {first.answer!r:.80}"
