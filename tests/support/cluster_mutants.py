"""Put each planted bug into the client, the bookies or auto-recovery, and let the laboratory find it.

    cluster_mutants.py [--schedules N] [--jobs N] [NAME ...]

Each bug is tried in a process of its own. The report says after how many schedules which invariant has found
it. The run fails if a bug is not found, or by another invariant than those of its list."""

from __future__ import annotations

import argparse
import ast
import importlib
import multiprocessing
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planted_autorecovery_bugs import AUTORECOVERY_BUGS
from planted_cluster_bugs import CLUSTER_BUGS
from planted_topic_bugs import TOPIC_BUGS

from recovery.clusterlab.explorer import ViolatingSchedule, minimise, play, play_scenario

if TYPE_CHECKING:
    from code_edits import EditAddress
    from planted_cluster_bugs import PlantedClusterBug

ROOT = Path(__file__).resolve().parent.parent.parent

BUGS = (*CLUSTER_BUGS, *AUTORECOVERY_BUGS, *TOPIC_BUGS)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What the laboratory has made of one bug."""

    schedules: int
    failure: ViolatingSchedule | None
    smallest: int
    """Choices that are not 0 in the schedule after it was made smaller."""


def plant(change: EditAddress) -> None:
    """Change the function in this process."""
    tree = ast.parse((ROOT / change.file).read_text())
    change.edited(tree)
    namespace: dict[str, Any] = {"__name__": change.module}
    exec(compile(ast.fix_missing_locations(tree), change.file, "exec"), namespace)
    target: Any = importlib.import_module(change.module)
    changed: Any = namespace
    *owners, name = change.function.split(".")
    for owner in owners:
        target = getattr(target, owner)
        changed = changed[owner] if isinstance(changed, dict) else getattr(changed, owner)
    function, new = vars(target)[name], vars(changed)[name] if owners else changed[name]
    if isinstance(function, property):
        function, new = function.fget, new.fget
    function.__code__ = new.__code__


def find(bug: PlantedClusterBug, schedules: int) -> SearchResult:
    """Let the laboratory look for a bug, which stays in this process."""
    for change in bug.changes:
        plant(change)
    directed = None if bug.scenario is None else play_scenario(bug.scenario)
    if directed is not None:
        return SearchResult(1, directed, 0)
    played = bug.seeds[:schedules]
    for number, seed in enumerate(played, 1):
        failure = play(seed, None, bug.kind)
        if failure is not None:
            return SearchResult(number, failure, sum(map(bool, minimise(failure, 300).choices)))
    return SearchResult(len(played), None, 0)


def _task(task: tuple[str, int]) -> SearchResult:
    name, schedules = task
    return find(next(one for one in BUGS if one.name == name), schedules)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--schedules", type=int, default=20_000)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    bugs = [one for one in BUGS if not options.names or one.name in options.names]
    wrong = 0
    with multiprocessing.get_context("fork").Pool(options.jobs, maxtasksperchild=1) as pool:
        tasks = [(one.name, options.schedules) for one in bugs]
        for bug, found in zip(bugs, pool.imap(_task, tasks, chunksize=1), strict=True):
            failure = found.failure
            is_right = failure is not None and failure.invariant in bug.invariants
            wrong += not is_right
            told = "NOT FOUND" if failure is None else f"{failure.invariant:<3} {found.smallest:3} choices"
            mark = "" if is_right else f"  expected {','.join(sorted(bug.invariants))}"
            print(f"{bug.name:<60} {found.schedules:6} schedules  {told}{mark}", flush=True)
    print(f"{len(bugs) - wrong} of {len(bugs)} planted bugs found by an invariant of their list")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
