"""A workload of the proving room, run to its end: the store that it leaves, and its history."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.crashlab.history import Ctx, History, history_of

if TYPE_CHECKING:
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
