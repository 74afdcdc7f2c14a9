"""Examines occurrences: minimises each breach, finds its profile, and writes it as a violation."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from recovery.crashlab.judge.minimise import minimise
from recovery.crashlab.judge.run_figures import ViolationNumbers
from recovery.crashlab.layers.model import first_fates, moments, random_fates
from recovery.crashlab.layers.record import trace
from recovery.crashlab.layers.violation import VIOLATIONS, Violation, write
from recovery.crashlab.model import real_tree
from recovery.crashlab.model.profile import kinder_than
from recovery.crashlab.record import tape
from recovery.crashlab.record.crash import Crash, platter_before_crash

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from recovery.crashlab.judge.occurrence import Occurrence
    from recovery.crashlab.judge.oracles import Breach
    from recovery.crashlab.model.pending import Survivors
    from recovery.crashlab.model.platter import Platter
    from recovery.crashlab.model.profile import Profile
    from recovery.crashlab.record.recording import Recording
    from recovery.crashlab.record.tape import Event
    from recovery.crashlab.run.task import WorkerContext


@dataclass(frozen=True, slots=True)
class ExaminedViolation:
    """A violation that was written."""

    numbers: ViolationNumbers


@dataclass(frozen=True)
class ExamineTask:
    """Examines all occurrences, in one worker."""

    occurrences: tuple[tuple[Occurrence, int], ...]
    recordings: tuple[Recording, ...]
    out: Path

    def work(self, context: WorkerContext) -> Iterator[ExaminedViolation]:
        counted: dict[str, int] = {}
        for occurrence, count in self.occurrences:
            counted[occurrence.layer] = counted.get(occurrence.layer, 0) + 1
            name = f"{occurrence.layer}-{counted[occurrence.layer]}"
            yield ExaminedViolation(self._examined(context, occurrence, count, name))

    def _examined(
        self, context: WorkerContext, occurrence: Occurrence, count: int, name: str
    ) -> ViolationNumbers:
        tapes = self._tapes(occurrence)
        lost: tuple[str, ...] | None = None
        kindest = ""
        if occurrence.crashes and occurrence.crashes[-1].survivors is not None:
            occurrence, lost = _minimised(context, occurrence, tapes)
        if occurrence.layer == "model":
            kindest = _kindest(context, occurrence, self._recording(occurrence.workload))
        cause = _cause(occurrence, lost)
        numbers = ViolationNumbers(
            name,
            occurrence.breach.kind,
            cause,
            occurrence.layer,
            occurrence.workload,
            occurrence.at,
            kindest,
            lost or (),
            f"{VIOLATIONS}/{name}",
            count,
        )
        window = trace(tapes[-1], _index(occurrence, tapes[-1]))
        encoded = tuple(tape.encode_all(events) for events in tapes)
        write(Violation(context.spec, occurrence, encoded, numbers, window), self.out / numbers.directory)
        return numbers

    def _recording(self, workload: str) -> Recording:
        return next(one for one in self.recordings if one.name == workload)

    def _tapes(self, occurrence: Occurrence) -> list[list[Event]]:
        own = [list(tape.decode(one)) for one in occurrence.tapes]
        if len(own) < max(1, len(occurrence.crashes)):
            return [self._recording(occurrence.workload).events(), *own]
        return own


def _index(occurrence: Occurrence, events: list[Event]) -> int:
    if occurrence.crashes:
        return occurrence.crashes[-1].at
    found = (index for index, event in enumerate(events) if event.number == occurrence.at and occurrence.at)
    return next(found, len(events))


def _minimised(
    context: WorkerContext, occurrence: Occurrence, tapes: list[list[Event]]
) -> tuple[Occurrence, tuple[str, ...] | None]:
    """Return the same breach with as little lost as possible."""
    last = occurrence.crashes[-1]
    platter = platter_before_crash(occurrence.crashes, tapes, context.spec.profile, context.ignored)
    pending = platter.pending()
    assert last.survivors is not None

    def shows(survivors: Survivors) -> bool:
        legal = context.spec.profile.legal(pending, survivors)
        return _breach(context, platter, legal, occurrence) is not None

    if not shows(last.survivors):
        # The breach depends on the answer of an earlier recovery, so that the oracles alone do not see it.
        return occurrence, None
    found = minimise(pending, last.survivors, shows)
    survivors = context.spec.profile.legal(pending, found.survivors)
    breach = _breach(context, platter, survivors, occurrence) or occurrence.breach
    smaller = replace(
        occurrence,
        breach=breach,
        image=real_tree.visible_tree(platter.after_cut(survivors)),
        crashes=(*occurrence.crashes[:-1], Crash(last.at, survivors, last.nodes)),
    )
    return smaller, found.lost


def _breach(
    context: WorkerContext, platter: Platter, survivors: Survivors, occurrence: Occurrence
) -> Breach | None:
    after = platter.after_cut(survivors)
    breaches = context.checker.breaches_of(
        after.image(), partial(real_tree.lay_out, after), occurrence.history
    )
    alike = (one for one in breaches if one.kind == occurrence.breach.kind)
    return next(alike, None)


def _kindest(context: WorkerContext, occurrence: Occurrence, recording: Recording) -> str:
    """Return the most benign profile that shows the same kind of breach at the same crash point."""
    for profile in kinder_than(context.spec.profile):
        if profile == context.spec.profile or _shows_under(profile, context, occurrence, recording):
            return profile.name
    return ""


def _shows_under(
    profile: Profile, context: WorkerContext, occurrence: Occurrence, recording: Recording
) -> bool:
    index = occurrence.crashes[0].at
    for moment in moments(recording, recording.events(), profile, context.ignored):
        if moment.index != index:
            continue
        pending = moment.platter.pending()
        for fate in (*first_fates(pending), *random_fates(1, moment, 1)):
            survivors = profile.legal(pending, fate.survivors(pending))
            if _breach(context, moment.platter, survivors, occurrence) is not None:
                return True
    return False


_AT_A_CALL = {"model": "power cut", "kill": "SIGKILL", "cut": ""}


def _cause(occurrence: Occurrence, lost: tuple[str, ...] | None) -> str:
    """Return one line: what, where, and what was lost; `lost` is None if it was not minimised."""
    parts = [f"{occurrence.breach}"]
    if occurrence.layer in _AT_A_CALL:
        parts.append(f"{_AT_A_CALL[occurrence.layer] or occurrence.how} {occurrence.call}")
    else:
        # A minimised fate is described by what it loses, so its old description is dropped.
        how = occurrence.how if lost is None else occurrence.how.rpartition(", ")[0]
        parts += [*([occurrence.call] if occurrence.call not in how else []), how]
    if lost:
        parts.append(f"lost: {'; '.join(lost)}")
    return re.sub(r"\s+", " ", " · ".join(part for part in parts if part))
