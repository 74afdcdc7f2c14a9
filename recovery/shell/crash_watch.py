"""What a person sees of a crash run while it is at work: a line for each layer, on a terminal only."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from recovery.crashlab.lab import Progress

_STEP_S = 0.2
_BAR = 24
_WORDS = {"record": "recording the workloads", "examine": "making the violations small"}


class CrashWatch:
    """Called by the laboratory some times a second."""

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._seen = terminal.isatty() and os.environ.get("TERM") != "dumb"
        self._next = 0.0
        self._live: Live | None = None
        self._stages: dict[str, Progress] = {}
        self.violations = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, progress: Progress) -> None:
        self.violations = progress.violations
        is_new = progress.layer not in self._stages
        self._stages[progress.layer] = progress
        if self._seen and (is_new or time.monotonic() >= self._next):
            self._next = time.monotonic() + _STEP_S
            self._show(progress)

    def _show(self, now: Progress) -> None:
        if self._live is None:
            self._live = _start(self._terminal)
        self._live.update(_table(list(self._stages.values()), now), refresh=True)


def _start(terminal: TextIO) -> Live:
    from rich.console import Console
    from rich.live import Live

    live = Live(console=Console(file=terminal, highlight=False), auto_refresh=False, transient=True)
    live.start()
    return live


def _table(stages: list[Progress], now: Progress) -> Table:
    from rich.console import Group
    from rich.table import Table

    lines = Table.grid(padding=(0, 2))
    lines.add_column()
    for _ in range(3):
        lines.add_column(justify="right")
    for stage in stages:
        lines.add_row(*_cells(stage), style="" if stage is now else "dim")
    whole = Table.grid()
    whole.add_row(Group(lines, _whole(now)))
    return whole


def _cells(stage: Progress) -> tuple[str, str, str, str]:
    from recovery.crashlab.layers.catalogue import LAYERS

    seconds = f"{stage.layer_seconds:.0f} s"
    if stage.layer not in LAYERS:
        done = "".join(f"{count} {name}" for name, count in stage.counts.items())
        return _WORDS.get(stage.layer, stage.layer), done, "", seconds
    counted = LAYERS[stage.layer].counts
    states = stage.counts.get(counted, 0)
    rate = f"{states / stage.layer_seconds:,.0f}/s" if stage.layer_seconds >= 1 else ""
    return stage.layer, f"{states:,} {counted}", rate, seconds


def _whole(now: Progress) -> Table:
    """The budget, and what matters."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    from recovery.shell.tally import counted

    line = Table.grid(padding=(0, 2))
    found = counted(now.violations, "violation")
    style = "bold red" if now.violations else "green"
    if now.budget_s is None:
        line.add_row(f"[{style}]{found}[/]", f"{_clock(now.seconds)} so far")
        return line
    bar = ProgressBar(total=now.budget_s, completed=min(now.seconds, now.budget_s), width=_BAR)
    left = now.budget_s - now.seconds
    line.add_row(bar, f"{_clock(left)} left" if left > 0 else "ending", f"[{style}]{found}[/]")
    return line


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
