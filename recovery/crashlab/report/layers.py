"""A card for each layer with what it counted, and its tables: rot by kind of file, cuts by file system."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.crashlab.numbers import Status
from recovery.crashlab.report import figures
from recovery.crashlab.report.style import bar, hue, key, stack
from recovery.page.markup import NOTHING, Markup, joined, tag
from recovery.page.wording import grouped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from recovery.crashlab.numbers import LabNumbers, LayerNumbers

_LEADS = {
    "rot": "What became of the store when one of its files was damaged. Silent is what must not be.",
    "cut": "The power really went: file systems shut down under the store, mounted again, and recovered.",
}


def layers(numbers: LabNumbers) -> Markup:
    """All layers, those that did not run as loudly as the others."""
    every = figures.layers(numbers)
    return joined(
        (
            tag("h2", "What was tried"),
            tag(
                "p",
                "Each layer breaks the store in its own way; none of them finds what another one is for.",
                class_="lead",
            ),
            tag("div", map(_card, every), class_="cards"),
            (_panel(layer) for layer in every if layer.table),
        )
    )


def _card(layer: LayerNumbers) -> Markup:
    loud = "" if layer.status is Status.COMPLETE else " loud"
    return tag(
        "article",
        tag("header", tag("h3", _name(layer.name)), _status(layer.status)),
        tag("div", layer.status.value.upper(), class_="stop") if loud else NOTHING,
        tag("p", layer.why or ("no reason was given" if loud else ""), class_="why"),
        NOTHING if layer.status is Status.NOT_RUN and not layer.counts else _counted(layer),
        class_=f"card {hue(layer.name)}{loud}",
    )


def _name(layer: str) -> Markup:
    title = figures.title(layer)
    return joined((title, tag("code", layer) if title != layer else NOTHING))


def _status(status: Status) -> Markup:
    colour = "good" if status is Status.COMPLETE else "warn"
    return tag("span", status.value, class_=f"pill {colour}")


def _counted(layer: LayerNumbers) -> Markup:
    number, label = figures.headline(layer)
    return joined(
        (
            tag("div", grouped(number), tag("small", label), class_="big"),
            _bars(layer.counts) if len(layer.counts) > 1 else NOTHING,
            _totals(layer.table) if layer.table else NOTHING,
            tag("footer", figures.speed(layer)),
        )
    )


def _bars(counts: Mapping[str, int]) -> Markup:
    most = max(counts.values())
    rows = ((tag("dt", name), bar(count, most), tag("dd", grouped(count))) for name, count in counts.items())
    return tag("dl", rows, class_="bars")


def _totals(table: Mapping[str, Mapping[str, int]]) -> Markup:
    """The table in one drawing: outcomes are parts of a whole, else the first column is what is measured."""
    columns = _columns(table)
    if not _are_outcomes(columns):
        return _bars({name: row.get(columns[0], 0) for name, row in table.items()}) if columns else NOTHING
    sums = {column: sum(row.get(column, 0) for row in table.values()) for column in columns}
    names = [(_colour(column), f"{grouped(total)} {column}") for column, total in sums.items()]
    return tag("div", _stacked(sums), key(names), class_="totals")


def _are_outcomes(columns: Sequence[str]) -> bool:
    return bool(set(columns) & set(figures.OUTCOMES))


def _stacked(row: Mapping[str, int]) -> Markup:
    return stack([(_colour(column), count) for column, count in row.items()], sum(row.values()))


def _panel(layer: LayerNumbers) -> Markup:
    columns = _columns(layer.table)
    colours = key([(_colour(column), column) for column in columns]) if _are_outcomes(columns) else NOTHING
    return tag(
        "section",
        tag("h3", _name(layer.name)),
        tag("p", _LEADS.get(layer.name, ""), class_="lead"),
        colours,
        tag("table", _heading(columns), _rows(layer.table, columns)),
        class_=f"panel {hue(layer.name)}",
    )


def _columns(table: Mapping[str, Mapping[str, int]]) -> list[str]:
    """The columns of all rows; outcomes are all there, in their order, even those that never came."""
    found = list(dict.fromkeys(column for row in table.values() for column in row))
    if not _are_outcomes(found):
        return found
    return [*figures.OUTCOMES, *(column for column in found if column not in figures.OUTCOMES)]


def _colour(column: str) -> str:
    return f"o-{column}" if column in figures.OUTCOMES else "o-other"


def _heading(columns: Sequence[str]) -> Markup:
    titles = (tag("th", column, class_="n") for column in columns)
    return tag("tr", tag("th"), tag("th", class_="wide"), titles)


def _rows(table: Mapping[str, Mapping[str, int]], columns: Sequence[str]) -> Iterator[Markup]:
    most = max((row.get(columns[0], 0) for row in table.values()), default=0) if columns else 0
    for name, row in table.items():
        full = {column: row.get(column, 0) for column in columns}
        drawn = _stacked(full) if _are_outcomes(columns) else bar(next(iter(full.values()), 0), most)
        cells = (_cell(column, count) for column, count in full.items())
        yield tag("tr", tag("th", name, scope="row"), tag("td", drawn, class_="wide"), cells)


def _cell(column: str, count: int) -> Markup:
    alarm = column == "silent" and count
    return tag("td", grouped(count), class_="n alarm" if alarm else "n" if count else "n nil")
