"""The marked ledgers of a cluster as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.shell.output import Align, Column, number_column
from storage.cluster.errors import InvalidMetadata
from storage.cluster.metadata import underreplication
from storage.cluster.metadata.znodes import Gone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from recovery.shell.output import Cell, Row
    from storage.cluster.metadata.znodes import Znodes


def _seconds(row: Mapping[str, Cell], name: str) -> str:
    return "-" if row[name] is None else f"{row[name]:,} s"


COLUMNS = [
    number_column("ledger", width=10),
    Column("age_s", Align.RIGHT, width=9, text=_seconds),
    Column("suspects", width=16),
    Column("locked_by"),
    Column("flaw", rank=1),
]


async def marked_rows(znodes: Znodes, root: str, now_ms: int) -> AsyncIterator[Row]:
    """Yield a row for each marked ledger, ascending."""
    async for ledger_id in underreplication.list_marked(znodes, root):
        row: Row = {"ledger": ledger_id, "age_s": None, "suspects": None, "locked_by": None, "flaw": None}
        try:
            mark = await underreplication.read_mark(znodes, root, ledger_id)
            if isinstance(mark, Gone):
                continue
            if mark.created_ms is not None:
                row["age_s"] = max(0, now_ms - mark.created_ms) // 1000
            row["suspects"] = ",".join(mark.replicas) or None
            holder = await underreplication.read_lock_holder(znodes, root, ledger_id)
            row["locked_by"] = None if isinstance(holder, Gone) else holder
        except InvalidMetadata as error:
            row["flaw"] = error.reason
        yield row
