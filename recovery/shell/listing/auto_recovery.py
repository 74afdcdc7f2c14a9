"""The rows of `ledgerstore autorecovery status`: the switches, the marks, and the workers.

enabled            whether ledgers are marked and repaired
auditor            the process that is elected; null if none runs
candidates         processes that run, the auditor among them
delay_s            how long one lost bookie may take to come back
writable           bookies that take adds
read_only          bookies that serve reads only
lost               bookies with a cookie that are not registered
marked             ledgers that may have too few copies
marked_minute      those of them that were marked, or marked again, in the last minute
marked_hour        in the hour before that minute
marked_day         in the day before that hour
marked_older       before that day, or at an unknown time
locked             marked ledgers that are being repaired
oldest_s           the age of the oldest mark
stuck              marked ledgers whose last repair has failed, as the workers say
workers            processes of ours that repair; those of Apache BookKeeper do not say what they do
entries_per_s      entries that they copy now
bytes_per_s        bytes of these
last_check         when the last complete check of all ledgers began, in UTC
last_entry_check   the same for the check of all entries
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from recovery.autorecovery import progress
from recovery.shell.listing.marked_ledgers import marked_rows
from recovery.shell.output import Align, Column, free_text, number_column
from storage.cluster.metadata import underreplication
from storage.cluster.metadata.cookies import list_cookies
from storage.cluster.metadata.election import election_path, read_auditor
from storage.cluster.metadata.registration import read_bookies
from storage.cluster.metadata.underreplication import CheckKind
from storage.cluster.metadata.znodes import Gone

if TYPE_CHECKING:
    from recovery.autorecovery.progress import WorkerProgress
    from recovery.shell.output import Row
    from storage.cluster.metadata.znodes import Znodes

FIGURES = [Column("figure"), Column("value", Align.RIGHT), Column("meaning", text=free_text)]
MEANINGS = {
    "enabled": "whether ledgers are marked and repaired",
    "auditor": "the process that is elected",
    "candidates": "processes that run, the auditor among them",
    "delay_s": "seconds that one lost bookie may take to come back",
    "writable": "bookies that take adds",
    "read_only": "bookies that serve reads only",
    "lost": "bookies with a cookie that are not registered",
    "marked": "ledgers that may have too few copies",
    "marked_minute": "of these, marked in the last minute",
    "marked_hour": "marked in the hour before",
    "marked_day": "marked in the day before",
    "marked_older": "marked earlier, or at an unknown time",
    "locked": "marked ledgers that are being repaired",
    "oldest_s": "seconds since the oldest mark",
    "stuck": "marked ledgers whose last repair has failed",
    "entries_per_s": "entries that the workers copy now",
    "bytes_per_s": "bytes of these",
    "last_check": "when the last complete check of all ledgers began",
    "last_entry_check": "when the last complete check of all entries began",
}
WORKERS = [
    Column("worker", width=15),
    number_column("repairing", width=9),
    number_column("entries/s", width=9),
    number_column("MB/s", width=7),
    number_column("repaired", width=8),
    number_column("MB", width=9),
    number_column("stuck", width=5),
]
STUCK = [
    number_column("ledger", width=10),
    number_column("age_s", width=8),
    Column("why", text=free_text),
]
_STUCK_MAX = 10
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400
_SLOW_S = 60
"""A mark that is older and not locked counts as waiting."""


@dataclass(frozen=True, slots=True)
class AutoRecoveryLook:
    """The state of auto-recovery at one moment."""

    figures: Row
    workers: list[Row]
    stuck: list[Row]
    """The oldest marks of ledgers that could not be repaired, or that are not begun."""


async def look(znodes: Znodes, root: str, now_ms: int) -> AutoRecoveryLook:
    """Look at the metadata."""
    bookies = await read_bookies(znodes, root)
    lost = sorted(frozenset(await list_cookies(znodes, root)) - bookies.all)
    auditor = await read_auditor(znodes, root)
    votes = await znodes.children(election_path(root))
    delay = await underreplication.read_delay(znodes, root)
    is_enabled = await underreplication.is_enabled(znodes, root)
    workers = await progress.read_all(znodes, root)
    ages = dict.fromkeys(("marked_minute", "marked_hour", "marked_day", "marked_older"), 0)
    marked, oldest = 0, None
    locked: dict[str, int] = {}
    waiting: list[Row] = []
    obstacle = None if is_enabled else "repair is disabled: `ledgerstore autorecovery enable`"
    if is_enabled and not workers:
        obstacle = "no worker of ours runs: `ledgerstore autorecovery run`"
    async for row in marked_rows(znodes, root, now_ms):
        marked += 1
        age = row["age_s"] if isinstance(row["age_s"], int) else None
        ages[_class_of(age)] += 1
        oldest = age if oldest is None else max(oldest, age or 0)
        holder = row["locked_by"]
        if holder is not None:
            locked[str(holder)] = locked.get(str(holder), 0) + 1
        elif row["why"] or row["flaw"] or (age or 0) > _SLOW_S or obstacle:
            waiting.append(row | {"why": _why(row, obstacle)})
    waiting.sort(key=lambda row: -int(row["age_s"] or 0))
    figures: Row = {
        "enabled": is_enabled,
        "auditor": None if isinstance(auditor, Gone) else auditor,
        "candidates": 0 if isinstance(votes, Gone) else len(votes.names),
        "delay_s": 0 if isinstance(delay, Gone) else delay,
        "writable": len(bookies.writable),
        "read_only": len(bookies.read_only),
        "lost": ",".join(lost) or None,
        "marked": marked,
        **ages,
        "locked": sum(locked.values()),
        "oldest_s": oldest,
        "stuck": len({one.ledger_id for worker in workers for one in worker.stuck}),
        "workers": len(workers),
        "entries_per_s": round(sum(one.entries_per_s for one in workers)),
        "bytes_per_s": round(sum(one.bytes_per_s for one in workers)),
        "last_check": _time(await underreplication.read_check_time(znodes, root, CheckKind.ALL_LEDGERS)),
        "last_entry_check": _time(await underreplication.read_check_time(znodes, root, CheckKind.REPLICAS)),
    }
    return AutoRecoveryLook(figures, _worker_rows(workers, locked), waiting[:_STUCK_MAX])


def _class_of(age_s: int | None) -> str:
    if age_s is None or age_s > _DAY_S:
        return "marked_older"
    if age_s <= _MINUTE_S:
        return "marked_minute"
    return "marked_hour" if age_s <= _HOUR_S else "marked_day"


def _why(row: Row, obstacle: str | None) -> str:
    if row["flaw"] is not None:
        return f"its mark or lock cannot be read: {row['flaw']}"
    return str(obstacle or row["why"] or "it waits for a worker")


def _worker_rows(workers: list[WorkerProgress], locked: dict[str, int]) -> list[Row]:
    """Return a row for each process that publishes what it does, or holds locks."""
    rows: list[Row] = [
        {
            "worker": one.name,
            "repairing": locked.get(one.name, 0),
            "entries/s": round(one.entries_per_s),
            "MB/s": f"{one.bytes_per_s / 1e6:.1f}",
            "repaired": one.repaired,
            "MB": f"{one.size / 1e6:,.1f}",
            "stuck": one.stuck_count,
        }
        for one in workers
    ]
    named = {one.name for one in workers}
    unknown: Row = dict.fromkeys(column.name for column in WORKERS)
    rows += [
        unknown | {"worker": holder, "repairing": count}
        for holder, count in sorted(locked.items())
        if holder not in named
    ]
    return rows


def _time(time_ms: int | None) -> str | None:
    if time_ms is None:
        return None
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")
