"""Many schedules, and how one that violates an invariant is made smaller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.clusterlab.directed import SCENARIOS
from recovery.clusterlab.oracles import InvariantViolated
from recovery.clusterlab.workload import Schedule
from recovery.clusterlab.world import Choices, EventKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from recovery.clusterlab.world import TraceEvent


@dataclass(frozen=True, slots=True)
class ViolatingSchedule:
    """A schedule that violates an invariant."""

    seed: int
    choices: tuple[int, ...]
    """Played again, they make the same violation, whatever the seed."""
    invariant: str
    text: str
    kind: type[Schedule] = Schedule


def play(
    seed: int, given: Sequence[int] | None = None, kind: type[Schedule] = Schedule
) -> ViolatingSchedule | None:
    """Play the schedule of a seed, or of these choices."""
    choices = Choices(seed, given)
    try:
        kind(choices).play()
    except InvariantViolated as violation:
        return ViolatingSchedule(seed, tuple(choices.made), violation.invariant, str(violation), kind)
    return None


def play_scenario(name: str) -> ViolatingSchedule | None:
    """Play a schedule that is written by hand."""
    try:
        SCENARIOS[name]()
    except InvariantViolated as violation:
        return ViolatingSchedule(0, (), violation.invariant, str(violation))
    return None


def explore(seeds: Iterable[int], kind: type[Schedule] = Schedule) -> Iterator[ViolatingSchedule]:
    """Play the schedules of these seeds, and yield those that violate an invariant."""
    for seed in seeds:
        failure = play(seed, None, kind)
        if failure is not None:
            yield failure


def minimise(failure: ViolatingSchedule, plays_max: int = 2_000) -> ViolatingSchedule:
    """Return a failure of the same invariant in which less goes wrong.

    Choices become 0, with which nothing goes wrong: first the last ones, then pieces of any place, each time
    half as long.
    """
    best, plays = failure, 0
    size = len(best.choices)
    while size:
        at = max(0, len(best.choices) - size)
        while at >= 0 and plays < plays_max:
            piece = best.choices[at : at + size]
            if any(piece):
                smaller = (*best.choices[:at], *(0 for _ in piece), *best.choices[at + size :])
                plays += 1
                found = play(failure.seed, smaller, failure.kind)
                if found is not None and found.invariant == failure.invariant:
                    best = found
            at -= size
        size //= 2
    end = max((number for number, choice in enumerate(best.choices, 1) if choice), default=0)
    return ViolatingSchedule(best.seed, best.choices[:end], best.invariant, best.text, best.kind)


def trace(failure: ViolatingSchedule) -> list[TraceEvent]:
    """Return what happens in the schedule."""
    schedule = failure.kind(Choices(failure.seed, failure.choices))
    schedule.world.trace = []
    try:
        schedule.play()
    except InvariantViolated as violation:
        schedule.world.note(EventKind.VIOLATION, "", str(violation))
    return schedule.world.trace
