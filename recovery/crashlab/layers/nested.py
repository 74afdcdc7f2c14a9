"""The nested layer: crashes inside a recovery, and inside the recovery of that one.

Two beginnings: a power cut, whose recovery is recorded and cut again, and a kill, behind which everything
that was written still waits in memory when the power goes during the recovery or right after it. Nobody was
answered meanwhile, so the store must show in the end what it would have shown without the second crash.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from recovery.crashlab import tape, tree
from recovery.crashlab.fates import KeepAll, LoseAll, RandomFate, Tearing
from recovery.crashlab.judge import Case, difference, trouble
from recovery.crashlab.layers.model import moments
from recovery.crashlab.layers.task import Counted, Covered, Crash, NotCovered, Sighting, grouped, shuffled
from recovery.crashlab.oracles import Breach, ReadStays
from recovery.crashlab.outcome import Answered
from recovery.crashlab.playback import Playback
from recovery.crashlab.preload import Orders

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from recovery.crashlab.fates import Fate
    from recovery.crashlab.layers.model import Moment
    from recovery.crashlab.layers.task import Bench, Message, Recording, Share
    from recovery.crashlab.outcome import Outcome
    from recovery.crashlab.platter import Platter
    from recovery.crashlab.running import Run

DEPTH_MAX = 4
DEEPER = 0.3
"""Of so many recoveries one cut more is recovered and crashed again."""
ROUNDS = 1
"""Without a budget."""


@dataclass(frozen=True)
class _Wreck:
    """What crashes have left so far: the platter behind the last one, and how it came to that."""

    moment: Moment
    platter: Platter
    expected: Outcome | None
    """What the store shows of it; None where a kill left more than a power cut may leave."""
    crashes: tuple[Crash, ...]
    tapes: tuple[bytes, ...]
    how: str

    @property
    def depth(self) -> int:
        return len(self.crashes)

    def is_broken(self, bench: Bench) -> bool:
        """Whether something is wrong already, before the recovery of it is crashed."""
        lay_out = partial(tree.lay_out, self.platter)
        return bool(bench.judge.breaches_of(self.platter.image(), lay_out, self.moment.history))


@dataclass(frozen=True)
class NestedTask:
    """Recoveries behind moments of all workloads, in an order that the seed decides."""

    recordings: tuple[Recording, ...]
    share: Share

    def work(self, bench: Bench) -> Iterator[Message]:
        found = [
            (moment, tape.encode_all(events))
            for recording in self.recordings
            for events in [recording.events()]
            for moment in moments(recording, events, bench.spec.profile, bench.ignored)
        ]
        for number in count() if self.share.until is not None else range(ROUNDS):
            drawn = shuffled(found, bench.spec.seed, "nested", number)
            for place, (moment, recorded) in enumerate(drawn):
                if self.share.is_over:
                    return
                if self.share.has(place):
                    draw = Random(f"nested {bench.spec.seed} {moment.workload} {moment.index} {number}")
                    yield from self._nested(bench, _first(bench, moment, recorded, draw, number), draw)

    def _nested(self, bench: Bench, wreck: _Wreck, draw: Random) -> Iterator[Message]:
        """A recovery of the wreck is recorded, and cut before each of its syncs and at its end."""
        if wreck.is_broken(bench):
            yield Counted({"broken by the first crash alone": 1})
            return  # found by the model layer, or by the kill layer, and made smaller there
        root = bench.runner.root()
        try:
            nodes = tree.lay_out(wreck.platter, root)
            run = bench.runner.record_recovery(bench.spec.recover, root, Orders())
            unseen = _unseen(bench, wreck, run, nodes, root)
        finally:
            shutil.rmtree(root, ignore_errors=True)
        yield Counted({"recoveries crashed": 1})
        for path, why in unseen.items():
            yield NotCovered(f"not covered: a recovery: {path}: {why}")
        wreck = replace(
            wreck,
            crashes=(*wreck.crashes[:-1], replace(wreck.crashes[-1], nodes=nodes)),
            tapes=(*wreck.tapes, tape.encode_all(run.events)),
        )
        if trouble(run.outcome) is not None:
            return  # found by the model layer, and by the kill layer, as it is
        found = list(self._cuts(bench, wreck, run, nodes, draw))
        for group in grouped(found):
            yield from bench.judge.check([one.case(wreck.moment) for one in group])
        for one in found:
            yield from one.differing(bench, wreck, run)
        yield Counted({f"states of depth {wreck.depth + 1}": len(found)})
        yield Covered(frozenset(one.platter.image() for one in found))
        if found and wreck.depth + 1 < DEPTH_MAX and draw.random() < DEEPER:
            deepest = draw.choice(found)
            yield from self._nested(bench, deepest.wreck(bench, wreck), draw)

    def _cuts(
        self, bench: Bench, wreck: _Wreck, run: Run, nodes: Mapping[int, int], draw: Random
    ) -> Iterator[_Cut]:
        playback = Playback(bench.spec.profile, bench.ignored, wreck.platter.copy(), nodes)
        images = set()
        for index, event in playback.moments(run.events):
            if self.share.is_over:
                return
            call = f"before {event} of the recovery" if event else "behind the recovery"
            pending = playback.platter.pending()
            some = (RandomFate(draw.getrandbits(48), Tearing.WHOLE) for _ in range(2))
            fates: list[Fate] = [LoseAll(), KeepAll(), *some]
            for fate in fates:
                survivors = bench.spec.profile.legal(pending, fate.survivors(pending))
                after = playback.platter.after_cut(survivors)
                # Behind the end the same image is held against more than in the middle.
                if (after.image(), event is None) not in images:
                    images.add((after.image(), event is None))
                    crashes = (*wreck.crashes, Crash(index, survivors))
                    how = f"{wreck.how}; power cut {call}, {fate}"
                    yield _Cut(after, crashes, wreck.tapes, how, is_over=event is None)


@dataclass(frozen=True)
class _Cut:
    """What a power cut inside a recovery, or right behind it, has left."""

    platter: Platter
    crashes: tuple[Crash, ...]
    tapes: tuple[bytes, ...]
    how: str
    is_over: bool
    """Whether the recovery had answered."""

    def case(self, moment: Moment) -> Case:
        lay_out = partial(tree.lay_out, self.platter)
        return Case(self.platter.image(), lay_out, moment.history, partial(self._sighting, moment))

    def differing(self, bench: Bench, wreck: _Wreck, run: Run) -> Iterator[Sighting]:
        """Where the store shows something else than it did, or would have, without this crash."""
        outcome = self.outcome(bench)
        if not isinstance(outcome, Answered):
            return
        if wreck.expected is not None and wreck.expected != outcome:
            what = f"a crash in the recovery: {difference(wreck.expected, outcome)}"
            yield self._sighting(wreck.moment, Breach("DIFFERS", what))
        elif wreck.expected is None and self.is_over and _reads_stay(bench) and run.outcome != outcome:
            what = f"what was read is gone: {difference(run.outcome, outcome)}"
            yield self._sighting(wreck.moment, Breach("DIFFERS", what))

    def outcome(self, bench: Bench) -> Outcome:
        return bench.judge.of(self.platter.image(), partial(tree.lay_out, self.platter)).outcome

    def wreck(self, bench: Bench, before: _Wreck) -> _Wreck:
        """This one, to be recovered and crashed again."""
        expected = self.outcome(bench) if before.expected is None else before.expected
        return _Wreck(before.moment, self.platter, expected, self.crashes, self.tapes, self.how)

    def _sighting(self, moment: Moment, breach: Breach) -> Sighting:
        image = tree.seen_tree(self.platter)
        return Sighting(
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


def _unseen(bench: Bench, wreck: _Wreck, run: Run, nodes: Mapping[int, int], root: Path) -> dict[str, str]:
    """What the recorder has not seen of a recovery."""
    playback = Playback(bench.spec.profile, bench.ignored, wreck.platter.copy(), nodes)
    playback.play_all(run.events)
    return tree.differences(playback.platter, root, bench.ignored) | playback.uncovered


def _first(bench: Bench, moment: Moment, recorded: bytes, draw: Random, number: int) -> _Wreck:
    """A power cut or a kill at a moment of a workload."""
    if draw.random() < 0.35:
        crash = Crash(moment.index, None)
        return _Wreck(moment, moment.platter.copy(), None, (crash,), (recorded,), f"kill {moment.call}")
    pending = moment.platter.pending()
    fates: list[Fate] = [LoseAll(), RandomFate(draw.getrandbits(48), Tearing.WHOLE)]
    fate = fates[min(number, 1)]
    survivors = bench.spec.profile.legal(pending, fate.survivors(pending))
    after = moment.platter.after_cut(survivors)
    expected = bench.judge.of(after.image(), partial(tree.lay_out, after)).outcome
    crash = Crash(moment.index, survivors)
    return _Wreck(moment, after, expected, (crash,), (recorded,), f"power cut {moment.call}, {fate}")


def _reads_stay(bench: Bench) -> bool:
    return bench.spec.rule(ReadStays) is not None
