"""What a crash run came to: a row for each layer, the causes, the verdict."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from recovery.crashlab.numbers import Status
from recovery.crashlab.report import figures
from recovery.page.wording import counted, line
from recovery.shell.columns import Align, Column, Tone, numbers
from recovery.shell.entry_cells import free_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from recovery.crashlab.numbers import LabNumbers, LayerNumbers
    from recovery.shell.columns import Cell, Row

_CAUSES_MAX = 10


def _grouped(row: Mapping[str, Cell], name: str) -> str:
    return "-" if row[name] is None else f"{row[name]:,}"


COLUMNS = [
    Column("layer"),
    Column("status"),
    Column("tried", Align.RIGHT, text=_grouped),
    Column("of_what"),
    numbers("violations"),
    numbers("seconds", rank=1),
    Column("why", text=free_text),
]


def rows(run: LabNumbers) -> Iterator[Row]:
    """All layers, also those that did not run."""
    for layer in figures.layers(run):
        yield _row(layer, sum(violation.layer == layer.name for violation in run.violations))


def _row(layer: LayerNumbers, violations: int) -> Row:
    tried, of_what = figures.headline(layer)
    is_complete = layer.status is Status.COMPLETE
    row: Row = {
        "layer": layer.name,
        "status": str(layer.status) if is_complete else layer.status.upper(),
        "tried": None if layer.status is Status.NOT_RUN else tried,
        "of_what": of_what,
        "violations": None if layer.status is Status.NOT_RUN else violations,
        "seconds": None if layer.status is Status.NOT_RUN else layer.seconds,
        "why": layer.why or None,
    }
    if violations:
        row["tone"] = Tone.BAD.value
    elif not is_complete:
        row["tone"] = Tone.INFORMATION.value
    return row


def causes(run: LabNumbers, out: Path) -> Iterator[str]:
    """Each violation with how to try it again."""
    for violation in run.violations[:_CAUSES_MAX]:
        yield f"{violation.kind}  {line(figures.cause(violation))}"
        yield f"    ledgerstore crash replay {shlex.quote(str(out / violation.directory))}"
    more = len(run.violations) - _CAUSES_MAX
    if more > 0:
        yield f"… and {more} more, in the report"


def gaps(run: LabNumbers) -> Iterator[str]:
    """What was not seen of the workloads; of layers the table tells."""
    for workload in run.workloads:
        for what in workload.uncovered:
            yield f"NOT COVERED  workload {workload.name}: {line(what)}"


def verdict(run: LabNumbers) -> str:
    """The run in one line."""
    verdict = figures.verdict(run)
    took = f"({run.seconds:,.0f} s)"
    less = "".join(f"; {words}: {', '.join(names)}" for words, names in _not_complete(run).items())
    if verdict.tone is figures.Tone.EMPTY:
        return f"crash: nothing was tried, so nothing is known{less} {took}"
    return f"crash: {verdict.number:,} {verdict.noun} in {', '.join(verdict.tried)}{less} {took}"


def _not_complete(run: LabNumbers) -> dict[str, list[str]]:
    from recovery.crashlab.lab import NOT_WANTED

    found: dict[str, list[str]] = {}
    for layer in figures.layers(run):
        if layer.status is not Status.COMPLETE and layer.why != NOT_WANTED:
            found.setdefault(layer.status.value, []).append(layer.name)
    if run.uncovered:
        found["not covered"] = [counted(len(run.uncovered), "file")]
    return found
