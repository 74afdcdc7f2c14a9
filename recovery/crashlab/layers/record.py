"""Records each workload once, without faults, before anything is crashed.

If a workload fails by itself, or the store breaks a promise without any crash, all violations would mean
nothing. So both are reported before any layer runs.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from recovery.crashlab.judge.outcome import Answered
from recovery.crashlab.judge.run_figures import TimelineEvent, WorkloadNumbers
from recovery.crashlab.model import real_tree
from recovery.crashlab.record import tape
from recovery.crashlab.record.history import from_json, short_text
from recovery.crashlab.record.playback import Playback
from recovery.crashlab.record.preload import Orders
from recovery.crashlab.record.recording import histories
from recovery.crashlab.record.tape import Call

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from recovery.crashlab.judge.oracles import Breach
    from recovery.crashlab.record.tape import Event
    from recovery.crashlab.run.runner import ProgramRun
    from recovery.crashlab.run.task import WorkerContext


@dataclass(frozen=True, slots=True)
class RecordedWorkload:
    """A recorded workload; `breaches` is empty unless a promise is broken without any crash."""

    name: str
    run: ProgramRun
    uncovered: dict[str, str]
    breaches: list[Breach]


@dataclass(frozen=True)
class RecordTask:
    """Records all workloads and keeps their tapes in a directory."""

    place: Path

    def work(self, context: WorkerContext) -> Iterator[RecordedWorkload]:
        for name, program in context.spec.workloads.items():
            root = context.runner.root()
            try:
                run = context.runner.record(program, root, Orders())
                playback = Playback(context.spec.profile, context.ignored)
                playback.play_all(run.events)
                unseen = real_tree.differences(playback.platter, root, context.ignored)
                left = real_tree.read_tree(root, context.ignored)
            finally:
                shutil.rmtree(root, ignore_errors=True)
            (self.place / f"{name}.tape").write_bytes(tape.encode_all(run.events))
            breaches: list[Breach] = []
            if isinstance(run.outcome, Answered):
                lay_out = partial(real_tree.write_tree, left)
                breaches = context.checker.breaches_of(real_tree.digest(left), lay_out, run.history)
            yield RecordedWorkload(name, run, unseen | playback.uncovered | _unseen_marks(run), breaches)


def _unseen_marks(run: ProgramRun) -> dict[str, str]:
    """Return whether marks were not written by write(), so that their position among the calls is unknown."""
    on_tape = histories(run.events, ())[len(run.events)]
    if on_tape.ops == run.history.ops:
        return {}
    return {"marks": "the recorder has not seen all of them; each must be a write() of its own"}


def workload_numbers(recorded: RecordedWorkload) -> WorkloadNumbers:
    """Return the figures of a workload."""
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
    """Yield each call, and each mark with the number of the call before it."""
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
        asked[token] = " ".join([f"{rest[0]}", *(short_text(from_json(value)) for value in rest[1:])])
    return TimelineEvent(number, f"{word}", "", text=f"{word} {asked.get(token, token)}")


def trace(events: Sequence[Event], index: int, window: int = 14) -> str:
    """Return the calls and marks around an event as text; a line shows where it crashed."""
    first = max(0, index - window)
    asked: dict[int, str] = {}
    lines = []
    for at, event in enumerate(events[: index + window // 2]):
        if event.call is Call.MARK:
            texts = [_mark(0, json.loads(line), asked).text for line in event.data.splitlines()]
        else:
            texts = [f"{event}"]
        if at == index:
            lines.append("――― crash ―――")
        if at >= first:
            lines += texts
    if index >= len(events):
        lines.append("――― crash ―――")
    return "\n".join(lines) + "\n"
