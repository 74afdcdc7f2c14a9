"""A contest: contenders take turns on the same work, round by round.

    Scenario   a row of the table: who takes part, what each does in its turn, and the bars
    begin      asked of each once, before the rounds, and not measured: fill a store, say
    turn       what a contender does in its round; answers its figures
    end        asked of each once, behind the rounds; answers figures of all rounds together

These three are functions of a `Player`, on our side of the pipe: they `ask` the contender's process. The
machine may be busy and disks have slow phases, so only what happened within one round is compared: in each
round every contender works once, one after the other, and who begins changes from round to round. A contender
that is missing is noted; one that fails is a flaw, and no bar is met with it.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from player import Failed, Player
from result import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from player import Contender
    from result import Bar, Figures

    Turn = Callable[[Player], Figures]


def _nothing(_: Player) -> Figures:
    return {}


@dataclass(frozen=True, slots=True)
class Point:
    """Where a scenario stands on a curve: the curve's name, and how far along it is."""

    curve: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One row of the table, or several about the same rounds: one for each bar."""

    name: str
    """For the command line."""
    title: str
    """For the table: what is measured, in the words of the bars."""
    contenders: Sequence[Contender]
    turn: Turn
    bars: Sequence[Bar] = ()
    rounds: int
    warm_up: int = 1
    """Rounds in front that are not counted."""
    begin: Turn = _nothing
    end: Turn = _nothing
    work: Mapping[str, object] = field(default_factory=dict)
    """Sizes and counts, for whoever reads the report."""
    points: Sequence[Point] = ()


def hold(scenario: Scenario, place: Path) -> Result:
    """All rounds of it, each contender in a directory of its own below `place`."""
    missing = {one.name: why for one in scenario.contenders if (why := why_not(one))}
    with ExitStack() as end:
        present = [one for one in scenario.contenders if one.name not in missing]
        players = [end.enter_context(Player(one, _directory(place, one.name))) for one in present]
        for player in players:
            player.start()
        held = _Contest(scenario, players)
        rounds, whole = held.run()
    return Result(
        scenario=scenario.name,
        title=scenario.title,
        bars=scenario.bars,
        rounds=rounds,
        whole=whole,
        notes=sorted(set(missing.values())),
        flaws=held.flaws,
    )


def why_not(contender: Contender) -> str:
    """Why the contender cannot take part here; nothing when it can."""
    if contender.cannot:
        return contender.cannot
    if contender.one_cpu and not hasattr(os, "sched_setaffinity"):
        return "not measured: this system cannot keep a process on one CPU"
    try:
        if contender.package:
            version(contender.package)
    except PackageNotFoundError:
        return f"{contender.package} is not installed: pip install {contender.package}"
    return ""


def _directory(place: Path, name: str) -> Path:
    made = place / name.replace(" ", "-")
    made.mkdir()
    return made


class _Contest:
    def __init__(self, scenario: Scenario, players: Sequence[Player]) -> None:
        self._scenario = scenario
        self._players = list(players)
        self.flaws: list[str] = []

    def run(self) -> tuple[list[Mapping[str, Figures]], Mapping[str, Figures]]:
        one = self._scenario
        self._each(self._players, one.begin)
        laps: list[Mapping[str, Figures]] = [
            self._each(order, one.turn) for order in _orders(self._players, one.warm_up + one.rounds)
        ]
        whole = self._each(self._players, one.end)
        return laps[one.warm_up :], whole

    def _each(self, order: Sequence[Player], turn: Turn) -> dict[str, Figures]:
        said = {}
        for player in order:
            if player in self._players:
                try:
                    said[player.name] = turn(player)
                except Failed as failure:
                    self._players.remove(player)
                    self.flaws.append(str(failure))
        return said


def _orders(players: Sequence[Player], rounds: int) -> Iterator[list[Player]]:
    """Who begins changes: nobody always works behind the same one."""
    order = list(players)
    for _ in range(rounds):
        yield order
        order = [*order[1:], *order[:1]]
