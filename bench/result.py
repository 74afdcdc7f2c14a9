"""What a scenario has measured, and whether that is good enough.

    Figure   what is measured: a name, a unit, and which way is good
    Bar      what a line of the table asks: a figure of ours, or its ratio to others of the same round
    Result   every round: contender -> figure -> value, as the contenders have said it
    Judged   a bar held against a result: the ratio of every round, their median and spread, and the verdict

A ratio above 1 always says that ours is better: of figures of which less is better it is turned over.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Figures = Mapping[str, float]
    """What one contender has said about one round, by the names of figures; it may say more than is asked."""


class Sense(Enum):
    """Which way is good."""

    MORE = "≥"
    LESS = "≤"


@dataclass(frozen=True, slots=True)
class Figure:
    """Something that is measured, under the name by which contenders say it."""

    name: str
    unit: str
    sense: Sense = Sense.MORE

    def ratio(self, ours: float, theirs: float) -> float:
        """How many times as good ours is."""
        return ours / theirs if self.sense is Sense.MORE else theirs / ours

    def is_met(self, value: float, limit: float) -> bool:
        return value >= limit if self.sense is Sense.MORE else value <= limit

    def best(self, medians: Mapping[str, float]) -> str:
        """Who is best of those."""
        choose = max if self.sense is Sense.MORE else min
        return choose(medians, key=medians.__getitem__)


RATE = Figure("rate", "/s")
"""Operations in a second: of a batch each entry counts."""

RATIO = Figure("ratio", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """What must be reached: by the best of `against` in ratio, or by the figure itself where there are none.

    Without a floor it is only told.
    """

    label: str
    """As the table says it: `÷ raw`, `÷ best peer`."""
    title: str = ""
    """Of the row, where it is not the scenario's."""
    figure: Figure = RATE
    subject: str = "ours"
    """The contender it is about."""
    against: tuple[str, ...] = ()
    """Names of contenders. The best of them is who has the best median, and it stays so for all rounds."""
    floor: float | None = None
    aim: float | None = None

    @property
    def judged(self) -> Figure:
        """What is held against floor and aim."""
        return RATIO if self.against else self.figure

    def __str__(self) -> str:
        return "" if self.floor is None else f"{self.judged.sense.value} {self.floor:g}"


class Verdict(Enum):
    """How a bar has fared."""

    AIM_MET = "aim met"
    MET = "met"
    MISSED = "missed"
    TOLD = ""
    NOT_MEASURED = "not measured"

    @property
    def fails(self) -> bool:
        """Whether that is too little for a strict run: what was not measured is not met."""
        return self in {Verdict.MISSED, Verdict.NOT_MEASURED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A bar held against the rounds of a result."""

    bar: Bar
    verdict: Verdict
    ours: float | None = None
    """The median of our figure."""
    than: str = ""
    """Who was best of those it is held against."""
    theirs: float | None = None
    values: Sequence[float] = ()
    """What is judged, one for each round."""

    @property
    def median(self) -> float | None:
        return statistics.median(self.values) if self.values else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """All that one scenario has measured."""

    scenario: str
    title: str
    bars: Sequence[Bar] = ()
    rounds: Sequence[Mapping[str, Figures]] = ()
    """For each round what each contender said of it."""
    whole: Mapping[str, Figures] = field(default_factory=dict)
    """What each said at the end of all rounds together."""
    notes: Sequence[str] = ()
    """What a reader has to know: who is missing, and why."""
    flaws: Sequence[str] = ()
    """What was wrong beside the figures; with one of them no bar is met."""

    def values(self, contender: str, figure: str) -> list[float]:
        """One for each round; of all rounds together a single one; none where it was not measured."""
        found = [said[contender][figure] for said in self.rounds if figure in said.get(contender, ())]
        if len(found) == len(self.rounds) and found:
            return found
        whole = self.whole.get(contender, {})
        return [whole[figure]] if figure in whole else []

    def median(self, contender: str, figure: str) -> float | None:
        values = self.values(contender, figure)
        return statistics.median(values) if values else None

    def judge(self) -> list[Judged]:
        """All bars, in their order."""
        return [self._judge(bar) for bar in self.bars]

    def _judge(self, bar: Bar) -> Judged:
        ours = self.values(bar.subject, bar.figure.name)
        if not ours or (bar.against and not self._medians(bar)):
            median = statistics.median(ours) if ours else None
            return Judged(bar=bar, verdict=_unmeasured(bar), ours=median)
        if not bar.against:
            return self._judged(bar, ours, ours)
        than = bar.figure.best(self._medians(bar))
        theirs = self.values(than, bar.figure.name)
        ratios = [bar.figure.ratio(a, b) for a, b in zip(ours, theirs, strict=True)]
        return self._judged(bar, ours, ratios, than, statistics.median(theirs))

    def _medians(self, bar: Bar) -> dict[str, float]:
        found = {name: self.median(name, bar.figure.name) for name in bar.against}
        return {name: median for name, median in found.items() if median is not None}

    def _judged(
        self,
        bar: Bar,
        ours: Sequence[float],
        values: Sequence[float],
        than: str = "",
        theirs: float | None = None,
    ) -> Judged:
        verdict = Verdict.MISSED if self.flaws and bar.floor is not None else _verdict(bar, values)
        median = statistics.median(ours)
        return Judged(bar=bar, verdict=verdict, ours=median, than=than, theirs=theirs, values=values)


def _unmeasured(bar: Bar) -> Verdict:
    return Verdict.TOLD if bar.floor is None else Verdict.NOT_MEASURED


def _verdict(bar: Bar, values: Sequence[float]) -> Verdict:
    if bar.floor is None:
        return Verdict.TOLD
    median = statistics.median(values)
    if not bar.judged.is_met(median, bar.floor):
        return Verdict.MISSED
    return Verdict.AIM_MET if bar.aim is not None and bar.judged.is_met(median, bar.aim) else Verdict.MET
