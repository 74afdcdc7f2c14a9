"""The plots of a run: by the number of writers, and as the store grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from page import wording
from page.curves import along, curves
from page.panel import Panel, draw
from page.scale import cost_over, log_over
from recovery.page.markup import Markup, tag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from page.curves import Curve
    from page.run import Run

WRITERS = "concurrency"
_MANY = 4
ENTRIES = "entries"
_OF_WRITERS = {
    "rate": "Throughput",
    "p50": "Latency, p50",
    "p99": "Latency, p99",
    "p999": "Latency, p99.9",
}
_NO_COST = {
    "calls",
    "count",
    "entries",
    "mb_per_s",
    "p50",
    "p99",
    "p999",
    "p999_by_p50",
    "peak_memory",
    "rate",
    "replayed",
    "seconds",
}
"""What is said of a growing store beside what an add, a read and an opening cost."""
_BLOCKING = {"ours": "ours, threads"}


def by_writers(run: Run) -> Markup:
    """Throughput and latencies, from one writer to many."""
    lead = (
        "Adds of 1 KB, each durable before it is acknowledged, by threads that wait for it, or tasks of one "
        "loop. Medians, with an upright line over the middle half of the rounds. All axes are logarithmic."
    )
    panels = [_of_writers(run, figure, title) for figure, title in _OF_WRITERS.items()]
    return _section("More writers at once", lead, WRITERS, [one for one in panels if one.curves])


def as_it_grows(run: Run) -> Markup:
    """What an add, a read and an opening cost in an ever larger store."""
    rows = along(run, ENTRIES)
    figures = list(dict.fromkeys(name for row in rows for name in row.figures() if name not in _NO_COST))
    panels = [_of_entries(run, figure) for figure in figures]
    lead = (
        "A cost that does not depend on how much there is already is a level line; less is better. The sizes "
        "were measured one after the other: what has a floor is compared within the same rounds, above."
    )
    return _section("As the store grows", lead, ENTRIES, [one for one in panels if one.curves])


def _section(title: str, lead: str, axis: str, panels: Sequence[Panel]) -> Markup:
    if panels:
        # Three beside each other, where there are so many, and not many names beside them.
        is_small = len(panels) % 3 == 0 and max(len(panel.curves) for panel in panels) < _MANY
        size = " small" if is_small else ""
        body = tag("div", map(draw, panels), class_=f"panels{size}")
    else:
        why = f"Not measured in this run: none of its scenarios is a point of the axis “{axis}”."
        lead, body = "", tag("p", why, class_="absent")
    return tag("section", tag("h2", title), tag("p", lead, class_="lead") if lead else None, body)


def _of_writers(run: Run, figure: str, title: str) -> Panel:
    found = curves(run, WRITERS, figure)
    is_rate = figure == "rate"
    return Panel(
        title=title,
        unit="adds in a second, more is better" if is_rate else "of an add, less is better",
        across="writers at once",
        curves=found,
        upright=log_over(_values(found)),
        label=wording.round_number if is_rate else wording.duration,
        names=_BLOCKING,
    )


def _of_entries(run: Run, figure: str) -> Panel:
    found, called = curves(run, ENTRIES, figure), wording.words(figure, run.units)
    return Panel(
        title=called.name.capitalize(),
        unit=called.unit,
        across="entries in the store",
        curves=found,
        upright=cost_over(list(_values(found))),
        label=_label(called.unit),
        remark="; ".join(_changes(found)),
    )


def _label(unit: str) -> Callable[[float], str]:
    if unit == "µs":
        return lambda value: wording.duration(value) if value else "0"
    return lambda value: f"{wording.round_number(value)} {unit}".strip()


def _changes(found: Sequence[Curve]) -> Iterator[str]:
    for curve in found:
        if curve.change is not None:
            first, last = (wording.compact(curve.spots[end].x) for end in (0, -1))
            yield f"{curve.contender}: {wording.change(curve.change)} from {first} to {last}"


def _values(found: Sequence[Curve]) -> Iterator[float]:
    for curve in found:
        for spot in curve.spots:
            yield from (spot.low, spot.high)
