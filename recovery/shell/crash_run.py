"""`ledgerstore crash run`: a store crashed in every way.

layer        model, kill, errors, nested, rot, cut
status       complete, CUT SHORT or NOT RUN
tried        how many, and of what
violations   that it found; what loses alike is one
seconds      that it took
why          it is not complete
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recovery.shell import crash_labs
from recovery.shell.exits import CannotDo, Exit, ended_as_if_interrupted, say
from recovery.shell.writers import Form, writer

if TYPE_CHECKING:
    from recovery.crashlab.lab import CrashLab
    from recovery.crashlab.numbers import LabNumbers

OUT = "crash-report"
PRINTED = "printed.txt"
"""What the store's processes said on their own account, among a thousand crashes."""

_LAST_WORDS = 20
_NAMES = "model, kill, errors, nested, rot, cut"


@click.command()
@click.argument("lab", metavar="[LAB]", default=crash_labs.OURS)
@click.option("--layers", metavar="NAME,…", help=f"Only these: {_NAMES}.")
@click.option("--budget", metavar="TIME", help="The time that they share, such as 90s, 10m or 8h.")
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="So many processes.  [default: CPUs]")
@click.option("--profile", metavar="NAME", help="What a power cut may do.  [default: the LAB's]")
@click.option(
    "--seed", type=int, metavar="N", help="What is drawn, and in which order.  [default: the LAB's]"
)
@click.option("--out", default=OUT, metavar="DIR", help=f"Where the report goes.  [default: {OUT}]")
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
    """Crash a store in every way, and see whether it keeps its promises.

    LAB is module:name or path/to/file.py:name, where the name is that of a CrashLab or of a function that
    returns one; without it our own store is crashed. With --budget the layers share that time; without, each
    goes through its list once, which may take long. What did not run, or not to its end, is told.

    The report and a directory for each violation are written to DIR; those of an earlier run are replaced.
    A profile is ext4-ordered, sector-4k, posix-strict, nvm-64 or lying-disk. A layer that was asked for with
    --layers and cannot run here is a job not done, and so is a file whose changes were not all seen: exit
    code 3.

    \b
    Examples:
      ledgerstore crash run --budget 60s
      ledgerstore crash run --layers model,kill --budget 10m --out my-report
      ledgerstore crash run my_store_lab.py:lab --profile ext4-ordered --json | jq '.violations'
    """
    wanted = _layers(layers)
    seconds = _seconds(budget)
    place = _place(Path(out))
    run = _run(crash_labs.lab(lab, seed, _profile(profile)), wanted, seconds, jobs, place)
    _show(run, place, Form.JSON if is_json else Form.TABLE)
    ctx.exit(_exit(run, wanted or []))


# ── what was asked ───────────────────────────────────────────────────────────────────────────────────────


def _layers(text: str | None) -> list[str] | None:
    from recovery.crashlab.layers.catalogue import LAYERS

    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in LAYERS]
    if unknown or not names:
        what = f"no layer {', '.join(unknown)}" if unknown else "no layer is named"
        raise click.BadParameter(f"{what}: there are {_NAMES}", param_hint="--layers")
    return names


def _seconds(text: str | None) -> float | None:
    from recovery.crashlab.lab import seconds_of

    try:
        return seconds_of(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--budget") from error


def _profile(name: str | None) -> str | None:
    from recovery.crashlab.profile import profile_named

    try:
        return name if name is None else profile_named(name).name
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--profile") from error


def _place(out: Path) -> Path:
    """Not after ten minutes is it time to learn that nothing can be written there."""
    nearest = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not nearest.is_dir():
        raise CannotDo(f"not a directory: {nearest}")
    return out


# ── at work ──────────────────────────────────────────────────────────────────────────────────────────────


def _run(
    lab: CrashLab, layers: list[str] | None, seconds: float | None, jobs: int | None, out: Path
) -> LabNumbers:
    from recovery.crashlab.crew import LabError
    from recovery.shell.aside import Aside
    from recovery.shell.crash_watch import CrashWatch

    with Aside() as aside:
        watch = CrashWatch(aside.terminal)
        try:
            with ended_as_if_interrupted(), aside.taken(), watch:
                run = lab.run(layers, seconds, jobs=jobs, out=out, progress=watch).numbers
        except LabError as error:
            for words in aside.last(_LAST_WORDS):
                say(words)
            raise CannotDo(str(error)) from error
        except KeyboardInterrupt:
            say(f"crash: interrupted; violations so far: {watch.violations}; nothing is written")
            raise
        if aside.keep(out / PRINTED):
            say(f"printed meanwhile: {out / PRINTED}")
    return run


# ── what came of it ──────────────────────────────────────────────────────────────────────────────────────


def _show(run: LabNumbers, place: Path, form: Form) -> None:
    from recovery.shell import crash_rows

    if form is Form.JSON:
        json.dump(run.to_json(), sys.stdout, ensure_ascii=False)
        click.echo()
    else:
        out = writer(form, crash_rows.COLUMNS)
        for row in crash_rows.rows(run):
            out.row(row)
        out.end()
    for told in (*crash_rows.gaps(run), *crash_rows.causes(run, place)):
        say(told)
    say(f"report: {place / 'report.html'}")
    say(crash_rows.verdict(run))


def _exit(run: LabNumbers, asked: list[str]) -> Exit:
    from recovery.crashlab.numbers import Status

    if run.violations:
        return Exit.FINDINGS
    not_run = [layer for layer in run.layers if layer.status is Status.NOT_RUN]
    is_undone = any(layer.name in asked for layer in not_run) or len(not_run) == len(run.layers)
    # What nobody has seen is not clean.
    return Exit.FAILED if is_undone or run.uncovered else Exit.CLEAN
