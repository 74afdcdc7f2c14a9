"""The crash laboratory as a plugin for pytest: the fixture `crash_lab`.

    # conftest.py
    pytest_plugins = ["ledgerstore.pytest_plugin"]

    # test_store.py
    def test_no_crash_loses_an_add(crash_lab):
        crash_lab(workload, recover).run(budget="10s").assert_ok()

pytest loads it only where a `conftest.py` or `-p ledgerstore.pytest_plugin` asks for it, and the laboratory
itself is imported when a test uses the fixture.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from recovery.crashlab.lab import CrashLab
    from recovery.crashlab.run.spec import Program


class MakeLab(Protocol):
    """The type of the fixture: a callable with the arguments of `CrashLab` that returns a laboratory."""

    def __call__(
        self,
        workload: Program | Mapping[str, Program],
        recover: Program,
        check: object = None,
        **options: Any,
    ) -> CrashLab: ...


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options that override the arguments of a test, so that a nightly run can give the same tests more
    time."""
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
    """Make a `CrashLab`; its reports go below the test's `tmp_path` unless `out` names another directory."""
    _check_able(request.config)
    from recovery.crashlab.lab import LabDefaults, TestedLab

    layers = request.config.getoption("--crash-layers")
    seed = request.config.getoption("--crash-seed")
    defaults = LabDefaults(
        request.config.getoption("--crash-budget"),
        None if layers is None else [name.strip() for name in layers.split(",")],
        _jobs(),
        tmp_path,
    )

    def make(
        workload: Program | Mapping[str, Program], recover: Program, check: object = None, **options: Any
    ) -> CrashLab:
        given = options if seed is None else {**options, "seed": seed}
        return TestedLab(defaults, workload, recover, check, **given)

    return make


def _check_able(config: pytest.Config) -> None:
    """Fail a test that cannot crash anything, because a pass would look as if nothing had been found."""
    from recovery.crashlab.lab import check_able
    from recovery.crashlab.run.workers import LabError

    try:
        check_able()
    except LabError as error:
        words = f"the crash laboratory cannot run here: {error}"
        if config.getoption("--crash-skip-unable"):
            pytest.skip(words)
        pytest.fail(words, pytrace=False)


def _jobs() -> int:
    """Return the processes for one laboratory, because other workers of pytest-xdist may run one too."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return max(1, (os.cpu_count() or 1) // workers)
