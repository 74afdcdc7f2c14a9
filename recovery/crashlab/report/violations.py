"""One block for each violation: what, since when, would it hit me, and how to see it again."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from recovery.crashlab.report import figures
from recovery.crashlab.report.style import hue
from recovery.page.markup import NOTHING, Markup, joined, tag
from recovery.page.wording import counted, line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from recovery.crashlab.numbers import LabNumbers, ViolationNumbers, WorkloadNumbers
    from recovery.crashlab.report.timeline import Places

_OPEN_MAX = 12
_BEFORE, _AFTER = 13, 4
_CRASH = re.compile(r"\W*crash\W*")
_FIRST_NUMBER = re.compile(r"\W*(\d+)\b")


def violations(numbers: LabNumbers, traces: Mapping[str, str], places: Places) -> Markup:
    """All of them; behind the first dozen they are folded."""
    found = numbers.violations
    if not found:
        return NOTHING
    workloads = {workload.name: workload for workload in numbers.workloads}
    blocks = [
        _block(violation, _window(violation, traces.get(violation.id, ""), workloads), places)
        for violation in found
    ]
    states = sum(violation.count for violation in found)
    return joined(
        (
            tag("h2", counted(len(found), "violation")),
            tag("p", f"Alike ones are one: {counted(states, 'state')} showed them.", class_="lead"),
            blocks[:_OPEN_MAX],
            _folded(blocks[_OPEN_MAX:]),
        )
    )


def _folded(blocks: Sequence[Markup]) -> Markup:
    return tag("details", tag("summary", f"{len(blocks)} more"), blocks) if blocks else NOTHING


def _block(violation: ViolationNumbers, window: Markup, places: Places) -> Markup:
    return tag(
        "article",
        _badges(violation, places),
        tag("h3", figures.cause(violation)),
        _hit(violation),
        tag(
            "div",
            tag(
                "div",
                tag("h4", "Lost in the crash"),
                _lost(violation),
                tag("h4", "See it again"),
                _again(violation),
            ),
            tag(
                "div", tag("h4", "Around the crash" if violation.at else "The last that was recorded"), window
            ),
            class_="sides",
        ),
        class_="violation",
    )


def _badges(violation: ViolationNumbers, places: Places) -> Markup:
    return tag(
        "div",
        tag("span", violation.kind, class_="pill bad"),
        tag("span", violation.layer, class_=f"pill tint {hue(violation.layer)}"),
        tag("span", figures.times(violation.count)),
        tag("span", "· workload ", tag("b", violation.workload)),
        _place(violation, places) if violation.at else NOTHING,
        tag("code", violation.id),
        class_="badges",
    )


def _place(violation: ViolationNumbers, places: Places) -> Markup:
    place = places.get((violation.workload, violation.at))
    words = f"call {violation.at:,}"
    if place is None:
        return tag("span", "· ", words)
    link = tag("a", words, href=f"#{place.timeline}", data_line=f"{place.timeline} {place.x:.0f}")
    return tag("span", "· ", link)


def _hit(violation: ViolationNumbers) -> Markup:
    answer = figures.would_it_hit_me(violation.layer, violation.profile)
    kindest = (
        joined((" Kindest profile: ", tag("code", violation.profile), ".")) if violation.profile else NOTHING
    )
    return tag("p", tag("b", "Would it hit me? "), answer, kindest, class_="hit")


def _lost(violation: ViolationNumbers) -> Markup:
    if not violation.lost:
        return tag("p", "nothing: all that was written was there", class_="none")
    return tag("ul", (tag("li", tag("code", unit)) for unit in violation.lost))


def _again(violation: ViolationNumbers) -> Markup:
    if not violation.directory:
        return tag("p", "no directory of it was kept", class_="none")
    return joined(tag("code", command, class_="command") for command in commands(violation))


def commands(violation: ViolationNumbers) -> tuple[str, str]:
    """What to type, in the directory of the report; the second needs no laboratory."""
    directory = line(violation.directory)
    return (
        f"ledgerstore crash replay {shlex.quote(directory)}",
        f"python {shlex.quote(directory.rstrip('/') + '/repro.py')}",
    )


# ── the calls around the crash ──────────────────────────────────────────────────────────────────────────────


def _window(violation: ViolationNumbers, trace: str, workloads: Mapping[str, WorkloadNumbers]) -> Markup:
    lines = trace.splitlines() or _recorded(workloads.get(violation.workload))
    if not lines:
        return tag("p", "no trace was kept", class_="none")
    crash = _crash_line(lines, violation.at)
    if crash is None:
        return tag("pre", (_line(text, -1) for text in lines[-_BEFORE:]), class_="trace")
    first = max(0, crash - _BEFORE)
    shown = (
        _line(text, first + index - crash) for index, text in enumerate(lines[first : crash + _AFTER + 1])
    )
    return tag("pre", shown, class_="trace")


def _recorded(workload: WorkloadNumbers | None) -> list[str]:
    events = workload.timeline if workload else ()
    return [event.text or f"{event.number}, {event.call} {event.path}" for event in events]


def _crash_line(lines: Sequence[str], at: int) -> int | None:
    """The line that says that it crashed here, else the one that begins with the number of the call."""
    for index, text in enumerate(lines):
        if _CRASH.fullmatch(text):
            return index
    for index, text in enumerate(lines):
        number = _FIRST_NUMBER.match(text)
        if at and number and int(number[1]) == at:
            return index
    return None


def _line(text: str, behind: int) -> Markup:
    return tag("span", text, class_="crash" if behind == 0 else "after" if behind > 0 else None)
