"""The model layer: recovers every state that a power cut may leave, and checks it.

States are taken before each sync and at the end, because what a cut between two syncs can leave, a cut just
before the second can leave too, with more acknowledged. Each distinct image is recovered once, and checked
against every moment that leads to it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from recovery.crashlab.judge.occurrence import Occurrence
from recovery.crashlab.model import real_tree
from recovery.crashlab.model.edge_case_fates import edge_case_fates, exhaustive_fates
from recovery.crashlab.model.fates import RandomFate, Tearing
from recovery.crashlab.record.crash import Crash
from recovery.crashlab.record.playback import Playback
from recovery.crashlab.record.recording import histories
from recovery.crashlab.run.image_checker import CrashImage
from recovery.crashlab.run.task import CountsReport, ImagesReport, batches, shuffled

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recovery.crashlab.judge.oracles import Breach
    from recovery.crashlab.model.fates import Fate
    from recovery.crashlab.model.pending import PendingUnits, Survivors
    from recovery.crashlab.model.platter import Platter
    from recovery.crashlab.model.profile import Profile
    from recovery.crashlab.model.real_tree import IgnoredPaths
    from recovery.crashlab.record.history import History
    from recovery.crashlab.record.recording import Recording
    from recovery.crashlab.record.tape import Event
    from recovery.crashlab.run.task import Message, WorkerContext, WorkShare

EXHAUSTIVE_UP_TO = 6
"""The number of units up to which every subset is tried."""
RANDOM_FATES = 12
"""For each moment, in each round after the first."""
ROUNDS = 2
"""Without a budget."""


@dataclass(frozen=True)
class Moment:
    """The platter before an event, with everything pending, and the history up to it."""

    workload: str
    index: int
    number: int
    call: str
    platter: Platter
    history: History


def moments(
    recording: Recording, events: Sequence[Event], profile: Profile, ignored: IgnoredPaths
) -> list[Moment]:
    """Return every moment of a tape at which a power cut is worth trying."""
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
    """All workloads: first the edge cases of each moment, then random fates as long as there is time."""

    recordings: tuple[Recording, ...]
    share: WorkShare
    rounds: int = ROUNDS

    def work(self, context: WorkerContext) -> Iterator[Message]:
        found = [
            moment
            for recording in self.recordings
            for moment in moments(recording, recording.events(), context.spec.profile, context.ignored)
        ]
        if self.share.index == 0:
            yield CountsReport({"crash points": len(found)})
        tally: Counter[str] = Counter()
        for number in count() if self.share.until is not None else range(self.rounds):
            drawn = shuffled(found, context.spec.seed, number)
            for group in batches(self._cases(context, drawn, number, tally)):
                yield from context.checker.check(group)
                yield ImagesReport(frozenset(case.image for case in group))
                yield CountsReport(dict(tally))
                tally.clear()
            yield CountsReport(dict(tally))
            tally.clear()
            if self.share.is_over:
                return

    def _cases(
        self, context: WorkerContext, drawn: Sequence[Moment], number: int, tally: Counter[str]
    ) -> Iterator[CrashImage]:
        """Yield this worker's states of these moments, each image of a moment once."""
        for moment in drawn:
            pending = moment.platter.pending()
            fates = first_fates(pending) if number == 0 else random_fates(context.spec.seed, moment, number)
            if self.share.index == 0 and number == 0 and len(pending.units) <= EXHAUSTIVE_UP_TO:
                tally["exhausted crash points"] += 1
            seen = set()
            for fate in fates:
                if self.share.is_over:
                    return
                survivors = context.spec.profile.legal(pending, fate.survivors(pending))
                after = moment.platter.after_cut(survivors)
                image = after.image()
                tally["raw states"] += self.share.has_image(image)
                if self.share.has_image(image) and image not in seen:
                    seen.add(image)
                    yield _case(moment, fate, survivors, after, image)


def _case(moment: Moment, fate: Fate, survivors: Survivors, after: Platter, image: str) -> CrashImage:
    def occurrence(breach: Breach) -> Occurrence:
        return Occurrence(
            "model",
            moment.workload,
            moment.number,
            moment.call,
            breach,
            f"power cut, {getattr(fate, 'label', fate)}",
            real_tree.visible_tree(after),
            moment.history,
            (Crash(moment.index, survivors),),
        )

    return CrashImage(image, partial(real_tree.lay_out, after), moment.history, occurrence)


def first_fates(pending: PendingUnits) -> Iterator[Fate]:
    """Yield the edge cases, and every subset if there are few units."""
    yield from edge_case_fates(pending)
    if len(pending.units) <= EXHAUSTIVE_UP_TO:
        yield from exhaustive_fates(pending)


def random_fates(seed: int, moment: Moment, number: int) -> Iterator[Fate]:
    """Yield some random fates of a moment, different ones in each round."""
    draw = Random(f"{seed} {moment.workload} {moment.index} {number}")
    for _ in range(RANDOM_FATES):
        yield RandomFate(draw.getrandbits(48), Tearing.WHOLE)
