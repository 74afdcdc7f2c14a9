"""`ledgerstore crash run`: crash a store in every way, and check its promises.

layer        model, kill, errors, nested, rot, cut
status       complete, CUT SHORT or NOT RUN
tried        number of crashes
of_what      what is counted in `tried`
violations   found by the layer; violations with the same cause count as one
seconds      duration of the layer
why          the reason if the layer is not complete
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Self, TextIO

import click

from recovery.shell.commands.crash import OWN_LAB, load_lab
from recovery.shell.exit_codes import CannotDo, Exit, say, termination_as_interrupt
from recovery.shell.output import Form, row_writer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.live import Live
    from rich.table import Table

    from recovery.crashlab.judge.run_figures import LabNumbers
    from recovery.crashlab.lab import CrashLab, LabProgress


OUT = "crash-report"
PRINTED = "printed.txt"
"""File in the report's directory with what the processes of the store printed to stderr."""

_LAST_WORDS = 20
_NAMES = "model, kill, errors, nested, rot, cut"


@click.command()
@click.argument("lab", metavar="[LAB]", default=OWN_LAB)
@click.option("--layers", metavar="NAME,…", help=f"Run only these layers: {_NAMES}.")
@click.option("--budget", metavar="TIME", help="Time for all layers together, such as 90s, 10m or 8h.")
@click.option(
    "--jobs", type=click.IntRange(min=1), metavar="N", help="Number of worker processes.  [default: CPUs]"
)
@click.option(
    "--profile", metavar="NAME", help="What a power cut can do to the disk.  [default: that of LAB]"
)
@click.option("--seed", type=int, metavar="N", help="Seed of all random choices.  [default: that of LAB]")
@click.option("--out", default=OUT, metavar="DIR", help=f"Directory for the report.  [default: {OUT}]")
@click.option("--json", "is_json", is_flag=True, help="Print all numbers of the run as JSON.")
@click.pass_context
def command(
    ctx: click.Context,
    lab: str,
    layers: str | None,
    budget: str | None,
    jobs: int | None,
    profile: str | None,
    seed: int | None,
    out: str,
    is_json: object,
) -> None:
    """Crash a store in every way, and check that it keeps its promises.

    LAB is module:name or path/to/file.py:name, where name is a CrashLab or a function that returns one. The
    default is the laboratory of ledgerstore's own store. With --budget the layers share that time; without
    it, each layer goes through its list once, which may take long. Layers that did not run, or did not
    finish, are named.

    The report and a directory for each violation are written to DIR; those of an earlier run are replaced.
    A profile is ext4-ordered, sector-4k, posix-strict, nvm-64 or lying-disk. If a layer of --layers cannot
    run here, or if some changes to a file were not recorded, the exit code is 3.

    \b
    Examples:
      ledgerstore crash run --budget 60s
      ledgerstore crash run --layers model,kill --budget 10m --out my-report
      ledgerstore crash run my_store_lab.py:lab --profile ext4-ordered --json | jq '.violations'
    """
    chosen = _layers(layers)
    seconds = _seconds(budget)
    place = _place(Path(out))
    run = _run(load_lab(lab, seed, _profile(profile)), chosen, seconds, jobs, place)
    _show(run, place, Form.JSON if is_json else Form.TABLE)
    ctx.exit(_exit(run, chosen or []))


# ── arguments ────────────────────────────────────────────────────────────────────────────────────────────


def _layers(text: str | None) -> list[str] | None:
    from recovery.crashlab.layers.catalogue import LAYERS

    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in LAYERS]
    if unknown or not names:
        what = f"unknown layer: {', '.join(unknown)}" if unknown else "no layer is given"
        raise click.BadParameter(f"{what}; the layers are {_NAMES}", param_hint="--layers")
    return names


def _seconds(text: str | None) -> float | None:
    from recovery.crashlab.lab import seconds_of

    try:
        return seconds_of(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--budget") from error


def _profile(name: str | None) -> str | None:
    from recovery.crashlab.model.profile import profile_named

    try:
        return name if name is None else profile_named(name).name
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--profile") from error


def _place(out: Path) -> Path:
    """Return the directory of the report. Check before the run, which may be long, that it can be made."""
    nearest = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise CannotDo(f"not a directory: {nearest}")
    return out


# ── the run ──────────────────────────────────────────────────────────────────────────────────────────────


def _run(
    lab: CrashLab, layers: list[str] | None, seconds: float | None, jobs: int | None, out: Path
) -> LabNumbers:
    from recovery.crashlab.run.workers import LabError

    with StderrCapture() as capture:
        watch = CrashProgressTable(capture.terminal)
        try:
            with termination_as_interrupt(), capture.redirected(), watch:
                run = lab.run(layers, seconds, jobs=jobs, out=out, progress=watch).numbers
        except LabError as error:
            for words in capture.last_lines(_LAST_WORDS):
                say(words)
            raise CannotDo(str(error)) from error
        except KeyboardInterrupt:
            say(f"crash: interrupted; violations so far: {watch.violations}; no report is written")
            raise
        if capture.save(out / PRINTED):
            say(f"output of the store's processes: {out / PRINTED}")
    return run


# ── the result ───────────────────────────────────────────────────────────────────────────────────────────


def _show(run: LabNumbers, place: Path, form: Form) -> None:
    from recovery.shell.commands.crash_report import (
        LAYER_COLUMNS,
        cause_lines,
        gap_lines,
        layer_rows,
        verdict_line,
    )

    if form is Form.JSON:
        json.dump(run.to_json(), sys.stdout, ensure_ascii=False)
        click.echo()
    else:
        out = row_writer(form, LAYER_COLUMNS)
        for row in layer_rows(run):
            out.row(row)
        out.end()
    for line in (*gap_lines(run), *cause_lines(run, place)):
        say(line)
    say(f"report: {place / 'report.html'}")
    say(verdict_line(run))


def _exit(run: LabNumbers, requested: list[str]) -> Exit:
    from recovery.crashlab.judge.run_figures import Status

    if run.violations:
        return Exit.FINDINGS
    not_run = [layer for layer in run.layers if layer.status is Status.NOT_RUN]
    is_undone = any(layer.name in requested for layer in not_run) or len(not_run) == len(run.layers)
    # A layer that did not run proves nothing, therefore the result is not clean.
    return Exit.FAILED if is_undone or run.uncovered else Exit.CLEAN


_STEP_S = 0.2
_BAR = 24
_WORDS = {"record": "recording the workloads", "examine": "making the violations small"}


class CrashProgressTable:
    """Shows a line for each layer and the time left, on a terminal only.

    The laboratory calls it repeatedly.
    """

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._seen = terminal.isatty() and os.environ.get("TERM") != "dumb"
        self._next = 0.0
        self._live: Live | None = None
        self._stages: dict[str, LabProgress] = {}
        self.violations = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, progress: LabProgress) -> None:
        self.violations = progress.violations
        is_new = progress.layer not in self._stages
        self._stages[progress.layer] = progress
        if self._seen and (is_new or time.monotonic() >= self._next):
            self._next = time.monotonic() + _STEP_S
            self._show(progress)

    def _show(self, now: LabProgress) -> None:
        if self._live is None:
            self._live = _start(self._terminal)
        self._live.update(_table(list(self._stages.values()), now), refresh=True)


def _start(terminal: TextIO) -> Live:
    from rich.console import Console
    from rich.live import Live

    live = Live(console=Console(file=terminal, highlight=False), auto_refresh=False, transient=True)
    live.start()
    return live


def _table(stages: list[LabProgress], now: LabProgress) -> Table:
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


def _cells(stage: LabProgress) -> tuple[str, str, str, str]:
    from recovery.crashlab.layers.catalogue import LAYERS

    seconds = f"{stage.layer_seconds:.0f} s"
    if stage.layer not in LAYERS:
        done = "".join(f"{count} {name}" for name, count in stage.counts.items())
        return _WORDS.get(stage.layer, stage.layer), done, "", seconds
    counted = LAYERS[stage.layer].counts
    states = stage.counts.get(counted, 0)
    rate = f"{states / stage.layer_seconds:,.0f}/s" if stage.layer_seconds >= 1 else ""
    return stage.layer, f"{states:,} {counted}", rate, seconds


def _whole(now: LabProgress) -> Table:
    """Return the line with the budget and the number of violations."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    from recovery.shell.output import counted

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


_STDERR = 2


class StderrCapture:
    """Redirects stderr of this process and of its child processes to a temporary file.

    `terminal` writes to the original stderr. The output can be read from the file afterwards.
    """

    def __enter__(self) -> Self:
        self.terminal = os.fdopen(os.dup(_STDERR), "w")
        self._file = TemporaryFile()
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self.terminal.close()

    @contextmanager
    def redirected(self) -> Iterator[None]:
        """Redirect stderr inside the block."""
        sys.stderr.flush()
        os.dup2(self._file.fileno(), _STDERR)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(self.terminal.fileno(), _STDERR)

    def last_lines(self, count: int) -> list[str]:
        """Return the last lines of the captured output."""
        self._file.seek(0)
        return self._file.read().decode(errors="replace").splitlines()[-count:]

    def save(self, path: Path) -> bool:
        """Write the captured output to `path`. If there is none, remove the file, and return `False`."""
        path.unlink(missing_ok=True)
        if not self._file.seek(0, os.SEEK_END):
            return False
        self._file.seek(0)
        with path.open("wb") as kept:
            shutil.copyfileobj(self._file, kept)
        return True
