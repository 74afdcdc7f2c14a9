"""The chart of bars: for each row of the table its rounds, on an axis with floor and aim."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from result import RATE

from page import wording
from page.looks import look, marker, swatch
from page.scale import log_over
from page.standing import Group
from page.verdict import SIGNS, css_class
from page.wording import share
from recovery.page.markup import NOTHING, Markup, joined, tag

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from result import Bar, Verdict

    from page.scale import Scale
    from page.standing import Score, Standing

_LEADS = {
    Group.RAW: "How much is left of what a loop in C does with the same bytes.",
    Group.PEER: "Against whichever peer was best at the same work. Right of 1 ours is better.",
    Group.OTHER: "Against ourselves in another way, or a peer that works in another way.",
    Group.OWN: "As multiples of the floor; right is always better. What has no floor is in the tables.",
}
_USUAL = {"÷ raw", "÷ raw, futex", "÷ best peer"}
_NOTHING_TOLD = "not measured in this run"


def bars(score: Score) -> Markup:
    """All groups; one without a row says so."""
    return tag(
        "section",
        tag("h2", "Every bar"),
        tag(
            "p",
            "A dot is a round, compared with the same round of the other; the large mark is their median, "
            "and the line reaches from the worst round to the best. The axes are logarithmic.",
            class_="lead",
        ),
        _key(),
        (_group(group, [one for one in score if one.group is group and _is_drawn(one)]) for group in Group),
        class_="bars",
    )


def _group(group: Group, found: Sequence[Standing]) -> Markup:
    if not found:
        return NOTHING if group is Group.OTHER else _empty(group)
    scale = log_over(chain.from_iterable(_places(one) for one in found))
    axis = _axis(scale, "×" if group is Group.OWN else "")
    return tag(
        "div",
        tag("header", tag("h3", group.value), tag("p", _LEADS[group])),
        axis,
        (_row(one, scale) for one in found),
        axis if len(found) > 3 else NOTHING,
        class_="group",
    )


def _is_drawn(one: Standing) -> bool:
    """A figure in its own unit and without a floor has nothing to be held against."""
    return bool(one.judged.bar.against) or one.judged.bar.floor is not None


def _empty(group: Group) -> Markup:
    return tag(
        "div",
        tag("header", tag("h3", group.value)),
        tag("p", _NOTHING_TOLD, class_="absent"),
        class_="group",
    )


def _places(one: Standing) -> Iterator[float]:
    yield 1.0
    yield from one.values
    yield from (limit for limit in (one.floor, one.aim) if limit is not None)


# ── a row ────────────────────────────────────────────────────────────────────────────────────────────────


def _row(one: Standing, scale: Scale) -> Markup:
    verdict = one.judged.verdict
    return tag(
        "div",
        tag("div", tag("b", one.title), tag("span", _detail(one)), class_="what"),
        _track(one, scale),
        tag("div", _large(one), class_="value"),
        tag("div", _asked(one), class_="asked"),
        tag("div", _pill(verdict), class_="outcome"),
        class_=f"row {css_class(verdict)}",
        id=f"bar-{one.number}",
    )


def _detail(one: Standing) -> str:
    """The two figures of a ratio, in words."""
    judged, bar = one.judged, one.judged.bar
    if not bar.against or judged.ours is None or judged.theirs is None:
        return bar.label
    ours, theirs = (wording.measured(value, bar.figure.unit) for value in (judged.ours, judged.theirs))
    subject = "" if bar.subject == "ours" else f" {bar.subject}"
    return f"{_said_before(bar)}{ours}{subject} ÷ {theirs} {judged.than}"


def _said_before(bar: Bar) -> str:
    """What the heading of the group does not say."""
    if bar.label not in _USUAL:
        return f"{bar.label}: "
    return "" if bar.figure.name == RATE.name else f"{wording.words(bar.figure.name, {}).name} "


def _value(one: Standing) -> str:
    median = one.judged.median
    return "–" if median is None else wording.judged(median, one.judged.bar)


def _large(one: Standing) -> Markup:
    """The same, with its unit smaller."""
    median, bar = one.judged.median, one.judged.bar
    if median is None or bar.against:
        return joined(_value(one))
    return joined((wording.number(median), tag("small", bar.figure.unit)))


def _asked(one: Standing) -> Markup:
    bar = one.judged.bar
    if bar.floor is None:
        return NOTHING
    aim = tag("span", f"aim {wording.limit(bar.aim, bar)}") if bar.aim is not None else NOTHING
    return joined((tag("span", f"floor {wording.limit(bar.floor, bar)}"), aim))


def _pill(verdict: Verdict) -> Markup:
    said = verdict.value or "no floor"
    return tag("span", f"{SIGNS[verdict]} {said}".strip(), class_=f"pill {css_class(verdict)}")


# ── its track ────────────────────────────────────────────────────────────────────────────────────────────


def _track(one: Standing, scale: Scale) -> Markup:
    drawn = tag("svg", _grid(scale), _limits(one, scale), _rounds(one, scale), **_aria(one))
    return tag("div", drawn, class_="track")


def _aria(one: Standing) -> dict[str, str]:
    judged = one.judged
    rounds = ", ".join(wording.judged(value, judged.bar) for value in judged.values)
    return {"role": "img", "aria_label": f"median {_value(one)}; rounds {rounds or 'none'}"}


def _grid(scale: Scale) -> Markup:
    return joined(_upright(scale.at(tick), "one" if tick == 1 else "rule") for tick in scale.ticks())


def _upright(place: float, class_: str, top: str = "0", bottom: str = "100%") -> Markup:
    return tag("line", class_=class_, x1=share(place), x2=share(place), y1=top, y2=bottom)


def _limits(one: Standing, scale: Scale) -> Iterator[Markup]:
    if one.floor is not None:
        place = scale.at(one.floor)
        yield tag("rect", class_="below", x="0", y="0", width=share(place), height="100%")
        yield _upright(place, "floor", "12%", "88%")
    if one.aim is not None:
        yield _upright(scale.at(one.aim), "aim", "12%", "88%")


def _rounds(one: Standing, scale: Scale) -> Iterator[Markup]:
    if one.median is None:
        return
    subject, bar = one.judged.bar.subject, one.judged.bar
    low, high = (share(scale.at(end)) for end in (min(one.values), max(one.values)))
    yield tag("line", class_=f"spread {look(subject).classes}", x1=low, x2=high, y1="50%", y2="50%")
    for place, value in zip(one.values, one.judged.values, strict=True):
        title = tag("title", wording.judged(value, bar))
        hue = f"round {look(subject).classes}"
        yield tag("circle", title, class_=hue, cx=share(scale.at(place)), cy="50%", r=3)
    yield marker(subject, share(scale.at(one.median)), "50%", f"median {_value(one)}")


def _axis(scale: Scale, sign: str) -> Markup:
    ticks = (
        tag("text", f"{tick:g}{sign}", class_="axis", x=share(scale.at(tick)), y="15", text_anchor="middle")
        for tick in scale.ticks()
    )
    return tag("div", tag("div", tag("svg", ticks, aria_hidden="true"), class_="track"), class_="row scale")


def _key() -> Markup:
    """What the lines mean."""
    floor = tag("svg", _upright(0.5, "floor"), class_="swatch", width=14, height=14, aria_hidden="true")
    aim = tag("svg", _upright(0.5, "aim"), class_="swatch", width=14, height=14, aria_hidden="true")
    return tag(
        "p",
        tag("span", floor, "floor"),
        tag("span", aim, "aim"),
        tag("span", swatch("ours"), "ours, blocking"),
        tag("span", swatch("ours, asynchronous"), "ours, asynchronous"),
        class_="key",
    )
