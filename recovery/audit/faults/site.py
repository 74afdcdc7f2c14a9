"""Where a fault is planted, and the dice that choose the place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from random import Random

    from recovery.audit.faults.chart import Chart, LogChart
    from recovery.audit.faults.copies import Copy
    from recovery.audit.faults.journal_chart import JournalChart

Choice = TypeVar("Choice")


class NoPlace(Exception):
    """The store has nothing that this fault could happen to, or nothing that could tell it."""


@dataclass(frozen=True, slots=True)
class Site:
    """A copy of a store, and the chart of what it was copied from."""

    copy: Copy
    chart: Chart
    dice: Random

    def choose(self, choices: Sequence[Choice]) -> Choice:
        """One of them; `NoPlace` if there is none."""
        if not choices:
            raise NoPlace
        return self.dice.choice(choices)

    def log_path(self, log: LogChart) -> Path:
        """In the source: what is asked of the copy by the same path."""
        return self.chart.ledgers / log.name

    def journal_path(self, journal: JournalChart) -> Path:
        return self.chart.journal / journal.name

    def flip(self, path: Path, start: int, end: int) -> int:
        """Flips one bit in [start, end) of the file; answers which byte."""
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
