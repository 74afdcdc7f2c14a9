"""A recorded workload as the report draws it: its calls and its marks in their order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from recovery.crashlab.history import from_json, shortly
from recovery.crashlab.numbers import TimelineEvent, WorkloadNumbers
from recovery.crashlab.tape import Call

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from recovery.crashlab.layers.record import Recorded
    from recovery.crashlab.tape import Event


def numbers_of(recorded: Recorded) -> WorkloadNumbers:
    """What there is to tell of a workload."""
    events = recorded.run.events
    return WorkloadNumbers(
        recorded.name,
        calls=sum(event.call is not Call.MARK for event in events),
        operations=len(recorded.run.history.ops),
        syncs=sum(event.is_sync for event in events),
        seconds=round(recorded.run.seconds, 3),
        uncovered=[f"{path}: {why}" for path, why in sorted(recorded.uncovered.items())],
        timeline=list(timeline(events)),
    )


def timeline(events: Iterable[Event]) -> Iterator[TimelineEvent]:
    """One for each call, and one for each line of marks, at the number of the call before it."""
    number = 0
    asked: dict[int, str] = {}
    for event in events:
        if event.call is Call.MARK:
            for line in event.data.splitlines():
                yield _mark(number, json.loads(line), asked)
        else:
            number = event.number
            yield TimelineEvent(
                number, event.call.name.lower(), event.path, event.length, event.is_sync, f"{event}"
            )


def _mark(number: int, mark: list[object], asked: dict[int, str]) -> TimelineEvent:
    word, token, *rest = mark
    assert isinstance(token, int)
    if word == "invoke":
        asked[token] = " ".join([f"{rest[0]}", *(shortly(from_json(value)) for value in rest[1:])])
    return TimelineEvent(number, f"{word}", "", text=f"{word} {asked.get(token, token)}")


def trace(events: Sequence[Event], index: int, window: int = 14) -> str:
    """The calls and marks around an event, for people; an arrow shows where it crashed."""
    first = max(0, index - window)
    asked: dict[int, str] = {}
    lines = []
    for at, event in enumerate(events[: index + window // 2]):
        if event.call is Call.MARK:
            told = [_mark(0, json.loads(line), asked).text for line in event.data.splitlines()]
        else:
            told = [f"{event}"]
        if at == index:
            lines.append("――― crash ―――")
        if at >= first:
            lines += told
    if index >= len(events):
        lines.append("――― crash ―――")
    return "\n".join(lines) + "\n"
