"""Plots of the page as inline SVG, drawn by matplotlib: a chart of bars, and curves along an axis."""

from __future__ import annotations

import re
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup, escape
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullLocator

from recovery.report.formatting import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes

    from report.page import PlacedBar

ROW, HEAD, WIDTH = 44, 26, 440
"""Pixels of a row of the chart, of its axis, and its width. The rows of the table beside it are as high."""

_LOOKS = {
    "ours": ("ours", "o"),
    "ours, asynchronous": ("awaited", "D"),
    "raw": ("raw", "P"),
    "raw, futex": ("futex", "X"),
    "plyvel": ("plyvel", "^"),
    "rocksdict": ("rocksdict", "s"),
    "sqlite3": ("sqlite3", "v"),
    "lmdb": ("lmdb", ">"),
}
_HUES = [*(hue for hue, _ in _LOOKS.values()), "other", "ink", "soft", "line", "good", "bad"]
_COLOURS = {hue: f"#0000{number:02x}" for number, hue in enumerate(_HUES, 1)}
"""Placeholders: matplotlib knows no variables of a style sheet, so `_svg` puts them in place of these."""
_INK, _SOFT, _LINE = _COLOURS["ink"], _COLOURS["soft"], _COLOURS["line"]
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "",
    "text.parse_math": False,
    "font.size": 11,
    "text.color": _INK,
    "axes.edgecolor": _LINE,
    "axes.labelcolor": _SOFT,
    "grid.color": _LINE,
    **{f"{axis}tick.{part}": _SOFT for axis in "xy" for part in ("color", "labelcolor")},
    "axes.spines.top": False,
    "axes.spines.right": False,
}
compact = EngFormatter(sep="")
"""Formats a number as 64, 100k or 10M."""


class Point(NamedTuple):
    """A place on a curve: the median, and the middle half of the rounds."""

    x: float
    median: float
    low: float
    high: float


def look(contender: str) -> tuple[str, str]:
    """Return colour and marker of a contender. A variant looks like the contender it is named after."""
    families = [name for name in _LOOKS if contender.startswith(name)]
    return _LOOKS[max(families, key=len)] if families else ("other", "o")


def bar_chart(bars: Sequence[PlacedBar], sign: str) -> Markup:
    """Draw a row for each bar: its rounds, their median and spread, its floor and its aim."""
    height = HEAD + ROW * len(bars)
    with rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH / 72, height / 72))
        axes = figure.add_axes((0.03, 0, 0.94, ROW * len(bars) / height))
        axes.set(xscale="log", ylim=(len(bars) - 0.5, -0.5), yticks=[])
        axes.axvline(1, color=_SOFT, linewidth=1)
        for row, bar in enumerate(bars):
            _bar(axes, row, bar)
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.xaxis.tick_top()
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}{sign}"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.grid(axis="x")
        rounds = "; ".join(f"{bar.title}, rounds {bar.rounds}" for bar in bars)
        return _svg(figure, f"bars-{bars[0].number}", rounds)


def _bar(axes: Axes, row: int, bar: PlacedBar) -> None:
    floor = _COLOURS["bad" if bar.row["verdict"] == "missed" else "ink"]
    if bar.floor is not None:
        axes.vlines(bar.floor, row - 0.3, row + 0.3, floor, linewidth=2)
    if bar.aim is not None:
        axes.vlines(bar.aim, row - 0.3, row + 0.3, _COLOURS["good"], "dotted", linewidth=2)
    if values := [value for value in bar.values if 0 < value < float("inf")]:
        hue, marker = look(bar.row["subject"])
        drawn: dict[str, Any] = {"color": _COLOURS[hue], "clip_on": False, "markeredgewidth": 0}
        axes.plot([min(values), max(values)], [row, row], linewidth=5, alpha=0.3, **drawn)
        axes.plot(values, [row] * len(values), "o", markersize=5, alpha=0.6, **drawn)
        axes.plot([bar.median], [row], marker, markersize=9, gid=f"median-{bar.number}", **drawn)


def line_plot(
    name: str,
    across: str,
    curves: dict[str, list[Point]],
    label: Callable[[float], str],
    linear_within: float = 0,
) -> Markup:
    """Draw the curves of contenders, with a legend in the order of their ends.

    Both axes are logarithmic, but the upright one is linear from zero if the largest value is less than
    `linear_within` times the smallest.
    """
    places = sorted({point.x for points in curves.values() for point in points})
    least = min(point.low for points in curves.values() for point in points)
    most = max(point.high for points in curves.values() for point in points)
    with rc_context(_STYLE):
        figure = Figure(figsize=(7.4, 4), layout="constrained")
        axes = figure.add_subplot(xscale="log", xlabel=across)
        axes.set_xticks(places, [compact(place) for place in places])
        axes.xaxis.set_minor_locator(NullLocator())
        if most > linear_within * least:
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=9))
            axes.yaxis.set_minor_locator(NullLocator())
        else:
            axes.set_ylim(0, most * 1.08)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: label(value)))
        axes.grid(axis="y")
        ordered = dict(sorted(curves.items(), key=lambda item: -item[1][-1].median))
        for number, (contender, points) in enumerate(ordered.items()):
            hue, marker = look(contender)
            x, medians, lows, highs = zip(*points, strict=True)
            axes.vlines(x, lows, highs, _COLOURS[hue], linewidth=1)
            axes.plot(
                x,
                medians,
                marker=marker,
                color=_COLOURS[hue],
                linewidth=2.6 if hue == "ours" else 1.6,
                label=visible(contender),
                gid=f"curve-{number}",
            )
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
        ends = ", ".join(f"{contender} {label(points[-1].median)}" for contender, points in ordered.items())
        return _svg(figure, name, f"At {compact(places[-1])} {across}: {ends}")


def _svg(figure: Figure, name: str, text: str) -> Markup:
    """Return the figure as SVG with the colours of the style sheet and with ids unique on the page."""
    target = StringIO()
    figure.savefig(target, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = re.sub(
        r"(?s)^.*?(?=<svg)|<metadata>.*?</metadata>|xlink:| xmlns(:\w+)?=\"[^\"]*\"", "", target.getvalue()
    )
    svg = re.sub(r' width="\S*pt"| height="\S*pt"', "", svg, count=2)
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{escape(visible(text))}"', 1)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\1{name}.", svg)
    for hue, colour in _COLOURS.items():
        svg = svg.replace(colour, f"var(--{hue})")
    return Markup(svg)  # noqa: S704 - matplotlib escapes the texts in it
