"""`ledgerstore crash replay`: a violation tried again.

directory    where it is kept
layer        that found it
kind         of breach, and its cause
same_image   whether the image was made again byte for byte
shown        what the store answers now
shows        whether the same kind of breach shows
breach       the first that shows
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recovery.shell import crash_labs, options
from recovery.shell.columns import Column
from recovery.shell.exits import CannotDo, Exit, say
from recovery.shell.writers import Form, writer

if TYPE_CHECKING:
    from recovery.crashlab.layers.replay import Replayed
    from recovery.crashlab.violation import Violation
    from recovery.shell.columns import Row


@click.command()
@click.argument("directory", metavar="DIR")
@click.option("--lab", metavar="LAB", help="Take the store's programs from there, not as they were kept.")
@options.output
@click.pass_context
def command(ctx: click.Context, directory: str, lab: str | None, form: Form) -> None:
    """Try a violation again: does it still show?

    DIR is a violation's directory, as `crash run` writes them. Its image is made again from the recorded
    calls, or, behind a kill or a failing call, by running the workload again; then the store opens it, and
    is held against what it had acknowledged. Exit code 1 means that the violation still shows.

    Only for directories you trust: the store's programs are kept in it, and are run. Those that were in
    a module are taken as that module is now. A power cut is made again from calls as they were recorded: for
    a mistake in what writes, `crash run` is the proof that it is mended.

    \b
    Examples:
      ledgerstore crash replay crash-report/violations/model-1
      ledgerstore crash replay crash-report/violations/kill-2 --lab my_store_lab.py:lab
    """
    from recovery.crashlab.crew import LabError
    from recovery.crashlab.layers.replay import replayed

    path = Path(directory)
    violation = _loaded(path)
    if lab is not None:
        violation = _with_programs_of(lab, violation)
    try:
        came = replayed(violation)
    except LabError as error:
        raise CannotDo(str(error)) from error
    _show(_row(path, violation, came), form)
    ctx.exit(Exit.FINDINGS if came.shows else Exit.CLEAN)


def _loaded(path: Path) -> Violation:
    from recovery.crashlab.violation import load

    if not path.is_dir():
        raise CannotDo(f"{'not a directory' if path.exists() else 'no such directory'}: {path}")
    if not (path / "violation.pickle").exists():
        raise CannotDo(f"not a violation's directory: {path}")
    try:
        return load(path)
    except OSError:
        raise
    except Exception as error:
        raise CannotDo(f"{path} cannot be loaded here: {type(error).__name__}: {error}") from error


def _with_programs_of(lab: str, violation: Violation) -> Violation:
    kept = violation.spec
    spec = crash_labs.lab(lab, kept.seed, None).spec
    workload = violation.sighting.workload
    if workload not in spec.workloads:
        raise CannotDo(f"{lab} has no workload {workload!r}: it has {', '.join(spec.workloads)}")
    return replace(violation, spec=replace(spec, profile=kept.profile))


def _row(path: Path, violation: Violation, came: Replayed) -> Row:
    alike = [breach for breach in came.breaches if breach.kind == came.expected.kind]
    return {
        "directory": str(path),
        "layer": violation.numbers.layer,
        "kind": violation.numbers.kind,
        "cause": violation.numbers.cause,
        "same_image": came.is_same_image,
        "shown": came.shown,
        "shows": came.shows,
        "breach": next((str(breach) for breach in (*alike, *came.breaches)), None),
    }


def _show(row: Row, form: Form) -> None:
    if form is Form.TABLE:
        _tell(row)
    else:
        out = writer(form, [Column(name) for name in row])
        out.row(row)
        out.end()
    say(f"replay: {_verdict(row)}")


def _tell(row: Row) -> None:
    image = "made again, byte for byte" if row["same_image"] else "NOT the one that was kept"
    lines = {"was": row["cause"], "image": image, "store": f"it {row['shown']}", "now": row["breach"]}
    from recovery.page.wording import line

    for name, words in lines.items():
        if words is not None:
            click.echo(f"{name:<7}{line(str(words))}")


def _verdict(row: Row) -> str:
    but = "" if row["same_image"] else ", on an image that is another now"
    if row["shows"]:
        return f"the violation still shows{but}"
    return f"the violation does not show any more{but}" + (
        ", but another one does" if row["breach"] is not None else ""
    )
