"""The top of the page: the verdict, under which conditions, and what it does not speak of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.crashlab.report import figures
from recovery.crashlab.report.figures import Tone
from recovery.page.markup import NOTHING, Markup, joined, tag
from recovery.page.wording import counted, grouped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recovery.crashlab.numbers import LabNumbers
    from recovery.crashlab.report.figures import Gap, Verdict


def summary(numbers: LabNumbers) -> Markup:
    """The verdict, the conditions, the gaps."""
    gaps = figures.gaps(numbers)
    return joined((_verdict(figures.verdict(numbers), len(gaps)), _facts(numbers), _gaps(gaps)))


def _verdict(verdict: Verdict, gaps: int) -> Markup:
    but = f"But see below: {counted(gaps, 'gap')} in what was tried." if gaps and verdict.tried else ""
    return tag(
        "section",
        tag("div", grouped(verdict.number), class_="number"),
        tag(
            "div",
            tag("h1", " in ".join((verdict.noun, *verdict.tried[:1]))),
            tag("p", "and in ", tag("b", ", ".join(verdict.tried[1:]))) if verdict.tried[1:] else NOTHING,
            tag("p", _meaning(verdict), " ", tag("b", but)),
        ),
        class_=f"verdict {verdict.tone}",
    )


def _meaning(verdict: Verdict) -> str:
    match verdict.tone:
        case Tone.FINE:
            return "Every one of these states was recovered, and all that had been promised was there."
        case Tone.BROKEN:
            return "Of these states at least one does not keep what had been promised."
        case Tone.EMPTY:
            return "Nothing was tried, so nothing is known."


def _facts(numbers: LabNumbers) -> Markup:
    rows = (tag("div", tag("dt", name), tag("dd", value)) for name, value in figures.facts(numbers))
    return tag("dl", rows, class_="facts")


def _gaps(gaps: Sequence[Gap]) -> Markup:
    if not gaps:
        return NOTHING
    rows = (
        tag("li", tag("span", gap.label, class_="pill warn"), tag("span", tag("b", gap.what), ": ", gap.why))
        for gap in gaps
    )
    return tag("section", tag("h2", "What this run says nothing about"), tag("ul", rows), class_="gaps loud")
