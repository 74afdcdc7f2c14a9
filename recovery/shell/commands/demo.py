"""`ledgerstore demo`: kill a writer, recover, and count what was lost.

directory                       the store, which is kept
acknowledged                    entries that the store had acknowledged to the writer before the kill
recovered                       of those: read back, byte for byte what was written
lost                            of those: missing, unreadable or changed. It must be 0
unacknowledged                  entries that were kept although the kill came before their acknowledgement
wrong                           entries that were kept and differ from what was written. It must be 0
write_s, write_mb_s             seconds of writing, and its speed in 10^6 bytes of payload per second
checkpoints, journals           checkpoints that the writer completed, and journals that it began
replayed                        records that the opening replayed from the journals
replay_s, replay_mb_s           seconds until they were in the memtable again, and the speed
open_s                          seconds until the store accepted adds again
"""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

import click

from recovery.shell import options
from recovery.shell.exit_codes import CannotDo, Exit, StoreRefused, say
from recovery.shell.output import (
    Align,
    Column,
    Form,
    RowTone,
    StageProgressBar,
    free_text,
    row_writer,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from recovery.demo.run import DemoOutcome, WriteProgress
    from recovery.shell.output import Cell, Row
    from storage.open_report import ReplayProgress


_ENTRIES = 50_000
_SECONDS = 6.0
_SIZE_MAX = 1 << 20
_MANY = 1 << 40


@click.command()
@click.argument("directory", metavar="[STORE]", required=False)
@click.option(
    "--entries", type=click.IntRange(min=1), metavar="N", help="Kill the writer after N acknowledged entries."
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="S",
    help="Kill the writer S seconds after the first acknowledgement.",
)
@click.option(
    "--size",
    type=click.IntRange(1, _SIZE_MAX),
    default=1024,
    metavar="BYTES",
    help="Payload size of each entry.  [default: 1024]",
)
@click.option(
    "--ledgers",
    type=click.IntRange(1, 10_000),
    default=4,
    metavar="N",
    help="Number of ledgers to write.  [default: 4]",
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

    A separate process writes batches and single entries to a new store and reports each acknowledgement. It
    is killed with SIGKILL while it writes. Then the store is opened, and every acknowledged entry is read
    back and compared byte for byte. STORE must be new or empty; by default it is a temporary directory. The
    store is kept, so that you can look into it.

    By default the writer is killed after 50,000 entries or 6 seconds, whichever comes first. Exit code 1
    means that something was lost.

    \b
    Examples:
      ledgerstore demo
      ledgerstore demo /data/try --seconds 30 --size 100 --ledgers 20
      ledgerstore demo --entries 1000 --json | jq '.[0].lost'
    """
    began = time.monotonic()
    if entries is None and seconds is None:
        entries, seconds = _ENTRIES, _SECONDS
    with _store_directory(directory) as path:
        figures = _figures(path, entries, seconds, size, ledgers)
    _write(figures, form)
    for line in _next_steps(figures):
        say(line)
    say(f"demo: {_verdict(figures)} ({time.monotonic() - began:.1f} s)")
    ctx.exit(Exit.FINDINGS if figures["lost"] or figures["wrong"] else Exit.CLEAN)


@contextmanager
def _store_directory(given: str | None) -> Iterator[str]:
    """Yield a directory for the store. An interrupt removes it, unless the user has named it."""
    if given is not None:
        yield _new_directory(Path(given))
        return
    path = tempfile.mkdtemp(prefix="ledgerstore-demo-")
    try:
        yield path
    except KeyboardInterrupt:
        shutil.rmtree(path)
        raise


def _new_directory(path: Path) -> str:
    if path.exists() and not path.is_dir():
        raise CannotDo(f"not a directory: {path}")
    if path.exists() and any(path.iterdir()):
        raise CannotDo(f"{path} is not empty: the demo needs a new or empty directory")
    path.mkdir(parents=True, exist_ok=True)
    return str(path)


def _figures(path: str, entries: int | None, seconds: float | None, size: int, ledgers: int) -> Row:
    from recovery.demo.run import Target, run
    from recovery.demo.workload import Workload
    from recovery.demo.writer_process import WriterDied
    from storage.errors import CorruptionError

    workload = Workload(_MANY if entries is None else entries, size, ledgers)
    try:
        with DemoProgressBars(path) as watch:
            outcome = run(path, workload, Target(entries, seconds), watch)
    except WriterDied as death:
        raise CannotDo(f"the writer ended before it was killed: {death}") from death
    except CorruptionError as error:
        raise StoreRefused(f"the store can no longer be opened: {error}") from error
    return _row(path, outcome)


def _write(figures: Row, form: Form) -> None:

    out = row_writer(form, _COLUMNS)
    for row in _figure_rows(figures) if form is Form.TABLE else [figures]:
        out.row(row)
    out.end()


def _next_steps(figures: Row) -> Iterator[str]:
    """Say what the figures do not: how the store recovered, and how to look into it."""
    if figures["lost"] or figures["wrong"]:
        yield "The store lost acknowledged entries. Please report this bug, with the directory."
    elif figures["replayed"]:
        yield "The entries that no checkpoint had moved to the entry logs were replayed from the journals."
    else:
        yield "A checkpoint had just moved all entries to the entry logs, so there was nothing to replay."
    yield "The store is kept. Look into it, and delete it when you are done:"
    command, path = _command(), shlex.quote(str(figures["directory"]))
    yield f"  {command} files {path}"
    # The newest journal of the writer may still be empty, so show the one before it.
    yield f"  {command} journal {max(1, int(figures['journals'] or 0) - 1):x} {path} --limit 5"
    yield f"  {command} log 0 {path} --limit 5"


def _command() -> str:
    """Return what to type to run this program. `make demo` runs it from a directory that is not on PATH."""
    typed = Path(sys.argv[0])
    is_found = typed.name != "ledgerstore" or shutil.which("ledgerstore") is not None
    return "ledgerstore" if is_found else shlex.quote(str(typed))


def _verdict(figures: Row) -> str:
    wrong = f", {figures['wrong']:,} wrong" if figures["wrong"] else ""
    return f"{figures['lost']:,} of {figures['acknowledged']:,} acknowledged entries lost{wrong}"


MB = 1e6

_MEANINGS = {
    "acknowledged": "entries acknowledged to the writer as durable",
    "recovered": "of them read back, byte for byte as written",
    "lost": "of them missing, unreadable or changed",
    "unacknowledged": "written, not acknowledged before the kill, and kept",
    "wrong": "kept, but different from what was written",
    "write_s": "seconds from the first acknowledgement to the kill",
    "write_mb_s": "MB/s of payload, each add synced before its acknowledgement",
    "checkpoints": "completed by the writer",
    "journals": "begun by the writer",
    "replayed": "records from the journals after the last checkpoint",
    "replay_s": "seconds until they were in memory again",
    "replay_mb_s": "MB/s of records",
    "open_s": "seconds until the store accepted adds again",
}
_MUST_BE_ZERO = ("lost", "wrong")


def _row(directory: str, outcome: DemoOutcome) -> Row:
    """Return all figures under their stable names."""
    recovered = outcome.recovered
    opened = recovered.opened
    replay_mb_s = opened.bytes_replayed / recovered.replay_s / MB if recovered.replay_s else None
    return {
        "directory": directory,
        "acknowledged": recovered.acknowledged,
        "recovered": recovered.intact,
        "lost": recovered.lost,
        "unacknowledged": recovered.unacknowledged,
        "wrong": recovered.wrong,
        "write_s": round(outcome.written.seconds, 3),
        "write_mb_s": round(outcome.written.speed / MB, 1),
        "checkpoints": outcome.writer_progress.checkpoints,
        "journals": outcome.writer_progress.journals,
        "replayed": opened.records_replayed,
        "replay_s": round(recovered.replay_s, 3),
        "replay_mb_s": None if replay_mb_s is None else round(replay_mb_s, 1),
        "open_s": round(recovered.open_s, 3),
    }


def _grouped(row: Mapping[str, Cell], name: str) -> str:
    value = row[name]
    return "-" if value is None else f"{value:,}"


_COLUMNS = [Column("figure"), Column("value", Align.RIGHT, text=_grouped), Column("meaning", text=free_text)]


def _figure_rows(figures: Row) -> Iterator[Row]:
    """Yield a row for each figure. `wrong` has one only if it is not zero."""
    for name, meaning in _MEANINGS.items():
        value = figures[name]
        if name == "wrong" and not value:
            continue
        line: Row = {"figure": name, "value": value, "meaning": meaning}
        if name in _MUST_BE_ZERO:
            line["tone"] = (RowTone.BAD if value else RowTone.GOOD).value
        yield line


class DemoProgressBars:
    """Shows a bar for each stage on a terminal, and prints a line when the writer starts and is killed."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._pid = 0
        self._stage = StageProgressBar("writing", 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stage.end()

    def _enter(self, title: str) -> None:
        self._stage.end()
        self._stage = StageProgressBar(title)

    def started(self, pid: int) -> None:
        self._pid = pid
        say(f"process {pid} writes to {self._directory}")

    def wrote(self, written: WriteProgress) -> None:
        if written.entries and self._stage.is_due:
            words = f"{written.entries:,} entries  {written.speed / MB:.1f} MB/s"
            self._stage.show(written.fraction, words)

    def killed(self, written: WriteProgress) -> None:
        self._enter("replaying")
        say(f"process {self._pid} was killed while it wrote, after {written.entries:,} acknowledged entries")

    def replayed(self, progress: ReplayProgress) -> None:
        if self._stage.is_due:
            self._stage.show(progress.fraction, f"{progress.records:,} records")

    def read(self, done: int, total: int) -> None:
        if done == 1:
            self._enter("reading back")
        if self._stage.is_due:
            self._stage.show(done / total, f"{done:,} entries")
