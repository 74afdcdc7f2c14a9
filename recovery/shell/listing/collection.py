"""The rows of `ledgerstore gc`: one for each entry log, with the reason why it is still there.

log                         the name of the file
bytes                       its size
live                      bytes of records of entries that exist; null if not known
share                       live bytes of all recorded bytes, from 0 to 1; null if not known
ledgers                     how many ledgers have records in it; null if not known
kept                        active, last, live, waits, checkpoint, damaged, unaccounted, held, unlinked,
                            paused, no room, unknown; next if nothing keeps it
comes_back                  bytes that the disk has more when a collection has taken the log
finding, offset             what is wrong with the log, and where; null if nothing is
reason                      the same as `kept`, in words
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.shell.output import Align, Column, RowTone, free_text, number_column
from storage.disk import filenames
from storage.gc.policy import ReasonKind, percent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recovery.shell.output import Cell, Row
    from storage.gc.policy import LogVerdict

_TONES = {
    ReasonKind.DAMAGED: RowTone.BAD,
    ReasonKind.UNACCOUNTED: RowTone.BAD,
    ReasonKind.NEXT: RowTone.GOOD,
    ReasonKind.HELD: RowTone.INFORMATION,
    ReasonKind.NO_ROOM: RowTone.INFORMATION,
}


def log_row(verdict: LogVerdict, ledgers: int | None) -> Row:
    """Return the row of one log."""
    log = verdict.log
    return {
        "log": filenames.entry_log(log.log_id),
        "bytes": log.bytes,
        "live": log.live,
        "share": None if log.share is None else round(log.share, 4),
        "ledgers": ledgers,
        "kept": verdict.kind.value,
        "comes_back": verdict.comes_back,
        "finding": None if log.problem is None else log.problem.finding,
        "offset": None if log.problem is None else log.problem.offset,
        "reason": verdict.reason,
    }


def coloured(row: Row, verdict: LogVerdict) -> Row:
    """Return the row with its tone, for a table."""
    return row | {"tone": _TONES.get(verdict.kind, RowTone.PLAIN).value}


def grouped(row: Mapping[str, Cell], name: str) -> str:
    """Return a number with its digits in groups."""
    return "-" if row[name] is None else f"{row[name]:,}"


def _share(row: Mapping[str, Cell], name: str) -> str:
    share = row[name]
    return percent(share) if isinstance(share, float) else "-"


LOG_COLUMNS = [
    Column("log"),
    Column("bytes", Align.RIGHT, rank=2, text=grouped),
    Column("live", Align.RIGHT, rank=1, text=grouped),
    Column("share", Align.RIGHT, text=_share),
    number_column("ledgers", rank=3),
    Column("comes_back", Align.RIGHT, text=grouped),
    Column("reason", text=free_text),
]
