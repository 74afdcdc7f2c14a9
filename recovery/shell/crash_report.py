"""`ledgerstore crash report`: the numbers of an earlier run, for people."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recovery.shell.crash_run import OUT
from recovery.shell.exits import CannotDo, Exit, say

if TYPE_CHECKING:
    from recovery.crashlab.numbers import LabNumbers, MutantNumbers


@click.command()
@click.argument("directory", metavar="[DIR]", default=OUT)
@click.option("--mutants", metavar="FILE", help="Take the planted bugs of a mutation run into the numbers.")
@click.option("--json", "is_json", is_flag=True, help="Print all numbers of the run as JSON.")
@click.pass_context
def command(ctx: click.Context, directory: str, mutants: str | None, is_json: object) -> None:
    """Show the report of a run, and write its page anew.

    DIR has a report.json in it, as `crash run` writes it. Its report.html is made again from that. FILE is a
    JSON list of planted bugs: name, rule, found_by, proof, seconds. Exit code 1 means that there are
    violations in it.

    \b
    Examples:
      ledgerstore crash report
      ledgerstore crash report crash-report --mutants mutants.json
    """
    from recovery.crashlab.lab import write_report
    from recovery.crashlab.report import text
    from recovery.shell import crash_rows

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
    say(crash_rows.verdict(run))
    ctx.exit(Exit.FINDINGS if run.violations else Exit.CLEAN)


def _numbers(path: Path) -> LabNumbers:
    from recovery.crashlab.numbers import load

    try:
        return load(path)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CannotDo(f"{path} holds no numbers of a run: {error}") from error


def _mutants(path: Path) -> list[MutantNumbers]:
    from recovery.crashlab.numbers import MutantNumbers

    try:
        return [MutantNumbers(**one) for one in json.loads(path.read_text())]
    except (ValueError, TypeError) as error:
        raise CannotDo(f"{path} is no list of planted bugs: {error}") from error
