"""One warm process that has imported all fast tests, and forks for each question.

A question is a change of some functions and the tests to ask, in their order. pytest, the package and the
tests are imported and collected once; each question is answered in a fork, in which the functions get the
code of the changed module. So nothing is imported again, and no damage by a changed function outlives its
fork.

    ask_all(questions, jobs)   runs them, and yields an answer for each

In a fork all temporary files are in one directory, which is removed; memory and files are bounded. When a
test fails for the first time, it runs again alone and without the change; if it fails then too, its verdicts
are ignored. It runs again alone with the change too: if it passes then, tests before it have made it fail,
and it does not count. A test that takes far longer than before may hang, or other processes may use the
processors. So it runs again without the change, which tells how long it takes at present, and then with the
change: only if it takes far longer than that, it hangs."""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import json
import logging
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from _pytest.runner import runtestprotocol
from code_edits import function_of, functions_of
from machine_mutants import MODULES, statements_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent.parent
SIMULATION = "crash simulation, "
SIMULATED = (
    *(f"{SIMULATION}history {seed}" for seed in range(1, 21)),
    *(f"{SIMULATION}sparse {seed}" for seed in range(1, 5)),
)
WHOLE = tuple(f"{SIMULATION}workload {seed}" for seed in range(1, 5))
"""The cases of the crash simulation for a mutant: random histories, and some moments of a workload."""

_SPARSE = 5
_TESTS = (
    "tests/storage",
    "tests/recovery",
    "tests/test_store.py",
    "tests/test_regressions.py",
    "tests/test_state_machine.py",
)
_NOT = (
    "tests/recovery/audit",
    "tests/recovery/clusterlab",
    "tests/recovery/crashlab",
    "tests/recovery/explain",
    "tests/recovery/local_cluster",
    "tests/recovery/proving",
    "tests/recovery/report",
    "tests/recovery/shell",
    "tests/storage/cluster/client",
    "tests/storage/cluster/metadata",
    "tests/storage/cluster/wire",
    "tests/storage/cluster/zookeeper",
    "tests/storage/entry",
    *(str(one.relative_to(ROOT)) for one in sorted((ROOT / "tests/storage").glob("**/test_*format.py"))),
)
"""Tests that find no mutants, because they test readers beside the engine, tools and formats."""
_PATIENCE_S = 8.0
_PATIENCE_FACTOR = 8.0
_LONGEST_S = 120.0
_HANGS = "it hangs"
_MEMORY_MAX = 2 << 30
_FILE_MAX = 4 << 30
_IN_MEMORY = Path("/dev/shm")
_STOPS = (signal.SIGTERM, signal.SIGHUP)
"""The signals by which a run is stopped; a Ctrl-C raises an error by itself."""


@dataclass(frozen=True, slots=True)
class MutantTask:
    """A change, and the tests that should find it."""

    name: str
    modules: tuple[str, ...]
    change: Callable[[Mapping[str, ast.Module]], None]
    """Changes the syntax trees of these modules."""
    functions: tuple[tuple[str, str], ...]
    """Module and qualified name of each function that is changed."""
    tests: Callable[[], tuple[str, ...]]
    """Returns the tests to run. Called late, so that it can use which tests have found other mutants."""


@dataclass(frozen=True, slots=True)
class MutantResult:
    """The test that found the change. `by` is empty if no test did."""

    name: str
    by: str = ""
    evidence: str = ""
    hangs: bool = False
    seconds: float = 0.0
    asked: int = 0


@dataclass(slots=True)
class TestRecord:
    """The CPU seconds of one test, and the statements that it runs."""

    seconds: float
    statements: list[int]


@dataclass(slots=True)
class _Child:
    question: MutantTask
    pid: int
    pipe: int
    scratch: Path
    tests: tuple[str, ...]
    started: float
    deadline: float
    patience_s: float | None = None
    """How long a test may take, if its usual time does not decide."""
    asking: str = ""
    asked: int = 0
    heard: bytes = b""
    is_done: bool = False
    records: dict[str, TestRecord] = field(default_factory=dict)
    found: tuple[str, str] | None = None


class WarmProcess:
    """The warm process, as pytest runs it."""

    def __init__(self, items: Sequence[pytest.Item]) -> None:
        self._items = {item.nodeid: item for item in items}
        self.tests = (*self._items, *SIMULATED, *WHOLE)
        self.seconds: dict[str, float] = {}
        """The CPU seconds of each test, if known."""
        # The sources at import time, because the files may change while this runs.
        self._sources = {
            ".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text()
            for package in ("storage", "recovery")
            for path in (ROOT / package).rglob("*.py")
        }
        self._functions = _functions_by_code()
        self._believed: set[str] = set()
        self.doubted: set[str] = set()
        """Tests that fail without any change."""
        self._passed: set[tuple[str, str]] = set()
        """Questions and tests that failed, and passed when they had more time or ran alone."""

    # ── questions ────────────────────────────────────────────────────────────────────────────────────

    def ask_all(self, questions: Sequence[MutantTask], jobs: int) -> Iterator[MutantResult]:
        """Yield answers in the order in which they are found."""
        waiting = list(reversed(questions))
        running: dict[int, _Child] = {}
        with self._ending(running):
            while waiting or running:
                while waiting and len(running) < jobs:
                    child = self._fork(waiting.pop())
                    running[child.pipe] = child
                for child in self._listen(running):
                    del running[child.pipe]
                    answer = self._answer(child)
                    if answer is None:
                        waiting.append(child.question)
                    else:
                        yield answer

    def _fork(self, question: MutantTask) -> _Child:
        left_out = self.doubted | {test for name, test in self._passed if name == question.name}
        tests = tuple(one for one in question.tests() if one not in left_out)
        return self._forked(question, tests, lambda: self._change(question))

    def _answer(self, child: _Child) -> MutantResult | None:
        """Return what a fork has found, or `None` if its test is unreliable and the remaining tests must
        run."""
        seconds = time.monotonic() - child.started
        if child.found is None:
            return MutantResult(child.question.name, seconds=seconds, asked=child.asked)
        by, evidence = child.found
        if not self._is_believed(by):
            return None
        hangs = evidence == _HANGS
        if hangs and not self._hangs_again(child.question, by):
            self._passed.add((child.question.name, by))
            return None
        if not hangs and child.asked > 1 and not self._fails_alone(child.question, by):
            self._passed.add((child.question.name, by))
            return None
        return MutantResult(child.question.name, by, evidence, hangs, seconds, child.asked)

    def _is_believed(self, test: str) -> bool:
        if test not in self._believed and test not in self.doubted:
            nothing = MutantTask("", (), lambda _: None, (), lambda: (test,))
            child = self._forked(nothing, (test,), lambda: None)
            self._wait(child)
            (self._believed if child.found is None else self.doubted).add(test)
        return test in self._believed

    def _fails_alone(self, question: MutantTask, test: str) -> bool:
        """Return whether the test fails with the change also if no other test has run before it."""
        child = self._forked(question, (test,), lambda: self._change(question))
        self._wait(child)
        return child.found is not None

    def _hangs_again(self, question: MutantTask, test: str) -> bool:
        """Return whether the test fails or hangs with the change, and ends without it at the same time."""
        nothing = MutantTask("", (), lambda _: None, (), lambda: (test,))
        unchanged = self._forked(nothing, (test,), lambda: None)
        unchanged.patience_s = _LONGEST_S
        self._wait(unchanged)
        if unchanged.found is not None:
            return False
        changed = self._forked(question, (test,), lambda: self._change(question))
        usual = time.monotonic() - unchanged.started
        changed.patience_s = _PATIENCE_S + _PATIENCE_FACTOR * usual
        self._wait(changed)
        return changed.found is not None

    def _wait(self, child: _Child) -> None:
        running = {child.pipe: child}
        with self._ending(running):
            while not list(self._listen(running)):
                pass
            running.clear()

    def _change(self, question: MutantTask) -> None:
        trees = {module: self.tree(module) for module in question.modules}
        question.change(trees)
        for module, tree in trees.items():
            names = [name for of, name in question.functions if of == module]
            self._replace(module, tree, names)

    def tree(self, module: str) -> ast.Module:
        """Return a new syntax tree of the module."""
        return ast.parse(self._sources[module])

    def _replace(self, module: str, tree: ast.Module, names: Sequence[str]) -> None:
        """Give the functions of these names the code of the changed tree."""
        path = str(_source(module))
        code = compile(ast.fix_missing_locations(tree), path, "exec")
        changed = {one.co_qualname: one for one in _code_in(code)}
        for name in names:
            functions = self._functions.get((path, name), [])
            if not functions:
                raise LookupError(f"no function {name} of {module} is there")
            for function in functions:
                function.__code__ = changed[name]

    # ── recording ────────────────────────────────────────────────────────────────────────────────────

    def record(self, modules: Sequence[str], jobs: int, asked: Sequence[str]) -> dict[str, TestRecord]:
        """Run these tests without a change, and record which statements each of them runs.

        Tests that fail are ignored later. A statement's number is that of `numbered`.
        """
        groups: dict[str, list[str]] = {}
        for test in asked:
            groups.setdefault(test if test.startswith(SIMULATION) else test.split("::")[0], []).append(test)
        found: dict[str, TestRecord] = {}
        waiting = list(groups.items())
        running: dict[int, _Child] = {}
        with self._ending(running):
            while waiting or running:
                while waiting and len(running) < jobs:
                    name, tests = waiting.pop(0)
                    question = MutantTask(name, tuple(modules), lambda _: None, (), lambda: ())
                    child = self._forked(
                        question, tuple(tests), lambda: self._instrument(modules), records=True
                    )
                    running[child.pipe] = child
                for child in self._listen(running):
                    del running[child.pipe]
                    found |= child.records
                    if child.found is not None:
                        failed, why = child.found
                        print(f"not asked, because it fails or hangs here: {failed}: {why}", flush=True)
                        self.doubted.add(failed)
                        left = tuple(child.tests[child.tests.index(failed) + 1 :])
                        if left:
                            waiting.insert(0, (child.question.name, list(left)))
        self.seconds = {test: one.seconds for test, one in found.items()}
        return found

    def _instrument(self, modules: Sequence[str]) -> None:
        number = 0
        trees = {module: self.tree(module) for module in modules}
        total = sum(len(numbered(tree)) for tree in trees.values())
        _RAN[:] = bytes(total)
        for module, tree in trees.items():
            names = []
            for name, function in functions_of(tree):
                statements = statements_of(function)
                places = {id(one): number + at for at, one in enumerate(statements)}
                number += len(statements)
                _instrumented(function, places)
                if (str(_source(module)), name) in self._functions:
                    names.append(name)
            assert names, f"no function of {module} is there"
            sys.modules[module].__dict__["_ran_"] = _RAN
            self._replace(module, tree, names)
        assert number == total

    # ── forks ────────────────────────────────────────────────────────────────────────────────────────

    def _forked(
        self,
        question: MutantTask,
        tests: tuple[str, ...],
        prepare: Callable[[], None],
        *,
        records: bool = False,
    ) -> _Child:
        reading, writing = os.pipe()
        base = _IN_MEMORY if _IN_MEMORY.is_dir() else None
        scratch = Path(tempfile.mkdtemp(prefix="mutant-", dir=base))
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            self._run_and_exit(tests, prepare, writing, scratch, records=records)
        os.close(writing)
        now = time.monotonic()
        return _Child(question, pid, reading, scratch, tests, now, now + 60)

    def _run_and_exit(
        self,
        tests: Sequence[str],
        prepare: Callable[[], None],
        pipe: int,
        scratch: Path,
        *,
        records: bool,
    ) -> None:
        def say(**words: Any) -> None:
            line = json.dumps(words).encode() + b"\n"
            assert len(line) < 1 << 20, line[:2000]
            os.write(pipe, line)

        try:
            os.setsid()
            for one in _STOPS:
                signal.signal(one, signal.SIG_DFL)
            _bound_resources()
            _use_scratch(scratch, next(iter(self._items.values())))
            prepare()
            for at, test in enumerate(tests):
                say(asks=test)
                _RAN[:] = bytes(len(_RAN))
                started = time.process_time()
                following = next((one for one in tests[at + 1 :] if one in self._items), None)
                try:
                    problem = self._problem(test, following)
                except BaseException as error:
                    # A Ctrl-C that a test has sent and that was not caught.
                    problem = f"{type(error).__name__}: {error}"[:200]
                if problem:
                    say(found=test, evidence=problem)
                    break
                if records:
                    ran = [number for number, has_run in enumerate(_RAN) if has_run]
                    say(ran=test, seconds=time.process_time() - started, statements=ran)
            else:
                say(done=True)
        except BaseException as error:
            say(broken=f"{type(error).__name__}: {error}"[:2000])
        finally:
            os._exit(0)

    def _problem(self, test: str, following: str | None) -> str:
        """Return the failure of this test, or an empty text if it passes."""
        if test.startswith(SIMULATION):
            return _simulated(test.removeprefix(SIMULATION))
        item = self._items[test]
        reports = runtestprotocol(item, nextitem=self._items.get(following or ""), log=False)
        failed = next((report for report in reports if report.failed), None)
        return "" if failed is None else _told(failed)

    @contextlib.contextmanager
    def _ending(self, running: Mapping[int, _Child]) -> Iterator[None]:
        """End the forks that are still running at the end of the block, with all that their tests started."""
        try:
            yield
        finally:
            for child in running.values():
                self._ended(child)

    def _listen(self, running: Mapping[int, _Child]) -> Iterator[_Child]:
        """Return the children that have ended. Wait a little for one."""
        ready, _, _ = select.select(list(running), [], [], 0.25)
        for pipe in ready:
            child = running[pipe]
            data = os.read(pipe, 1 << 20)
            child.heard += data
            self._hear(child)
            # A process that a test has not ended may keep the pipe open.
            if not data or child.is_done or child.found is not None:
                yield self._ended(child)
        now = time.monotonic()
        for child in list(running.values()):
            if now > child.deadline and child.pipe not in ready:
                child.found = (child.asking, _HANGS)
                yield self._ended(child)

    def _hear(self, child: _Child) -> None:
        *lines, child.heard = child.heard.split(b"\n")
        for line in lines:
            words = json.loads(line)
            if "asks" in words:
                child.asking = words["asks"]
                child.asked += 1
                patience_s = child.patience_s
                if patience_s is None:
                    patience_s = _PATIENCE_S + _PATIENCE_FACTOR * self.seconds.get(child.asking, 4.0)
                child.deadline = time.monotonic() + patience_s
            elif "done" in words:
                child.is_done = True
            elif "found" in words:
                child.found = (words["found"], words["evidence"])
            elif "ran" in words:
                child.records[words["ran"]] = TestRecord(words["seconds"], words["statements"])
            else:
                raise SystemExit(f"{child.question.name}: {words['broken']}")

    def _ended(self, child: _Child) -> _Child:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        os.waitpid(child.pid, 0)
        os.close(child.pipe)
        if child.found is None and not child.is_done:
            child.found = (child.asking, "the process dies")
        shutil.rmtree(child.scratch, ignore_errors=True)
        return child


_RAN = bytearray()
"""One byte per statement: whether it has run since the test began."""


def numbered(tree: ast.Module) -> list[tuple[str, int]]:
    """Return function and number of each statement of a module, in counting order."""
    return [(name, at) for name, one in functions_of(tree) for at in range(len(statements_of(one)))]


def _instrumented(function: ast.AST, places: Mapping[int, int]) -> None:
    """Insert a recording statement before each statement of the function."""
    for node in list(ast.walk(function)):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                setattr(node, name, [new for one in block for new in (*_note(one, places), one)])


def _note(statement: ast.stmt, places: Mapping[int, int]) -> list[ast.stmt]:
    if id(statement) not in places:
        return []
    (note,) = ast.parse(f"_ran_[{places[id(statement)]}] = 1").body
    for one in ast.walk(note):
        ast.copy_location(one, statement)
    return [note]


def _source(module: str) -> Path:
    return ROOT / (module.replace(".", "/") + ".py")


def _functions_by_code() -> dict[tuple[str, str], list[types.FunctionType]]:
    """Return all functions in memory by file and qualified name, also those that a decorator wraps."""
    found: dict[tuple[str, str], list[types.FunctionType]] = {}
    gc.unfreeze()  # objects that a conftest has frozen are not listed
    for one in gc.get_objects():
        if isinstance(one, types.FunctionType):
            code = one.__code__
            found.setdefault((code.co_filename, code.co_qualname), []).append(one)
    return found


def _code_in(code: types.CodeType) -> Iterator[types.CodeType]:
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield one
            yield from _code_in(one)


def _bound_resources() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_MAX, _MEMORY_MAX))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE_MAX, _FILE_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)


def _use_scratch(scratch: Path, item: pytest.Item) -> None:
    os.environ["TMPDIR"] = tempfile.tempdir = str(scratch)
    factory = vars(item.config)["_tmp_path_factory"]
    vars(factory)["_basetemp"] = scratch / "pytest"
    (scratch / "pytest").mkdir()


def _told(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(report.longrepr) if crash is None else crash.message
    return (text.strip().splitlines() or ["?"])[-1 if crash is None else 0][:200]


def _simulated(task: str) -> str:
    import crash_sim

    logging.disable()
    what, seed = task.split()
    try:
        if what == "history":
            figures = crash_sim.history(int(seed))
        else:
            figures = crash_sim.explore(
                int(seed), stride=_SPARSE if what == "sparse" else 1, violations_max=1
            )
    except BaseException as error:
        return f"{type(error).__name__}: {error}"[:200]
    finally:
        logging.disable(logging.NOTSET)
    return figures.violations[0][:200] if figures.violations else ""


# ── pytest ───────────────────────────────────────────────────────────────────────────────────────────────


class _Plugin:
    def __init__(self, run: Callable[[WarmProcess], int]) -> None:
        self._run = run
        self.result = 1

    def pytest_configure(self) -> None:
        # The same examples in every run, and no shrinking, because one failing example is enough.
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile(
            "mutants", derandomize=True, deadline=None, database=None, phases=phases
        )
        hypothesis.settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        # Only after pytest is configured, because pytest must be the first to import our plugin.
        for module in ("crash_sim", *MODULES):
            importlib.import_module(module)
        warm = WarmProcess(session.items)
        # Otherwise the garbage collector touches all objects, and each fork copies their memory.
        gc.collect()
        gc.freeze()
        for one in _STOPS:
            signal.signal(one, _stop)
        self.result = self._run(warm)
        return True


def _stop(number: int, _: types.FrameType | None) -> None:
    """End this process, and its forks, which are in sessions of their own and get no signal of a terminal."""
    raise SystemExit(128 + number)


def run_warm(run: Callable[[WarmProcess], int], tests: Sequence[str] = _TESTS) -> int:
    """Call `run` in a process that has imported all fast tests, and return its result."""
    os.chdir(ROOT)
    # No time limits, because a test in a fork is slower.
    os.environ["TEST_CPU_FACTOR"] = "1000"
    os.environ["WHOLE_ROWS"] = "1"
    plugin = _Plugin(run)
    options = ["-q", "-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=line", "--no-header"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    options += [f"--ignore={one}" for one in _NOT]
    code = pytest.main([*options, *tests], plugins=[plugin])
    return plugin.result or int(code not in {0, 5})


__all__ = ["MutantResult", "MutantTask", "TestRecord", "WarmProcess", "function_of", "numbered", "run_warm"]
