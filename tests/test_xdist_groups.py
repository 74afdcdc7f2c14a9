"""The installed test runner keeps the tests of one group in one process, so that all Spark tests share one
JVM."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

GROUP = """
import os
import pathlib

import pytest


@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("number", range(12))
def test_where(number):
    pathlib.Path(f"{number}").write_text(os.environ["PYTEST_XDIST_WORKER"])
"""


@pytest.mark.slow
def test_a_group_of_tests_stays_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "test_group.py").write_text(GROUP)
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert len({(tmp_path / f"{number}").read_text() for number in range(12)}) == 1
