"""Which statements each test runs, kept from one run of `mutants.py` to the next.

To record all tests takes minutes, so a record is used again as long as the test's own file is the same. If
a function of the code has changed, the tests that ran any of it count as running all of it; a test that runs
a statement that it did not run before is only tried later than it could be. If many functions have changed,
all tests are recorded again.

    records.json   {"functions": [[name, statements, digest] …],
                    "tests": {test: {"file": digest, "seconds": s, "statements": [numbers]}}}

A statement's number is its place among the statements of all functions, in their order."""

from __future__ import annotations

import ast
import hashlib
import json
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from code_edits import functions_of
from machine_mutants import MODULES, statements_of
from mutant_runner import SIMULATION, WHOLE, TestRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from mutant_runner import WarmProcess

_AT_ONCE = 800
_CHANGED_MAX = 0.2
"""The share of functions that may have changed before everything is recorded again."""

_SIMULATION_FILES = (
    "crash_sim.py",
    "simulated_store.py",
    "journal_histories.py",
    "store_promises.py",
)


@dataclass(frozen=True, slots=True)
class NumberedFunction:
    """One function, and the numbers of its statements."""

    name: str
    statements: range
    digest: str


def numbered_functions(trees: Mapping[str, ast.Module]) -> list[NumberedFunction]:
    """Return the functions of these modules in their order, each under a name of its own."""
    found: list[NumberedFunction] = []
    times: Counter[str] = Counter()
    first = 0
    for module, tree in trees.items():
        for name, function in functions_of(tree):
            times[f"{module}:{name}"] += 1
            count = len(statements_of(function))
            digest = hashlib.sha256(ast.dump(function).encode()).hexdigest()[:16]
            unique = f"{module}:{name}:{times[f'{module}:{name}']}"
            found.append(NumberedFunction(unique, range(first, first + count), digest))
            first += count
    return found


def renumbered(
    statements: Iterable[int], before: Sequence[NumberedFunction], now: Sequence[NumberedFunction]
) -> list[int]:
    """Return the present numbers of statements that were recorded in the code as it was before."""
    present = {one.name: one for one in now}
    ran = set(statements)
    found: list[int] = []
    for one in before:
        following = present.get(one.name)
        its_own = [number for number in one.statements if number in ran]
        if following is None or not its_own:
            continue
        if following.digest == one.digest:
            found += [number - one.statements.start + following.statements.start for number in its_own]
        else:
            found += following.statements
    return found


def changed_share(before: Sequence[NumberedFunction], now: Sequence[NumberedFunction]) -> float:
    """Return the share of the present functions that are new or have changed."""
    known = {(one.name, one.digest) for one in before}
    return sum((one.name, one.digest) not in known for one in now) / max(1, len(now))


class StatementRecords:
    """The records of all tests, in a file between two runs."""

    def __init__(self, path: Path, root: Path) -> None:
        self._path = path
        self._root = root

    def of_all_tests(self, warm: WarmProcess, jobs: int) -> dict[str, TestRecord]:
        """Return what each test runs; record the tests that are new or have changed."""
        now = numbered_functions({module: warm.tree(module) for module in MODULES})
        files = {test: self._file_digest(test) for test in warm.tests}
        found = self._kept(files, now)
        stale = [test for test in warm.tests if test not in found and _is_recorded(test)]
        started = time.monotonic()
        for at in range(0, len(stale), _AT_ONCE):
            print(f"recording what tests run: {at} of {len(stale)}", flush=True)
            found |= warm.record(MODULES, jobs, stale[at : at + _AT_ONCE])
            self._keep(found, files, now)
        if stale:
            print(f"recorded ({time.monotonic() - started:.0f} s)", flush=True)
        return found

    def _kept(self, files: Mapping[str, str], now: Sequence[NumberedFunction]) -> dict[str, TestRecord]:
        if not self._path.exists():
            return {}
        known = json.loads(self._path.read_text())
        before: list[NumberedFunction] = []
        first = 0
        for name, count, digest in known.get("functions", ()):
            before.append(NumberedFunction(name, range(first, first + count), digest))
            first += count
        if changed_share(before, now) > _CHANGED_MAX:
            return {}
        return {
            test: TestRecord(one["seconds"], renumbered(one["statements"], before, now))
            for test, one in known["tests"].items()
            if one["file"] == files.get(test)
        }

    def _keep(
        self, found: Mapping[str, TestRecord], files: Mapping[str, str], now: Sequence[NumberedFunction]
    ) -> None:
        tests = {
            test: {"file": files[test], "seconds": one.seconds, "statements": one.statements}
            for test, one in found.items()
        }
        functions = [(one.name, len(one.statements), one.digest) for one in now]
        self._path.parent.mkdir(exist_ok=True)
        self._path.write_text(json.dumps({"functions": functions, "tests": tests}))

    def _file_digest(self, test: str) -> str:
        support = self._root / "tests" / "support"
        if test.startswith(SIMULATION):
            return _digest([support / name for name in _SIMULATION_FILES])
        return _digest([self._root / test.split("::")[0]])


def _is_recorded(test: str) -> bool:
    """Return whether the test is recorded. Long tests that simulate the same crashes as others are not."""
    return test not in WHOLE and not test.startswith("tests/recovery/test_crash_sim.py")


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()
