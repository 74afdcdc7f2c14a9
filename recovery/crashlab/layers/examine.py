"""Examining what was seen: each breach made as small as it gets, labelled, and written down."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from recovery.crashlab import rebuild, tape, tree
from recovery.crashlab.layers.model import first_fates, moments, random_fates
from recovery.crashlab.layers.task import Bench, Crash, Recording, Sighting
from recovery.crashlab.minimise import minimise
from recovery.crashlab.numbers import ViolationNumbers
from recovery.crashlab.profile import kinder_than
from recovery.crashlab.timeline import trace
from recovery.crashlab.violation import VIOLATIONS, Violation, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from recovery.crashlab.oracles import Breach
    from recovery.crashlab.pending import Survivors
    from recovery.crashlab.platter import Platter
    from recovery.crashlab.profile import Profile
    from recovery.crashlab.tape import Event


@dataclass(frozen=True, slots=True)
class Examined:
    """A violation that was written down."""

    numbers: ViolationNumbers


@dataclass(frozen=True)
class ExamineTask:
    """All of them, by one worker."""

    sightings: tuple[tuple[Sighting, int], ...]
    recordings: tuple[Recording, ...]
    out: Path

    def work(self, bench: Bench) -> Iterator[Examined]:
        counted: dict[str, int] = {}
        for sighting, count in self.sightings:
            counted[sighting.layer] = counted.get(sighting.layer, 0) + 1
            name = f"{sighting.layer}-{counted[sighting.layer]}"
            yield Examined(self._examined(bench, sighting, count, name))

    def _examined(self, bench: Bench, sighting: Sighting, count: int, name: str) -> ViolationNumbers:
        tapes = self._tapes(sighting)
        lost: tuple[str, ...] | None = None
        kindest = ""
        if sighting.crashes and sighting.crashes[-1].survivors is not None:
            sighting, lost = _minimised(bench, sighting, tapes)
        if sighting.layer == "model":
            kindest = _kindest(bench, sighting, self._recording(sighting.workload))
        cause = _cause(sighting, lost)
        numbers = ViolationNumbers(
            name,
            sighting.breach.kind,
            cause,
            sighting.layer,
            sighting.workload,
            sighting.at,
            kindest,
            lost or (),
            f"{VIOLATIONS}/{name}",
            count,
        )
        window = trace(tapes[-1], _index(sighting, tapes[-1]))
        encoded = tuple(tape.encode_all(events) for events in tapes)
        write(Violation(bench.spec, sighting, encoded, numbers, window), self.out / numbers.directory)
        return numbers

    def _recording(self, workload: str) -> Recording:
        return next(one for one in self.recordings if one.name == workload)

    def _tapes(self, sighting: Sighting) -> list[list[Event]]:
        own = [list(tape.decode(one)) for one in sighting.tapes]
        if len(own) < max(1, len(sighting.crashes)):
            return [self._recording(sighting.workload).events(), *own]
        return own


def _index(sighting: Sighting, events: list[Event]) -> int:
    if sighting.crashes:
        return sighting.crashes[-1].at
    found = (index for index, event in enumerate(events) if event.number == sighting.at and sighting.at)
    return next(found, len(events))


def _minimised(
    bench: Bench, sighting: Sighting, tapes: list[list[Event]]
) -> tuple[Sighting, tuple[str, ...] | None]:
    """The same breach with as little lost as possible."""
    last = sighting.crashes[-1]
    platter = rebuild.before(sighting.crashes, tapes, bench.spec.profile, bench.ignored)
    pending = platter.pending()
    assert last.survivors is not None

    def shows(survivors: Survivors) -> bool:
        legal = bench.spec.profile.legal(pending, survivors)
        return _breach(bench, platter, legal, sighting) is not None

    if not shows(last.survivors):
        return sighting, None  # it needs the answer of a recovery before it: the oracles alone do not see it
    found = minimise(pending, last.survivors, shows)
    survivors = bench.spec.profile.legal(pending, found.survivors)
    breach = _breach(bench, platter, survivors, sighting) or sighting.breach
    smaller = replace(
        sighting,
        breach=breach,
        image=tree.seen_tree(platter.after_cut(survivors)),
        crashes=(*sighting.crashes[:-1], Crash(last.at, survivors, last.nodes)),
    )
    return smaller, found.lost


def _breach(bench: Bench, platter: Platter, survivors: Survivors, sighting: Sighting) -> Breach | None:
    after = platter.after_cut(survivors)
    breaches = bench.judge.breaches_of(after.image(), partial(tree.lay_out, after), sighting.history)
    alike = (one for one in breaches if one.kind == sighting.breach.kind)
    return next(alike, None)


def _kindest(bench: Bench, sighting: Sighting, recording: Recording) -> str:
    """The kindest profile under which the same crash point shows the same kind of breach."""
    for profile in kinder_than(bench.spec.profile):
        if profile == bench.spec.profile or _shows_under(profile, bench, sighting, recording):
            return profile.name
    return ""


def _shows_under(profile: Profile, bench: Bench, sighting: Sighting, recording: Recording) -> bool:
    index = sighting.crashes[0].at
    for moment in moments(recording, recording.events(), profile, bench.ignored):
        if moment.index != index:
            continue
        pending = moment.platter.pending()
        for fate in (*first_fates(pending), *random_fates(1, moment, 1)):
            survivors = profile.legal(pending, fate.survivors(pending))
            if _breach(bench, moment.platter, survivors, sighting) is not None:
                return True
    return False


_AT_A_CALL = {"model": "power cut", "kill": "SIGKILL", "cut": ""}


def _cause(sighting: Sighting, lost: tuple[str, ...] | None) -> str:
    """One line: what, where, and by losing what; None where nothing was made smaller."""
    parts = [f"{sighting.breach}"]
    if sighting.layer in _AT_A_CALL:
        parts.append(f"{_AT_A_CALL[sighting.layer] or sighting.how} {sighting.call}")
    else:
        # Of a fate that was made smaller only what it loses is to be told.
        how = sighting.how if lost is None else sighting.how.rpartition(", ")[0]
        parts += [*([sighting.call] if sighting.call not in how else []), how]
    if lost:
        parts.append(f"lost: {'; '.join(lost)}")
    return re.sub(r"\s+", " ", " · ".join(part for part in parts if part))
