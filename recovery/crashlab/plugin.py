"""The laboratory in pytest: a fixture that crashes a store in a test of its own suite.

    def test_no_crash_loses_an_add(crash_lab):
        crash_lab(workload, recover).run(budget="10s").assert_ok()

Loaded by every pytest where this package is installed, so that the laboratory itself is imported when a test
asks for it, and not before.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from recovery.crashlab.lab import CrashLab
    from recovery.crashlab.programs import Program


class MakeLab(Protocol):
    """What the fixture is: called as `CrashLab` is, it makes one."""

    def __call__(
        self,
        workload: Program | Mapping[str, Program],
        recover: Program,
        check: object = None,
        **options: Any,
    ) -> CrashLab: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    """The command line wins over what a test says: a nightly run is the same tests with more time."""
    group = parser.getgroup("crashlab", "crash laboratory")
    group.addoption(
        "--crash-budget", metavar="TIME", help="the time for each run of the laboratory, such as 90s or 10m"
    )
    group.addoption(
        "--crash-layers", metavar="NAME,…", help="only these layers: model, kill, errors, nested, rot, cut"
    )
    group.addoption("--crash-seed", metavar="N", type=int, help="the seed of each run")
    group.addoption(
        "--crash-skip-unable",
        action="store_true",
        help="skip, and not fail, tests of the laboratory where it cannot run: without a compiler",
    )


@pytest.fixture
def crash_lab(request: pytest.FixtureRequest, tmp_path: Path) -> MakeLab:
    """Makes a `CrashLab`; its reports go below the test's `tmp_path` if nothing else is said."""
    _check_able(request.config)
    from recovery.crashlab.tested import TestedLab, Told

    layers = request.config.getoption("--crash-layers")
    seed = request.config.getoption("--crash-seed")
    told = Told(
        request.config.getoption("--crash-budget"),
        None if layers is None else [name.strip() for name in layers.split(",")],
        _jobs(),
        tmp_path,
    )

    def make(
        workload: Program | Mapping[str, Program], recover: Program, check: object = None, **options: Any
    ) -> CrashLab:
        given = options if seed is None else {**options, "seed": seed}
        return TestedLab(told, workload, recover, check, **given)

    return make


def _check_able(config: pytest.Config) -> None:
    """A test that cannot crash anything has found nothing: that must not look like a pass."""
    from recovery.crashlab.crew import LabError
    from recovery.crashlab.lab import check_able

    try:
        check_able()
    except LabError as error:
        words = f"the crash laboratory cannot run here: {error}"
        if config.getoption("--crash-skip-unable"):
            pytest.skip(words)
        pytest.fail(words, pytrace=False)


def _jobs() -> int:
    """Other workers of pytest-xdist may run a laboratory at the same time."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return max(1, (os.cpu_count() or 1) // workers)
