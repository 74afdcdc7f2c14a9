"""A contest: contenders take turns at the same work, round by round.

    Scenario   a row of the table: the contenders, what each does in its turn, and the bars
    begin      called once for each contender before the rounds, and not measured, for example to fill a store
    turn       what a contender does in its round; returns its figures
    end        called once for each contender after the rounds; returns figures of all rounds together

These three are functions of a `ContenderProcess`: they send requests to the process of the contender. In each
round all contenders work once, one after the other, and the first one changes from round to round. Only
figures of the same round are compared, because the machine may be busy and disks have slow phases. A missing
contender is noted. A contender that fails is a flaw, and with a flaw no floor is met.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from contest.contender_process import ContenderFailed, ContenderProcess
from contest.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from contest.contender_process import Contender
    from contest.result import Bar, Figures

    Turn = Callable[[ContenderProcess], Figures]


def _nothing(_: ContenderProcess) -> Figures:
    return {}


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The place of a scenario on a curve: the name of the axis, and the value on it."""

    curve: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One row of the table for each bar, all about the same rounds."""

    name: str
    """The name for the command line."""
    title: str
    """The title in the table. It says what is measured."""
    contenders: Sequence[Contender]
    turn: Turn
    bars: Sequence[Bar] = ()
    rounds: int
    warm_up: int = 1
    """Number of rounds at the beginning that are not counted."""
    begin: Turn = _nothing
    end: Turn = _nothing
    work: Mapping[str, object] = field(default_factory=dict)
    """Sizes and counts, for the report."""
    points: Sequence[CurvePoint] = ()


def run_scenario(scenario: Scenario, place: Path) -> Result:
    """Run all rounds of a scenario. Each contender has a directory of its own below `place`."""
    missing = {one.name: why for one in scenario.contenders if (why := why_unavailable(one))}
    with ExitStack() as end:
        present = [one for one in scenario.contenders if one.name not in missing]
        processes = [end.enter_context(ContenderProcess(one, _directory(place, one.name))) for one in present]
        for process in processes:
            process.start()
        contest = _Contest(scenario, processes)
        rounds, whole = contest.run()
    return Result(
        scenario=scenario.name,
        title=scenario.title,
        bars=scenario.bars,
        rounds=rounds,
        whole=whole,
        notes=sorted(set(missing.values())),
        flaws=contest.flaws,
    )


def why_unavailable(contender: Contender) -> str:
    """Return why the contender cannot take part on this machine, or an empty string."""
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
    def __init__(self, scenario: Scenario, processes: Sequence[ContenderProcess]) -> None:
        self._scenario = scenario
        self._processes = list(processes)
        self.flaws: list[str] = []

    def run(self) -> tuple[list[Mapping[str, Figures]], Mapping[str, Figures]]:
        one = self._scenario
        self._each(self._processes, one.begin)
        laps: list[Mapping[str, Figures]] = [
            self._each(order, one.turn) for order in _orders(self._processes, one.warm_up + one.rounds)
        ]
        whole = self._each(self._processes, one.end)
        return laps[one.warm_up :], whole

    def _each(self, order: Sequence[ContenderProcess], turn: Turn) -> dict[str, Figures]:
        figures = {}
        for process in order:
            if process in self._processes:
                try:
                    figures[process.name] = turn(process)
                except ContenderFailed as failure:
                    self._processes.remove(process)
                    self.flaws.append(str(failure))
        return figures


def _orders(processes: Sequence[ContenderProcess], rounds: int) -> Iterator[list[ContenderProcess]]:
    """Yield the order of each round. The first one moves to the end, so that none is always first."""
    order = list(processes)
    for _ in range(rounds):
        yield order
        order = [*order[1:], *order[:1]]
