"""Results as a table for the terminal, and as JSON for comparisons and for the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contest.result import RATIO, BarVerdict, Sense
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from contest.contender_process import Contender
    from contest.contest import Scenario
    from contest.result import BarResult, Figure, Result

FORMAT = 2
_COLUMNS = ("ours", "than", "theirs", "", "spread", "floor", "aim", "")
_STYLES = {
    BarVerdict.AIM_MET: "[bold green]",
    BarVerdict.MET: "[green]",
    BarVerdict.MISSED: "[bold red]",
    BarVerdict.NOT_MEASURED: "[yellow]",
}
_THOUSANDS = 100


def table(results: Sequence[Result], caption: str = "") -> Table:
    """Return a table with a line for each bar. The spread is that of the compared value over the rounds."""
    made = Table(box=None, header_style="bold", caption=caption or None, caption_justify="left")
    made.add_column("")
    for name in _COLUMNS:
        made.add_column(name, justify="left" if name == "than" else "right", no_wrap=True)
    for one in results:
        for line in _lines(one):
            made.add_row(*line)
    return made


def remarks(results: Sequence[Result]) -> list[str]:
    """Return the lines below the table: notes about missing contenders, and flaws."""
    noted: dict[str, list[str]] = {}
    for one in results:
        for note in one.notes:
            noted.setdefault(note, []).append(one.scenario)
    flaws = [f"{one.scenario}: {flaw.strip()}" for one in results for flaw in one.flaws]
    return [*(f"{note} ({', '.join(names)})" for note, names in noted.items()), *flaws]


def _lines(one: Result) -> Iterator[list[str]]:
    last_title = ""
    for judged in one.bar_results():
        title = judged.bar.title or one.title
        yield ["" if title == last_title else title, *_cells(judged)]
        last_title = title


def _cells(one: BarResult) -> list[str]:
    bar, style = one.bar, _STYLES.get(one.verdict, "")
    value = _value(one.median, bar.compared)
    return [
        _value(one.ours, bar.figure) if bar.against else "",
        one.than or bar.label,
        _value(one.theirs, bar.figure),
        f"[bold]{value}[/]" if value else "",
        _spread(one),
        str(bar),
        "" if bar.aim is None else f"{bar.aim:g}",
        f"{style}{one.verdict.value}[/]" if style else "",
    ]


def _spread(one: BarResult) -> str:
    return f"{_number(min(one.values))} … {_number(max(one.values))}" if len(one.values) > 1 else ""


def _value(value: float | None, figure: Figure) -> str:
    if value is None:
        return ""
    if figure is RATIO:
        return f"{value:.2f}"
    between = "" if figure.unit.startswith("/") else " "
    return f"{_number(value)}{between}{figure.unit}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= _THOUSANDS else f"{value:.3g}"


def row(one: Result, scenario: Scenario) -> dict[str, object]:
    """Return a result as JSON, with all rounds."""
    return {
        "name": one.scenario,
        "title": one.title,
        "work": dict(scenario.work),
        "contenders": {one.name: _contender(one) for one in scenario.contenders},
        "points": {point.curve: point.at for point in scenario.points},
        "rounds": [{name: dict(figures) for name, figures in lap.items()} for lap in one.rounds],
        "whole": {name: dict(figures) for name, figures in one.whole.items() if figures},
        "medians": _medians(one),
        "bars": [_judged_row(judged) for judged in one.bar_results()],
        "notes": list(one.notes),
        "flaws": list(one.flaws),
    }


def _contender(one: Contender) -> dict[str, object]:
    return {"make": one.make, "settings": dict(one.settings), "one_cpu": bool(one.one_cpu)}


def _medians(one: Result) -> dict[str, dict[str, float | None]]:
    figures: dict[str, list[str]] = {}
    for lap in (*one.rounds, one.whole):
        for name, found in lap.items():
            figures.setdefault(name, []).extend(
                figure for figure in found if figure not in figures.get(name, ())
            )
    return {name: {figure: one.median(name, figure) for figure in found} for name, found in figures.items()}


def _judged_row(one: BarResult) -> dict[str, object]:
    bar = one.bar
    return {
        "label": bar.label,
        "title": bar.title,
        "subject": bar.subject,
        "against": list(bar.against),
        "figure": bar.figure.name,
        "unit": bar.figure.unit,
        "better": "more" if bar.compared.sense is Sense.MORE else "less",
        "ours": one.ours,
        "than": one.than,
        "theirs": one.theirs,
        "values": list(one.values),
        "median": one.median,
        "floor": bar.floor,
        "aim": bar.aim,
        "verdict": one.verdict.name.lower(),
    }
