"""The shape of each kind of call, drawn on its lane; and the legend, drawn with the same shapes."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING

from recovery.page.markup import Markup, joined, tag

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.crashlab.numbers import TimelineEvent

LANE = 22
"""The height of a lane."""


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a call is drawn: its middle, the width it may have, its target's lane, the largest write."""

    x: float
    y: float
    width: float = 6
    target_y: float | None = None
    largest: int = 1


def shape(event: TimelineEvent, spot: Spot, title: str) -> Markup:
    """The call as it is drawn, its words in the title."""
    if event.is_sync and event.call != "write":
        return _sync(event, spot, title)
    return _SHAPES.get(event.call, _other)(event, spot, title)


def _titled(name: str, title: str, **attributes: str | float | None) -> Markup:
    return tag(name, tag("title", title) if title else None, **attributes)


def _write(event: TimelineEvent, spot: Spot, title: str) -> Markup:
    # By the logarithm, so that a mark of 16 bytes is still seen beside a write of megabytes.
    height = 3 + (LANE - 7) * log(event.size + 1) / log(spot.largest + 1)
    bottom = spot.y + LANE / 2 - 2
    return _titled(
        "rect",
        title,
        class_="w d" if event.is_sync else "w",
        x=spot.x - spot.width / 2,
        y=bottom - height,
        width=spot.width,
        height=height,
    )


def _sync(_: TimelineEvent, spot: Spot, title: str) -> Markup:
    half = LANE / 2
    return _titled("path", title, class_="s", d=f"M{spot.x:.1f} {spot.y - half:g}v{LANE}")


def _create(_: TimelineEvent, spot: Spot, title: str) -> Markup:
    return _titled("circle", title, class_="c", cx=spot.x, cy=spot.y, r=4)


def _mkdir(_: TimelineEvent, spot: Spot, title: str) -> Markup:
    return _titled("rect", title, class_="c", x=spot.x - 4, y=spot.y - 4, width=8, height=8)


def _rename(_: TimelineEvent, spot: Spot, title: str) -> Markup:
    diamond = "l4.5 5l-4.5 5l-4.5 -5z"
    if spot.target_y is None or spot.target_y == spot.y:
        return _titled("path", title, class_="r", d=f"M{spot.x:.1f} {spot.y - 5:g}{diamond}")
    down = 1 if spot.target_y > spot.y else -1
    arrow = f"M{spot.x:.1f} {spot.target_y:g}l-4.5 {-7 * down}h9z"
    return tag(
        "g",
        tag("title", title) if title else None,
        tag("path", class_="rl", d=f"M{spot.x:.1f} {spot.y:g}V{spot.target_y - 5 * down:g}"),
        tag("path", class_="r", d=f"M{spot.x:.1f} {spot.y - 5:g}{diamond}{arrow}"),
    )


def _unlink(_: TimelineEvent, spot: Spot, title: str) -> Markup:
    d = f"M{spot.x - 4:.1f} {spot.y - 4:g}l8 8m0 -8l-8 8"
    return _titled("path", title, class_="x", d=d)


def _truncate(_: TimelineEvent, spot: Spot, title: str) -> Markup:
    return _titled("path", title, class_="t", d=f"M{spot.x - 5:.1f} {spot.y - 4:g}h10l-5 8z")


def _allocate(_: TimelineEvent, spot: Spot, title: str) -> Markup:
    bottom = spot.y + LANE / 2 - 2
    width = max(5.0, spot.width)
    return _titled(
        "rect", title, class_="al", x=spot.x - width / 2, y=bottom - LANE + 6, width=width, height=LANE - 6
    )


def _unseen(_: TimelineEvent, spot: Spot, title: str) -> Markup:
    return _titled("path", title, class_="q", d=f"M{spot.x - 5:.1f} {spot.y + 5:g}h10l-5 -10z")


def _other(_: TimelineEvent, spot: Spot, title: str) -> Markup:
    return _titled("circle", title, class_="o", cx=spot.x, cy=spot.y, r=2.5)


_SHAPES: dict[str, Callable[[TimelineEvent, Spot, str], Markup]] = {
    "write": _write,
    "create": _create,
    "mkdir": _mkdir,
    "link": _rename,
    "symlink": _rename,
    "rename": _rename,
    "exchange": _rename,
    "unlink": _unlink,
    "rmdir": _unlink,
    "truncate": _truncate,
    "allocate": _allocate,
    "map": _unseen,
}


def mark(event: TimelineEvent, x: float, y: float, title: str) -> Markup:
    """A tick for a mark: long where something was acknowledged, short where it was only asked."""
    if event.call == "ack":
        return _titled("path", title, class_="a", d=f"M{x:.1f} {y - LANE / 2 + 2:g}v{LANE - 4}")
    return _titled("path", title, class_="i", d=f"M{x:.1f} {y:g}v{LANE / 2 - 2:g}")


# ── legend ──────────────────────────────────────────────────────────────────────────────────────────────────

_LEGEND = (
    ("write", 300, "write, by bytes"),
    ("create", 0, "created"),
    ("mkdir", 0, "directory made"),
    ("rename", 0, "renamed"),
    ("unlink", 0, "removed"),
    ("truncate", 0, "cut"),
    ("allocate", 0, "allocated"),
)


def legend(sample: Callable[[str, int], TimelineEvent]) -> Markup:
    """What the shapes mean."""
    spot = Spot(8, LANE / 2, 6, None, 4000)
    drawn = [(shape(sample(call, size), spot, ""), words) for call, size, words in _LEGEND]
    durable = tag("rect", class_="w d", x=5, y=6, width=6, height=14)
    waiting = tag("rect", class_="wait", x=0, y=2, width=16, height=LANE - 4)
    red = tag("path", class_="crashline", d=f"M8 0v{LANE}")
    drawn.insert(1, (durable, "durable write"))
    drawn += [
        (_sync(sample("sync", 0), spot, ""), "sync"),
        (waiting, "not synced: a crash may take it"),
        (mark(sample("ack", 0), 8, LANE / 2, ""), "acknowledged"),
        (mark(sample("invoke", 0), 8, LANE / 2, ""), "asked"),
        (red, "crash that broke a promise"),
    ]
    return tag("div", (tag("span", _swatch(node), words) for node, words in drawn), class_="legend")


def _swatch(node: Markup) -> Markup:
    return tag("svg", joined(node), width=16, height=LANE, viewBox=f"0 0 16 {LANE}", aria_hidden="true")
