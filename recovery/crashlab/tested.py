"""A laboratory inside a test: what the test leaves open, the command line and the test's directory say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recovery.crashlab.lab import CrashLab, LabReport, Progress

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence
    from pathlib import Path

_REPORT = "crash-report"


@dataclass(frozen=True, slots=True)
class Told:
    """What holds for all laboratories of one test."""

    budget: str | None
    """Of the command line: it wins over what the test says."""
    layers: Sequence[str] | None
    """The same."""
    jobs: int
    place: Path

    def out(self) -> Path:
        """A report of its own for each run."""
        taken = sum(1 for _ in self.place.glob(f"{_REPORT}*"))
        return self.place / (f"{_REPORT}-{taken + 1}" if taken else _REPORT)


class TestedLab(CrashLab):
    """As a `CrashLab`, with other defaults."""

    __test__ = False  # pytest takes it for no test

    def __init__(self, told: Told, *programs: Any, **options: Any) -> None:
        super().__init__(*programs, **options)
        self._told = told

    def run(
        self,
        layers: Sequence[str] | None = None,
        budget: str | float | None = None,
        *,
        jobs: int | None = None,
        out: str | os.PathLike[str] | None = None,
        progress: Callable[[Progress], None] = lambda _: None,
    ) -> LabReport:
        """As that of a `CrashLab`; the report goes below the test's own directory."""
        told = self._told
        return super().run(
            told.layers or layers,
            told.budget or budget,
            jobs=jobs or told.jobs,
            out=told.out() if out is None else out,
            progress=progress,
        )
