"""Shows the cluster of a directory: rows, the table that is drawn again, and what to do with the cluster."""

from __future__ import annotations

import os
import shlex
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

import click

from recovery.shell.exit_codes import CannotDo, check_installed, say
from recovery.shell.output import Align, Column, RowTone, counted, drawn_table, has_colour

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from rich.console import RenderableType
    from rich.live import Live

    from recovery.local_cluster.cluster import LocalCluster, MemberStatus
    from recovery.local_cluster.look import ClusterLook
    from recovery.local_cluster.state import ClusterState
    from recovery.shell.output import Cell, Row

LOOK_TIMEOUT_S = 10.0
"""How long a command that looks once waits for the metadata, and for each bookie."""

directory = click.argument("directory", metavar="[DIR]", default=".")
"""Adds the argument for the directory of a cluster."""


@contextmanager
def cluster_at(command: str, path: str) -> Iterator[LocalCluster]:
    """Yield the cluster of a directory, and turn its errors into those of a command."""
    check_installed(f"cluster {command}", "cluster", "kazoo")
    import logging

    from recovery.local_cluster.cluster import LocalCluster
    from recovery.local_cluster.state import LocalClusterError
    from storage.cluster.errors import InvalidMetadataUri
    from storage.errors import StoreError

    # Remarks about lost connections are not the outcome of the command.
    logging.getLogger("ledgerstore").addHandler(logging.NullHandler())
    try:
        yield LocalCluster(Path(path))
    except InvalidMetadataUri as error:
        raise click.UsageError(str(error)) from error
    except (LocalClusterError, StoreError) as error:
        raise CannotDo(str(error)) from error


# ── rows ──────────────────────────────────────────────────────────────────────────────────────────────────


def _grouped(row: Mapping[str, Cell], name: str) -> str:
    return "-" if row[name] is None else f"{row[name]:,}"


COLUMNS = [
    Column("name"),
    Column("state", width=8),
    Column("registered", width=10, rank=1),
    Column("address"),
    Column("pid", Align.RIGHT, width=7, rank=4),
    Column("ledgers", Align.RIGHT, width=7, rank=2, text=_grouped),
    Column("bytes", Align.RIGHT, width=12, rank=3, text=_grouped),
]


def rows(
    cluster: LocalCluster, look: ClusterLook | None, doing: str = "", names: Collection[str] = ()
) -> list[Row]:
    """Return a row for each process. Those in `names` are starting or stopping, as `doing` says."""
    from recovery.local_cluster.processes import ProcessState

    uri = cluster.load().uri
    found: list[Row] = []
    for status in cluster.status():
        member, is_up, process = status.member, status.state is ProcessState.UP, status.member.process
        registered = look.registration_of(member) if look else None
        tone = RowTone.PLAIN
        if member.name in names or status.state is ProcessState.PAUSED:
            tone = RowTone.INFORMATION
        elif not doing and (not is_up or registered == "no"):
            tone = RowTone.BAD
        found.append(
            {
                "name": member.name,
                "state": _state_of(status, doing if member.name in names else ""),
                "registered": registered,
                "address": member.address,
                "pid": process.pid if process and status.state is not ProcessState.DOWN else None,
                "ledgers": look.ledgers.get(member.address) if look else None,
                "bytes": status.size,
                "http": look.pages.get(member.address) if look and is_up else None,
                "uri": uri,
                "directory": str(cluster.path / member.name),
                "log": str(cluster.log_of(member)),
                "tone": tone.value,
            }
        )
    return found


def _state_of(status: MemberStatus, doing: str) -> str:
    from recovery.local_cluster.processes import ProcessState

    if status.member.is_lost and status.state is ProcessState.DOWN:
        return "lost"
    return doing or status.state.value


def summary(found: Sequence[Row]) -> str:
    """Return how many processes are up, in words."""
    ups = sum(row["state"] == "up" for row in found)
    return f"{ups} of {counted(len(found), 'process', 'processes')} up"


def stopped(command: str, killed: Sequence[str]) -> str:
    """Return the last line of a command that has stopped the cluster."""
    words = f"; {', '.join(killed)} did not stop in time, and had to be killed" if killed else ""
    return f"cluster {command}: stopped{words}"


# ── what to do with the cluster ───────────────────────────────────────────────────────────────────────────


def hints(state: ClusterState, path: str, stop: str) -> list[tuple[str, str]]:
    """Return the commands that can come next, each with its purpose."""
    place = "" if path == "." else f" {shlex.quote(path)}"
    which = min(2, len(state.bookies))
    return [
        ("metadata", state.uri),
        ("Java", f'conf.setMetadataServiceUri("{state.uri}")'),
        ("ledgers", f"ledgerstore ledgers {state.uri}"),
        ("figures", f"ledgerstore top {state.uri}"),
        ("failures", f"ledgerstore cluster kill {which}{place}    # or pause, resume, restart"),
        ("repairs", f"ledgerstore autorecovery status {state.uri}"),
        ("stop", stop or f"ledgerstore cluster down{place}"),
    ]


def say_hints(state: ClusterState, path: str, stop: str = "") -> None:
    """Print the commands that can come next."""
    for word, text in hints(state, path, stop):
        say(f"{word:10}{text}")


# ── the table that is drawn again ─────────────────────────────────────────────────────────────────────────

_DRAW_S = 0.25
_LOOK_S = 2.0
_LOOK_TIMEOUT_S = 1.0
"""Short, because the table stands still meanwhile."""


def is_live() -> bool:
    """Return whether a table can be drawn again in its place."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


class ClusterTable:
    """A table of the processes on the terminal, drawn again in its place until the block ends."""

    def __init__(self, cluster: LocalCluster, path: str) -> None:
        self._cluster = cluster
        self._path = path
        self._live: Live | None = None
        self._next = 0.0
        self._next_look = 0.0
        self._look: ClusterLook | None = None
        self._drawn: list[Row] = []

    def __enter__(self) -> Self:
        if is_live():
            from rich.console import Console
            from rich.live import Live

            console = Console(highlight=False, no_color=not has_colour(sys.stdout))
            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def draw(self, state: ClusterState, doing: str = "", names: Collection[str] = ()) -> None:
        """Draw the table, a few times a second at most. The callback of a command that waits."""
        if self._live is None or time.monotonic() < self._next:
            return
        if not doing and time.monotonic() >= self._next_look:
            from recovery.local_cluster.look import look_at

            self._look = look_at(state, _LOOK_TIMEOUT_S)
            self._next_look = time.monotonic() + _LOOK_S
        found = rows(self._cluster, None if doing else self._look, doing, names)
        self._next = time.monotonic() + _DRAW_S
        if found != self._drawn:
            lines = hints(state, self._path, "Ctrl-C")
            self._live.update(_drawing(found, lines, self._live.console.width), refresh=True)
            self._drawn = found


def _drawing(found: Sequence[Row], lines: Sequence[tuple[str, str]], width: int) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    below = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    for word, text in lines:
        # Folded and not cut off, so that it can be copied.
        below.add_row(Text(word, style="dim"), Text(text, overflow="fold"))
    return Group(drawn_table(fitting(found, width), found), Text(""), below)


def fitting(found: Sequence[Row], width: int) -> list[Column]:
    """Return the columns that fit into a line, without those of the highest ranks."""
    columns = list(COLUMNS)

    def needed() -> int:
        widths = (
            max(len(one.name), one.width, *(len(one.cell(row)) for row in found)) + 2 for one in columns
        )
        return sum(widths) - 2

    while needed() > width and (last := max(columns, key=lambda one: one.rank)).rank:
        columns.remove(last)
    return columns
