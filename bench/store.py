"""Compares our store with its peers and the raw limit in one run, and prints one table.

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

from contenders import peers
from contest import contest
from contest.machine import busy, machine
from contest.provenance import provenance
from contest.run_size import FULL, QUICK, TINY, RunSize
from contest.scratch_directory import scratch
from report.page import render
from report.text_report import FORMAT, remarks, row, table
from rich.console import Console
from scenarios import adding, footprint, growth, opening, reading, reopening, sync_counts, tuning
from scenarios.sync_counts import SyncCount

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from contest.contest import Scenario
    from contest.result import Result

ROWS: tuple[Callable[[RunSize], Sequence[Scenario]], ...] = (
    adding.scenarios,
    reading.scenarios,
    opening.scenarios,
    reopening.scenarios,
    footprint.scenarios,
    growth.scenarios,
)
"""The functions that return the rows, in the order of the table."""

OPTIONAL_ROWS: tuple[Callable[[RunSize], Sequence[Scenario]], ...] = (tuning.scenarios,)
"""The same for rows that run only if they are named."""

_WIDTH = 150


def scenarios(run_size: RunSize) -> list[Scenario]:
    """Return the rows of a full run."""
    return [scenario for rows in ROWS for scenario in rows(run_size)]


def optional_scenarios(run_size: RunSize) -> list[Scenario]:
    """Return the rows that run only if they are named."""
    return [scenario for rows in OPTIONAL_ROWS for scenario in rows(run_size)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the selected scenarios. Return 1 if a floor is missed in a strict run, otherwise 0."""
    parser = _parser()
    options = parser.parse_args(arguments)
    run_size = _run_size(options)
    if options.list:
        return _list([*scenarios(run_size), *optional_scenarios(run_size)])
    if options.check_syncs:
        return _check_syncs()
    named = [one for one in [*scenarios(run_size), *optional_scenarios(run_size)] if one.name in options.only]
    chosen = named if options.only else scenarios(run_size)
    if unknown := sorted(set(options.only) - {one.name for one in chosen}):
        parser.error(f"no such row: {', '.join(unknown)}; see --list")
    before, warning = {**provenance(), "machine": machine()}, busy()
    results = list(_results(chosen))
    _show(results, warning)
    _write_report(options, {**before, **_report(run_size, chosen, results)})
    return (
        1 if options.strict and any(bar.verdict.fails for one in results for bar in one.bar_results()) else 0
    )


def _run_size(options: argparse.Namespace) -> RunSize:
    run_size: RunSize = replace(options.effort, seed=options.seed)
    if options.rounds:
        rounds = options.rounds
        run_size = replace(
            run_size, rounds=rounds, sustained_rounds=rounds, rounds_without_floor=rounds, openings=rounds
        )
    return run_size


def _results(chosen: Sequence[Scenario]) -> Iterator[Result]:
    with scratch(Path.cwd()) as place:
        for scenario in chosen:
            start = time.monotonic()
            print(f"{scenario.name} …", end="", file=sys.stderr, flush=True)
            directory = place / scenario.name
            directory.mkdir()
            yield contest.run_scenario(scenario, directory)
            shutil.rmtree(directory)
            print(f" {time.monotonic() - start:.1f} s", file=sys.stderr)


def _show(results: Sequence[Result], warning: str) -> None:
    # In a file or a pipe each row stays on one line.
    console = Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False)
    console.print(table(results, warning))
    for remark in remarks(results):
        console.print(remark, markup=False)


def _report(run_size: RunSize, chosen: Sequence[Scenario], results: Sequence[Result]) -> dict[str, object]:
    return {
        "format": FORMAT,
        "effort": asdict(run_size),
        "peers": peers.SETTINGS,
        "scenarios": [row(one, scenario) for one, scenario in zip(results, chosen, strict=True)],
    }


def _write_report(options: argparse.Namespace, report: dict[str, object]) -> None:
    text = json.dumps(report, indent=2) + "\n"
    if options.json:
        _write(options.json, text)
    if options.html:
        # Draw from the text, so that drawing again from the file gives the same page.
        _write(options.html, render(json.loads(text)))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(path)


def _list(found: Sequence[Scenario]) -> int:
    for scenario in found:
        print(f"{scenario.name:24} {scenario.title}")
    return 0


def _check_syncs() -> int:
    if why := sync_counts.why_not_recorded():
        print(why, file=sys.stderr)
        return 1
    with scratch(Path.cwd()) as place:
        counted = []
        for one in sync_counts.sync_counts_of_all(place / "syncs"):
            print(one)
            counted.append(one)
    return 0 if all(one.is_honest for one in counted if isinstance(one, SyncCount)) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Compare our store with its peers and the raw limit in one run."
    )
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="ROW", help="run only these rows; see --list"
    )
    parser.add_argument("--rounds", type=int, help="number of rounds; fewer than five mean little")
    parser.add_argument("--seed", type=int, default=FULL.seed, help="seed of payloads and orders")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write every round, the machine and all settings as JSON"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the same as an HTML page")
    parser.add_argument("--strict", action="store_true", help="exit code 1 unless every floor is met")
    parser.add_argument("--list", action="store_true", help="list the names of all rows and exit")
    parser.add_argument("--check-syncs", action="store_true", help="only count the syncs of every contender")
    effort = parser.add_mutually_exclusive_group()
    effort.set_defaults(effort=FULL)
    quick = "a run of less than three minutes"
    effort.add_argument("--quick", action="store_const", dest="effort", const=QUICK, help=quick)
    tiny = "a run that only shows that it works"
    effort.add_argument("--tiny", action="store_const", dest="effort", const=TINY, help=tiny)
    return parser


if __name__ == "__main__":
    sys.exit(main())
