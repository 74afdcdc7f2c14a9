"""`ledgerstore top`: a live table of the bookies of a cluster. Its rows are those of `listing.bookies`."""

from __future__ import annotations

import re
import sys
import time
from typing import TYPE_CHECKING, NoReturn

import click

from recovery.shell import cluster_metadata, options
from recovery.shell.exit_codes import CannotDo, Exit, check_installed, say
from recovery.shell.listing import bookies
from recovery.shell.listing.bookies import NO_HTTP, BookieTarget
from recovery.shell.output import Form, drawn_table, row_writer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.table import Table

    from recovery.shell.cluster_metadata import MetadataConnection
    from recovery.shell.listing.bookies import BookieLook
    from recovery.shell.output import Row
    from storage.cluster.metadata.address import MetadataAddress
    from storage.cluster.metadata.znodes import Znodes

METRICS_SIZE_MAX = 16 << 20
FETCH_TIMEOUT_S = 5.0
LOOK_AGAIN_S = 10.0
"""How often the list of bookies is read from the metadata again."""

_HEADINGS = {
    "adds_per_s": "adds/s",
    "reads_per_s": "reads/s",
    "add_p99_ms": "add p99",
    "read_p99_ms": "read p99",
    "journal_queue": "queue",
    "disk_used_percent": "disk %",
}
"""Shorter headings of the live table; the times are in milliseconds."""

_ADDRESS = re.compile(r"(?:http://)?(?P<at>(?:[\w.-]+|\[[0-9a-fA-F:.%]+\]):\d{1,5})/?")


@click.command()
@click.argument("targets", metavar="URI|HOST:PORT...", nargs=-1, envvar="LEDGERSTORE_METADATA")
@click.option(
    "--interval",
    type=click.FloatRange(0.0, 3600, min_open=True),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="The time between two looks.",
)
@click.option("--once", is_flag=True, help="Look twice, print one table, and end.")
@cluster_metadata.connection
@options.output
@click.pass_context
def command(
    ctx: click.Context,
    targets: tuple[str, ...],
    interval: float,
    once: object,
    connection: MetadataConnection,
    form: Form,
) -> None:
    """Show what the bookies of a cluster do: state, adds and reads a second, p99, queue, disk, ledgers.

    Give the address of the cluster's metadata, such as zk://localhost:2181/ledgers, or the HTTP addresses of
    bookies. The default is $LEDGERSTORE_METADATA. The figures come from /metrics: a bookie has it with
    `ledgerstore bookie --http-port`, a Java bookie with httpServerEnabled. The quantiles are those of the
    last one to two minutes. On a terminal the table goes on until Ctrl-C; else, and with --json, it is
    printed once. With --ndjson rows are printed after each interval.

    The command ends with 1 if a bookie has no metrics, and with 3 if none has.

    \b
    Examples:
      ledgerstore top zk://localhost:2181/ledgers
      ledgerstore top localhost:8000 localhost:8001 --interval 0.5
      ledgerstore top zk://localhost:2181/ledgers --json | jq '.[] | select(.state != "writable") | .bookie'
    """
    check_installed("top", "cluster", "prometheus_client")
    if not targets:
        raise click.UsageError("which bookies? Give the address of a cluster, or HOST:PORT of each bookie")
    watch = BookieWatch(finder(targets, connection), fetch, time.monotonic)
    ends = once or form is Form.JSON or (form is Form.TABLE and not sys.stdout.isatty())
    rows = watch.rows()  # the first look: rates need two
    if form is Form.TABLE and not ends:
        show_live(watch, rows, interval)
    while True:
        time.sleep(interval)
        rows = watch.rows()
        print_rows(rows, form)
        if ends:
            break
    problems = [f"{row['bookie']}: {row['problem']}" for row in rows if row["problem"] is not None]
    if problems and len(problems) == len(rows):
        raise CannotDo(f"top: no bookie has metrics: {'; '.join(problems)}")
    say(f"top: {bookies.verdict_of(rows)}")
    ctx.exit(Exit.FINDINGS if problems else Exit.CLEAN)


def print_rows(rows: Sequence[Row], form: Form) -> None:
    """Print one look."""
    out = row_writer(form, bookies.COLUMNS)
    for row in rows:
        out.row(row)
    out.end()


class BookieWatch:
    """Looks at bookies again and again."""

    def __init__(
        self,
        find: Callable[[], Sequence[BookieTarget]],
        fetch_text: Callable[[str], str],
        clock: Callable[[], float],
    ) -> None:
        self._find = find
        self._fetch = fetch_text
        self._clock = clock
        self._targets: Sequence[BookieTarget] = ()
        self._found_at: float | None = None
        self._before: dict[BookieTarget, BookieLook] = {}

    def rows(self) -> list[Row]:
        """Look at all bookies, at the same time, and return a row for each."""
        from concurrent.futures import ThreadPoolExecutor

        if self._found_at is None or self._clock() - self._found_at >= LOOK_AGAIN_S:
            self._targets, self._found_at = self._find(), self._clock()
        with ThreadPoolExecutor(16) as threads:
            looks = list(threads.map(self._look, self._targets))
        rows: list[Row] = []
        for target, look in zip(self._targets, looks, strict=True):
            if isinstance(look, str):
                rows.append(bookies.row_without_metrics(target, look))
                self._before.pop(target, None)
            else:
                rows.append(bookies.row_of(target, self._before.get(target), look))
                self._before[target] = look
        return rows

    def _look(self, target: BookieTarget) -> BookieLook | str:
        """Return what a bookie does, or why that cannot be had."""
        from http.client import HTTPException

        if target.address is None:
            return NO_HTTP
        try:
            return bookies.look_of(self._fetch(target.address), self._clock())
        except OSError as error:
            return f"http://{target.address}/metrics: {getattr(error, 'reason', None) or error}"
        except (ValueError, HTTPException) as error:
            return f"http://{target.address}/metrics has no metrics: {error}"


def finder(targets: Sequence[str], connection: MetadataConnection) -> Callable[[], Sequence[BookieTarget]]:
    """Return a function that finds the bookies, from the arguments of the command."""
    matches = [(one, _ADDRESS.fullmatch(one)) for one in targets]
    others = [one for one, match in matches if match is None]
    if any(cluster_metadata.is_address(one) and not one.startswith("http://") for one in others):
        if len(targets) > 1:
            raise click.UsageError("one address of a cluster, or HOST:PORT of each bookie")
        return lambda: bookies_of(targets[0], connection)
    if others:
        raise click.UsageError(f"{others[0]!r} is neither an address such as zk://… nor HOST:PORT")
    found = [BookieTarget(None, match["at"]) for _, match in matches if match is not None]
    return lambda: found


def bookies_of(address: str, connection: MetadataConnection) -> Sequence[BookieTarget]:
    """Return the bookies that are registered in a cluster, and where they answer HTTP."""
    from storage.cluster.metadata.registration import read_bookies, read_http_endpoints

    async def work(znodes: Znodes, at: MetadataAddress) -> list[BookieTarget]:
        registered = sorted((await read_bookies(znodes, at.root)).all)
        endpoints = await read_http_endpoints(znodes, at.root, registered)
        return [
            BookieTarget(one, None if http is None else f"{http.host}:{http.port}")
            for one, http in endpoints.items()
        ]

    found = connection.run("top", address, work)
    if not found:
        raise CannotDo(f"top: no bookie is registered at {address}")
    return found


def fetch(address: str) -> str:
    """Return the metrics of a bookie as text."""
    from urllib.request import ProxyHandler, build_opener

    # Without a proxy, because bookies are in the operator's own network.
    opener = build_opener(ProxyHandler({}))
    with opener.open(f"http://{address}/metrics", timeout=FETCH_TIMEOUT_S) as answer:
        data: bytes = answer.read(METRICS_SIZE_MAX)
    return data.decode()


def show_live(watch: BookieWatch, rows: Sequence[Row], interval_s: float) -> NoReturn:
    """Show a table that is replaced after each interval, until Ctrl-C."""
    from rich.live import Live

    with Live(table_of(rows), auto_refresh=False, screen=False) as live:
        while True:
            time.sleep(interval_s)
            live.update(table_of(watch.rows()), refresh=True)


def table_of(rows: Sequence[Row]) -> Table:
    """Return the rows as a table for a terminal."""
    from rich.text import Text

    columns = [one for one in bookies.COLUMNS if one.name != "problem"]
    problems = [f"{row['bookie']}: {row['problem']}" for row in rows if row["problem"] is not None]
    table = drawn_table(columns, rows, _HEADINGS)
    # One blank and not two, because all columns have to fit into 80 characters.
    table.padding, table.caption_justify = (0, 1, 0, 0), "left"
    table.caption = Text("\n".join([bookies.verdict_of(rows), *problems]))
    return table
