"""The page of a run: its figures, and the sequence of messages of each violation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recovery.clusterlab.explorer import trace
from recovery.clusterlab.metadata import METADATA
from recovery.clusterlab.world import EventKind
from recovery.report.render import render as render_template

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recovery.clusterlab.campaign import CampaignFigures
    from recovery.clusterlab.explorer import ViolatingSchedule
    from recovery.clusterlab.world import TraceEvent

_LANE_WIDTH = 150
_FIRST_LANE = 130
_ROW_HEIGHT = 30
_HEADER = 44
_TEXT_WIDTH = 6.4
"""The width of one character of a label."""

SHOWN_MAX = 5
"""The page shows the messages of so many violations."""


class Arrow(NamedTuple):
    """One row of a sequence: a message from lane to lane, or a note at one lane."""

    at: str
    kind: EventKind
    css: str
    y: int
    x1: float
    x2: float
    text: str
    text_x: float
    text_anchor: str


class MemberLane(NamedTuple):
    """The line of one client, of the metadata or of one bookie."""

    name: str
    x: int


class MessageSequence(NamedTuple):
    """A drawn schedule."""

    failure: ViolatingSchedule
    lanes: list[MemberLane]
    arrows: list[Arrow]
    width: int
    height: int


def render(figures: CampaignFigures) -> str:
    """Return the page. The same figures give the same bytes."""
    return render_template(
        Path(__file__).with_name("page.html.j2"),
        title="cluster laboratory: report",
        figures=figures,
        sequences=[drawn(one, trace(one)) for one in figures.failures[:SHOWN_MAX]],
        broken_worlds={name: one for name, one in figures.worlds.items() if one.violation},
        kinds=EventKind,
    )


def drawn(failure: ViolatingSchedule, events: Sequence[TraceEvent]) -> MessageSequence:
    """Return where everything of a schedule is drawn."""
    names = _lanes(events)
    lanes = [MemberLane(name, _FIRST_LANE + number * _LANE_WIDTH) for number, name in enumerate(names)]
    x_of = {lane.name: lane.x for lane in lanes}
    right = lanes[-1].x
    arrows = []
    for number, event in enumerate(events):
        y = _HEADER + 26 + number * _ROW_HEIGHT
        x1 = x_of.get(event.source, _FIRST_LANE)
        x2 = x_of.get(event.target, x1)
        text_x, anchor = (x1 + x2) / 2, "middle"
        if x1 == x2:
            is_late = x1 + 14 + len(event.text) * _TEXT_WIDTH > right + _LANE_WIDTH
            text_x, anchor = (x1 - 12, "end") if is_late and x1 > right / 2 else (x1 + 12, "start")
        css = event.kind.name.lower().replace("_", "-")
        arrows.append(Arrow(f"{event.at:.0f}", event.kind, css, y, x1, x2, event.text, text_x, anchor))
    ends = [one.x1 + len(one.text) * _TEXT_WIDTH for one in arrows if one.text_anchor == "start"]
    width = max(right + _LANE_WIDTH, int(max(ends, default=0)) + 30)
    return MessageSequence(failure, lanes, arrows, width, _HEADER + 40 + len(arrows) * _ROW_HEIGHT)


def _lanes(events: Sequence[TraceEvent]) -> list[str]:
    """Return the names of the lanes: clients, then the metadata, then bookies."""
    names = {name for one in events for name in (one.source, one.target) if name}
    clients = sorted(name for name in names if name != METADATA and not _is_bookie(name))
    bookies = sorted(filter(_is_bookie, names))
    return [*clients, METADATA, *bookies]


def _is_bookie(name: str) -> bool:
    return name.startswith("b") and name[1:].isdigit()
