"""`ledgerstore crash replay`: reproduce a violation.

directory    the directory of the violation
layer        the layer that found it
kind, cause  the kind of breach, and its cause
same_image   whether the reproduced image is the same byte for byte
shown        what the store answers now
shows        whether a breach of the same kind was reproduced
breach       the first breach that was reproduced
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recovery.shell import options
from recovery.shell.commands.crash import load_lab
from recovery.shell.exit_codes import CannotDo, Exit, say
from recovery.shell.output import Column, Form, row_writer

if TYPE_CHECKING:
    from recovery.crashlab.layers.replay import ReplayResult
    from recovery.crashlab.layers.violation import Violation
    from recovery.shell.output import Row


@click.command()
@click.argument("directory", metavar="DIR")
@click.option("--lab", metavar="LAB", help="Use the programs of LAB instead of those in DIR.")
@options.output
@click.pass_context
def command(ctx: click.Context, directory: str, lab: str | None, form: Form) -> None:
    """Reproduce a violation: does it still happen?

    DIR is the directory of a violation, as `crash run` writes it. The image is made again from the recorded
    calls, or, for a kill or a failing call, by running the workload again. Then the store opens it, and its
    answers are compared with what it had acknowledged. Exit code 1 means that the violation still happens.

    Use it only for directories that you trust, because programs that are kept there are run. Programs from a
    module are those that the module has now. A power cut is made again from the calls as they were recorded,
    so use `crash run` to prove that a bug in the writing program is fixed.

    \b
    Examples:
      ledgerstore crash replay crash-report/violations/model-1
      ledgerstore crash replay crash-report/violations/kill-2 --lab my_store_lab.py:lab
    """
    from recovery.crashlab.layers.replay import replayed
    from recovery.crashlab.run.workers import LabError

    path = Path(directory)
    violation = _load_violation(path)
    if lab is not None:
        violation = _with_programs_of(lab, violation)
    try:
        result = replayed(violation)
    except LabError as error:
        raise CannotDo(str(error)) from error
    _show(_row(path, violation, result), form)
    ctx.exit(Exit.FINDINGS if result.shows else Exit.CLEAN)


def _load_violation(path: Path) -> Violation:
    from recovery.crashlab.layers.violation import load

    if not path.is_dir():
        raise CannotDo(f"{'not a directory' if path.exists() else 'no such directory'}: {path}")
    if not (path / "violation.pickle").exists():
        raise CannotDo(f"not the directory of a violation: {path}")
    try:
        return load(path)
    except OSError:
        raise
    except Exception as error:
        raise CannotDo(f"{path} cannot be loaded here: {type(error).__name__}: {error}") from error


def _with_programs_of(lab: str, violation: Violation) -> Violation:
    kept = violation.spec
    spec = load_lab(lab, kept.seed, None).spec
    workload = violation.occurrence.workload
    if workload not in spec.workloads:
        raise CannotDo(f"{lab} has no workload {workload!r}: it has {', '.join(spec.workloads)}")
    return replace(violation, spec=replace(spec, profile=kept.profile))


def _row(path: Path, violation: Violation, result: ReplayResult) -> Row:
    same_kind = [breach for breach in result.breaches if breach.kind == result.expected.kind]
    return {
        "directory": str(path),
        "layer": violation.numbers.layer,
        "kind": violation.numbers.kind,
        "cause": violation.numbers.cause,
        "same_image": result.is_same_image,
        "shown": result.shown,
        "shows": result.shows,
        "breach": next((str(breach) for breach in (*same_kind, *result.breaches)), None),
    }


def _show(row: Row, form: Form) -> None:
    if form is Form.TABLE:
        _print_table(row)
    else:
        out = row_writer(form, [Column(name) for name in row])
        out.row(row)
        out.end()
    say(f"replay: {_verdict(row)}")


def _print_table(row: Row) -> None:
    image = "the same, byte for byte" if row["same_image"] else "NOT the one that was kept"
    lines = {"was": row["cause"], "image": image, "store": f"it {row['shown']}", "now": row["breach"]}
    from recovery.report.formatting import line

    for name, words in lines.items():
        if words is not None:
            click.echo(f"{name:<7}{line(str(words))}")


def _verdict(row: Row) -> str:
    but = "" if row["same_image"] else ", on an image that differs from the kept one"
    if row["shows"]:
        return f"the violation still happens{but}"
    return f"the violation no longer happens{but}" + (
        ", but another one does" if row["breach"] is not None else ""
    )
