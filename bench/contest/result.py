"""The measurements of a scenario, and their comparison with floors and aims.

    Figure      what is measured: a name, a unit, and whether more or less is better
    Bar         a line of the table: a figure of one contender, or its ratio to others, with floor and aim
    Result      every round: contender -> figure -> value
    BarResult   a bar compared with a result: the ratio of every round, their median and spread, the verdict

A ratio above 1 always means that ours is better. If less of a figure is better, the ratio is inverted.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Figures = Mapping[str, float]
    """The figures of one contender in one round, by name. There may be more than the bars need."""


class Sense(Enum):
    """Whether more or less of a figure is better."""

    MORE = "≥"
    LESS = "≤"


@dataclass(frozen=True, slots=True)
class Figure:
    """Something that is measured. Contenders report it under this name."""

    name: str
    unit: str
    sense: Sense = Sense.MORE

    def ratio(self, ours: float, theirs: float) -> float:
        """Return how many times as good ours is."""
        return ours / theirs if self.sense is Sense.MORE else theirs / ours

    def is_met(self, value: float, limit: float) -> bool:
        return value >= limit if self.sense is Sense.MORE else value <= limit

    def best(self, medians: Mapping[str, float]) -> str:
        """Return the contender with the best median."""
        choose = max if self.sense is Sense.MORE else min
        return choose(medians, key=medians.__getitem__)


RATE = Figure("rate", "/s")
"""Operations per second. Each entry of a batch counts."""

RATIO = Figure("ratio", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A line of the table: the ratio to the best of `against`, or the figure itself if that is empty.

    Without a floor the value is only reported.
    """

    label: str
    """The label in the table, such as `÷ raw` or `÷ best peer`."""
    title: str = ""
    """The title of the row if it differs from that of the scenario."""
    figure: Figure = RATE
    subject: str = "ours"
    """The contender whose figure it is."""
    against: tuple[str, ...] = ()
    """Contenders to compare with. The one with the best median is used in all rounds."""
    floor: float | None = None
    aim: float | None = None

    @property
    def compared(self) -> Figure:
        """The figure that is compared with floor and aim."""
        return RATIO if self.against else self.figure

    def __str__(self) -> str:
        return "" if self.floor is None else f"{self.compared.sense.value} {self.floor:g}"


class BarVerdict(Enum):
    """The outcome of a bar. `TOLD` means that it has no floor."""

    AIM_MET = "aim met"
    MET = "met"
    MISSED = "missed"
    TOLD = ""
    NOT_MEASURED = "not measured"

    @property
    def fails(self) -> bool:
        """Whether it fails a strict run. A floor that was not measured is not met."""
        return self in {BarVerdict.MISSED, BarVerdict.NOT_MEASURED}


@dataclass(frozen=True, slots=True, kw_only=True)
class BarResult:
    """A bar compared with the rounds of a result."""

    bar: Bar
    verdict: BarVerdict
    ours: float | None = None
    """Median of the figure of the subject."""
    than: str = ""
    """The best contender of those it is compared with."""
    theirs: float | None = None
    values: Sequence[float] = ()
    """For each round the value that is compared with floor and aim."""

    @property
    def median(self) -> float | None:
        return statistics.median(self.values) if self.values else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """All measurements of one scenario."""

    scenario: str
    title: str
    bars: Sequence[Bar] = ()
    rounds: Sequence[Mapping[str, Figures]] = ()
    """For each round the figures of each contender."""
    whole: Mapping[str, Figures] = field(default_factory=dict)
    """Figures of each contender for all rounds together."""
    notes: Sequence[str] = ()
    """Remarks for the reader, such as a missing contender and the reason."""
    flaws: Sequence[str] = ()
    """Failures of contenders. With one of them no floor is met."""

    def values(self, contender: str, figure: str) -> list[float]:
        """Return one value for each round, a single one for all rounds together, or none if not measured."""
        found = [lap[contender][figure] for lap in self.rounds if figure in lap.get(contender, ())]
        if len(found) == len(self.rounds) and found:
            return found
        whole = self.whole.get(contender, {})
        return [whole[figure]] if figure in whole else []

    def median(self, contender: str, figure: str) -> float | None:
        values = self.values(contender, figure)
        return statistics.median(values) if values else None

    def bar_results(self) -> list[BarResult]:
        """Return the results of all bars, in order."""
        return [self._bar_result(bar) for bar in self.bars]

    def _bar_result(self, bar: Bar) -> BarResult:
        ours = self.values(bar.subject, bar.figure.name)
        if not ours or (bar.against and not self._medians(bar)):
            median = statistics.median(ours) if ours else None
            return BarResult(bar=bar, verdict=_unmeasured(bar), ours=median)
        if not bar.against:
            return self._measured_result(bar, ours, ours)
        than = bar.figure.best(self._medians(bar))
        theirs = self.values(than, bar.figure.name)
        ratios = [bar.figure.ratio(a, b) for a, b in zip(ours, theirs, strict=True)]
        return self._measured_result(bar, ours, ratios, than, statistics.median(theirs))

    def _medians(self, bar: Bar) -> dict[str, float]:
        found = {name: self.median(name, bar.figure.name) for name in bar.against}
        return {name: median for name, median in found.items() if median is not None}

    def _measured_result(
        self,
        bar: Bar,
        ours: Sequence[float],
        values: Sequence[float],
        than: str = "",
        theirs: float | None = None,
    ) -> BarResult:
        verdict = BarVerdict.MISSED if self.flaws and bar.floor is not None else _verdict(bar, values)
        median = statistics.median(ours)
        return BarResult(bar=bar, verdict=verdict, ours=median, than=than, theirs=theirs, values=values)


def _unmeasured(bar: Bar) -> BarVerdict:
    return BarVerdict.TOLD if bar.floor is None else BarVerdict.NOT_MEASURED


def _verdict(bar: Bar, values: Sequence[float]) -> BarVerdict:
    if bar.floor is None:
        return BarVerdict.TOLD
    median = statistics.median(values)
    if not bar.compared.is_met(median, bar.floor):
        return BarVerdict.MISSED
    return (
        BarVerdict.AIM_MET if bar.aim is not None and bar.compared.is_met(median, bar.aim) else BarVerdict.MET
    )
