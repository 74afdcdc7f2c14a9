"""The report of a run as one page of HTML."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from recovery.crashlab.report import figures, timeline
from recovery.report.render import render as render_template

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recovery.crashlab.judge.run_figures import LabNumbers

_NO_TRACES: Mapping[str, str] = MappingProxyType({})


def render(numbers: LabNumbers, traces: Mapping[str, str] = _NO_TRACES) -> str:
    """Return the page; `traces` by the id of a violation. The same numbers give the same bytes."""
    return render_template(
        Path(__file__).with_name("page.html.j2"),
        title=f"{numbers.name}: crash report",
        numbers=numbers,
        figures=figures,
        traces=traces,
        places=timeline.places_of(numbers),
        timelines=timeline.drawings(numbers),
        legend_calls=timeline.LEGEND,
    )
