"""Plants each bug in a copy of the code, and asks who finds it.

    python tests/support/mutants.py                    all of them, as `make mutants` does
    python tests/support/mutants.py mark-in-place …    these

A bug is caught when a test named for it fails, or when the crash simulation reports a violation. One that
nobody catches makes the run fail: either a promise is not tested, or the rule is not needed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from planted import PLANTED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from planted import Planted

ROOT = Path(__file__).resolve().parent.parent.parent
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


def judge(planted: Planted) -> Caught:
    """Plants the bug and asks, one after the other, until somebody finds it."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as scratch:
        root = Path(scratch)
        _copy(root)
        for change in planted.changes:
            change.apply(root)
        for name, command in _askers(planted):
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


def _askers(planted: Planted) -> Iterator[tuple[str, Sequence[str]]]:
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


def main(names: Sequence[str]) -> int:
    chosen = [one for one in PLANTED if not names or one.name in names]
    unknown = set(names) - {one.name for one in PLANTED}
    if unknown:
        print(f"no such bug: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    started = time.monotonic()
    caught = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for one in pool.map(judge, chosen):
            caught += bool(one.by)
            print(f"{one.planted.name:36} {one.seconds:6.1f} s  {one.by or 'NOT CAUGHT'}", flush=True)
            if one.evidence:
                print(f"{'':46}{one.evidence[:110]}", flush=True)
    print(f"mutants: {caught} of {len(chosen)} planted bugs caught ({time.monotonic() - started:.0f} s)")
    return 0 if caught == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
