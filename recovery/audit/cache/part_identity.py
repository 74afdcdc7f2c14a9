"""Which bytes a part describes, and the label that is written with it when it is kept."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.audit.cache import part_json
from recovery.audit.cache.part_json import NotAPart
from storage.entry.read_result import Damaged, EndOfData
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
        log.path: LogOwner(str(Path(inventory.store).resolve()), log.limit)
        for inventory in inventories
        for log in inventory.logs
    }


@dataclass(frozen=True, slots=True)
class Identity:
    """Identifies bytes of a file."""

    store: str
    log_id: int
    start: int
    end: int
    entry: int | None
    """Where the first record was said to begin."""
    size: int
    mtime_ns: int
    inode: int
    head: str
    """A digest of the log's header."""

    @property
    def name(self) -> str:
        """The prefix of the names of its parts. It is the same when the log has changed."""
        begins = "any" if self.entry is None else f"{self.entry:x}"
        return f"{_short(self.store.encode())}-{self.log_id:x}-{self.start:x}-{self.end:x}-{begins}-"

    def fits(self, part: LogPart) -> bool:
        """Return whether the part describes these bytes, by its own fields."""
        mine = (self.log_id, self.start, self.end, self.size)
        return mine == (part.log_id, part.start, part.end, part.file_size)


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
    return Identity(store, *where, found.st_size, found.st_mtime_ns, found.st_ino, _short(head))


def _short(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Label:
    """The label that is written with a part."""

    identity: Identity
    manner: str
    """How it was verified, see `recovery.audit.cache.settings_fingerprint`."""
    salt: str
    is_final: bool
    """Whether no process was going to write to its range any more."""
    read_at_ns: int


def encode_label(label: Label) -> str:
    return json.dumps(asdict(label))


def decode_label(text: str) -> Label:
    """Raises `NotAPart` for other text."""
    fields_read = part_json.load(text)
    inside = fields_read.pop("identity", None)
    try:
        label = Label(Identity(**inside), **fields_read)  # type: ignore[arg-type]
    except TypeError:
        raise NotAPart("another label") from None
    if not _is_typed(label) or not _is_typed(label.identity):
        raise NotAPart("another label")
    return label


def _is_typed(fields_read: Label | Identity) -> bool:
    values = ((getattr(fields_read, one.name), str(one.type).split(" | ")) for one in fields(fields_read))
    return all(("None" if value is None else type(value).__name__) in types for value, types in values)


def is_final(part: LogPart, final_end: int | None) -> bool:
    """Return whether no process writes to that range any more: the log is sealed, or writes go after it."""
    is_sealed = isinstance(part.header, LogHeader) and part.header.map_offset > 0
    return is_sealed or (final_end is not None and max(part.end, part.exit) <= final_end)


def is_sound(part: LogPart) -> bool:
    """Return whether nothing at all is wrong in it."""
    return (
        isinstance(part.header, LogHeader)
        and not part.flaws
        and not part.runs["bad"].any()
        and not any(isinstance(one.pairs, Damaged) for one in part.maps)
        and (part.stop is None or isinstance(part.stop, EndOfData))
    )
