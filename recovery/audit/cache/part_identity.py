"""Which bytes a task reads, and whether any process still writes to them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from storage.entrylog.format import HEADER_SIZE, LogHeader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recovery.audit.model.scan_results import LogPart
    from recovery.audit.scan.entry_log import ScanLog
    from recovery.audit.snapshot.inventory import StoreInventory


@dataclass(frozen=True, slots=True)
class Identity:
    """Identifies bytes of a file."""

    store: str
    log_id: int
    start: int
    end: int
    begins_at: int | None
    """Where the first record was said to begin."""
    file_size: int
    mtime_ns: int
    inode: int
    head: str
    """A digest of the log's header."""

    @property
    def name(self) -> str:
        """The prefix of the names of its parts. It is the same when the log has changed."""
        begins = "any" if self.begins_at is None else f"{self.begins_at:x}"
        return f"{short_digest(self.store.encode())}-{self.log_id:x}-{self.start:x}-{self.end:x}-{begins}-"

    def fits(self, part: LogPart) -> bool:
        """Return whether the part describes these bytes, by its own fields."""
        mine = (self.log_id, self.start, self.end, self.file_size)
        return mine == (part.log_id, part.start, part.end, part.file_size)


def encodable(text: str) -> str:
    """Return a text that a table can have: bytes of a file name that are not UTF-8 are spelt out."""
    return text.encode(errors="surrogateescape").decode(errors="backslashreplace")


def short_digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


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
