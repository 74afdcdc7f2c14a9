"""Our store against its peers and the raw limit, in one run; prints one table.

python bench/store.py [--quick] [--only ROW ...] [--rounds N] [--seed N] [--json FILE] [--html FILE]
    [--strict]
python bench/store.py --list | --check-syncs
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import adding
import contest
import footprint
import growth
import opening
import peers
import reading
import reopening
import syncs
import tuning
from effort import FULL, QUICK, TINY, Effort
from machine import busy, machine
from origin import origin
from page.document import render
from report import FORMAT, remarks, row, table
from rich.console import Console
from scratch import scratch
from syncs import Counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from contest import Scenario
    from result import Result

ROWS: tuple[Callable[[Effort], Sequence[Scenario]], ...] = (
    adding.scenarios,
    reading.scenarios,
    opening.scenarios,
    reopening.scenarios,
    footprint.scenarios,
    growth.scenarios,
)
"""Where rows come from, in the order of the table."""

ONLY_ASKED: tuple[Callable[[Effort], Sequence[Scenario]], ...] = (tuning.scenarios,)
"""The same for rows that are not part of a run unless they are named."""

_WIDTH = 150


def scenarios(effort: Effort) -> list[Scenario]:
    """The rows of a whole run."""
    return [scenario for rows in ROWS for scenario in rows(effort)]


def asked_scenarios(effort: Effort) -> list[Scenario]:
    """The rows that are run only where they are named."""
    return [scenario for rows in ONLY_ASKED for scenario in rows(effort)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the scenarios that were asked for; 1 only if a bar is missed that was to be kept strictly."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    effort = _effort(asked)
    if asked.list:
        return _list([*scenarios(effort), *asked_scenarios(effort)])
    if asked.check_syncs:
        return _check_syncs()
    named = [one for one in [*scenarios(effort), *asked_scenarios(effort)] if one.name in asked.only]
    chosen = named if asked.only else scenarios(effort)
    if unknown := sorted(set(asked.only) - {one.name for one in chosen}):
        parser.error(f"no such row: {', '.join(unknown)}; --list tells all")
    before, warning = {**origin(), "machine": machine()}, busy()
    results = list(_hold(chosen))
    _show(results, warning)
    _keep(asked, {**before, **_said(effort, chosen, results)})
    return 1 if asked.strict and any(bar.verdict.fails for one in results for bar in one.judge()) else 0


def _effort(asked: argparse.Namespace) -> Effort:
    effort: Effort = replace(asked.effort, seed=asked.seed)
    if asked.rounds:
        rounds = asked.rounds
        effort = replace(effort, rounds=rounds, sustained_rounds=rounds, told_rounds=rounds, openings=rounds)
    return effort


def _hold(chosen: Sequence[Scenario]) -> Iterator[Result]:
    with scratch(Path.cwd()) as place:
        for scenario in chosen:
            start = time.monotonic()
            print(f"{scenario.name} …", end="", file=sys.stderr, flush=True)
            directory = place / scenario.name
            directory.mkdir()
            yield contest.hold(scenario, directory)
            shutil.rmtree(directory)
            print(f" {time.monotonic() - start:.1f} s", file=sys.stderr)


def _show(results: Sequence[Result], warning: str) -> None:
    # Into a file or a pipe a row is a line, however long.
    console = Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False)
    console.print(table(results, warning))
    for remark in remarks(results):
        console.print(remark, markup=False)


def _said(effort: Effort, chosen: Sequence[Scenario], results: Sequence[Result]) -> dict[str, object]:
    return {
        "format": FORMAT,
        "effort": asdict(effort),
        "peers": peers.SETTINGS,
        "scenarios": [row(one, scenario) for one, scenario in zip(results, chosen, strict=True)],
    }


def _keep(asked: argparse.Namespace, said: dict[str, object]) -> None:
    text = json.dumps(said, indent=2) + "\n"
    if asked.json:
        _write(asked.json, text)
    if asked.html:
        # From the text: drawn again from the file it is the same page.
        _write(asked.html, render(json.loads(text)))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(path)


def _list(found: Sequence[Scenario]) -> int:
    for scenario in found:
        print(f"{scenario.name:24} {scenario.title}")
    return 0


def _check_syncs() -> int:
    if why := syncs.why_not_here():
        print(why, file=sys.stderr)
        return 1
    with scratch(Path.cwd()) as place:
        counted = []
        for one in syncs.everybody(place / "syncs"):
            print(one)
            counted.append(one)
    return 0 if all(one.is_honest for one in counted if isinstance(one, Counted)) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Our store against its peers and the raw limit, in one run.")
    parser.add_argument("--only", nargs="+", default=[], metavar="ROW", help="some rows; --list tells all")
    parser.add_argument("--rounds", type=int, help="how often each is measured; five or more say something")
    parser.add_argument("--seed", type=int, default=FULL.seed, help="what payloads and orders come from")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every round, the machine and all settings")
    parser.add_argument("--html", type=Path, metavar="FILE", help="the same as a page to look at")
    parser.add_argument("--strict", action="store_true", help="exit code 1 unless every floor is met")
    parser.add_argument("--list", action="store_true", help="the names of all rows, and nothing else")
    parser.add_argument(
        "--check-syncs", action="store_true", help="count the syncs of every contender, and nothing else"
    )
    effort = parser.add_mutually_exclusive_group()
    effort.set_defaults(effort=FULL)
    quick = "in less than three minutes"
    effort.add_argument("--quick", action="store_const", dest="effort", const=QUICK, help=quick)
    tiny = "only to see that it works"
    effort.add_argument("--tiny", action="store_const", dest="effort", const=TINY, help=tiny)
    return parser


if __name__ == "__main__":
    sys.exit(main())
