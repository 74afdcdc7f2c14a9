"""One plot: curves on axes, each named at its end.

What is across is in percent and what is upright in pixels, so that a plot becomes as wide as there is room
and its words stay as large as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from page.looks import look, marker
from page.scale import Log, apart, thinned
from page.wording import compact, share
from recovery.page.markup import Markup, joined, tag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from page.curves import Curve, Spot
    from page.scale import Scale

HEIGHT = 260
_TOP = 10
_FOOT = 40
_LINE = 15
_PLACES_MAX = 8
_BEFORE_NAMES, _LETTER = 34, 6.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """What is drawn, and how it is called."""

    title: str
    unit: str
    """Of the upright axis, and which way is good."""
    across: str
    """What the other axis is."""
    curves: Sequence[Curve]
    upright: Scale
    label: Callable[[float], str]
    """How a value of the upright axis is written."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Contender -> what it is called here, where that is not its name."""
    remark: str = ""

    @property
    def places(self) -> list[float]:
        """Where the curves have been measured."""
        return sorted({spot.x for curve in self.curves for spot in curve.spots})

    def name(self, curve: Curve) -> str:
        return self.names.get(curve.contender, curve.contender)

    def x(self, value: float) -> float:
        """Its place across: of a single one the middle."""
        places = self.places
        return 0.5 if len(places) == 1 else Log(places[0], places[-1]).at(value)

    def y(self, value: float) -> float:
        """Its place from the top, in pixels."""
        return _TOP + HEIGHT * (1 - self.upright.at(value))


def draw(panel: Panel) -> Markup:
    """The plot with its title and its axes."""
    return tag(
        "figure",
        tag("figcaption", tag("b", panel.title), tag("span", panel.unit)),
        tag("div", _scale(panel), _area(panel), _names(panel), class_="plot"),
        tag("p", panel.remark, class_="remark") if panel.remark else None,
        class_="panel",
    )


def _svg(*children: Markup, class_: str, width: float | None = None) -> Markup:
    return tag("svg", *children, class_=class_, width=width, height=_TOP + HEIGHT + _FOOT)


def _scale(panel: Panel) -> Markup:
    ticks = (
        tag("text", panel.label(tick), class_="axis", x="100%", y=panel.y(tick) + 4, text_anchor="end")
        for tick in panel.upright.ticks()
    )
    return _svg(joined(ticks), class_="upright")


def _area(panel: Panel) -> Markup:
    drawn = (joined(_curve(panel, curve)) for curve in reversed(panel.curves))
    return _svg(joined(_grid(panel)), joined(_feet(panel)), *drawn, class_="area")


def _grid(panel: Panel) -> Iterator[Markup]:
    for tick in panel.upright.ticks():
        y = panel.y(tick)
        yield tag("line", class_="rule", x1="0", x2="100%", y1=y, y2=y)


def _feet(panel: Panel) -> Iterator[Markup]:
    for place in thinned(panel.places, _PLACES_MAX):
        x, y = share(panel.x(place)), _TOP + HEIGHT
        yield tag("line", class_="rule", x1=x, x2=x, y1=_TOP, y2=y + 5)
        yield tag("text", compact(place), class_="axis", x=x, y=y + 18, text_anchor="middle")
    yield tag("text", panel.across, class_="axis title", x="50%", y=_TOP + HEIGHT + 35, text_anchor="middle")


def _curve(panel: Panel, curve: Curve) -> Iterator[Markup]:
    yield _line(panel, curve)
    for spot in curve.spots:
        yield _whisker(panel, curve, spot)
    for spot in curve.spots:
        said = f"{panel.name(curve)}, {compact(spot.x)}: {panel.label(spot.median)}"
        yield marker(curve.contender, share(panel.x(spot.x)), f"{panel.y(spot.median):.1f}", said)


def _line(panel: Panel, curve: Curve) -> Markup:
    points = " ".join(f"{1000 * panel.x(spot.x):.1f},{panel.y(spot.median):.1f}" for spot in curve.spots)
    height = _TOP + HEIGHT
    return tag(
        "svg",
        tag("polyline", class_=f"curve {look(curve.contender).classes}", points=points),
        x="0",
        y="0",
        width="100%",
        height=height,
        viewBox=f"0 0 1000 {height}",
        preserveAspectRatio="none",
    )


def _whisker(panel: Panel, curve: Curve, spot: Spot) -> Markup:
    x = share(panel.x(spot.x))
    hue = f"whisker {look(curve.contender).classes}"
    return tag("line", class_=hue, x1=x, x2=x, y1=panel.y(spot.high), y2=panel.y(spot.low))


def _names(panel: Panel) -> Markup:
    ends = [panel.y(curve.spots[-1].median) for curve in panel.curves]
    places = apart([end - _TOP for end in ends], _LINE, HEIGHT)
    drawn = (
        joined(_name(panel, curve, end, place + _TOP))
        for curve, end, place in zip(panel.curves, ends, places, strict=True)
    )
    longest = max(len(panel.name(curve)) for curve in panel.curves)
    return _svg(joined(drawn), class_="names", width=_BEFORE_NAMES + longest * _LETTER)


def _name(panel: Panel, curve: Curve, end: float, place: float) -> Iterator[Markup]:
    is_at_the_end = curve.spots[-1].x == panel.places[-1] and len(panel.places) > 1
    if is_at_the_end:
        hue = f"leader {look(curve.contender).classes}"
        yield tag("path", class_=hue, d=f"M6 {end:.1f}L16 {place:.1f}")
    yield marker(curve.contender, "23", f"{place:.1f}")
    yield tag("text", panel.name(curve), x="32", y=place + 4)
