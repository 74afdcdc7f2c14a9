"""The figures themselves: for each scenario a table, with a line for each contender."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from page import wording
from page.looks import look, swatch
from page.wording import share
from recovery.page.markup import NOTHING, Markup, joined, tag

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from page.run import Row, Run

_OF_THE_TIMING = {"count", "calls", "seconds"}
"""How much was done to measure something, and not what was measured."""
_ONLY_IF_ASKED = {"p999_by_p50"}
_NARROW = 4


def absolute(run: Run) -> Markup:
    """All tables."""
    lead = (
        "Medians over the rounds, and below them the least and the most. The strips compare throughputs "
        "of one scenario."
    )
    return tag(
        "section",
        tag("h2", "Every figure"),
        tag("p", lead, class_="lead"),
        tag("div", (_card(row, run.units) for row in run.rows), class_="cards"),
    )


def _card(row: Row, units: Mapping[str, str]) -> Markup:
    figures = _shown(row)
    result = row.result
    return tag(
        "section",
        tag("header", tag("h3", result.title), tag("code", result.scenario)),
        tag("p", _work(row), class_="work"),
        tag("div", _table(row, figures, units), class_="scroll", tabindex="0"),
        (tag("p", note, class_="note") for note in result.notes),
        (tag("p", "Flaw: ", flaw.strip(), class_="flaw") for flaw in result.flaws),
        class_=f"card{' broad' if len(figures) > _NARROW else ''}",
        id=f"row-{result.scenario}",
    )


def _shown(row: Row) -> list[str]:
    asked = {judged.bar.figure.name for judged in row.judged}
    hidden = _OF_THE_TIMING | (_ONLY_IF_ASKED - asked)
    return [name for name in row.figures() if name not in hidden]


def _work(row: Row) -> str:
    rounds = f"rounds {len(row.result.rounds)}"
    return " · ".join(
        [*(f"{name} {_setting(value)}" for name, value in row.work.items() if name != "seed"), rounds]
    )


def _setting(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _table(row: Row, figures: Sequence[str], units: Mapping[str, str]) -> Markup:
    head = (tag("th", _heading(figure, units), class_="n", scope="col") for figure in figures)
    return tag(
        "table",
        tag("thead", tag("tr", tag("th", "", scope="col"), head)),
        tag("tbody", (_line(row, name, figures, units) for name in row.contenders)),
    )


def _heading(figure: str, units: Mapping[str, str]) -> Markup:
    called = wording.words(figure, units)
    return joined((called.name, tag("small", called.unit) if called.unit else None))


def _line(row: Row, contender: str, figures: Sequence[str], units: Mapping[str, str]) -> Markup:
    name = tag("th", tag("div", swatch(contender), tag("span", contender)), scope="row")
    if contender not in row.present:
        return tag("tr", name, tag("td", "not measured", class_="nil", colspan=str(len(figures) or 1)))
    return tag("tr", name, (_cell(row, contender, figure, units) for figure in figures))


def _cell(row: Row, contender: str, figure: str, units: Mapping[str, str]) -> Markup:
    factor = wording.words(figure, units).factor
    values = [value * factor for value in row.result.values(contender, figure)]
    if not values:
        return tag("td", "–", class_="n nil")
    strip = _strip(row, contender) if figure == "rate" else NOTHING
    median = wording.number(statistics.median(values))
    return tag("td", median, tag("small", _spread(values)), strip, class_="n")


def _spread(values: Sequence[float]) -> Markup:
    if len(values) == 1:
        return NOTHING
    # Where there is little room the line may break there.
    return joined((f"{wording.number(min(values))}…", Markup("<wbr>"), wording.number(max(values))))


def _strip(row: Row, contender: str) -> Markup:
    rates = {name: row.result.median(name, "rate") or 0.0 for name in row.present}
    width = share(rates[contender] / (max(rates.values()) or 1))
    return tag("span", tag("i", class_=look(contender).classes, style=f"width:{width}"), class_="strip")
