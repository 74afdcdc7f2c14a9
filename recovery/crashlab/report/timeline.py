"""Each workload as it was recorded: calls from left to right, a lane for each file, crashes in red."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from recovery.crashlab.numbers import TimelineEvent
from recovery.crashlab.report import figures, lanes, shapes
from recovery.crashlab.report.shapes import LANE, Spot
from recovery.page.markup import NOTHING, Markup, joined, tag
from recovery.page.wording import counted, duration, grouped, line, shortened, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from recovery.crashlab.numbers import LabNumbers, ViolationNumbers, WorkloadNumbers

_LABELS = 246  # the width of the column of names
_NAME = 96  # the room of a name beside its marks, where files share a lane
_NAME_MAX = 12
_FITS = 930  # what a window shows beside it
_STEP_MIN, _STEP_MAX = 6.0, 17.0
_AXIS = 26
_MARKS_Y = _AXIS + LANE / 2
_TOP = _AXIS + LANE
_BAND = 1500  # what a line of print shows
_DRAWN_MAX = 8_000
_BUCKETS = 240
_OVERVIEW = 34
_HINT = "Point at a mark to read the whole call."


@dataclass(frozen=True, slots=True)
class Place:
    """Where a crash is drawn: the identifier of the timeline, and how far from its left end."""

    timeline: str
    x: float


Places: TypeAlias = "Mapping[tuple[str, int], Place]"


class Scale:
    """Calls to places: all of them as wide as fits, but never so close that none can be pointed at."""

    def __init__(self, calls: float) -> None:
        self.calls = max(1.0, calls)
        self.step = min(_STEP_MAX, max(_STEP_MIN, _FITS / (self.calls + 2)))
        self.width = max(_FITS, round((self.calls + 2) * self.step))

    def x(self, moment: float) -> float:
        return round((moment + 0.5) * self.step, 1)


def places_of(numbers: LabNumbers) -> Places:
    """The place of every crash that has one, so that a violation can point there."""
    found = {}
    for index, workload in enumerate(numbers.workloads):
        if workload.timeline:
            scale = _scale(_drawn(workload))
            for violation in _crashes(workload, numbers.violations):
                found[workload.name, violation.at] = Place(f"t{index}", scale.x(violation.at))
    return found


def timelines(numbers: LabNumbers) -> Markup:
    """One drawing for each workload, and what its marks mean below each."""
    if not numbers.workloads:
        return NOTHING
    drawings = (
        _timeline(f"t{index}", workload, list(_crashes(workload, numbers.violations)))
        for index, workload in enumerate(numbers.workloads)
    )
    lead = "Every call that changed something, in the order in which it took effect."
    legend = shapes.legend(lambda call, count: TimelineEvent(1, call, "", count))
    return joined((tag("h2", "What was recorded"), tag("p", lead, class_="lead"), legend, drawings))


def _crashes(workload: WorkloadNumbers, found: Iterable[ViolationNumbers]) -> Iterator[ViolationNumbers]:
    return (one for one in found if one.workload == workload.name and one.at)


def _drawn(workload: WorkloadNumbers) -> list[TimelineEvent]:
    return workload.timeline[:_DRAWN_MAX]


def _scale(events: Sequence[TimelineEvent]) -> Scale:
    return Scale(max(lanes.moments(events), default=0))


def _timeline(name: str, workload: WorkloadNumbers, crashes: Sequence[ViolationNumbers]) -> Markup:
    return tag(
        "section",
        _heading(workload, crashes),
        (tag("p", "NOT COVERED: ", what, class_="note") for what in workload.uncovered),
        _Drawing(name, _drawn(workload), crashes).markup() if workload.timeline else _empty(),
        _left_out(workload),
        class_="timeline",
        id=name,
    )


def _heading(workload: WorkloadNumbers, crashes: Sequence[ViolationNumbers]) -> Markup:
    facts = [
        counted(workload.calls, "call"),
        counted(workload.syncs, "sync"),
        counted(workload.operations, "operation"),
        f"recorded in {duration(workload.seconds)}",
    ]
    alarm = tag("span", f"{counted(len(crashes), 'violation')}", class_="pill bad") if crashes else NOTHING
    return tag("header", tag("h3", workload.name), (tag("span", fact) for fact in facts), alarm)


def _empty() -> Markup:
    return tag("p", "No calls were kept of it, so nothing can be drawn.", class_="note")


def _left_out(workload: WorkloadNumbers) -> Markup:
    count = len(workload.timeline) - _DRAWN_MAX
    return tag("p", f"NOT DRAWN: {counted(count, 'more event')}.", class_="note") if count > 0 else NOTHING


class _Drawing:
    """One workload on its way into an SVG."""

    def __init__(
        self, name: str, events: Sequence[TimelineEvent], crashes: Sequence[ViolationNumbers]
    ) -> None:
        self._name = name
        self._events = events
        self._crashes = crashes
        self._at = lanes.moments(events)
        self._scale = _scale(events)
        self._plan = lanes.plan(events, self._at, _NAME / self._scale.step)
        self._height = _TOP + LANE * len(self._plan.lanes) + 6
        self._largest = max((event.size for event in events if event.call == "write"), default=1) or 1

    def markup(self) -> Markup:
        labels = self._svg(_LABELS, tag("g", self._labels(), id=f"{self._name}-l"))
        calls = self._svg(self._scale.width, tag("g", self._body(), id=f"{self._name}-g"))
        scroll = tag("div", calls, class_="scroll", tabindex="0")
        return joined(
            (
                tag("div", labels, scroll, class_="frame"),
                self._overview(),
                tag("div", _HINT, class_="reading"),
                tag("div", self._bands(), class_="bands"),
            )
        )

    def _svg(self, width: float, *children: Markup) -> Markup:
        view = f"0 0 {width:g} {self._height:g}"
        return tag("svg", children, width=width, height=self._height, viewBox=view)

    def _y(self, path: str) -> float:
        return _TOP + LANE * (self._plan.row[path] + 0.5)

    # ── names ───────────────────────────────────────────────────────────────────────────────────────────────

    def _labels(self) -> Iterator[Markup]:
        yield tag("text", "call", class_="axis", x=12, y=17)
        yield tag("text", "acknowledged", class_="more", x=12, y=_MARKS_Y + 4)
        for row, lane in enumerate(self._plan.lanes):
            kind = "dir" if lane.is_directory else "more" if lane.is_shared else None
            indent = 12 if lane.is_directory else 26
            y = _TOP + LANE * (row + 0.5)
            yield self._stripe(row, lane.group, _LABELS)
            yield tag("text", tag("title", line(lane.about)), lane.label, class_=kind, x=indent, y=y + 4)

    def _stripe(self, row: int, group: int, width: float) -> Markup:
        return tag("rect", class_=f"row{group % 2}", x=0, y=_TOP + LANE * row, width=width, height=LANE)

    # ── calls ───────────────────────────────────────────────────────────────────────────────────────────────

    def _body(self) -> Iterator[Markup]:
        for row, lane in enumerate(self._plan.lanes):
            yield self._stripe(row, lane.group, self._scale.width)
        yield from self._axis()
        yield from self._spans()
        yield from self._crash_lines()
        for event, moment in zip(self._events, self._at, strict=True):
            yield self._mark(event, moment) if lanes.is_mark(event) else self._call(event, moment)
        yield from self._names()

    def _names(self) -> Iterator[Markup]:
        for span in self._plan.names:
            name = shortened(line(span.path.rpartition("/")[2]), _NAME_MAX)
            x, y = self._scale.x(span.end) + 8, self._y(span.path) + 4
            yield tag("text", tag("title", line(span.path)), name, class_="axis", x=x, y=y)

    def _axis(self) -> Iterator[Markup]:
        every = next(
            step for step in (1, 2, 5, 10, 20, 50, 100) if step * self._scale.step >= 60 or step == 100
        )
        for number in range(every, round(self._scale.calls) + 1, every):
            x = self._scale.x(number)
            yield tag("path", class_="rule", d=f"M{x:g} {_AXIS - 5}V{self._height:g}")
            yield tag("text", grouped(number), class_="axis", x=x, y=15, text_anchor="middle")

    def _spans(self) -> Iterator[Markup]:
        for life in lanes.lives(self._events, self._at):
            if self._plan.lanes[self._plan.row[life.path]].is_shared:
                continue  # where files share a lane, a line would be of no one in particular
            begin, end, y = self._scale.x(life.begin), self._scale.x(life.end), self._y(life.path)
            yield tag("path", class_="life", d=f"M{begin:g} {y + LANE / 2 - 2:g}H{end:g}")
        for wait in lanes.waits(self._events, self._at):
            begin, end, y = self._scale.x(wait.begin), self._scale.x(wait.end), self._y(wait.path)
            yield tag("rect", class_="wait", x=begin, y=y - LANE / 2 + 2, width=end - begin, height=LANE - 4)

    def _crash_lines(self) -> Iterator[Markup]:
        by_call: defaultdict[int, list[ViolationNumbers]] = defaultdict(list)
        for crash in self._crashes:
            by_call[crash.at].append(crash)
        for at, crashes in sorted(by_call.items()):
            x = self._scale.x(at)
            causes = "\n".join(f"{one.kind}: {figures.cause(one)}" for one in crashes)
            yield tag(
                "g",
                tag("title", causes),
                tag("path", class_="crashline", d=f"M{x:g} {_AXIS - 6}V{self._height:g}"),
                tag("path", class_="flag", d=f"M{x - 6:.1f} {_AXIS - 9}h12l-6 10z"),
                class_="crash",
            )

    def _call(self, event: TimelineEvent, moment: float) -> Markup:
        target = lanes.target_of(event)
        spot = Spot(
            self._scale.x(moment),
            self._y(lanes.path_of(event)),
            min(8.0, self._scale.step - 1.5),
            self._y(target) if target is not None else None,
            self._largest,
        )
        return shapes.shape(event, spot, _title(event))

    def _mark(self, event: TimelineEvent, moment: float) -> Markup:
        return shapes.mark(event, self._scale.x(moment), _MARKS_Y, _title(event))

    # ── the whole of it, small; and in print ────────────────────────────────────────────────────────────────

    def _overview(self) -> Markup:
        """All of a long timeline at once: bytes written, syncs, crashes; a click goes there."""
        if self._scale.width <= _FITS:
            return NOTHING
        view = tag("rect", class_="view", x=0, y=0, width=_FITS, height=_OVERVIEW)
        size_all = f"0 0 {self._scale.width} {_OVERVIEW}"
        return tag(
            "svg",
            self._heaps(),
            (self._tick(crash.at) for crash in self._crashes),
            view,
            class_="overview",
            height=_OVERVIEW,
            viewBox=size_all,
            preserveAspectRatio="none",
            aria_label="all calls",
        )

    def _heaps(self) -> Iterator[Markup]:
        heaps: defaultdict[int, int] = defaultdict(int)
        wide = self._scale.width / _BUCKETS
        for event, moment in zip(self._events, self._at, strict=True):
            if event.call == "write":
                heaps[int(self._scale.x(moment) / wide)] += event.size
        most = max(heaps.values(), default=0) or 1
        for bucket, heap in sorted(heaps.items()):
            height = (_OVERVIEW - 6) * (heap / most) ** 0.5
            yield tag(
                "rect", class_="w", x=bucket * wide, y=_OVERVIEW - height, width=wide * 0.8, height=height
            )

    def _tick(self, at: int) -> Markup:
        wide = self._scale.width / _FITS
        x = self._scale.x(at) - wide
        return tag("rect", class_="flag", x=x, y=0, width=2 * wide, height=_OVERVIEW)

    def _bands(self) -> Iterator[Markup]:
        """The same drawing in pieces that fit a page: paper does not scroll."""
        wide = min(_BAND, self._scale.width)
        for left in range(0, self._scale.width, _BAND):
            piece = tag(
                "svg",
                tag("use", href=f"#{self._name}-g"),
                x=_LABELS,
                width=wide,
                height=self._height,
                viewBox=f"{left} 0 {wide} {self._height:g}",
            )
            names = tag("use", href=f"#{self._name}-l")
            yield tag("svg", names, piece, viewBox=f"0 0 {_LABELS + wide} {self._height:g}")


def _title(event: TimelineEvent) -> str:
    """The whole call; its own words where it has some."""
    if event.text:
        return line(event.text)
    size_of = f", {size(event.size)}" if event.size else ""
    return line(f"{event.number}, {event.call} {event.path}{size_of}")
