"""The model layer: every state that a power cut may leave behind a tape, recovered and asked.

States are taken before each sync and at the end: whatever an earlier cut can leave, the one before the next
sync can leave too, with more acknowledged. Each distinct image is recovered once and held against every
moment that it belongs to.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from recovery.crashlab import tree
from recovery.crashlab.corners import corner_fates, exhaustive_fates
from recovery.crashlab.fates import RandomFate, Tearing
from recovery.crashlab.judge import Case
from recovery.crashlab.layers.task import (
    Counted,
    Covered,
    Crash,
    Sighting,
    grouped,
    histories,
    shuffled,
)
from recovery.crashlab.playback import Playback

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recovery.crashlab.fates import Fate
    from recovery.crashlab.history import History
    from recovery.crashlab.layers.task import Bench, Message, Recording, Share
    from recovery.crashlab.oracles import Breach
    from recovery.crashlab.pending import Pending, Survivors
    from recovery.crashlab.platter import Platter
    from recovery.crashlab.playback import Ignored
    from recovery.crashlab.profile import Profile
    from recovery.crashlab.tape import Event

EXHAUSTIVE_UP_TO = 6
"""Units; with more of them not every subset is tried."""
RANDOM_FATES = 12
"""Of each moment, in each round behind the first."""
ROUNDS = 2
"""Without a budget."""


@dataclass(frozen=True)
class Moment:
    """A platter as it was before an event, with all that waits, and what was promised by then."""

    workload: str
    index: int
    number: int
    call: str
    platter: Platter
    history: History


def moments(
    recording: Recording, events: Sequence[Event], profile: Profile, ignored: Ignored
) -> list[Moment]:
    """Every moment of a tape at which a cut is worth trying."""
    playback = Playback(profile, ignored)
    stops = [(index, event, playback.platter.copy()) for index, event in playback.moments(events)]
    promised = histories(events, (index for index, _, _ in stops))
    return [
        Moment(
            recording.name,
            index,
            event.number if event else 0,
            f"before {event}" if event else "at the end",
            platter,
            promised[index],
        )
        for index, event, platter in stops
    ]


@dataclass(frozen=True)
class ModelTask:
    """All workloads: first the corner fates of each moment, then random ones as long as there is time."""

    recordings: tuple[Recording, ...]
    share: Share
    rounds: int = ROUNDS

    def work(self, bench: Bench) -> Iterator[Message]:
        found = [
            moment
            for recording in self.recordings
            for moment in moments(recording, recording.events(), bench.spec.profile, bench.ignored)
        ]
        if self.share.index == 0:
            yield Counted({"crash points": len(found)})
        tally: Counter[str] = Counter()
        for number in count() if self.share.until is not None else range(self.rounds):
            drawn = shuffled(found, bench.spec.seed, number)
            for group in grouped(self._cases(bench, drawn, number, tally)):
                yield from bench.judge.check(group)
                yield Covered(frozenset(case.image for case in group))
                yield Counted(dict(tally))
                tally.clear()
            yield Counted(dict(tally))
            tally.clear()
            if self.share.is_over:
                return

    def _cases(
        self, bench: Bench, drawn: Sequence[Moment], number: int, tally: Counter[str]
    ) -> Iterator[Case]:
        """This worker's states of these moments, each image of a moment once."""
        for moment in drawn:
            pending = moment.platter.pending()
            fates = first_fates(pending) if number == 0 else random_fates(bench.spec.seed, moment, number)
            if self.share.index == 0 and number == 0 and len(pending.units) <= EXHAUSTIVE_UP_TO:
                tally["exhausted crash points"] += 1
            seen = set()
            for fate in fates:
                if self.share.is_over:
                    return
                survivors = bench.spec.profile.legal(pending, fate.survivors(pending))
                after = moment.platter.after_cut(survivors)
                image = after.image()
                tally["raw states"] += self.share.has_image(image)
                if self.share.has_image(image) and image not in seen:
                    seen.add(image)
                    yield _case(moment, fate, survivors, after, image)


def _case(moment: Moment, fate: Fate, survivors: Survivors, after: Platter, image: str) -> Case:
    def sighting(breach: Breach) -> Sighting:
        return Sighting(
            "model",
            moment.workload,
            moment.number,
            moment.call,
            breach,
            f"power cut, {getattr(fate, 'label', fate)}",
            tree.seen_tree(after),
            moment.history,
            (Crash(moment.index, survivors),),
        )

    return Case(image, partial(tree.lay_out, after), moment.history, sighting)


def first_fates(pending: Pending) -> Iterator[Fate]:
    """The corners, and every subset of few units."""
    yield from corner_fates(pending)
    if len(pending.units) <= EXHAUSTIVE_UP_TO:
        yield from exhaustive_fates(pending)


def random_fates(seed: int, moment: Moment, number: int) -> Iterator[Fate]:
    """Some more of a moment, others in each round."""
    draw = Random(f"{seed} {moment.workload} {moment.index} {number}")
    for _ in range(RANDOM_FATES):
        yield RandomFate(draw.getrandbits(48), Tearing.WHOLE)
