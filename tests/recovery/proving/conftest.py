"""Each workload, run once for all tests: the store that it leaves, and what was asked and answered."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from recovery.crashlab.history import Ctx, History, history_of
from recovery.proving.workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from recovery.proving.workloads import Workload


@dataclass(frozen=True, slots=True)
class Played:
    """A workload that was run to its end, on a root of its own."""

    root: Path
    history: History


def play(workload: Workload, place: Path) -> Played:
    """Runs it below `place`."""
    root, marks = place / "root", place / "marks"
    root.mkdir(parents=True)
    descriptor = os.open(marks, os.O_WRONLY | os.O_CREAT)
    try:
        workload(root, Ctx(descriptor))
    finally:
        os.close(descriptor)
    return Played(root, history_of(marks.read_bytes().splitlines()))


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
