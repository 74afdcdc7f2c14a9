"""Compares another revision of our store with this one, in the rows of `make bench`, in turns.

python bench/compare_revisions.py BASE [--only ROW ...] [--rounds N] [--quick | --tiny] [--json FILE]
[--strict]

BASE is checked out into a temporary directory. In each row a process of either revision does the same work,
round by round; the revisions take turns in going first. A ratio is that of one round, new ÷ old, and above 1
this revision is better. A row counts as slower only if its median and three quarters of its rounds are below
the floor, because a busy disk makes as large a difference between rounds of one revision. With BASE=HEAD the
run shows how large it is.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import store
from contest.contender_process import ContenderFailed, ContenderProcess
from contest.contest import why_unavailable
from contest.machine import busy, machine
from contest.provenance import provenance
from contest.result import RATE
from contest.run_size import FULL, QUICK, TINY
from contest.scratch_directory import scratch
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from contest.contender_process import Contender
    from contest.contest import Scenario, Turn
    from contest.result import Figure, Figures

FLOOR = 0.97
_ROOT = Path(__file__).parents[1]
_FORMER_NAMES = {
    "contenders.crash_contenders:CrashContender": ("crashing", "Crashing"),
    "contenders.footprint_contender:FootprintContender": ("weigher", "Weigher"),
    "contenders.growth_contender:GrowthContender": ("grower", "Grower"),
    "contenders.reopening_contender:ReopeningContender": ("opener", "Opener"),
}
"""Former names of modules, before the bench had folders, and of classes."""
_BENCH = "bench"
_WIDTH = 140


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureComparison:
    """One figure of one contender, in both revisions."""

    row: str
    contender: str
    figure: str
    unit: str
    old: float
    new: float
    ratios: Sequence[float]
    """New ÷ old, one for each round; above 1 the new one is better."""

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)

    @property
    def quartiles(self) -> tuple[float, float]:
        """The lower and the upper quartile of the rounds."""
        if len(self.ratios) < 2:
            return self.median, self.median
        low, _, high = statistics.quantiles(self.ratios, n=4, method="inclusive")
        return low, high

    @property
    def verdict(self) -> str:
        if self.median >= FLOOR:
            return ""
        return "SLOWER" if self.quartiles[1] < FLOOR else "within the noise"


@contextmanager
def checked_out(revision: str, place: Path) -> Iterator[Path]:
    """Check out that revision of this repository into a directory of its own."""
    target = place / "base"
    _git("worktree", "add", "--quiet", "--detach", str(target), revision)
    try:
        yield target
    finally:
        _git("worktree", "remove", "--force", str(target))


def compare(scenario: Scenario, base: Path, place: Path) -> Iterator[FigureComparison]:
    """Yield the comparison of each figure of our contenders in a row."""
    figures = list(dict.fromkeys(bar.figure for bar in scenario.bars if _is_ours(bar.subject))) or [RATE]
    for contender in scenario.contenders:
        if _is_ours(contender.name) and not why_unavailable(contender):
            laps = _rounds(scenario, contender, {"old": base, "new": _ROOT}, place)
            yield from filter(None, (_compared(scenario, contender, figure, laps) for figure in figures))


def _is_ours(name: str) -> bool:
    return name.startswith("ours")


def _rounds(
    scenario: Scenario, contender: Contender, trees: Mapping[str, Path], place: Path
) -> list[dict[str, Figures]]:
    """Return the figures of both revisions, round by round; figures of all rounds together are in each."""
    with ExitStack() as end:
        processes = {
            side: end.enter_context(
                ContenderProcess(_of(contender, tree), _made(place, side, scenario, contender))
            )
            for side, tree in trees.items()
        }

        def each(turn: Turn, sides: Sequence[str]) -> dict[str, Figures]:
            return {side: turn(processes[side]) for side in sides}

        orders = [tuple(processes), tuple(processes)[::-1]]
        each(scenario.begin, orders[0])
        laps = [
            each(scenario.turn, orders[number % 2]) for number in range(scenario.warm_up + scenario.rounds)
        ]
        whole = each(scenario.end, orders[0])
    return [{side: {**whole[side], **lap[side]} for side in trees} for lap in laps[scenario.warm_up :]]


def _of(contender: Contender, tree: Path) -> Contender:
    # Each revision runs its own bench, because a bench uses internals of its revision.
    environment = {**contender.environment, "PYTHONPATH": str(tree)}
    make = _make_in(contender.make, tree / _BENCH)
    return replace(contender, make=make, environment=environment, home=str(tree / _BENCH))


def _make_in(make: str, bench: Path) -> str:
    """Return `module:Class` under the names that the class has in that bench."""
    module, _, name = make.partition(":")
    former_module, former_name = _FORMER_NAMES.get(make, (module.rpartition(".")[2], name))
    source = bench / f"{module.replace('.', '/')}.py"
    if not source.exists():
        return f"{former_module}:{former_name}"
    return make if f"class {name}" in source.read_text(encoding="utf-8") else f"{module}:{former_name}"


def _made(place: Path, side: str, scenario: Scenario, contender: Contender) -> Path:
    made = place / side / scenario.name / contender.name.replace(" ", "-")
    made.mkdir(parents=True)
    return made


def _compared(
    scenario: Scenario, contender: Contender, figure: Figure, laps: Sequence[Mapping[str, Figures]]
) -> FigureComparison | None:
    both = [(lap["old"], lap["new"]) for lap in laps]
    found = [(old[figure.name], new[figure.name]) for old, new in both if figure.name in {*old} & {*new}]
    pairs = [(old, new) for old, new in found if old and new]
    if not pairs:
        return None
    return FigureComparison(
        row=scenario.name,
        contender=contender.name,
        figure=figure.name,
        unit=figure.unit,
        old=statistics.median(old for old, _ in pairs),
        new=statistics.median(new for _, new in pairs),
        ratios=[figure.ratio(new, old) for old, new in pairs],
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the selected rows. Return 1 if one failed, or if one was slower in a strict run."""
    options = _parser().parse_args(arguments)
    effort = options.effort
    if options.rounds:
        effort = replace(effort, **dict.fromkeys(_ROUNDS, options.rounds))
    rows = [one for one in store.scenarios(effort) if not options.only or one.name in options.only]
    before = {**provenance(), "base": _git("rev-parse", options.base).strip(), "machine": machine()}
    found: list[FigureComparison] = []
    failed: dict[str, list[str]] = defaultdict(list)
    with scratch(Path.cwd()) as place, checked_out(options.base, place) as base:
        for scenario in rows:
            print(f"{scenario.name} …", file=sys.stderr)
            try:
                found += compare(scenario, base, place)
            except ContenderFailed as failure:
                failed[scenario.name].append(str(failure))
    _show(found, failed, _git("diff", "--stat", "--diff-filter=M", options.base, "--", _BENCH))
    if options.json:
        rows_found = [{**asdict(one), "median": one.median, "verdict": one.verdict} for one in found]
        options.json.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**before, "floor": FLOOR, "rows": rows_found, "failed": failed}, indent=2)
        options.json.write_text(text + "\n", encoding="utf-8")
    is_slower = any(one.verdict == "SLOWER" for one in found)
    return 1 if failed or (options.strict and is_slower) else 0


_ROUNDS = ("rounds", "sustained_rounds", "rounds_without_floor", "openings")


def _show(found: Sequence[FigureComparison], failed: Mapping[str, Sequence[str]], changed: str) -> None:
    table = Table(
        "row", "contender", "figure", "old", "new", "new ÷ old", "half of the rounds", "", title=busy()
    )
    for one in found:
        low, high = one.quartiles
        figure = f"{one.figure} {one.unit}".strip()
        values = (f"{one.old:,.4g}", f"{one.new:,.4g}", f"{one.median:.2f}", f"{low:.2f} … {high:.2f}")
        table.add_row(one.row, one.contender, figure, *values, one.verdict)
    console = Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False)
    console.print(table)
    for name, why in failed.items():
        console.print(f"{name}: FAILED: {why[-1]}", markup=False)
    if changed:
        console.print(f"the bench itself has changed since that revision:\n{changed}", markup=False)


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(_ROOT), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Compare another revision of our store with this one.")
    parser.add_argument("base", help="the revision to compare with")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="ROW", help="run only these rows of bench/store.py"
    )
    parser.add_argument("--rounds", type=int, help="number of rounds; fewer than five mean little")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every round and the machine as JSON")
    parser.add_argument("--strict", action="store_true", help="exit code 1 if a row is slower")
    effort = parser.add_mutually_exclusive_group()
    effort.set_defaults(effort=FULL)
    effort.add_argument("--quick", action="store_const", dest="effort", const=QUICK, help="a shorter run")
    effort.add_argument(
        "--tiny", action="store_const", dest="effort", const=TINY, help="a run that only shows that it works"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
