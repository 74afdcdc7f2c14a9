"""The kill layer: a real SIGKILL before, in the middle of and behind every call that changes something."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from recovery.crashlab import tree
from recovery.crashlab.judge import Case
from recovery.crashlab.layers.task import Counted, NotCovered, Sighting, grouped, shuffled
from recovery.crashlab.preload import Action, Orders
from recovery.crashlab.tape import Call

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from recovery.crashlab.layers.task import Bench, Message, Recording, Share
    from recovery.crashlab.oracles import Breach
    from recovery.crashlab.tape import Event

_WORDS = {Action.KILL_BEFORE: "before", Action.KILL_MIDDLE: "in the middle of", Action.KILL_AFTER: "after"}


def every_kill(events: Iterable[Event]) -> Iterator[tuple[Event, Action]]:
    """Each moment of each call: the middle only where a write has one."""
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
    share: Share

    def work(self, bench: Bench) -> Iterator[Message]:
        kills = [
            (recording, event, action)
            for recording in self.recordings
            for event, action in every_kill(recording.events())
        ]
        mine = self.share.mine(shuffled(kills, bench.spec.seed, "kill"))
        for group in grouped(mine):
            cases = []
            for recording, event, action in group:
                case, strayed = _killed(bench, recording, event, action)
                cases.append(case)
                yield Counted({"kills": 1, **({"strayed kills": 1} if strayed else {})})
            yield from bench.judge.check(cases)
        if self.share.is_over and self.share.index == 0:
            yield NotCovered(f"its share of the budget was over before all {len(kills):,} kills were made")


def _killed(bench: Bench, recording: Recording, event: Event, action: Action) -> tuple[Case, bool]:
    """What the kill left, and whether it hit another call than it was meant for."""
    root = bench.runner.root()
    orders = Orders(event.number, action)
    try:
        died = bench.runner.record(bench.spec.workloads[recording.name], root, orders)
        left = tree.read_tree(root, bench.ignored)
    finally:
        shutil.rmtree(root, ignore_errors=True)

    def sighting(breach: Breach) -> Sighting:
        how = f"SIGKILL {_WORDS[action]} the call"
        call = f"{_WORDS[action]} {event}"
        return Sighting(
            "kill", recording.name, event.number, call, breach, how, left, died.history, orders=orders
        )

    case = Case(tree.digest(left), partial(tree.write_tree, left), died.history, sighting)
    return case, not died.was_killed or not _is_same(event, died.events)


def _is_same(event: Event, events: tuple[Event, ...]) -> bool:
    """Whether the call that was struck is the one it was meant for; a call that never began is on no tape."""
    struck = [one for one in events if one.number == event.number]
    return not struck or (struck[0].call, struck[0].path) == (event.call, event.path)
