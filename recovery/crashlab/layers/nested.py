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
from recovery.crashlab.judge import difference, trouble
from recovery.crashlab.layers.model import moments
from recovery.crashlab.layers.task import Counted, Covered, Crash, Sighting, shuffled
from recovery.crashlab.oracles import Breach, ReadStays
from recovery.crashlab.outcome import Answered
from recovery.crashlab.playback import Playback
from recovery.crashlab.preload import Orders

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recovery.crashlab.fates import Fate
    from recovery.crashlab.judge import Aftermath
    from recovery.crashlab.layers.model import Moment
    from recovery.crashlab.layers.task import Bench, Message, Recording, Share
    from recovery.crashlab.outcome import Outcome
    from recovery.crashlab.platter import Platter
    from recovery.crashlab.tape import Event

DEPTH_MAX = 4
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
        root = bench.runner.root()
        try:
            nodes = tree.lay_out(wreck.platter, root)
            run = bench.runner.record_recovery(bench.spec.recover, root, Orders())
        finally:
            shutil.rmtree(root, ignore_errors=True)
        yield Counted({"recoveries crashed": 1})
        wreck = replace(
            wreck,
            crashes=(*wreck.crashes[:-1], replace(wreck.crashes[-1], nodes=nodes)),
            tapes=(*wreck.tapes, tape.encode_all(run.events)),
        )
        if trouble(run.outcome) is not None:
            return  # found by the model layer, and by the kill layer, as it is
        playback = Playback(bench.spec.profile, bench.ignored, wreck.platter.copy(), nodes)
        for index, event in playback.moments(run.events):
            if self.share.is_over:
                return
            call = f"before {event} of the recovery" if event else "behind the recovery"
            yield from self._cut(bench, wreck, playback.platter, index, call, run.outcome, run.events, draw)

    def _cut(
        self,
        bench: Bench,
        wreck: _Wreck,
        platter: Platter,
        index: int,
        call: str,
        shown: Outcome,
        events: Sequence[Event],
        draw: Random,
    ) -> Iterator[Message]:
        pending = platter.pending()
        deeper: _Wreck | None = None
        images = set()
        fates: list[Fate] = [
            LoseAll(),
            KeepAll(),
            *(RandomFate(draw.getrandbits(48), Tearing.WHOLE) for _ in range(2)),
        ]
        for fate in fates:
            survivors = bench.spec.profile.legal(pending, fate.survivors(pending))
            after = platter.after_cut(survivors)
            image = after.image()
            if image in images:
                continue
            images.add(image)
            aftermath = bench.judge.of(image, partial(tree.lay_out, after))
            crashes = (*wreck.crashes, Crash(index, survivors))
            how = f"{wreck.how}; power cut {call}, {fate}"
            for breach in _breaches(bench, wreck, aftermath, shown, is_over=index >= len(events)):
                yield Sighting(
                    "nested",
                    wreck.moment.workload,
                    wreck.moment.number,
                    wreck.moment.call,
                    breach,
                    how,
                    tree.seen_tree(after),
                    wreck.moment.history,
                    crashes,
                    wreck.tapes,
                )
            expected = aftermath.outcome if wreck.expected is None else wreck.expected
            deeper = _Wreck(wreck.moment, after, expected, crashes, wreck.tapes, how)
        yield Counted({f"states of depth {wreck.depth + 1}": len(images)})
        yield Covered(frozenset(images))
        if deeper is not None and deeper.depth < DEPTH_MAX and draw.random() < 0.04:
            yield from self._nested(bench, deeper, draw)


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


def _breaches(
    bench: Bench, wreck: _Wreck, aftermath: Aftermath, shown: Outcome, *, is_over: bool
) -> Iterator[Breach]:
    yield from bench.judge.breaches(wreck.moment.history, aftermath)
    if not isinstance(aftermath.outcome, Answered):
        return
    if wreck.expected is not None and wreck.expected != aftermath.outcome:
        yield Breach("DIFFERS", f"a crash in the recovery: {difference(wreck.expected, aftermath.outcome)}")
    elif wreck.expected is None and is_over and _reads_stay(bench) and shown != aftermath.outcome:
        yield Breach("DIFFERS", f"what was read is gone: {difference(shown, aftermath.outcome)}")


def _reads_stay(bench: Bench) -> bool:
    return bench.spec.rule(ReadStays) is not None
