"""What a scenario has measured, and whether that is good enough."""

from __future__ import annotations

import operator
import statistics
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class Sense(Enum):
    """Which way is good."""

    AT_LEAST = "≥"
    BELOW = "<"


_HOLDS = {Sense.AT_LEAST: operator.ge, Sense.BELOW: operator.lt}


@dataclass(frozen=True, slots=True)
class Bar:
    """What must be reached: by the ratio to the raw disk where there is one, else by the figure itself."""

    sense: Sense
    limit: float

    def holds_for(self, value: float) -> bool:
        return bool(_HOLDS[self.sense](value, self.limit))

    def __str__(self) -> str:
        return f"{self.sense.value} {self.limit:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The rounds of one scenario. Raw figures, where there are any, stand beside those of the same round."""

    scenario: str
    unit: str
    ours: Sequence[float]
    raw: Sequence[float] = ()
    bar: Bar | None = None
    """`None` where the figure is only told."""
    flaws: Sequence[str] = ()
    """What was wrong beside the figures."""

    @property
    def ratios(self) -> list[float]:
        return [ours / raw for ours, raw in zip(self.ours, self.raw, strict=False)]

    @property
    def judged(self) -> Sequence[float]:
        """What the bar is about, one for each round."""
        return self.ratios or self.ours

    @property
    def is_met(self) -> bool | None:
        """By the median; `None` where nothing has to be met."""
        if self.bar is None:
            return None
        return not self.flaws and self.bar.holds_for(statistics.median(self.judged))
