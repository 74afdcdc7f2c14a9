"""`ledgerstore crash report`: show an earlier run again. Also the rows and lines that `crash run` prints."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recovery.crashlab.judge.run_figures import Status
from recovery.crashlab.report import figures
from recovery.report.formatting import counted, line
from recovery.shell.commands.crash_run import OUT
from recovery.shell.exit_codes import CannotDo, Exit, say
from recovery.shell.output import Align, Column, RowTone, free_text, number_column

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from recovery.crashlab.judge.run_figures import LabNumbers, LayerNumbers, MutantNumbers
    from recovery.shell.output import Cell, Row


@click.command()
@click.argument("directory", metavar="[DIR]", default=OUT)
@click.option("--mutants", metavar="FILE", help="Add the planted bugs of a mutation run to the numbers.")
@click.option("--json", "is_json", is_flag=True, help="Print all numbers of the run as JSON.")
@click.pass_context
def command(ctx: click.Context, directory: str, mutants: str | None, is_json: object) -> None:
    """Show the report of a run, and write its HTML page again.

    DIR contains a report.json, as `crash run` writes it. report.html is written again from it. FILE is
    a JSON list of planted bugs: name, rule, found_by, proof, seconds. Exit code 1 means that the report
    contains violations.

    \b
    Examples:
      ledgerstore crash report
      ledgerstore crash report crash-report --mutants mutants.json
    """
    from recovery.crashlab.lab import write_report
    from recovery.crashlab.report import text

    path = Path(directory)
    run = _numbers(path / "report.json")
    if mutants is not None:
        run.mutants = _mutants(Path(mutants))
    write_report(run, path)
    if is_json:
        json.dump(run.to_json(), sys.stdout, ensure_ascii=False)
        click.echo()
    else:
        click.echo(text.render(run), nl=False)
    say(f"report: {path / 'report.html'}")
    say(verdict_line(run))
    ctx.exit(Exit.FINDINGS if run.violations else Exit.CLEAN)


def _numbers(path: Path) -> LabNumbers:
    from recovery.crashlab.judge.run_figures import load

    try:
        return load(path)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CannotDo(f"{path} is not the report of a run: {error}") from error


def _mutants(path: Path) -> list[MutantNumbers]:
    from recovery.crashlab.judge.run_figures import MutantNumbers

    try:
        return [MutantNumbers(**one) for one in json.loads(path.read_text())]
    except (ValueError, TypeError) as error:
        raise CannotDo(f"{path} is not a list of planted bugs: {error}") from error


_CAUSES_MAX = 10


def _grouped(row: Mapping[str, Cell], name: str) -> str:
    return "-" if row[name] is None else f"{row[name]:,}"


LAYER_COLUMNS = [
    Column("layer"),
    Column("status"),
    Column("tried", Align.RIGHT, text=_grouped),
    Column("of_what"),
    number_column("violations"),
    number_column("seconds", rank=1),
    Column("why", text=free_text),
]


def layer_rows(run: LabNumbers) -> Iterator[Row]:
    """Yield a row for each layer, also for those that did not run."""
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
        row["tone"] = RowTone.BAD.value
    elif not is_complete:
        row["tone"] = RowTone.INFORMATION.value
    return row


def cause_lines(run: LabNumbers, out: Path) -> Iterator[str]:
    """Yield the cause of each violation, and the command that reproduces it."""
    for violation in run.violations[:_CAUSES_MAX]:
        yield f"{violation.kind}  {line(figures.cause(violation))}"
        yield f"    ledgerstore crash replay {shlex.quote(str(out / violation.directory))}"
    more = len(run.violations) - _CAUSES_MAX
    if more > 0:
        yield f"… and {more} more: see the report"


def gap_lines(run: LabNumbers) -> Iterator[str]:
    """Yield what was not covered in each workload. The table has the gaps of layers."""
    for workload in run.workloads:
        for what in workload.uncovered:
            yield f"NOT COVERED  workload {workload.name}: {line(what)}"


def verdict_line(run: LabNumbers) -> str:
    """Return the result of the run in one line."""
    verdict = figures.verdict(run)
    took = f"({run.seconds:,.0f} s)"
    less = "".join(f"; {words}: {', '.join(names)}" for words, names in _not_complete(run).items())
    if verdict.tone is figures.VerdictTone.EMPTY:
        return f"crash: nothing was tried, so nothing is proven{less} {took}"
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
