"""The marked ledgers of a cluster as rows, each with the reason why it is not repaired yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.autorecovery import progress
from recovery.shell.output import Align, Column, free_text, number_column
from storage.cluster.errors import InvalidMetadata
from storage.cluster.metadata import underreplication
from storage.cluster.metadata.znodes import Gone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from recovery.autorecovery.progress import WorkerProgress
    from recovery.shell.output import Cell, Row
    from storage.cluster.metadata.znodes import Znodes

_AT_ONCE = 500
"""Marks that are read together."""


def _seconds(row: Mapping[str, Cell], name: str) -> str:
    return "-" if row[name] is None else f"{row[name]:,} s"


COLUMNS = [
    number_column("ledger", width=10),
    Column("age_s", Align.RIGHT, width=9, text=_seconds),
    Column("suspects", width=16),
    Column("locked_by"),
    Column("flaw", rank=1),
    Column("why", text=free_text),
]


async def marked_rows(znodes: Znodes, root: str, now_ms: int) -> AsyncIterator[Row]:
    """Yield a row for each marked ledger, ascending."""
    reasons = reasons_of(await progress.read_all(znodes, root))
    locks = await znodes.children(f"{underreplication.base_path(root)}/locks")
    locked = frozenset(() if isinstance(locks, Gone) else locks.names)
    ids: list[int] = []
    async for ledger_id in underreplication.list_marked(znodes, root):
        ids.append(ledger_id)
        if len(ids) == _AT_ONCE:
            async for row in _rows(znodes, root, ids, locked, reasons, now_ms):
                yield row
            ids = []
    async for row in _rows(znodes, root, ids, locked, reasons, now_ms):
        yield row


async def _rows(
    znodes: Znodes,
    root: str,
    ids: list[int],
    locked: frozenset[str],
    reasons: Mapping[int, str],
    now_ms: int,
) -> AsyncIterator[Row]:
    nodes = await znodes.get_all([underreplication.mark_path(root, one) for one in ids])
    for ledger_id, node in zip(ids, nodes, strict=True):
        if isinstance(node, Gone):
            continue
        row: Row = {"ledger": ledger_id, "age_s": None, "suspects": None, "locked_by": None, "flaw": None}
        row["why"] = reasons.get(ledger_id)
        try:
            path = underreplication.mark_path(root, ledger_id)
            mark = underreplication.decode_mark(path, ledger_id, node)
            if mark.created_ms is not None:
                row["age_s"] = max(0, now_ms - mark.created_ms) // 1000
            row["suspects"] = ",".join(mark.replicas) or None
            if underreplication.lock_path(root, ledger_id).rpartition("/")[2] in locked:
                holder = await underreplication.read_lock_holder(znodes, root, ledger_id)
                row["locked_by"] = None if isinstance(holder, Gone) else holder
        except InvalidMetadata as error:
            row["flaw"] = error.reason
        yield row


def reasons_of(workers: Iterable[WorkerProgress]) -> dict[int, str]:
    """Return for each ledger that a worker could not repair the reason that it gives."""
    found: dict[int, str] = {}
    for worker in workers:
        for one in worker.stuck:
            when = "" if one.pause_s is None else f"; again after {one.pause_s:.0f} s"
            found[one.ledger_id] = f"{one.reason}{when} ({worker.name})"
    return found
