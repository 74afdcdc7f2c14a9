"""Which file is drawn where: lanes by directory, and how long each file lived and waited for a sync."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from recovery.page.wording import counted, line, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from recovery.crashlab.numbers import TimelineEvent

MARKS = frozenset({"invoke", "ack"})
_TWO_NAMED = frozenset({"rename", "link", "exchange", "symlink"})
_NAMING = frozenset({"create", "unlink", "mkdir", "rmdir", "rename", "link", "symlink", "exchange"})
_DIRECTORIES = frozenset({"mkdir", "rmdir"})
_ENDING = frozenset({"unlink", "rmdir", "rename"})
_WAITING = frozenset({"write", "truncate", "allocate"})
_ERROR = re.compile(r", [A-Z0-9]+$")
_FILES_MAX, _ALIKE_MAX = 8, 3  # beyond both, files share rows
_TURNS, _ROWS_MAX = 3, 6
_LABEL_MAX = 27


@dataclass(frozen=True, slots=True)
class Lane:
    """One row; the one of a directory bears what is done to the directory itself."""

    label: str
    about: str
    group: int
    is_directory: bool = False
    is_shared: bool = False


@dataclass(slots=True)
class Plan:
    """All rows from top to bottom, the row of each path, and the names within rows that files share."""

    lanes: list[Lane] = field(default_factory=list)
    row: dict[str, int] = field(default_factory=dict)
    names: list[Span] = field(default_factory=list)

    def add(self, lane: Lane, *paths: str) -> None:
        self.row.update(dict.fromkeys(paths, len(self.lanes)))
        self.lanes.append(lane)


@dataclass(frozen=True, slots=True)
class Span:
    """From one place in time to another, on the row of a path."""

    path: str
    begin: float
    end: float


def path_of(event: TimelineEvent) -> str:
    return _clean(event.path)


def target_of(event: TimelineEvent) -> str | None:
    """The second name of a call that has two: it stands in its text, behind the arrow."""
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
    """Rows for all these calls: directories as they first appear, below each its files as they do.

    Where a directory has many files of a kind, such that follow each other share a row; `name_size` is the
    room that a name takes in it.
    """
    active = _active(events, at)
    directories = _directories(events, active)
    made = Plan()
    for group, directory in enumerate(directories):
        label = shortened(line(directory), _LABEL_MAX) + "/" if directory else "./"
        made.add(Lane(label, directory or "the root", group, is_directory=True), directory)
        files = [path for path in active if path not in directories and _parent(path) == directory]
        for kind, alike in _kinds(files).items():
            if len(files) <= _FILES_MAX or len(alike) <= _ALIKE_MAX:
                _add_each(made, alike, group)
            else:
                _add_shared(made, kind, _packed([active[path] for path in alike], name_size), group)
    return made


def _active(events: Sequence[TimelineEvent], at: Sequence[float]) -> dict[str, Span]:
    """From when until when something is done with each path; that it is removed at last is left out."""
    found: dict[str, Span] = {}
    for event, moment in zip(events, at, strict=True):
        for path in _paths(event):
            known = found.setdefault(path, Span(path, moment, moment))
            if event.call not in _ENDING:
                found[path] = Span(path, known.begin, moment)
    return found


def _kinds(files: Sequence[str]) -> dict[str, list[str]]:
    kinds: dict[str, list[str]] = {}
    for path in files:
        _, dot, suffix = path.rpartition("/")[2].rpartition(".")
        kinds.setdefault(f"*{dot}{suffix}" if dot else "*", []).append(path)
    return kinds


def _packed(spans: Sequence[Span], name_size: float) -> list[list[Span]]:
    """Rows of spans that leave room for a name between them, as far as so many rows suffice.

    They take turns, so that a file's removal, which may come late, is not drawn among the next one's calls.
    """
    rows: list[list[Span]] = []
    for span in sorted(spans, key=lambda span: span.begin):
        first = min(rows, key=lambda row: row[-1].end, default=None)
        is_free = first is not None and first[-1].end + name_size <= span.begin
        if first is None or len(rows) < (_TURNS if is_free else _ROWS_MAX):
            rows.append([span])
        else:
            first.append(span)
    return rows


def _add_each(made: Plan, files: Sequence[str], group: int) -> None:
    for path in files:
        made.add(Lane(shortened(line(path.rpartition("/")[2]), _LABEL_MAX), path, group), path)


def _add_shared(made: Plan, kind: str, rows: Sequence[Sequence[Span]], group: int) -> None:
    for row in rows:
        paths = [span.path for span in row]
        label = f"{shortened(line(kind), 12)}, {counted(len(row), 'file')}"
        made.add(Lane(label, ", ".join(paths), group, is_shared=True), *paths)
        made.names += row


def _paths(event: TimelineEvent) -> Iterator[str]:
    if not is_mark(event):
        yield path_of(event)
        if (target := target_of(event)) is not None:
            yield target


def _directories(events: Sequence[TimelineEvent], paths: Iterable[str]) -> list[str]:
    """The root, and all that is above something or was made a directory, as they first appear."""
    made = {path_of(event) for event in events if event.call in _DIRECTORIES}
    known = made | {_parent(path) for path in paths}
    return [*dict.fromkeys(["", *(one for path in paths for one in (_parent(path), path) if one in known)])]


# ── places in time ──────────────────────────────────────────────────────────────────────────────────────────


def moments(events: Sequence[TimelineEvent]) -> list[float]:
    """The place of each event: a call's is its number, marks share the room behind the call before them."""
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


def lives(events: Sequence[TimelineEvent], at: Sequence[float]) -> list[Span]:
    """From when until when there was a name, as far as these calls tell."""
    begun: dict[str, float] = {}
    ended: list[Span] = []
    for event, moment in zip(events, at, strict=True):
        if is_mark(event):
            continue
        path = path_of(event)
        begun.setdefault(path, moment)
        if (target := target_of(event)) is not None:
            begun.setdefault(target, moment)
        if event.call in _ENDING:
            ended.append(Span(path, begun.pop(path), moment))
    return [*ended, *_until_the_end(begun, at)]


def waits(events: Sequence[TimelineEvent], at: Sequence[float]) -> list[Span]:
    """When a file had bytes, or a directory names, that no sync had taken along: what a crash could take."""
    since: dict[str, float] = {}
    over: list[Span] = []
    for event, moment in zip(events, at, strict=True):
        path = path_of(event)
        over += [Span(settled, since.pop(settled), moment) for settled in _settled(event, path, since)]
        if event.call in _WAITING and not event.is_sync:
            since.setdefault(path, moment)
        for directory in _renamed(event, path):
            since.setdefault(directory, moment)
        if event.call == "rename" and over and over[-1] == Span(path, over[-1].begin, moment):
            since.setdefault(target_of(event) or path, moment)
    return [*over, *_until_the_end(since, at)]


def _settled(event: TimelineEvent, path: str, since: Mapping[str, float]) -> list[str]:
    if event.call == "sync_all":
        return list(since)
    is_over = event.call in _ENDING or (event.is_sync and event.call != "write")
    return [path] if is_over and path in since else []


def _renamed(event: TimelineEvent, path: str) -> set[str]:
    if event.call not in _NAMING or not path:
        return set()
    target = target_of(event)
    return {_parent(path)} | ({_parent(target)} if target else set())


def _until_the_end(begun: Mapping[str, float], at: Sequence[float]) -> Iterator[Span]:
    end = max(at, default=0) + 1
    return (Span(path, begin, end) for path, begin in begun.items())
