"""Runs each workload once for all tests."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from recorded import FinishedWorkload, play

from recovery.proving.workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], FinishedWorkload]:
    found: dict[str, FinishedWorkload] = {}

    def original(name: str) -> FinishedWorkload:
        if name not in found:
            found[name] = play(WORKLOADS[name], tmp_path_factory.mktemp("workload"))
        return found[name]

    return original


@pytest.fixture
def played(originals: Callable[[str], FinishedWorkload], tmp_path: Path) -> Callable[[str], FinishedWorkload]:
    """Return a function that copies what a workload leaves."""

    def copy(name: str) -> FinishedWorkload:
        original = originals(name)
        root = tmp_path / name / "root"
        shutil.copytree(original.root, root)
        return FinishedWorkload(root, original.history)

    return copy
