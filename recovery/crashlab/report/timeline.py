"""The drawing of a recorded workload: positions and sizes of everything that `timeline.html.j2` draws."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from math import log
from typing import TYPE_CHECKING, TypeAlias

from recovery.crashlab.report import figures, lanes
from recovery.report.formatting import line, shortened, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from recovery.crashlab.judge.run_figures import (
        LabNumbers,
        TimelineEvent,
        ViolationNumbers,
        WorkloadNumbers,
    )
    from recovery.crashlab.report.lanes import Lane, TimeSpan

LANE = 22
"""The height of a lane."""
_AXIS = 26
_TOP = _AXIS + LANE
_LABELS_WIDTH = 246
_NAME_WIDTH, _NAME_MAX = 96, 12  # the space for a file's name beside its marks, where files share a lane
_FITS = 930  # the width that a window shows beside the labels
_STEP_MIN, _STEP_MAX = 6.0, 17.0
_DRAWN_MAX = 8_000
_HEAPS, _HEAP_HEIGHT_MAX = 240, 28
_TICK_STEPS = (1, 2, 5, 10, 20, 50, 100)

_SHAPES = {
    **{call: call for call in ("write", "create", "mkdir", "truncate", "allocate", "map", "invoke", "ack")},
    **dict.fromkeys(("rename", "link", "symlink", "exchange"), "rename"),
    **dict.fromkeys(("unlink", "rmdir"), "unlink"),
}


@dataclass(frozen=True, slots=True)
class CrashPlace:
    """Where a crash is drawn: the identifier of the timeline, and the distance from its left edge."""

    timeline: str
    x: float


Places: TypeAlias = "Mapping[tuple[str, int], CrashPlace]"


@dataclass(frozen=True, slots=True)
class DrawnCall:
    """One call or mark: its shape, the middle of it, and its text."""

    shape: str
    x: float
    y: float
    title: str
    width: float = 6
    height: float = 14
    target_y: float | None = None
    is_sync: bool = False

    @property
    def without_title(self) -> DrawnCall:
        return replace(self, title="")


LEGEND = tuple(
    DrawnCall(shape, 8, LANE / 2, words)
    for shape, words in (
        ("write", "write, by bytes"),
        ("create", "created"),
        ("mkdir", "directory made"),
        ("rename", "renamed"),
        ("unlink", "removed"),
        ("truncate", "truncated"),
        ("allocate", "allocated"),
        ("sync", "sync"),
        ("ack", "acknowledged"),
        ("invoke", "invoked"),
    )
)


@dataclass(frozen=True, slots=True)
class DrawnSpan:
    """A span on the lane of a path; `name` is the short name of the file."""

    path: str
    begin: float
    end: float
    y: float
    name: str


@dataclass(frozen=True, slots=True)
class Overview:
    """A long timeline in the width of a window: bytes written by bucket, and crashes."""

    heaps: list[tuple[float, float]]
    heap_width: float
    crashes: list[float]
    pixel: float
    view_width: float = _FITS


class TimeScale:
    """Maps places in time to the page, with marks never so close that one cannot be pointed at."""

    def __init__(self, calls: float) -> None:
        self.calls = max(1.0, calls)
        self.step = min(_STEP_MAX, max(_STEP_MIN, _FITS / (self.calls + 2)))
        self.width = max(_FITS, round((self.calls + 2) * self.step))

    def x(self, moment: float) -> float:
        return round((moment + 0.5) * self.step, 1)


class Drawing:
    """The drawing of one workload."""

    labels_width = _LABELS_WIDTH
    top = _TOP

    def __init__(
        self, number: int, workload: WorkloadNumbers, violations: Iterable[ViolationNumbers]
    ) -> None:
        self.id = f"t{number}"
        self.workload = workload
        self.crashes = [one for one in violations if one.workload == workload.name and one.at]
        self.not_drawn = max(0, len(workload.timeline) - _DRAWN_MAX)
        self._events = workload.timeline[:_DRAWN_MAX]
        self._at = lanes.moments(self._events)
        self._scale = TimeScale(max(self._at, default=0))
        self.width = self._scale.width

    @property
    def places(self) -> Places:
        """The place of each crash, so that a violation can point there."""
        if not self.workload.timeline:
            return {}
        return {(one.workload, one.at): CrashPlace(self.id, self._scale.x(one.at)) for one in self.crashes}

    @cached_property
    def _plan(self) -> lanes.Plan:
        return lanes.plan(self._events, self._at, _NAME_WIDTH / self._scale.step)

    @property
    def lanes(self) -> Sequence[Lane]:
        return self._plan.lanes

    @property
    def height(self) -> int:
        return _TOP + LANE * len(self.lanes) + 6

    def _y(self, path: str) -> float:
        return _TOP + LANE * (self._plan.row[path] + 0.5)

    @property
    def ticks(self) -> Iterator[tuple[int, float]]:
        """Numbers of calls on the axis, at least 60 pixels apart."""
        every = next((step for step in _TICK_STEPS if step * self._scale.step >= 60), _TICK_STEPS[-1])
        return ((at, self._scale.x(at)) for at in range(every, round(self._scale.calls) + 1, every))

    @property
    def lives(self) -> Iterator[DrawnSpan]:
        """How long each file had a name; without files that share a lane, because lines would overlap."""
        found = lanes.lives(self._events, self._at)
        return self._drawn(one for one in found if not self.lanes[self._plan.row[one.path]].is_shared)

    @property
    def waits(self) -> Iterator[DrawnSpan]:
        """How long something waited for a sync."""
        return self._drawn(lanes.waits(self._events, self._at))

    @property
    def names(self) -> Iterator[DrawnSpan]:
        """The names of files that share a lane."""
        return self._drawn(self._plan.names)

    def _drawn(self, spans: Iterable[TimeSpan]) -> Iterator[DrawnSpan]:
        x = self._scale.x
        for one in spans:
            name = shortened(line(one.path.rpartition("/")[2]), _NAME_MAX)
            yield DrawnSpan(one.path, x(one.begin), x(one.end), self._y(one.path), name)

    @property
    def crash_lines(self) -> Iterator[tuple[float, str]]:
        """One line for each call at which a crash broke a promise, with the causes."""
        causes: defaultdict[int, list[str]] = defaultdict(list)
        for one in self.crashes:
            causes[one.at].append(f"{one.kind}: {figures.cause(one)}")
        return ((self._scale.x(at), "\n".join(lines)) for at, lines in sorted(causes.items()))

    @property
    def calls(self) -> Iterator[DrawnCall]:
        """All calls and marks."""
        largest = max((event.size for event in self._events if event.call == "write"), default=1) or 1
        for event, moment in zip(self._events, self._at, strict=True):
            x, title = self._scale.x(moment), _title(event)
            if lanes.is_mark(event):
                yield DrawnCall(event.call, x, _AXIS + LANE / 2, title)
                continue
            target = lanes.target_of(event)
            # On a logarithmic scale, so that a write of 16 bytes is still visible beside one of megabytes.
            height = 3 + (LANE - 7) * log(event.size + 1) / log(largest + 1)
            shape = "sync" if event.is_sync and event.call != "write" else _SHAPES.get(event.call, "other")
            yield DrawnCall(
                shape,
                x,
                self._y(lanes.path_of(event)),
                title,
                min(8.0, self._scale.step - 1.5),
                height,
                None if target is None else self._y(target),
                event.is_sync,
            )

    @property
    def overview(self) -> Overview | None:
        """The whole timeline, if it is wider than a window."""
        if self.width <= _FITS:
            return None
        heaps: defaultdict[int, int] = defaultdict(int)
        wide = self.width / _HEAPS
        for event, moment in zip(self._events, self._at, strict=True):
            if event.call == "write":
                heaps[int(self._scale.x(moment) / wide)] += event.size
        most = max(heaps.values(), default=0) or 1
        return Overview(
            [
                (bucket * wide, _HEAP_HEIGHT_MAX * (heap / most) ** 0.5)
                for bucket, heap in sorted(heaps.items())
            ],
            wide * 0.8,
            [self._scale.x(one.at) for one in self.crashes],
            self.width / _FITS,
        )


def drawings(numbers: LabNumbers) -> list[Drawing]:
    """Return a drawing of each workload."""
    return [Drawing(number, one, numbers.violations) for number, one in enumerate(numbers.workloads)]


def places_of(numbers: LabNumbers) -> Places:
    """Return the place of every crash that is drawn."""
    return {call: place for drawing in drawings(numbers) for call, place in drawing.places.items()}


def _title(event: TimelineEvent) -> str:
    """Return the whole call, in its own words where it has some."""
    if event.text:
        return line(event.text)
    size_of = f", {size(event.size)}" if event.size else ""
    return line(f"{event.number}, {event.call} {event.path}{size_of}")
