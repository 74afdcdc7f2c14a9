"""The fixture `crash_lab`: imported only when used, failing where it cannot work, usable in any
test suite.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = "pytester"

STORE = """
import os

def put(root, name, data):
    draft = root / f".{name}"
    with draft.open("wb", buffering=0) as file:
        size = file.write(data)
        assert size == len(data), "a short write"
        os.fsync(file.fileno())
    draft.rename(root / name)
    directory = os.open(root, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)

def recover(root):
    assert root.is_dir()
    return {path.name: path.read_bytes() for path in root.iterdir() if not path.name.startswith(".")}
"""

TESTS = """
import json
import os
from .stores import put, recover

TEA = b"tea"

def told(report):
    numbers = report.numbers
    layers = [layer.name for layer in numbers.layers if layer.counts]
    print("TOLD", json.dumps([str(report.out), numbers.budget_s, numbers.seed, numbers.jobs, layers]))
    return report

def test_sound(crash_lab, tmp_path):
    names = ["a", "b"]
    def workload(root, ctx):
        for name in names:
            with ctx.doing("add", name, TEA):
                put(root, name, TEA)
                assert (root / name).read_bytes() == TEA, "not there"
    lab = crash_lab(workload, recover, seed=3)
    report = told(lab.run(layers=["kill"]))
    report.assert_ok()
    assert report.out == tmp_path / "crash-report"
    assert (report.out / "report.html").exists()

def test_careless(crash_lab):
    def workload(root, ctx):
        with ctx.doing("add", "a", TEA):
            (root / "a").write_bytes(TEA)
    crash_lab(workload, recover).run(layers=["kill"]).assert_ok()
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A test suite of another project, with a store in a module that only tests beside it can import."""
    # Other installed plugins must not take part.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    place = pytester.mkdir("suite")
    (place / "stores.py").write_text(STORE)
    (place / "test_stores.py").write_text(TESTS)
    return pytester


def ran(suite: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    plugin = ("-p", "ledgerstore.pytest_plugin", "--import-mode=importlib")
    return suite.runpytest_subprocess(*plugin, "-s", "-o", "addopts=", *arguments, timeout=120)


def told(result: pytest.RunResult) -> str:
    [line] = [line for line in result.outlines if "TOLD" in line]
    return line.partition("TOLD ")[2]


@pytest.mark.slow
def test_closures_and_modules_beside_the_test_are_sent_to_the_workers(suite: pytest.Pytester) -> None:
    result = ran(suite)
    result.assert_outcomes(passed=1, failed=1)
    assert re.search(r'crash-report", null, 3, \d+, \["kill"\]', told(result))
    result.stdout.re_match_lines(
        [r"E .*AssertionError: \d violations:", r"E .*FABRICATED 'a'", r"E .*written to .*crash-report"]
    )


@pytest.mark.slow
def test_a_suite_whose_tests_are_importable_works_as_well(suite: pytest.Pytester) -> None:
    (suite.path / "suite" / "__init__.py").touch()
    ran(suite, "--import-mode=prepend", "-k", "sound").assert_outcomes(passed=1, deselected=1)


@pytest.mark.slow
def test_the_command_line_wins(suite: pytest.Pytester) -> None:
    options = ("--crash-budget", "2s", "--crash-seed", "9", "--crash-layers", "errors,kill")
    result = ran(suite, "-k", "sound", *options)
    assert re.search(r'2\.0, 9, \d+, \["kill", "errors"\]', told(result))


@pytest.mark.slow
def test_workers_of_xdist_share_the_processors(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "1000")
    assert re.search(r'3, 1, \["kill"\]', told(ran(suite, "-k", "sound")))


@pytest.mark.slow
def test_it_works_in_the_workers_of_xdist(suite: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    ran(suite, "-p", "xdist.plugin", "-n", "2").assert_outcomes(passed=1, failed=1)


@pytest.mark.slow
def test_a_test_fails_where_nothing_can_be_recorded(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(suite.path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(suite.path))
    result = ran(suite)
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(
        ["the crash laboratory cannot run here: recording a program needs a C compiler*"]
    )
    ran(suite, "--crash-skip-unable").assert_outcomes(skipped=2)


def test_a_conftest_can_load_the_plugin(suite: pytest.Pytester) -> None:
    (suite.path / "conftest.py").write_text('pytest_plugins = ["ledgerstore.pytest_plugin"]\n')
    result = suite.runpytest_subprocess(
        "-o", "addopts=", "--import-mode=importlib", "--fixtures", timeout=120
    )
    assert result.ret == 0
    result.stdout.fnmatch_lines(["crash_lab -- *"])


def test_the_plugin_is_not_loaded_unless_it_is_requested(suite: pytest.Pytester) -> None:
    result = suite.runpytest_subprocess(
        "-o", "addopts=", "--import-mode=importlib", "--fixtures", timeout=120
    )
    assert result.ret == 0
    result.stdout.fnmatch_lines(["tmp_path -- *"])
    result.stdout.no_fnmatch_line("crash_lab*")


def test_the_laboratory_is_imported_only_when_a_test_uses_it() -> None:
    code = (
        "import pytest, ledgerstore, sys; had = {*sys.modules}\n"
        "import ledgerstore.pytest_plugin; print(*{*sys.modules} - had, 'recovery' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ledgerstore.pytest_plugin", "False"]
