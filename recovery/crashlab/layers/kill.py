"""The kill layer: a real SIGKILL before, in the middle of and after every call that changes something."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from recovery.crashlab.judge.occurrence import Occurrence
from recovery.crashlab.model import real_tree
from recovery.crashlab.record.preload import Action, Orders
from recovery.crashlab.record.tape import Call
from recovery.crashlab.run.image_checker import CrashImage
from recovery.crashlab.run.task import CountsReport, NotCovered, batches, shuffled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from recovery.crashlab.judge.oracles import Breach
    from recovery.crashlab.record.recording import Recording
    from recovery.crashlab.record.tape import Event
    from recovery.crashlab.run.task import Message, WorkerContext, WorkShare

_WORDS = {Action.KILL_BEFORE: "before", Action.KILL_MIDDLE: "in the middle of", Action.KILL_AFTER: "after"}
_ATTEMPTS_MAX = 5
"""How often a kill is made that hits another call than intended."""


def every_kill(events: Iterable[Event]) -> Iterator[tuple[Event, Action]]:
    """Yield each moment of each call; only a write has a middle."""
    for event in events:
        if event.call is not Call.MARK:
            yield event, Action.KILL_BEFORE
            if event.call is Call.WRITE and event.length > 1:
                yield event, Action.KILL_MIDDLE
            yield event, Action.KILL_AFTER


@dataclass(frozen=True)
class KillTask:
    """Every kill of every workload."""

    recordings: tuple[Recording, ...]
    share: WorkShare

    def work(self, context: WorkerContext) -> Iterator[Message]:
        kills = [
            (recording, event, action)
            for recording in self.recordings
            for event, action in every_kill(recording.events())
        ]
        mine = self.share.mine(shuffled(kills, context.spec.seed, "kill"))
        for group in batches(mine):
            cases = []
            for recording, event, action in group:
                # On a busy machine a thread may make its call earlier or later than in the recording. What is
                # left then is checked too, and the kill is made again, so that the intended call is hit.
                strayed = True
                attempts = 0
                while strayed and attempts < _ATTEMPTS_MAX:
                    case, strayed = _killed(context, recording, event, action)
                    cases.append(case)
                    attempts += 1
                yield CountsReport({"kills": 1, **({"strayed kills": 1} if strayed else {})})
            yield from context.checker.check(cases)
        if self.share.is_over and self.share.index == 0:
            yield NotCovered(f"its share of the budget was over before all {len(kills):,} kills were made")


def _killed(
    context: WorkerContext, recording: Recording, event: Event, action: Action
) -> tuple[CrashImage, bool]:
    """Return what the kill left, and whether it hit another call than intended."""
    root = context.runner.root()
    orders = Orders(event.number, action)
    try:
        died = context.runner.record(context.spec.workloads[recording.name], root, orders)
        left = real_tree.read_tree(root, context.ignored)
    finally:
        shutil.rmtree(root, ignore_errors=True)

    def occurrence(breach: Breach) -> Occurrence:
        how = f"SIGKILL {_WORDS[action]} the call"
        call = f"{_WORDS[action]} {event}"
        return Occurrence(
            "kill", recording.name, event.number, call, breach, how, left, died.history, orders=orders
        )

    case = CrashImage(real_tree.digest(left), partial(real_tree.write_tree, left), died.history, occurrence)
    return case, not died.was_killed or not _is_same(event, died.events)


def _is_same(event: Event, events: tuple[Event, ...]) -> bool:
    """Return whether the intended call was hit. A call that never began is on no tape."""
    struck = [one for one in events if one.number == event.number]
    return not struck or (struck[0].call, struck[0].path) == (event.call, event.path)
