"""`ledgerstore demo`: is anything lost when the writer is killed?"""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recovery.shell import options
from recovery.shell.exits import CannotDo, Exit, say
from recovery.shell.writers import Form, writer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.shell.columns import Row

_ENTRIES = 50_000
_SECONDS = 6.0
_SIZE_MAX = 1 << 20
_MANY = 1 << 40


@click.command()
@click.argument("directory", metavar="[DIRECTORY]", required=False)
@click.option(
    "--entries", type=click.IntRange(min=1), metavar="N", help="Kill when so many entries are acknowledged."
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Kill so long after the first acknowledgement.",
)
@click.option(
    "--size",
    type=click.IntRange(1, _SIZE_MAX),
    default=1024,
    metavar="BYTES",
    help="The payload of each entry.  [default: 1024]",
)
@click.option(
    "--ledgers",
    type=click.IntRange(1, 10_000),
    default=4,
    metavar="N",
    help="How many ledgers are written.  [default: 4]",
)
@options.output
@click.pass_context
def command(
    ctx: click.Context,
    directory: str | None,
    entries: int | None,
    seconds: float | None,
    size: int,
    ledgers: int,
    form: Form,
) -> None:
    """Write, kill the writer, recover, and count what was lost.

    A process of its own writes batches and single entries to a new store and tells each acknowledgement. In
    the middle of it it is killed with SIGKILL. Then the store is opened, and every acknowledged entry is read
    back and compared byte for byte. DIRECTORY must be new or empty; without it a temporary one is made. It
    is kept, to look around in.

    Without --entries and --seconds the kill comes after 50,000 entries, or 6 seconds where disks are slow;
    with both, whichever is first. Exit code 1 means that something was lost.

    \b
    Examples:
      ledgerstore demo
      ledgerstore demo /data/try --seconds 30 --size 100 --ledgers 20
      ledgerstore demo --entries 1000 --json | jq '.[0].lost'
    """
    began = time.monotonic()
    if entries is None and seconds is None:
        entries, seconds = _ENTRIES, _SECONDS
    with _place(directory) as path:
        figures = _figures(path, entries, seconds, size, ledgers)
    _write(figures, form)
    for line in _story(figures):
        say(line)
    say(f"demo: {_verdict(figures)} ({time.monotonic() - began:.1f} s)")
    ctx.exit(Exit.FINDINGS if figures["lost"] or figures["wrong"] else Exit.CLEAN)


@contextmanager
def _place(given: str | None) -> Iterator[str]:
    """A directory for the store. Of one that nobody asked for an interrupt leaves nothing."""
    if given is not None:
        yield _empty(Path(given))
        return
    path = tempfile.mkdtemp(prefix="ledgerstore-demo-")
    try:
        yield path
    except KeyboardInterrupt:
        shutil.rmtree(path)
        raise


def _empty(path: Path) -> str:
    if path.exists() and not path.is_dir():
        raise CannotDo(f"not a directory: {path}")
    if path.exists() and any(path.iterdir()):
        raise CannotDo(f"{path} is not empty: the demo wants a directory of its own")
    path.mkdir(parents=True, exist_ok=True)
    return str(path)


class _Refused(CannotDo):
    """The store does not open any more: everything acknowledged is out of reach, and that is the finding."""

    exit_code = Exit.FINDINGS


def _figures(path: str, entries: int | None, seconds: float | None, size: int, ledgers: int) -> Row:
    from recovery.demo.run import Target, run
    from recovery.demo.victim import WriterDied
    from recovery.demo.workload import Workload
    from recovery.shell import demo_figures
    from recovery.shell.demo_watch import DemoWatch
    from storage.errors import CorruptionError

    workload = Workload(_MANY if entries is None else entries, size, ledgers)
    try:
        with DemoWatch(path) as watch:
            outcome = run(path, workload, Target(entries, seconds), watch)
    except WriterDied as death:
        raise CannotDo(f"the writer has ended before it was killed: {death}") from death
    except CorruptionError as error:
        raise _Refused(f"the store cannot be opened any more: {error}") from error
    return demo_figures.row(path, outcome)


def _write(figures: Row, form: Form) -> None:
    from recovery.shell import demo_figures

    upright = form is Form.TABLE
    out = writer(form, demo_figures.COLUMNS)
    for row in demo_figures.upright(figures) if upright else [figures]:
        out.row(row)
    out.end()


def _story(figures: Row) -> Iterator[str]:
    """What happened, and where to look; nothing that the figures say already."""
    if figures["lost"] or figures["wrong"]:
        yield "The store broke its promise. Please report it, with that directory."
    elif figures["replayed"]:
        yield "What no checkpoint had moved to the entry logs came back from the journals."
    else:
        yield "A checkpoint had just moved everything to the entry logs: nothing to replay."
    yield "Have a look, and delete it when you have seen enough:"
    command, path = _command(), shlex.quote(str(figures["directory"]))
    yield f"  {command} files {path}"
    yield f"  {command} journal --dir {path} {figures['journals']:x} --limit 5"
    yield f"  {command} log --dir {path} 0 --limit 5"


def _command() -> str:
    """What to type to get this command again: `make demo` runs it from where no shell would look for it."""
    typed = Path(sys.argv[0])
    is_found = typed.name != "ledgerstore" or shutil.which("ledgerstore") is not None
    return "ledgerstore" if is_found else shlex.quote(str(typed))


def _verdict(figures: Row) -> str:
    wrong = f", {figures['wrong']:,} wrong" if figures["wrong"] else ""
    return f"{figures['lost']:,} of {figures['acknowledged']:,} acknowledged entries lost{wrong}"
