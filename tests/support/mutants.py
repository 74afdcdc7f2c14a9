"""Break our own code on purpose, and find the tests that fail.

    mutants.py                    planted bugs and a sample of machine-made mutants, as `make mutants` does
    mutants.py planted [NAME …]   all planted bugs, or these
    mutants.py machine [WHICH …]  machine-made mutants: all, those of a module, or by name
    mutants.py sample [SEED [N]]  a hundred machine-made mutants, or N
    mutants.py score              all planted bugs, two thousand machine-made mutants: writes
    docs/mutants.json
                                  and docs/machine-mutants.json
    mutants.py score N            N machine-made mutants: writes docs/machine-mutants.json
    mutants.py score planted      the planted bugs that the published score lacks, by tests and simulation
                                  without the laboratory: adds them to docs/mutants.json

Planted bugs are made by hand (`planted_bugs.py`), machine-made mutants by a program (`machine_mutants.py`).
Each is tested in a fork of one warm process (`mutant_runner.py`): first by the test that is known to find it,
then by the tests that run the changed statement, quickest first, and last by the crash simulation. Tests for
a few seconds find nearly all of the mutants; for the others many more of the tests that run the statement
follow. For the score, the crash laboratory is tried first on planted bugs, in a copy of the code.

A bug that no test finds makes the run fail: either a promise is not tested, or the rule is not needed.
Mutants that change nothing that a caller, a file or a crash could show are listed in `equivalent_mutants.py`,
each with its reason."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equivalent_mutants import EQUIVALENT
from machine_mutants import MODULES, mutants_of, mutated
from mutant_runner import SIMULATION, MutantTask, numbered, run_warm
from planted_bugs import PLANTED
from statement_records import StatementRecords

if TYPE_CHECKING:
    import ast
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

    from machine_mutants import Mutant
    from mutant_runner import MutantResult, TestRecord, WarmProcess
    from planted_bugs import PlantedBug

ROOT = Path(__file__).resolve().parent.parent.parent
PLANTED_SCORE = ROOT / "docs" / "mutants.json"
MACHINE_SCORE = ROOT / "docs" / "machine-mutants.json"
FINDERS = Path(__file__).with_name("finders.json")
"""The test that has found each planted bug before."""

RECORDS = StatementRecords(ROOT / ".mutants" / "records.json", ROOT)
LAYERS = ("model", "kill", "errors", "nested", "rot")
SAMPLE = 100
SCORED = 2000
"""The number of mutants for the score: two processors need less than an hour for them."""

SEED = 7
NEW_SURVIVORS_MAX = 5
"""The number of survivors in a sample that need not be in the published score. On a busy machine tests take
longer, fewer of them are run for a mutant, and some mutants are not found in time."""

BAR = 0.97
_SECONDS_OF_TESTS = 10.0
_SECONDS_OF_SIMULATION = 4.0
_SLOWEST_S = 4.0
_SECONDS_OF_THE_REST = 25.0
"""How long a mutant that has survived is tested with the tests that were left out before."""

_COPIED = ("storage", "recovery", "tests", "setup.cfg", "pyproject.toml")
_TIMEOUT_S = 240


# ── which tests to ask ───────────────────────────────────────────────────────────────────────────────────


class TestSelection:
    """Selects the tests that run a statement, and their order."""

    def __init__(self, warm: WarmProcess, records: Mapping[str, TestRecord]) -> None:
        warm.seconds = self._seconds = {test: one.seconds for test, one in records.items()}
        self._first: dict[tuple[str, str], int] = {}
        modules: list[str] = []
        for module in MODULES:
            for name, at in numbered(warm.tree(module)):
                if at == 0:
                    self._first[module, name] = len(modules)
                modules.append(module)
        self._tests: dict[int, list[str]] = defaultdict(list)
        self._shares: dict[tuple[str, str], float] = {}
        """The share of a test's statements that belong to a module; it is large for a test of that module."""
        for test, one in records.items():
            for number in one.statements:
                self._tests[number].append(test)
            for module, count in Counter(modules[number] for number in one.statements).items():
                self._shares[test, module] = count / len(one.statements)
        self._found: dict[str, Counter[str]] = defaultdict(Counter)

    def of(self, module: str, function: str, statement: int) -> tuple[str, ...]:
        """Return tests that run the statement, the quick and promising ones first, for a few seconds."""
        return tuple(self._within_budget(self._ranked(module, function, statement)))

    def rest_of(self, module: str, function: str, statement: int, tests: Container[str]) -> tuple[str, ...]:
        """Return other tests that run the statement, for longer."""
        left, rest = _SECONDS_OF_THE_REST, []
        for test in self._ranked(module, function, statement):
            if left > 0 and test not in tests:
                left -= self._seconds[test]
                rest.append(test)
        return tuple(rest)

    def _ranked(self, module: str, function: str, statement: int) -> list[str]:
        tests = self._tests[self._first[module, function] + statement]
        found = self._found[f"{module}:{function}"] + self._found[module] + self._found[""]

        def rank(test: str) -> tuple[bool, float]:
            worth = 0.02 + self._shares[test, module] + 0.1 * found[test]
            is_slow_and_new = test.startswith(SIMULATION) and not found[test]
            return is_slow_and_new, (0.005 + self._seconds[test]) / worth

        return sorted(tests, key=rank)

    def _within_budget(self, tests: Iterable[str]) -> Iterator[str]:
        left = {True: _SECONDS_OF_SIMULATION, False: _SECONDS_OF_TESTS}
        for test in tests:
            is_simulated = test.startswith(SIMULATION)
            seconds = self._seconds[test]
            if left[is_simulated] > 0 and (is_simulated or seconds <= _SLOWEST_S):
                left[is_simulated] -= seconds
                yield test

    def learn(self, module: str, function: str, test: str) -> None:
        self._found[f"{module}:{function}"][test] += 4
        self._found[module][test] += 2
        self._found[""][test] += 1


# ── the machine's ────────────────────────────────────────────────────────────────────────────────────────


def _question(mutant: Mutant, tests: Callable[[], tuple[str, ...]]) -> MutantTask:
    return MutantTask(
        mutant.name,
        (mutant.module,),
        lambda trees: mutated(trees[mutant.module], mutant),
        ((mutant.module, mutant.function),),
        tests,
    )


def _all_mutants() -> list[Mutant]:
    return [mutant for module in MODULES for mutant in mutants_of(ROOT, module)]


def sample_of(mutants: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """Return a sample of this size for this seed, with an equal share of each module's mutants.

    The choice depends on the names only, so that edits of other functions hardly change it.
    """
    keys = {one.name: hashlib.sha256(f"{seed} {one.name}".encode()).digest() for one in mutants}
    by_module: dict[str, list[Mutant]] = defaultdict(list)
    for one in sorted(mutants, key=lambda one: keys[one.name]):
        by_module[one.module].append(one)
    ranked = [
        ((at + keys[one.name][0] / 256) / len(members), one.name)
        for members in by_module.values()
        for at, one in enumerate(members)
    ]
    chosen = {name for _, name in sorted(ranked)[:count]}
    return [one for one in mutants if one.name in chosen]


def ask_machine(warm: WarmProcess, mutants: Sequence[Mutant], jobs: int) -> dict[str, MutantResult]:
    """Test each of them, and print the survivors."""
    choice = TestSelection(warm, RECORDS.of_all_tests(warm, jobs))
    by_name = {mutant.name: mutant for mutant in mutants}
    asked: dict[str, set[str]] = defaultdict(set)
    answers: dict[str, MutantResult] = {}
    started = time.monotonic()

    def first(mutant: Mutant) -> tuple[str, ...]:
        tests = choice.of(mutant.module, mutant.function, mutant.statement)
        asked[mutant.name].update(tests)
        return tests

    def rest(mutant: Mutant) -> tuple[str, ...]:
        return choice.rest_of(mutant.module, mutant.function, mutant.statement, asked[mutant.name])

    for answer in warm.ask_all([_question(one, partial(first, one)) for one in mutants], jobs):
        answers[answer.name] = answer
        if answer.by:
            choice.learn(by_name[answer.name].module, by_name[answer.name].function, answer.by)
        if len(answers) % 50 == 0:
            seconds = time.monotonic() - started
            print(f"… {len(answers)} of {len(mutants)}, {seconds / len(answers):.2f} s each", flush=True)
    left = _survivors(mutants, answers)
    print(f"{len(left)} of {len(mutants)} are tested with more tests", flush=True)
    for answer in warm.ask_all([_question(one, partial(rest, one)) for one in left], jobs):
        tests = answers[answer.name].asked + answer.asked
        answers[answer.name] = replace(answer, asked=tests)
        if answer.by:
            print(f"found late: {answer.name} by {answer.by}", flush=True)
        else:
            print(f"SURVIVES {answer.name}  ({tests} tests)", flush=True)
            print(f"         {by_name[answer.name].change}", flush=True)
    return answers


@dataclass(slots=True)
class MutantTally:
    """Counts how many of some mutants were found."""

    asked: int = 0
    found: int = 0
    hang: int = 0
    """The number of mutants that were found by a test that did not end."""
    equivalent: int = 0
    survive: int = 0

    def add(self, answer: MutantResult, *, is_equivalent: bool) -> None:
        self.asked += 1
        self.found += bool(answer.by)
        self.hang += answer.hangs
        self.equivalent += not answer.by and is_equivalent
        self.survive += not answer.by and not is_equivalent

    @property
    def score(self) -> float:
        """Return the share of found mutants among those that are not equivalent."""
        return self.found / max(1, self.asked - self.equivalent)

    @property
    def interval(self) -> tuple[float, float]:
        """Return the share for all mutants of which these are a sample: the interval of Wilson at 95 %."""
        z, count, share = 1.96, max(1, self.asked - self.equivalent), self.score
        middle = share + z * z / (2 * count)
        half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
        return (middle - half) / (1 + z * z / count), (middle + half) / (1 + z * z / count)

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"{self.found} of {self.asked - self.equivalent} found "
            f"({100 * self.score:.1f} %, between {100 * low:.0f} and {100 * high:.0f} %), "
            f"{self.hang} of them by a hang; {self.equivalent} equivalent, {self.survive} survive"
        )


def tallies(
    mutants: Sequence[Mutant], answers: Mapping[str, MutantResult]
) -> tuple[MutantTally, dict[str, MutantTally], dict[str, MutantTally]]:
    """Return the tallies in total, by module, and by operator."""
    equivalent = {one.mutant for one in EQUIVALENT}
    whole = MutantTally()
    by_module: dict[str, MutantTally] = defaultdict(MutantTally)
    by_operator: dict[str, MutantTally] = defaultdict(MutantTally)
    for mutant in mutants:
        for tally in (whole, by_module[mutant.module], by_operator[mutant.operator]):
            tally.add(answers[mutant.name], is_equivalent=mutant.name in equivalent)
    return whole, by_module, by_operator


def _survivors(mutants: Sequence[Mutant], answers: Mapping[str, MutantResult]) -> list[Mutant]:
    equivalent = {one.mutant for one in EQUIVALENT}
    return [one for one in mutants if not answers[one.name].by and one.name not in equivalent]


def machine_score(
    made: int, mutants: Sequence[Mutant], answers: Mapping[str, MutantResult], seconds: float
) -> dict[str, Any]:
    """Return the content of the published score."""
    whole, by_module, by_operator = tallies(mutants, answers)
    survivors = _survivors(mutants, answers)
    return {
        "made": made,
        **asdict(whole),
        "interval": [round(one, 3) for one in whole.interval],
        "seconds": round(seconds),
        "survivors": [{"name": one.name, "change": one.change} for one in survivors],
        "by_operator": {name: asdict(one) for name, one in sorted(by_operator.items())},
        "by_module": {name: asdict(one) for name, one in sorted(by_module.items())},
    }


# ── the planted ones ─────────────────────────────────────────────────────────────────────────────────────


def ask_planted(warm: WarmProcess, planted: Sequence[PlantedBug], jobs: int) -> dict[str, MutantResult]:
    """Run tests and simulation for each of them."""
    finders: dict[str, str] = json.loads(FINDERS.read_text()) if FINDERS.exists() else {}
    questions = [_planted_question(warm, one, finders.get(one.name, "")) for one in planted]
    answers = {}
    for answer in warm.ask_all(questions, jobs):
        answers[answer.name] = answer
        print(f"{answer.name:40} {answer.seconds:6.1f} s  {answer.by or 'NOT FOUND'}", flush=True)
        if answer.evidence:
            print(f"{'':50}{answer.evidence[:110]}", flush=True)
        if answer.by:
            finders[answer.name] = answer.by
    names = [one.name for one in PLANTED]
    FINDERS.write_text(
        json.dumps({name: finders[name] for name in names if name in finders}, indent=1) + "\n"
    )
    return answers


def _planted_question(warm: WarmProcess, planted: PlantedBug, finder: str) -> MutantTask:
    def change(trees: Mapping[str, ast.Module]) -> None:
        for one in planted.changes:
            one.edited(trees[one.module])

    named = [test for test in warm.tests if test.split("::")[0] in planted.tests]
    simulated = [test for test in warm.tests if test.startswith(SIMULATION)]
    first = [finder] if finder in warm.tests else []
    tests = tuple(dict.fromkeys([*first, *named, *simulated]))
    return MutantTask(
        planted.name,
        tuple(dict.fromkeys(one.module for one in planted.changes)),
        change,
        tuple(dict.fromkeys((one.module, one.function) for one in planted.changes)),
        lambda: tests,
    )


def ask_laboratory(planted: PlantedBug) -> tuple[str, float]:
    """Return the layer of the crash laboratory that finds the bug in a copy of the code, or ""."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as scratch:
        root = Path(scratch)
        _copy(root)
        for change in planted.changes:
            change.apply(root)
        for layer in LAYERS:
            if _fails(("tests/support/run_lab_layer.py", layer), root):
                return f"laboratory, {layer}", time.monotonic() - started
    return "", time.monotonic() - started


def _copy(root: Path) -> None:
    leave = shutil.ignore_patterns("__pycache__", "interop")
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, root / name, ignore=leave)
        else:
            shutil.copy(source, root / name)


def _fails(command: Sequence[str], root: Path) -> bool:
    # The copy's modules come before the installed ones.
    paths = os.pathsep.join([str(root), str(root / "tests" / "support"), str(root / "bench")])
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=root,
            env=environment,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def planted_score(answers: Mapping[str, MutantResult], jobs: int) -> list[dict[str, Any]]:
    """Return the published score: for each bug the laboratory layer that finds it, otherwise the test or
    simulation."""
    with ThreadPoolExecutor(jobs) as pool:
        heard = list(pool.map(ask_laboratory, PLANTED))
    scores = []
    for one, (layer, seconds) in zip(PLANTED, heard, strict=True):
        answer = answers[one.name]
        by = layer or answer.by.split("::")[-1]
        seconds += 0.0 if layer else answer.seconds
        scores.append(
            {"name": one.name, "rule": one.rule, "found_by": by, "proof": "", "seconds": round(seconds, 1)}
        )
        print(f"{one.name:40} {seconds:6.1f} s  {by or 'NOT FOUND'}", flush=True)
    return scores


# ── the run ──────────────────────────────────────────────────────────────────────────────────────────────


def run(words: Sequence[str], jobs: int, warm: WarmProcess) -> int:
    started = time.monotonic()
    mutants = _all_mutants()
    match list(words):
        case []:
            code = _planted_are_found(ask_planted(warm, PLANTED, jobs), started)
            return max(code, _machine(warm, sample_of(mutants, SAMPLE, SEED), jobs))
        case ["planted", *names]:
            chosen = [one for one in PLANTED if not names or one.name in names]
            return _planted_are_found(ask_planted(warm, chosen, jobs), started)
        case ["sample", *numbers]:
            seed, count = [*map(int, numbers), *(SEED, SAMPLE)[len(numbers) :]][:2]
            return _machine(warm, sample_of(mutants, count, seed), jobs)
        case ["machine", *which]:
            chosen_mutants = [one for one in mutants if not which or {one.name, one.module} & set(which)]
            return _machine(warm, chosen_mutants, jobs)
        case ["score"]:
            return _score(warm, mutants, jobs)
        case ["score", "planted"]:
            return _add_to_score(warm, jobs)
        case ["score", number]:
            return int(_score_machine(warm, mutants, int(number), jobs).score < BAR)
    print(__doc__, file=sys.stderr)
    return 2


def _planted_are_found(answers: Mapping[str, MutantResult], started: float) -> int:
    found = sum(bool(one.by) for one in answers.values())
    print(f"planted: {found} of {len(answers)} bugs found ({time.monotonic() - started:.0f} s)", flush=True)
    return int(found < len(answers))


def _known_survivors() -> set[tuple[str, str]]:
    """Return the survivors in the published score, by name and change."""
    if not MACHINE_SCORE.exists():
        return set()
    return {(one["name"], one["change"]) for one in json.loads(MACHINE_SCORE.read_text())["survivors"]}


def _machine(warm: WarmProcess, mutants: Sequence[Mutant], jobs: int) -> int:
    started = time.monotonic()
    answers = ask_machine(warm, mutants, jobs)
    whole, by_module, by_operator = tallies(mutants, answers)
    for tallied in (by_operator, by_module):
        for name, tally in sorted(tallied.items()):
            print(f"  {name:28} {tally}")
    seconds = time.monotonic() - started
    print(f"machine-made: {whole} ({seconds:.0f} s, {seconds / max(1, len(mutants)):.2f} s each)", flush=True)
    survivors = {(one.name, one.change) for one in _survivors(mutants, answers)}
    new = sorted(survivors - _known_survivors())
    for name, change in new:
        print(f"a new survivor: {name}  {change}", flush=True)
    return int(len(new) > NEW_SURVIVORS_MAX)


def _score_machine(warm: WarmProcess, mutants: Sequence[Mutant], count: int, jobs: int) -> MutantTally:
    started = time.monotonic()
    chosen = sample_of(mutants, count, SEED)
    answers = ask_machine(warm, chosen, jobs)
    score = machine_score(len(mutants), chosen, answers, time.monotonic() - started)
    MACHINE_SCORE.write_text(json.dumps(score, indent=1) + "\n")
    whole, _, _ = tallies(chosen, answers)
    print(f"machine-made: {whole}", flush=True)
    return whole


def _score(warm: WarmProcess, mutants: Sequence[Mutant], jobs: int) -> int:
    whole = _score_machine(warm, mutants, SCORED, jobs)
    scores = planted_score(ask_planted(warm, PLANTED, jobs), jobs)
    PLANTED_SCORE.write_text(json.dumps(scores, indent=1) + "\n")
    found = sum(bool(one["found_by"]) for one in scores)
    print(f"planted: {found} of {len(scores)} bugs found", flush=True)
    return int(found < len(scores) or whole.score < BAR)


def _add_to_score(warm: WarmProcess, jobs: int) -> int:
    """Add to the published score what it lacks. The next whole score asks the laboratory about these too."""
    known = {one["name"]: one for one in json.loads(PLANTED_SCORE.read_text())}
    new = [one for one in PLANTED if one.name not in known or known[one.name]["rule"] != one.rule]
    answers = ask_planted(warm, new, jobs)
    for one in new:
        by, seconds = answers[one.name].by.split("::")[-1], round(answers[one.name].seconds, 1)
        known[one.name] = {
            "name": one.name,
            "rule": one.rule,
            "found_by": by,
            "proof": "",
            "seconds": seconds,
        }
    PLANTED_SCORE.write_text(json.dumps([known[one.name] for one in PLANTED], indent=1) + "\n")
    found = sum(bool(answers[one.name].by) for one in new)
    print(f"planted: {found} of {len(new)} new bugs found", flush=True)
    return int(found < len(new))


if __name__ == "__main__":
    arguments = sys.argv[1:]
    jobs = os.cpu_count() or 1
    if arguments and arguments[0].startswith("-j"):
        jobs = int(arguments.pop(0)[2:])
    sys.exit(run_warm(partial(run, arguments, jobs)))
