"""Where each bar of a run stands on a chart: its rounds, floor and aim as multiples, right is better."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import TYPE_CHECKING

from result import Sense, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from result import Bar, Judged

    from page.run import Run


class Group(Enum):
    """What a bar is held against."""

    RAW = "÷ raw limit"
    PEER = "÷ best peer"
    OTHER = "÷ something else"
    OWN = "In its own unit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One bar, and where it stands."""

    number: int
    """Unique on the page."""
    title: str
    judged: Judged
    group: Group
    values: Sequence[float]
    """One for each round: the ratio, or how many times as good as its floor; none if it has no place."""
    floor: float | None
    aim: float | None

    @property
    def median(self) -> float | None:
        return statistics.median(self.values) if self.values else None

    @property
    def distance(self) -> float:
        """How far it is from its floor: below 1 it is missed."""
        return inf if self.median is None or not self.floor else self.median / self.floor


def standings(run: Run) -> list[Standing]:
    """All bars of it, in the order of its table."""
    found = ((row.title(judged), judged) for row in run.rows for judged in row.judged)
    return [
        _standing(number, title, judged, _group(judged.bar, run.peers))
        for number, (title, judged) in enumerate(found)
    ]


def _standing(number: int, title: str, judged: Judged, group: Group) -> Standing:
    bar = judged.bar
    if bar.against:
        values, floor, aim = list(judged.values), bar.floor, bar.aim
    elif bar.floor is None:
        values, floor, aim = [], None, None
    else:
        values = [_times(bar, value) for value in judged.values]
        floor, aim = 1.0, None if bar.aim is None else _times(bar, bar.aim)
    return Standing(
        number=number, title=title, judged=judged, group=group, values=values, floor=floor, aim=aim
    )


def _times(bar: Bar, value: float) -> float:
    """How many times as good as the floor."""
    assert bar.floor is not None
    if bar.figure.sense is Sense.MORE:
        return value / bar.floor
    return bar.floor / value if value > 0 else inf


def _group(bar: Bar, peers: Mapping[str, str]) -> Group:
    if not bar.against:
        return Group.OWN
    if all(name.startswith("raw") for name in bar.against):
        return Group.RAW
    # The best of one is no best: that bar is about a peer for a reason of its own.
    is_best_peer = len(bar.against) > 1 and all(name.startswith(tuple(peers)) for name in bar.against)
    return Group.PEER if is_best_peer else Group.OTHER


# ── all of them together ─────────────────────────────────────────────────────────────────────────────────


class Tone(Enum):
    """How a run is to be taken."""

    FINE = "fine"
    BROKEN = "broken"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Score:
    """What the floors of a run come to."""

    standings: Sequence[Standing]

    @property
    def asked(self) -> list[Standing]:
        """Those with a floor."""
        return [one for one in self.standings if one.judged.bar.floor is not None]

    def count(self, *verdicts: Verdict) -> int:
        return sum(one.judged.verdict in verdicts for one in self.asked)

    @property
    def met(self) -> int:
        return self.count(Verdict.MET, Verdict.AIM_MET)

    @property
    def aims(self) -> int:
        return sum(one.judged.bar.aim is not None for one in self.asked)

    @property
    def tone(self) -> Tone:
        if self.count(Verdict.MISSED):
            return Tone.BROKEN
        return Tone.FINE if self.asked and self.met == len(self.asked) else Tone.EMPTY

    @property
    def furthest(self) -> Standing | None:
        """The missed one that is furthest from its floor."""
        missed = [one for one in self.asked if one.judged.verdict is Verdict.MISSED and one.values]
        return min(missed, key=lambda one: one.distance, default=None)

    def __iter__(self) -> Iterator[Standing]:
        return iter(self.standings)
