"""Plants each bug in a copy of the code, and asks who finds it.

    python tests/support/mutants.py                    all of them, as `make mutants` does
    python tests/support/mutants.py mark-in-place …    these
    python tests/support/mutants.py --quick            the crash laboratory is not asked: half the time
    python tests/support/mutants.py --score            all of them, and docs/mutants.json is made anew

A bug is caught when the crash laboratory sees a violation (layer by layer, a few seconds each), when a test
named for it fails, or when the crash simulation reports a violation. One that nobody catches makes the run
fail: either a promise is not tested, or the rule is not needed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from planted import PLANTED

from recovery.crashlab.numbers import MutantNumbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from planted import Planted

ROOT = Path(__file__).resolve().parent.parent.parent
SCORE = ROOT / "docs" / "mutants.json"
LAYERS = ("model", "kill", "errors", "nested", "rot")
WORKLOADS = range(1, 5)
HISTORIES = range(1, 21)
_COPIED = ("storage", "recovery", "tests", "setup.cfg", "pyproject.toml")
_TIMEOUT_S = 240
_BROKEN_CHANGE = re.compile(r"\b(NameError|SyntaxError|ImportError|ModuleNotFoundError|IndentationError)\b")


@dataclass(frozen=True, slots=True)
class Caught:
    """Who found a bug; nobody did when `by` is empty."""

    planted: Planted
    by: str
    evidence: str
    seconds: float


class How(Enum):
    """Who is asked."""

    EVERYBODY = "the laboratory first, then tests and simulation"
    QUICK = "tests and simulation"


def judge(planted: Planted, how: How = How.EVERYBODY) -> Caught:
    """Plants the bug and asks, one after the other, until somebody finds it."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as scratch:
        root = Path(scratch)
        _copy(root)
        for change in planted.changes:
            change.apply(root)
        for name, command in _askers(planted, how):
            evidence = _evidence(command, root)
            if evidence:
                return Caught(planted, name, evidence, time.monotonic() - started)
    return Caught(planted, "", "", time.monotonic() - started)


def _copy(root: Path) -> None:
    leave = shutil.ignore_patterns("__pycache__", "interop")
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, root / name, ignore=leave)
        else:
            shutil.copy(source, root / name)


def _askers(planted: Planted, how: How) -> Iterator[tuple[str, Sequence[str]]]:
    laboratory = [(f"laboratory, {layer}", ("tests/support/lab_asker.py", layer)) for layer in LAYERS]
    if how is How.EVERYBODY:
        yield from laboratory
    for test in planted.tests:
        yield test, ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test)
    simulation = "tests/support/crash_sim.py"
    for seed in WORKLOADS:
        yield f"crash simulation, workload {seed}", (simulation, "first", str(seed))
    for seed in HISTORIES:
        yield f"crash simulation, history {seed}", (simulation, "history", str(seed))


def _evidence(command: Sequence[str], root: Path) -> str:
    """A line of what it says when it finds something wrong; nothing when it does not."""
    # The copy's own modules in front of those that are installed.
    paths = os.pathsep.join([str(root), str(root / "tests" / "support"), str(root / "bench")])
    try:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=root,
            env={**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "it hangs"
    return _telling_line(done.stdout + done.stderr) if done.returncode else ""


def _telling_line(output: str) -> str:
    lines = output.splitlines()
    broken = [line for line in lines if _BROKEN_CHANGE.search(line)]
    if broken:
        raise SystemExit(f"the planted change itself is broken: {broken[-1]}")
    return next((line for line in lines if line.startswith(("FAILED", "E  "))), lines[0] if lines else "?")


def main(arguments: Sequence[str]) -> int:
    options = {word for word in arguments if word.startswith("--")}
    names = set(arguments) - options
    chosen = [one for one in PLANTED if not names or one.name in names]
    unknown = names - {one.name for one in PLANTED} | options - {"--quick", "--score"}
    if unknown:
        print(f"no such bug or option: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    started = time.monotonic()
    found: list[Caught] = []
    how = How.QUICK if "--quick" in options else How.EVERYBODY
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for one in pool.map(partial(judge, how=how), chosen):
            found.append(one)
            print(f"{one.planted.name:36} {one.seconds:6.1f} s  {one.by or 'NOT CAUGHT'}", flush=True)
            if one.evidence:
                print(f"{'':46}{one.evidence[:110]}", flush=True)
    caught = [one for one in found if one.by]
    alone = sum(one.by.startswith("laboratory") for one in caught)
    by_the_laboratory = f", {alone} of them by the laboratory" if how is How.EVERYBODY else ""
    seconds = time.monotonic() - started
    print(f"mutants: {len(caught)} of {len(found)} planted bugs caught{by_the_laboratory} ({seconds:.0f} s)")
    if "--score" in options:
        SCORE.write_text(json.dumps([asdict(_numbers(one)) for one in found], indent=1) + "\n")
    return 0 if len(caught) == len(found) else 1


def _numbers(one: Caught) -> MutantNumbers:
    by = one.by.split("::")[-1] if "::" in one.by else one.by
    return MutantNumbers(one.planted.name, one.planted.rule, by, seconds=round(one.seconds, 1))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
