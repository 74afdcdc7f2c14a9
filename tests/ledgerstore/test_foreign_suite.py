"""Installing this package does not change how another project's tests run."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]

TESTS = """
import recovery
import storage


def test_these_modules_are_our_own():
    assert (recovery.OURS, storage.OURS) == (True, True)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Create another project whose modules have the names of our packages."""
    place = tmp_path / "project"
    place.mkdir()
    for name in ("recovery.py", "storage.py"):
        (place / name).write_text("OURS = True\n")
    (place / "test_project.py").write_text(TESTS)
    return place


@pytest.fixture
def installed(tmp_path: Path) -> Mapping[str, str]:
    """Return an environment in which this distribution is installed with the entry points of `setup.cfg`."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    metadata = tmp_path / "site" / "ledgerstore-9999.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: ledgerstore\nVersion: 9999\n")
    points = setup["options.entry_points"]
    (metadata / "entry_points.txt").write_text(
        "".join(f"[{group}]\n{points[group].strip()}\n" for group in points)
    )
    paths = os.pathsep.join((str(metadata.parent), str(ROOT)))
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return {**variables, "PYTHONPATH": paths}


# Hides the distribution that is installed where these tests run, which may have other entry points.
ONLY_THAT_ONE = """
import importlib.metadata as metadata
import sys

every = metadata.distributions
others = lambda one: one.name != "ledgerstore"
metadata.distributions = lambda: [one for one in every() if others(one) or one.version == "9999"]
"""
RUNS = {
    "`python -m pytest`": "",
    "`pytest`": "sys.path.remove('')",
}
PYTEST = "import pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider']))"


@pytest.mark.slow
@pytest.mark.parametrize("how", RUNS)
def test_a_project_with_modules_named_like_ours_tests_its_own_modules(
    project: Path, installed: Mapping[str, str], how: str
) -> None:
    program = "\n".join((ONLY_THAT_ONE, RUNS[how], PYTEST))
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=project, env=installed, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_the_distribution_registers_no_plugin() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert set(setup["options.entry_points"]) == {"console_scripts"}
