"""Each workload, run once for all tests."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from played import Played, play

from recovery.proving.workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Played]:
    found: dict[str, Played] = {}

    def original(name: str) -> Played:
        if name not in found:
            found[name] = play(WORKLOADS[name], tmp_path_factory.mktemp("workload"))
        return found[name]

    return original


@pytest.fixture
def played(originals: Callable[[str], Played], tmp_path: Path) -> Callable[[str], Played]:
    """A copy of what that workload leaves."""

    def copy(name: str) -> Played:
        original = originals(name)
        root = tmp_path / name / "root"
        shutil.copytree(original.root, root)
        return Played(root, original.history)

    return copy
