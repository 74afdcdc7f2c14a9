"""Places in the drawing of a timeline: lanes of files by directory, and spans of time on them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from recovery.report.formatting import counted, line, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from recovery.crashlab.judge.run_figures import TimelineEvent

MARKS = frozenset({"invoke", "ack"})
_TWO_NAMED = frozenset({"rename", "link", "exchange", "symlink"})
_NAMING = frozenset({"create", "unlink", "mkdir", "rmdir", "rename", "link", "symlink", "exchange"})
_DIRECTORIES = frozenset({"mkdir", "rmdir"})
_ENDING = frozenset({"unlink", "rmdir", "rename"})
_WAITING = frozenset({"write", "truncate", "allocate"})
_ERROR = re.compile(r", [A-Z0-9]+$")
_FILES_MAX, _ALIKE_MAX = 8, 3  # with more of both, files share lanes
_TURNS, _ROWS_MAX = 3, 6
_LABEL_MAX = 27


@dataclass(frozen=True, slots=True)
class Lane:
    """One row of the drawing. The row of a directory shows what is done to the directory itself."""

    label: str
    about: str
    group: int
    is_directory: bool = False
    is_shared: bool = False


@dataclass(slots=True)
class Plan:
    """All rows from top to bottom, the row of each path, and the names in rows that files share."""

    lanes: list[Lane] = field(default_factory=list)
    row: dict[str, int] = field(default_factory=dict)
    names: list[TimeSpan] = field(default_factory=list)

    def add(self, lane: Lane, *paths: str) -> None:
        self.row.update(dict.fromkeys(paths, len(self.lanes)))
        self.lanes.append(lane)


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A span of time on the row of a path."""

    path: str
    begin: float
    end: float


def path_of(event: TimelineEvent) -> str:
    return _clean(event.path)


def target_of(event: TimelineEvent) -> str | None:
    """Return the second path of a call that has two: its text contains it after an arrow."""
    _, arrow, target = event.text.rpartition(" -> ")
    if event.call not in _TWO_NAMED or not arrow:
        return None
    return _clean(_ERROR.sub("", target))


def is_mark(event: TimelineEvent) -> bool:
    return event.call in MARKS


def _clean(path: str) -> str:
    return "" if path in (".", "./") else path.removeprefix("./").rstrip("/")


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


# ── rows ────────────────────────────────────────────────────────────────────────────────────────────────────


def plan(events: Sequence[TimelineEvent], at: Sequence[float], name_size: float) -> Plan:
    """Return rows for all these calls: directories in order of appearance, below each its files.

    If a directory has many files of a kind, files that follow each other share a row; `name_size` is the
    width of a name.
    """
    used = _used(events, at)
    made = {path_of(event) for event in events if event.call in _DIRECTORIES}
    directories = {"", *made, *map(_parent, used)}
    in_order = dict.fromkeys(["", *(one for path in used for one in (_parent(path), path))])
    found = Plan()
    for group, directory in enumerate(one for one in in_order if one in directories):
        label = shortened(line(directory), _LABEL_MAX) + "/" if directory else "./"
        found.add(Lane(label, directory or "the root", group, is_directory=True), directory)
        files = [path for path in used if path not in directories and _parent(path) == directory]
        for pattern, alike in _by_suffix(files).items():
            if len(files) <= _FILES_MAX or len(alike) <= _ALIKE_MAX:
                for path in alike:
                    label = shortened(line(path.rpartition("/")[2]), _LABEL_MAX)
                    found.add(Lane(label, path, group), path)
                continue
            for row in _shared_rows([used[path] for path in alike], name_size):
                paths = [span.path for span in row]
                label = f"{shortened(line(pattern), 12)}, {counted(len(row), 'file')}"
                found.add(Lane(label, ", ".join(paths), group, is_shared=True), *paths)
                found.names += row
    return found


def _used(events: Sequence[TimelineEvent], at: Sequence[float]) -> dict[str, TimeSpan]:
    """Return from when until when each path is used, ignoring its removal at the end."""
    found: dict[str, TimeSpan] = {}
    for event, moment in zip(events, at, strict=True):
        for path in () if is_mark(event) else (path_of(event), target_of(event)):
            if path is not None:
                begin = found.setdefault(path, TimeSpan(path, moment, moment)).begin
                if event.call not in _ENDING:
                    found[path] = TimeSpan(path, begin, moment)
    return found


def _by_suffix(files: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in files:
        _, dot, suffix = path.rpartition("/")[2].rpartition(".")
        found.setdefault(f"*{dot}{suffix}" if dot else "*", []).append(path)
    return found


def _shared_rows(spans: Sequence[TimeSpan], name_size: float) -> list[list[TimeSpan]]:
    """Distribute spans over rows so that a name fits between them, if the number of rows suffices.

    Rows are used in turn, so that the late removal of a file is not drawn among the calls of the next one.
    """
    rows: list[list[TimeSpan]] = []
    for span in sorted(spans, key=lambda span: span.begin):
        first = min(rows, key=lambda row: row[-1].end, default=None)
        is_free = first is not None and first[-1].end + name_size <= span.begin
        if first is None or len(rows) < (_TURNS if is_free else _ROWS_MAX):
            rows.append([span])
        else:
            first.append(span)
    return rows


# ── places in time ──────────────────────────────────────────────────────────────────────────────────────────


def moments(events: Sequence[TimelineEvent]) -> list[float]:
    """Return the position of each event. Marks share the space between two calls."""
    found: list[float] = []
    last = 0
    for is_numbered, group in groupby(events, lambda event: not is_mark(event) and event.number > 0):
        alike = list(group)
        if is_numbered:
            found += [event.number for event in alike]
            last = alike[-1].number
        else:
            found += [last + (place + 1) / (len(alike) + 1) for place in range(len(alike))]
    return found


def lives(events: Sequence[TimelineEvent], at: Sequence[float]) -> list[TimeSpan]:
    """Return from when until when each name existed, as far as these calls show."""
    begun: dict[str, float] = {}
    ended: list[TimeSpan] = []
    for event, moment in zip(events, at, strict=True):
        if is_mark(event):
            continue
        path = path_of(event)
        begun.setdefault(path, moment)
        if (target := target_of(event)) is not None:
            begun.setdefault(target, moment)
        if event.call in _ENDING:
            ended.append(TimeSpan(path, begun.pop(path), moment))
    return [*ended, *_until_the_end(begun, at)]


def waits(events: Sequence[TimelineEvent], at: Sequence[float]) -> list[TimeSpan]:
    """Return when a file had unsynced bytes or a directory unsynced names, which a crash could lose."""
    since: dict[str, float] = {}
    over: list[TimeSpan] = []
    for event, moment in zip(events, at, strict=True):
        path = path_of(event)
        over += [TimeSpan(settled, since.pop(settled), moment) for settled in _settled(event, path, since)]
        if event.call in _WAITING and not event.is_sync:
            since.setdefault(path, moment)
        for directory in _changed_directories(event, path):
            since.setdefault(directory, moment)
        if event.call == "rename" and over and over[-1] == TimeSpan(path, over[-1].begin, moment):
            since.setdefault(target_of(event) or path, moment)
    return [*over, *_until_the_end(since, at)]


def _settled(event: TimelineEvent, path: str, since: Mapping[str, float]) -> list[str]:
    if event.call == "sync_all":
        return list(since)
    is_over = event.call in _ENDING or (event.is_sync and event.call != "write")
    return [path] if is_over and path in since else []


def _changed_directories(event: TimelineEvent, path: str) -> list[str]:
    """Return the directories whose names the call changes, in an order that is the same in every process."""
    if event.call not in _NAMING or not path:
        return []
    return list(dict.fromkeys(map(_parent, filter(None, (path, target_of(event))))))


def _until_the_end(begun: Mapping[str, float], at: Sequence[float]) -> Iterator[TimeSpan]:
    end = max(at, default=0) + 1
    return (TimeSpan(path, begin, end) for path, begin in begun.items())
