"""Where a fault is planted, and the random generator that chooses the place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from random import Random

    from recovery.audit.faults.chart import Chart, LogChart
    from recovery.audit.faults.journal_chart import JournalChart
    from recovery.audit.faults.store_copy import StoreCopy

Choice = TypeVar("Choice")


class NoPlace(Exception):
    """The store has no place for this fault, or nothing that could show it."""


@dataclass(frozen=True, slots=True)
class FaultSite:
    """A copy of a store, the chart of its source, and a random generator."""

    copy: StoreCopy
    chart: Chart
    dice: Random

    def choose(self, choices: Sequence[Choice]) -> Choice:
        """Return one of them. Raise `NoPlace` if there is none."""
        if not choices:
            raise NoPlace
        return self.dice.choice(choices)

    def log_path(self, log: LogChart) -> Path:
        """Return the path in the source. Methods of the copy take this path too."""
        return self.chart.ledgers / log.name

    def journal_path(self, journal: JournalChart) -> Path:
        return self.chart.journal / journal.name

    def flip(self, path: Path, start: int, end: int) -> int:
        """Flip one bit in [start, end) of the file. Return the offset of its byte."""
        if start >= end:
            raise NoPlace
        at = self.dice.randrange(start, end)
        self.flip_bit(path, at, self.dice.randrange(8))
        return at

    def flip_bit(self, path: Path, at: int, bit: int) -> None:
        with path.open("rb") as file:
            file.seek(at)
            (before,) = file.read(1)
        self.copy.patch(path, at, bytes([before ^ 1 << bit]))
