"""The nested layer: crashes during a recovery, and during the recovery after that.

There are two beginnings: a power cut, whose recovery is recorded and cut again, and a kill, after which
everything written is still pending when the power fails during the recovery or right after it. Nothing new is
acknowledged meanwhile, so the store must finally show what it would have shown without the second crash.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from recovery.crashlab.judge.occurrence import Occurrence
from recovery.crashlab.judge.oracles import Breach, ReadStays
from recovery.crashlab.judge.outcome import Answered
from recovery.crashlab.layers.model import moments
from recovery.crashlab.model import real_tree
from recovery.crashlab.model.fates import KeepAll, LoseAll, RandomFate, Tearing
from recovery.crashlab.record import tape
from recovery.crashlab.record.crash import Crash
from recovery.crashlab.record.playback import Playback
from recovery.crashlab.record.preload import Orders
from recovery.crashlab.run.image_checker import CrashImage, difference, failure_of
from recovery.crashlab.run.task import CountsReport, ImagesReport, NotCovered, batches, shuffled

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from recovery.crashlab.judge.outcome import Outcome
    from recovery.crashlab.layers.model import Moment
    from recovery.crashlab.model.fates import Fate
    from recovery.crashlab.model.platter import Platter
    from recovery.crashlab.record.recording import Recording
    from recovery.crashlab.run.runner import ProgramRun
    from recovery.crashlab.run.task import Message, WorkerContext, WorkShare

DEPTH_MAX = 4
DEEPER = 0.3
"""The share of recoveries for which one more cut is recovered and crashed again."""
ROUNDS = 1
"""Without a budget."""


@dataclass(frozen=True)
class _CrashedStore:
    """The state that crashes have left so far: the platter after the last one, and how it came to that."""

    moment: Moment
    platter: Platter
    expected: Outcome | None
    """The expected outcome of its recovery; None after a kill, which may leave more than a power cut."""
    crashes: tuple[Crash, ...]
    tapes: tuple[bytes, ...]
    how: str

    @property
    def depth(self) -> int:
        return len(self.crashes)

    def is_broken(self, context: WorkerContext) -> bool:
        """Return whether a promise is broken already, before its recovery is crashed."""
        lay_out = partial(real_tree.lay_out, self.platter)
        return bool(context.checker.breaches_of(self.platter.image(), lay_out, self.moment.history))


@dataclass(frozen=True)
class NestedTask:
    """Recoveries after moments of all workloads, in an order that depends on the seed."""

    recordings: tuple[Recording, ...]
    share: WorkShare

    def work(self, context: WorkerContext) -> Iterator[Message]:
        found = [
            (moment, tape.encode_all(events))
            for recording in self.recordings
            for events in [recording.events()]
            for moment in moments(recording, events, context.spec.profile, context.ignored)
        ]
        for number in count() if self.share.until is not None else range(ROUNDS):
            drawn = shuffled(found, context.spec.seed, "nested", number)
            for place, (moment, recorded) in enumerate(drawn):
                if self.share.is_over:
                    return
                if self.share.has(place):
                    draw = Random(f"nested {context.spec.seed} {moment.workload} {moment.index} {number}")
                    yield from self._nested(context, _first(context, moment, recorded, draw, number), draw)

    def _nested(self, context: WorkerContext, crashed: _CrashedStore, draw: Random) -> Iterator[Message]:
        """Record a recovery of the crashed store, and cut it before each of its syncs and at its end."""
        if crashed.is_broken(context):
            yield CountsReport({"broken by the first crash alone": 1})
            return  # the model layer or the kill layer finds and minimises it
        root = context.runner.root()
        try:
            nodes = real_tree.lay_out(crashed.platter, root)
            run = context.runner.record_recovery(context.spec.recover, root, Orders())
            unseen = _unseen(context, crashed, run, nodes, root)
        finally:
            shutil.rmtree(root, ignore_errors=True)
        yield CountsReport({"recoveries crashed": 1})
        for path, why in unseen.items():
            yield NotCovered(f"not covered: a recovery: {path}: {why}")
        crashed = replace(
            crashed,
            crashes=(*crashed.crashes[:-1], replace(crashed.crashes[-1], nodes=nodes)),
            tapes=(*crashed.tapes, tape.encode_all(run.events)),
        )
        if failure_of(run.outcome) is not None:
            return  # the model layer and the kill layer find it too
        found = list(self._cuts(context, crashed, run, nodes, draw))
        for group in batches(found):
            yield from context.checker.check([one.case(crashed.moment) for one in group])
        for one in found:
            yield from one.differences(context, crashed, run)
        yield CountsReport({f"states of depth {crashed.depth + 1}": len(found)})
        yield ImagesReport(frozenset(one.platter.image() for one in found))
        if found and crashed.depth + 1 < DEPTH_MAX and draw.random() < DEEPER:
            deepest = draw.choice(found)
            yield from self._nested(context, deepest.crashed(context, crashed), draw)

    def _cuts(
        self,
        context: WorkerContext,
        crashed: _CrashedStore,
        run: ProgramRun,
        nodes: Mapping[int, int],
        draw: Random,
    ) -> Iterator[_Cut]:
        playback = Playback(context.spec.profile, context.ignored, crashed.platter.copy(), nodes)
        images = set()
        for index, event in playback.moments(run.events):
            if self.share.is_over:
                return
            call = f"before {event} of the recovery" if event else "after the recovery"
            pending = playback.platter.pending()
            some = (RandomFate(draw.getrandbits(48), Tearing.WHOLE) for _ in range(2))
            fates: list[Fate] = [LoseAll(), KeepAll(), *some]
            for fate in fates:
                survivors = context.spec.profile.legal(pending, fate.survivors(pending))
                after = playback.platter.after_cut(survivors)
                # After the end of the recovery, an image must pass more checks than in the middle.
                if (after.image(), event is None) not in images:
                    images.add((after.image(), event is None))
                    crashes = (*crashed.crashes, Crash(index, survivors))
                    how = f"{crashed.how}; power cut {call}, {fate}"
                    yield _Cut(after, crashes, crashed.tapes, how, is_over=event is None)


@dataclass(frozen=True)
class _Cut:
    """The state that a power cut during a recovery, or right after it, has left."""

    platter: Platter
    crashes: tuple[Crash, ...]
    tapes: tuple[bytes, ...]
    how: str
    is_over: bool
    """Whether the recovery had answered."""

    def case(self, moment: Moment) -> CrashImage:
        lay_out = partial(real_tree.lay_out, self.platter)
        return CrashImage(self.platter.image(), lay_out, moment.history, partial(self._occurrence, moment))

    def differences(
        self, context: WorkerContext, crashed: _CrashedStore, run: ProgramRun
    ) -> Iterator[Occurrence]:
        """Yield an occurrence if the store shows something else than before, or than without this crash."""
        outcome = self.outcome(context)
        if not isinstance(outcome, Answered):
            return
        if crashed.expected is not None and crashed.expected != outcome:
            what = f"a crash in the recovery: {difference(crashed.expected, outcome)}"
            yield self._occurrence(crashed.moment, Breach("DIFFERS", what))
        elif crashed.expected is None and self.is_over and _reads_stay(context) and run.outcome != outcome:
            what = f"what was read is gone: {difference(run.outcome, outcome)}"
            yield self._occurrence(crashed.moment, Breach("DIFFERS", what))

    def outcome(self, context: WorkerContext) -> Outcome:
        return context.checker.of(self.platter.image(), partial(real_tree.lay_out, self.platter)).outcome

    def crashed(self, context: WorkerContext, before: _CrashedStore) -> _CrashedStore:
        """Return this state, to be recovered and crashed again."""
        expected = self.outcome(context) if before.expected is None else before.expected
        return _CrashedStore(before.moment, self.platter, expected, self.crashes, self.tapes, self.how)

    def _occurrence(self, moment: Moment, breach: Breach) -> Occurrence:
        image = real_tree.visible_tree(self.platter)
        return Occurrence(
            "nested",
            moment.workload,
            moment.number,
            moment.call,
            breach,
            self.how,
            image,
            moment.history,
            self.crashes,
            self.tapes,
        )


def _unseen(
    context: WorkerContext, crashed: _CrashedStore, run: ProgramRun, nodes: Mapping[int, int], root: Path
) -> dict[str, str]:
    """Return changes of a recovery that the recorder has not seen."""
    playback = Playback(context.spec.profile, context.ignored, crashed.platter.copy(), nodes)
    playback.play_all(run.events)
    return real_tree.differences(playback.platter, root, context.ignored) | playback.uncovered


def _first(
    context: WorkerContext, moment: Moment, recorded: bytes, draw: Random, number: int
) -> _CrashedStore:
    """Return the state after a power cut or a kill at a moment of a workload."""
    if draw.random() < 0.35:
        crash = Crash(moment.index, None)
        return _CrashedStore(
            moment, moment.platter.copy(), None, (crash,), (recorded,), f"kill {moment.call}"
        )
    pending = moment.platter.pending()
    fates: list[Fate] = [LoseAll(), RandomFate(draw.getrandbits(48), Tearing.WHOLE)]
    fate = fates[min(number, 1)]
    survivors = context.spec.profile.legal(pending, fate.survivors(pending))
    after = moment.platter.after_cut(survivors)
    expected = context.checker.of(after.image(), partial(real_tree.lay_out, after)).outcome
    crash = Crash(moment.index, survivors)
    return _CrashedStore(moment, after, expected, (crash,), (recorded,), f"power cut {moment.call}, {fate}")


def _reads_stay(context: WorkerContext) -> bool:
    return context.spec.rule(ReadStays) is not None
