"""Which bytes a task reads, and whether any process still writes to them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.audit.cache.part_table import Identity, encodable, short_digest
from storage.entrylog.format import HEADER_SIZE, LogHeader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recovery.audit.model.scan_results import LogPart
    from recovery.audit.scan.entry_log import ScanLog
    from recovery.audit.snapshot.inventory import StoreInventory


@dataclass(frozen=True, slots=True)
class LogOwner:
    """The store and the final end of a log, which its bytes do not contain."""

    store: str
    """The absolute path of its store."""
    final_end: int | None = None
    """Everything before this offset is final, even if the log is not sealed; `None` if unknown."""


def log_owners(inventories: Iterable[StoreInventory]) -> dict[str, LogOwner]:
    """Return this for each log of these stores, by the path at which it is read."""
    return {
        log.path: LogOwner(encodable(str(Path(inventory.store).resolve())), log.limit)
        for inventory in inventories
        for log in inventory.logs
    }


def identity(task: ScanLog, store: str) -> Identity | None:
    """Return the identity of the bytes that are there now, or `None` if it cannot be determined."""
    path = Path(task.path)
    try:
        with path.open("rb") as file:
            head = file.read(HEADER_SIZE)
        found = path.stat()
    except OSError:
        return None
    # Without the path and the inode's change time, because links of an audit alter both.
    where = (task.log_id, task.start, task.end, task.entry)
    return Identity(store, *where, found.st_size, found.st_mtime_ns, found.st_ino, short_digest(head))


def is_final(part: LogPart, final_end: int | None) -> bool:
    """Return whether no process writes to that range any more: the log is sealed, or writes go after it."""
    is_sealed = isinstance(part.header, LogHeader) and part.header.map_offset > 0
    return is_sealed or (final_end is not None and max(part.end, part.exit) <= final_end)
