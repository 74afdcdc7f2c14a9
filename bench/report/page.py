"""The page of a run: one HTML file without script, drawn from what `store.py --json` has written."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contest.machine import crowded
from contest.result import Result
from matplotlib.ticker import EngFormatter

from recovery.report.render import render as render_template
from report import plots
from report.plots import Point, compact
from report.text_report import FORMAT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from markupsafe import Markup

    Run = Mapping[str, Any]
    """The JSON of a run."""

_TEMPLATE = Path(__file__).with_name("page.html.j2")
_WRITERS = {"rate": "Throughput", "p50": "Latency, p50", "p99": "Latency, p99", "p999": "Latency, p99.9"}
_COUNTS = {"count", "calls", "seconds"}
"""Figures about the effort of a measurement, not about its result."""
_NO_COST = {*_COUNTS, *_WRITERS, "entries", "p999_by_p50", "mb_per_s", "peak_memory", "replayed"}
_LABELS = {
    "rate": ("throughput", "/s", 1),
    "p50": ("p50", "ms", 1e-3),
    "p99": ("p99", "ms", 1e-3),
    "p999": ("p99.9", "ms", 1e-3),
    "p999_by_p50": ("p99.9 ÷ p50", "", 1),
    "us_acknowledged": ("an add until acknowledged", "µs", 1),
    "us_per_add": ("an add", "µs", 1),
    "us_per_read": ("a random read", "µs", 1),
    "open_ms": ("opening", "ms", 1),
    "ms": ("opening", "ms", 1),
    "us": ("a call", "µs", 1),
    "mb_per_s": ("replay", "MB/s", 1),
    "in_journals": ("in journals", "MiB", 2**-20),
    "replayed": ("replayed", "MiB", 2**-20),
    "peak_memory": ("peak memory", "MiB", 2**-20),
}
"""Figure -> its name, its unit on the page, and the factor to that unit."""


class UnknownFormat(Exception):
    """The file was written by another version of the benchmark. The message names its format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedBar:
    """A bar of the run and its values on a chart, where right is better."""

    number: int
    title: str
    row: Mapping[str, Any]
    """The bar as the JSON has it."""
    group: str
    values: Sequence[float]
    """For each round the ratio, or how many times as good as the floor the figure is."""
    floor: float | None
    aim: float | None

    @property
    def median(self) -> float:
        return statistics.median(self.values) if self.values else inf

    @property
    def distance(self) -> float:
        """Median divided by floor, below 1 if the floor is missed."""
        return self.median / self.floor if self.floor else inf

    @property
    def rounds(self) -> str:
        return ", ".join(number(value) for value in self.row["values"]) or "not measured"


def render(run: Run) -> str:
    """Return the page of a run. The same run gives the same bytes."""
    if run.get("format") != FORMAT:
        raise UnknownFormat(f"format {run.get('format')!r}, but this page needs format {FORMAT}")
    rows = run["scenarios"]
    results = {row["name"]: _result(row) for row in rows}
    bars = placed_bars(run)
    judged = [bar for bar in bars if bar.row["floor"] is not None]
    missed = [bar for bar in judged if bar.row["verdict"] == "missed"]
    return render_template(
        _TEMPLATE,
        title="ledgerstore: bench",
        run=run,
        busy=crowded(next(iter(run["machine"].get("load", ())), 0.0), run["machine"].get("cpus") or 1),
        groups={name: [bar for bar in bars if bar.group == name] for name in ("raw", "peer", "other", "own")},
        judged=judged,
        counts=Counter(bar.row["verdict"] for bar in judged),
        furthest=min(missed, key=lambda bar: bar.distance, default=None),
        tables=[(row, results[row["name"]], _columns(row, results[row["name"]])) for row in rows],
        label=lambda figure: label(figure, run),
        writers=list(_writer_plots(run, results)),
        growth=list(_growth_plots(run, results)),
        plots=plots,
        number=number,
        with_unit=with_unit,
        median=statistics.median,
    )


def _result(row: Mapping[str, Any]) -> Result:
    return Result(scenario=row["name"], title=row["title"], rounds=row["rounds"], whole=row["whole"])


def number(value: float) -> str:
    """Return a number of at least 100 with commas, such as 12,345, and a smaller one with three digits."""
    return f"{value:,.0f}" if not value or abs(value) >= 99.95 else f"{value:#.3g}"


def plain(value: float) -> str:
    """Return a number of an axis without trailing zeros, such as 20,000 or 0.5."""
    return f"{value:,.10g}"


def microseconds(value: float) -> str:
    """Return 20 µs, 1.5 ms or 2 s."""
    return EngFormatter(unit="s")(value / 1e6)


def with_unit(text: str, unit: str) -> str:
    """Return 8,042/s or 5.48 ms."""
    return text + unit if unit.startswith("/") else f"{text} {unit}".strip()


def label(figure: str, run: Run) -> tuple[str, str, float]:
    """Return the label of a figure. An unknown one keeps its name and gets the unit of a bar about it."""
    units = {bar["figure"]: bar["unit"] for row in run["scenarios"] for bar in row["bars"]}
    return _LABELS.get(figure) or (figure.replace("_by_", " ÷ ").replace("_", " "), units.get(figure, ""), 1)


def placed_bars(run: Run) -> list[PlacedBar]:
    """Return the bars that have a place on a chart, in the order of the table."""
    rows = [(bar["title"] or row["title"], bar) for row in run["scenarios"] for bar in row["bars"]]
    placed = (_placed(at, title, row, tuple(run["peers"])) for at, (title, row) in enumerate(rows))
    return [bar for bar in placed if bar.row["against"] or bar.floor]


def _placed(at: int, title: str, row: Mapping[str, Any], peers: tuple[str, ...]) -> PlacedBar:
    against, floor, aim, values = row["against"], row["floor"], row["aim"], row["values"]
    # The best of one peer is no best peer: such a bar compares with this peer for a reason of its own.
    is_peer = len(against) > 1 and all(name.startswith(peers) for name in against)
    group = "raw" if all(name.startswith("raw") for name in against) else "peer" if is_peer else "other"
    if not against:
        group = "own"
        if floor is not None:
            values = [_times(value, floor, row["better"]) for value in values]
            floor, aim = 1.0, aim and _times(aim, floor, row["better"])
    return PlacedBar(number=at, title=title, row=row, group=group, values=values, floor=floor, aim=aim)


def _times(value: float, floor: float, better: str) -> float:
    """Return how many times as good as the floor the value is."""
    return value / floor if better == "more" else floor / value if value else inf


def _figures(result: Result) -> list[str]:
    """Return the names of all figures of a scenario, in the order of their first appearance."""
    laps = [figures for lap in (*result.rounds, result.whole) for figures in lap.values()]
    return list(dict.fromkeys(name for figures in laps for name in figures))


def _columns(row: Mapping[str, Any], result: Result) -> list[str]:
    hidden = _COUNTS | ({"p999_by_p50"} - {bar["figure"] for bar in row["bars"]})
    return [name for name in _figures(result) if name not in hidden]


def curves(run: Run, results: Mapping[str, Result], axis: str, figure: str) -> dict[str, list[Point]]:
    """Return the points of each contender along an axis.

    A contender that was measured at one place only is left out if others were measured at several.
    """
    found: dict[str, list[Point]] = {}
    rows = [row for row in run["scenarios"] if axis in row["points"]]
    for row in sorted(rows, key=lambda row: row["points"][axis]):
        for name in row["contenders"]:
            values = results[row["name"]].values(name, figure)
            if values and min(values) > 0:
                low, median, high = _quartiles(values)
                found.setdefault(name, []).append(Point(row["points"][axis], median, low, high))
    least = min(2, max(map(len, found.values()), default=0))
    return {name: points for name, points in found.items() if len(points) >= least}


def _quartiles(values: list[float]) -> list[float]:
    return statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3


def _writer_plots(run: Run, results: Mapping[str, Result]) -> Iterator[tuple[str, str, Markup, str]]:
    """Yield title, unit, plot and remark for each figure that depends on the number of writers."""
    for figure, title in _WRITERS.items():
        if found := curves(run, results, "concurrency", figure):
            is_rate = figure == "rate"
            unit = "adds in a second, more is better" if is_rate else "of an add, less is better"
            text = plain if is_rate else microseconds
            yield title, unit, plots.line_plot(f"writers-{figure}", "writers at once", found, text), ""


def _growth_plots(run: Run, results: Mapping[str, Result]) -> Iterator[tuple[str, str, Markup, str]]:
    """Yield title, unit, plot and remark for each cost of a growing store."""
    rows = [row for row in run["scenarios"] if "entries" in row["points"]]
    names = dict.fromkeys(name for row in rows for name in _figures(results[row["name"]]))
    for at, figure in enumerate(names):
        if figure not in _NO_COST and (found := curves(run, results, "entries", figure)):
            name, unit, _ = label(figure, run)
            plot = plots.line_plot(f"growth-{at}", "entries in the store", found, plain, linear_within=8)
            yield name.capitalize(), unit, plot, "; ".join(_changes(found))


def _changes(found: Mapping[str, Sequence[Point]]) -> Iterator[str]:
    for name, points in found.items():
        if len(points) > 1:
            change = 100 * (points[-1].median / points[0].median - 1)
            yield f"{name}: {change:+,.0f} % from {compact(points[0].x)} to {compact(points[-1].x)}"
