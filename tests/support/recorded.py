"""Run a workload of `recovery.proving` to its end, and return the store that it leaves and its history."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.crashlab.record.history import Ctx, History, HistoryBuilder

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from recovery.proving.workloads import Workload


@dataclass(frozen=True, slots=True)
class FinishedWorkload:
    """A workload that ran to its end on a root of its own."""

    root: Path
    history: History


def history_of(lines: Iterable[bytes]) -> History:
    """Return the history in these lines of marks."""
    builder = HistoryBuilder()
    for line in lines:
        builder.take(line)
    return builder.history()


def play(workload: Workload, place: Path) -> FinishedWorkload:
    """Run the workload below `place`."""
    root, marks = place / "root", place / "marks"
    root.mkdir(parents=True)
    descriptor = os.open(marks, os.O_WRONLY | os.O_CREAT)
    try:
        workload(root, Ctx(descriptor))
    finally:
        os.close(descriptor)
    return FinishedWorkload(root, history_of(marks.read_bytes().splitlines()))
