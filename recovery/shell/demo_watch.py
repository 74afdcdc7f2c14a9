"""What a person sees of the demo while it runs: a bar for each stage, on a terminal only."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Self

from recovery.shell.demo_figures import MB
from recovery.shell.exits import say
from recovery.shell.progress import PATIENCE_S

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from recovery.demo.run import Written
    from storage.report import ReplayProgress

_WIDTH = 30
_STEP_S = 0.05


class Stage:
    """One bar, from when it has waited so long until it is left."""

    def __init__(self, title: str, patience_s: float = PATIENCE_S) -> None:
        self._title = title
        self._seen = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._next = time.monotonic() + patience_s
        self._bar: tuple[Progress, TaskID] | None = None

    def end(self) -> None:
        if self._bar is not None:
            self._bar[0].stop()

    @property
    def is_due(self) -> bool:
        """Asked before anything is formatted: almost always the answer is no."""
        return self._seen and time.monotonic() >= self._next

    def show(self, fraction: float, words: str) -> None:
        self._next = time.monotonic() + _STEP_S
        if self._bar is None:
            self._bar = _start(self._title)
        self._bar[0].update(self._bar[1], completed=min(fraction, 1.0), words=words)


def _start(title: str) -> tuple[Progress, TaskID]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(_WIDTH),
        TextColumn("{task.fields[words]}"),
    )
    bar = Progress(*columns, console=Console(stderr=True, highlight=False), transient=True)
    bar.start()
    return bar, bar.add_task(title.ljust(12), total=1.0, words="")


class DemoWatch:
    """Bars while it runs, and a line for what cannot be seen in the figures."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._pid = 0
        self._stage = Stage("writing", 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stage.end()

    def _enter(self, title: str) -> None:
        self._stage.end()
        self._stage = Stage(title)

    def started(self, pid: int) -> None:
        self._pid = pid
        say(f"process {pid} writes to {self._directory}")

    def wrote(self, written: Written) -> None:
        if written.entries and self._stage.is_due:
            words = f"{written.entries:,} entries  {written.speed / MB:.1f} MB/s"
            self._stage.show(written.fraction, words)

    def killed(self, written: Written) -> None:
        self._enter("replaying")
        say(f"process {self._pid} was killed while writing, {written.entries:,} entries acknowledged")

    def replayed(self, progress: ReplayProgress) -> None:
        if self._stage.is_due:
            self._stage.show(progress.fraction, f"{progress.records:,} records")

    def read(self, done: int, total: int) -> None:
        if done == 1:
            self._enter("reading back")
        if self._stage.is_due:
            self._stage.show(done / total, f"{done:,} entries")
