"""The rows of `ledgerstore top`: a bookie each, by its metrics, which may be those of a Java bookie.

bookie                      its id, or its HTTP address if the metrics do not tell the id
state                       writable, read-only or not registered; unknown if there are no metrics
adds_per_s, reads_per_s     requests that succeeded, between the last two looks; null if there was only one
add_p99_ms, read_p99_ms     the time below which 99 of 100 of them took
journal_queue               adds that wait for the journal
disk_used_percent           of the file system of the store
ledgers
problem                     why there are no metrics; null if there is none
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING, NamedTuple

from recovery.shell.output import Align, Column, free_text, number_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from recovery.shell.output import Cell, Row


def _shown(row: Mapping[str, Cell], name: str) -> str:
    value = row[name]
    if not isinstance(value, float):
        return "-" if value is None else f"{value:,}"
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def _figure(name: str, rank: int) -> Column:
    return Column(name, Align.RIGHT, 0, rank, _shown)


COLUMNS = [
    Column("bookie"),
    Column("state"),
    _figure("adds_per_s", 0),
    _figure("reads_per_s", 0),
    _figure("add_p99_ms", 1),
    _figure("read_p99_ms", 2),
    number_column("journal_queue", rank=4),
    _figure("disk_used_percent", 3),
    _figure("ledgers", 5),
    Column("problem", text=free_text),
]

_STATES = {1: "writable", 0: "read-only", -1: "not registered"}
_DONE = {"success": "true"}


class BookieTarget(NamedTuple):
    """A bookie to look at."""

    bookie: str | None
    """Its id, if it is known from the metadata."""
    address: str | None
    """The address at which it answers HTTP, such as `127.0.0.1:8000`; `None` if it does not."""


@dataclass(frozen=True, slots=True)
class BookieLook:
    """The figures of a bookie at one moment."""

    at: float
    """By any steady clock."""
    bookie: str | None
    state: str
    adds: float | None
    reads: float | None
    add_p99_ms: float | None
    read_p99_ms: float | None
    journal_queue: float | None
    disk_used_percent: float | None
    ledgers: float | None


def look_of(text: str, at: float) -> BookieLook:
    """Return the figures in a text of metrics; `ValueError` if it is none."""
    from prometheus_client.parser import text_string_to_metric_families

    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if not isnan(sample.value):
                found.setdefault(sample.name, []).append((sample.labels, sample.value))

    def value(name: str, **labels: str) -> float | None:
        wanted = labels.items()
        values = [number for its, number in found.get(name, ()) if wanted <= its.items()]
        return sum(values) if values else None

    size, free = value("ledgerstore_disk_bytes"), value("ledgerstore_disk_free_bytes")
    build = found.get("ledgerstore_build_info", [({}, 1.0)])
    status = value("bookie_SERVER_STATUS")
    return BookieLook(
        at,
        build[0][0].get("bookie"),
        "unknown" if status is None else _STATES.get(int(status), "unknown"),
        value("bookkeeper_server_ADD_ENTRY_count", **_DONE),
        value("bookkeeper_server_READ_ENTRY_count", **_DONE),
        value("bookkeeper_server_ADD_ENTRY", quantile="0.99", **_DONE),
        value("bookkeeper_server_READ_ENTRY", quantile="0.99", **_DONE),
        value("bookie_journal_JOURNAL_QUEUE_SIZE"),
        None if not size or free is None else 100 * (1 - free / size),
        value("bookie_ledgers_count"),
    )


def row_of(target: BookieTarget, before: BookieLook | None, now: BookieLook) -> Row:
    """Return the row of a bookie from two looks, or from one: then it has no rates."""
    return {
        "bookie": target.bookie or now.bookie or target.address,
        "state": now.state,
        "adds_per_s": None if before is None else _rate(before, now, before.adds, now.adds),
        "reads_per_s": None if before is None else _rate(before, now, before.reads, now.reads),
        "add_p99_ms": _rounded(now.add_p99_ms, 3),
        "read_p99_ms": _rounded(now.read_p99_ms, 3),
        "journal_queue": _whole(now.journal_queue),
        "disk_used_percent": _rounded(now.disk_used_percent, 1),
        "ledgers": _whole(now.ledgers),
        "problem": None,
        "tone": "plain" if now.state == "writable" else "information",
    }


def row_without_metrics(target: BookieTarget, problem: str) -> Row:
    """Return the row of a bookie whose metrics cannot be had."""
    row: Row = dict.fromkeys(column.name for column in COLUMNS)
    return row | {
        "bookie": target.bookie or target.address,
        "state": "unknown",
        "problem": problem,
        "tone": "bad",
    }


NO_HTTP = "no HTTP port: start it with --http-port (a Java bookie: httpServerEnabled)"


def verdict_of(rows: Iterable[Row]) -> str:
    """Return the last line: how many bookies take adds, and what they do together."""
    shown = list(rows)
    writable = sum(row["state"] == "writable" for row in shown)
    adds, reads = (sum(_number(row[name]) for row in shown) for name in ("adds_per_s", "reads_per_s"))
    return f"{writable} of {len(shown)} bookies take adds; {adds:,.0f} adds/s, {reads:,.0f} reads/s"


def _number(cell: Cell) -> float:
    return cell if isinstance(cell, float) else 0.0


def _rate(before: BookieLook, now: BookieLook, first: float | None, last: float | None) -> float | None:
    """Return the rate between two looks; `None` if the bookie was started in between."""
    if first is None or last is None or last < first or now.at <= before.at:
        return None
    return round((last - first) / (now.at - before.at), 1)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
