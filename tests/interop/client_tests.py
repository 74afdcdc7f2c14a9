"""Run BookKeeper's own tests of its client on our bookies, and compare the results with a list.

    python tests/interop/client_tests.py              all of them, as `make bookkeeper-tests` does
    python tests/interop/client_tests.py quick        those of a few quick classes
    python tests/interop/client_tests.py client.TestFencing …       those of these classes

`client_tests.toml` lists the classes, and the tests that fail, with the reason. A test that fails and is not
listed is run again, twice at most. It is an error if it always fails, if a listed test passes, and if
BookKeeper has a class of tests on a cluster that is not listed.

The JVMs run JUnit, BookKeeper's client and a ZooKeeper for each test; the bookies are processes of ours.
"""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import subprocess
import sys
import time
import tomllib
import zipfile
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, Self

from jvm import CLIENT_TESTS, MADE, JavaProcess, classpath, exit_code_of, tool

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

HERE = Path(__file__).parent
DIRECTORY = MADE / "client-tests"
_RESOURCES = CLIENT_TESTS.made / "resources"
PACKAGE = "org.apache.bookkeeper."
FLOOR = 300
"""So many tests pass on our bookies at least."""

_JVMS = 3
_TEST_S = 300
"""A test that takes longer is ended with its JVM. Most tests of BookKeeper end themselves after 120 s."""
_RERUNS = 2
"""As in BookKeeper's own build, because many of its tests depend on time."""
_CLASS = "(class)"
"""The name of a failure that is of a class as a whole."""
_CLASSES_OF_A_JVM = 6
"""Some tests leave clients that look for their ZooKeeper for ever. Too many of them hold up later tests."""
_JVM_OPTIONS = (
    *("-Xmx1g", "-XX:MaxDirectMemorySize=512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    "-Djava.net.preferIPv4Stack=true",
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.io", "java.lang", "sun.nio.ch")),
)


# ── the list ─────────────────────────────────────────────────────────────────────────────────────────────


class ExpectedResults(NamedTuple):
    """What `client_tests.toml` says. Names of classes are without the common package."""

    classes: tuple[str, ...]
    """The classes that are run."""
    quick: tuple[str, ...]
    fails: Mapping[str, str]
    """The reason for each test that fails, by the names of its class and of the test.

    A name that ends with `*` stands for all tests that begin so."""
    unsteady: Mapping[str, str]
    """The reason for each test that may pass or fail."""
    not_run: Mapping[str, str]
    """The reason for each class that is not run."""

    def may_fail(self, test: str) -> bool:
        return test in self.unsteady or any(_stands_for(name, test) for name in self.fails)


def _stands_for(name: str, test: str) -> bool:
    return test.startswith(name[:-1]) if name.endswith("*") else test == name


def load_expected() -> ExpectedResults:
    found = tomllib.loads((HERE / "client_tests.toml").read_text())

    def reasons(name: str) -> dict[str, str]:
        return {one: group["reason"] for group in found.get(name, ()) for one in group["names"]}

    return ExpectedResults(
        tuple(found["classes"]),
        tuple(found["quick"]),
        reasons("fails"),
        reasons("unsteady"),
        reasons("not_run"),
    )


# ── one JVM ──────────────────────────────────────────────────────────────────────────────────────────────


class Task(NamedTuple):
    """A class of tests to run, or some of its tests."""

    name: str
    ids: tuple[str, ...] = ()
    """The tests by JUnit's ids; empty for all."""


@dataclass
class JavaTestResult:
    """What is known of one test."""

    name: str
    """The class without the common package, a blank, and the test."""
    id: str
    outcome: str = "planned"
    seconds: float = 0.0
    bookies: int = 0
    """How many bookies of ours were started for it."""
    java_bookies: int = 0
    """How many Java bookies the test itself has started beside them."""
    why: str = ""


class Jvm:
    """A JVM that runs one class after the other."""

    def __init__(self, number: int) -> None:
        directory = DIRECTORY / f"jvm-{number}"
        (directory / "tmp").mkdir(parents=True, exist_ok=True)
        forks = f"{sys.executable} {HERE / 'bookie_forks.py'}"
        options = (*_JVM_OPTIONS, f"-Djava.io.tmpdir={directory / 'tmp'}", f"-Dbookies.command={forks}")
        command = [tool("java"), *options, "-cp", _classes(), "interop.RunTests"]
        self._directory = directory
        self._lines: queue.Queue[bytes] = queue.Queue()
        put = self._lines.put
        self._process = JavaProcess(command, directory, directory / "log", put, lambda: put(b""))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End it, and with it the bookies that it has started."""
        self._process.kill()
        shutil.rmtree(self._directory / "tmp", ignore_errors=True)

    def run(self, task: Task, results: dict[str, JavaTestResult]) -> bool:
        """Run a class, and add its results; return whether it has ended, otherwise this JVM is of no use."""
        self._process.send("\t".join((PACKAGE + task.name, *task.ids)).encode())
        while True:
            try:
                line = self._lines.get(timeout=_TEST_S)
            except queue.Empty:
                return False
            if not line:
                return False
            found = json.loads(line)
            if "test" not in found:
                return True
            result = JavaTestResult(f"{task.name} {found['test']}", found["id"])
            for name in ("outcome", "seconds", "bookies", "java_bookies", "why"):
                setattr(result, name, found[name])
            results[result.name] = result


def _classes() -> str:
    return f"{CLIENT_TESTS.made / 'classes'}:{_RESOURCES}:{classpath(CLIENT_TESTS)}"


def _extract_resources() -> None:
    """Make files of the keys in BookKeeper's jar of tests, because its tests of TLS read them as files."""
    jar = next(
        one for one in classpath(CLIENT_TESTS).split(":") if re.search(r"bookkeeper-server-.*-tests", one)
    )
    with zipfile.ZipFile(jar) as packed:
        for name in packed.namelist():
            if name.endswith((".pem", ".jks", ".p12", ".txt")):
                packed.extract(name, _RESOURCES)


# ── all of them ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class ClassesRun:
    """The tests that are left, and the results so far."""

    expected: ExpectedResults
    tasks: deque[Task]
    results: dict[str, JavaTestResult] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)

    def work(self, number: int) -> None:
        """Run classes in one JVM after the other, until none is left."""
        while self.tasks:
            with Jvm(number) as jvm:
                for _ in range(_CLASSES_OF_A_JVM):
                    if (task := self._next()) is None:
                        break
                    found: dict[str, JavaTestResult] = {}
                    began = time.monotonic()
                    has_ended = jvm.run(task, found)
                    self._take(task, found, time.monotonic() - began)
                    if not has_ended or any(self._is_unexpected(one) for one in found.values()):
                        break

    def _next(self) -> Task | None:
        with self.lock:
            return self.tasks.popleft() if self.tasks else None

    def _take(self, task: Task, found: dict[str, JavaTestResult], seconds: float) -> None:
        left = [one for one in found.values() if one.outcome in ("planned", "begun")]
        ended = [one for one in left if one.outcome == "begun"]
        for one in ended:
            one.outcome, one.why = "failed", f"it did not end in {_TEST_S} s, or has ended the JVM"
        again = tuple(one.id for one in left if one.outcome == "planned")
        with self.lock:
            self.results |= {one.name: one for one in found.values() if one.outcome != "planned"}
            if again and ended:
                self.tasks.append(Task(task.name, again))
            elif not found or again:
                name = f"{task.name} {_CLASS}"
                self.results[name] = JavaTestResult(name, "", "failed", why="its JVM has ended")
        self._show(task, found, seconds)

    def _show(self, task: Task, found: dict[str, JavaTestResult], seconds: float) -> None:
        passed = sum(one.outcome == "passed" for one in found.values())
        skipped = sum(one.outcome == "skipped" for one in found.values())
        failed = [one for one in found.values() if one.outcome == "failed"]
        listed = sum(self.expected.may_fail(one.name) for one in failed)
        words = [f"{passed} passed", *([f"{skipped} skipped by BookKeeper"] if skipped else [])]
        words += [f"{listed} failed as listed"] if listed else []
        words += [f"{len(failed) - listed} FAILED"] if len(failed) > listed else []
        print(f"{task.name}: {', '.join(words)}, {seconds:.0f} s", flush=True)

    def _is_unexpected(self, result: JavaTestResult) -> bool:
        return result.outcome == "failed" and not self.expected.may_fail(result.name)

    def unexpected_failures(self) -> list[JavaTestResult]:
        return [one for one in self.results.values() if self._is_unexpected(one)]


def run(expected: ExpectedResults, classes: Iterable[str]) -> ClassesRun:
    """Run classes, and then the tests that failed unexpectedly, at most `_RERUNS` times."""
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    done = ClassesRun(expected, deque(Task(name) for name in classes))
    _work(done)
    for _ in range(_RERUNS):
        failed = done.unexpected_failures()
        if not failed:
            break
        with (DIRECTORY / "failures").open("a") as causes:
            causes.writelines(f"{one.name}\n{one.why}\n" for one in failed)
        print(f"{len(failed)} failed unexpectedly, and run again: causes in {DIRECTORY.name}", flush=True)
        again: dict[str, tuple[str, ...]] = {}
        for one in failed:
            name = one.name.partition(" ")[0]
            again[name] = (*again.get(name, ()), *([one.id] if one.id else []))
            if one.name == f"{name} {_CLASS}":
                del done.results[one.name]  # its next run has the names of its tests
        done.tasks.extend(Task(name, ids) for name, ids in again.items())
        _work(done)
    return done


def _work(done: ClassesRun) -> None:
    with ThreadPoolExecutor(_JVMS) as pool:
        list(pool.map(done.work, range(_JVMS)))


def problems_of(done: ClassesRun, classes: Iterable[str]) -> list[str]:
    """Return what differs from the list."""
    expected, results = done.expected, done.results
    wrong = [f"{one.name} fails: {one.why.splitlines()[:1]}" for one in done.unexpected_failures()]
    run_classes = set(classes)
    for name in expected.fails:
        if name.partition(" ")[0] in run_classes:
            found = [one for one in results.values() if _stands_for(name, one.name)]
            if not found:
                wrong.append(f"{name} is listed, and does not exist")
            wrong += [
                f"{one.name} is listed as failing, and has {one.outcome}"
                for one in found
                if one.outcome != "failed"
            ]
    return wrong


def unlisted_classes(expected: ExpectedResults) -> list[str]:
    """Return the classes of tests on a cluster that the list does not have, and those that it has in vain."""
    command = [tool("java"), *_JVM_OPTIONS, "-cp", _classes(), "interop.RunTests", "list"]
    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_TEST_S).stdout
    real = {name.removeprefix(PACKAGE) for name in found.split()}
    listed = {*expected.classes, *expected.not_run}
    return [
        *(f"{name} is not listed" for name in sorted(real - listed)),
        *(f"{name} is listed, and does not exist" for name in sorted(listed - real)),
        *(f"{name} is listed twice" for name in sorted({*expected.classes} & {*expected.not_run})),
    ]


def main(arguments: list[str]) -> int:
    expected = load_expected()
    is_whole = not arguments
    classes = expected.quick if arguments == ["quick"] else tuple(arguments) or expected.classes
    _extract_resources()
    problems = unlisted_classes(expected)
    done = run(expected, classes)
    problems += problems_of(done, classes)
    on_ours = [one for one in done.results.values() if one.outcome == "passed" and one.bookies > 0]
    passed = sum(not one.java_bookies for one in on_ours)
    if is_whole and passed < FLOOR:
        problems.append(f"only {passed} tests pass on our bookies, not {FLOOR}")
    lines = "".join(json.dumps(vars(one)) + "\n" for one in done.results.values())
    (DIRECTORY / "results.jsonl").write_text(lines)
    for problem in problems:
        print(f"bookkeeper-tests: {problem}")
    failed = sum(one.outcome == "failed" for one in done.results.values())
    print(
        f"bookkeeper-tests: {passed} tests passed on our bookies, {len(on_ours) - passed} on ours beside the "
        f"test's Java bookies; {failed} failed; {len(problems)} problems"
    )
    return 1 if problems else 0


if __name__ == "__main__":
    code = exit_code_of("bookkeeper-tests", lambda: main(sys.argv[1:]))
    sys.stdout.flush()
    os._exit(code)
