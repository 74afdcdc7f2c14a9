"""Which bytes a part is of, and what is written down beside it when it is kept."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.audit import part_text
from recovery.audit.part_text import NotAPart
from storage.codec.entrylog import HEADER_SIZE, Header
from storage.outcome import Damaged, EndOfData

if TYPE_CHECKING:
    from collections.abc import Iterable

    from recovery.audit.ground import Ground
    from recovery.audit.log_scan import ScanLog
    from recovery.verify.parts import LogPart


@dataclass(frozen=True, slots=True)
class Whose:
    """What is known of a log besides its bytes."""

    store: str
    """Which store's it is: the store's own path, from the root."""
    final_end: int | None = None
    """What stands before it is there for good, sealed or not; `None`: nobody knows."""


def whose(grounds: Iterable[Ground]) -> dict[str, Whose]:
    """Of each log of these stores, by the path where it is read."""
    return {
        log.path: Whose(str(Path(ground.store).resolve()), log.limit)
        for ground in grounds
        for log in ground.logs
    }


@dataclass(frozen=True, slots=True)
class Identity:
    """Which bytes of which file."""

    store: str
    log_id: int
    start: int
    end: int
    entry: int | None
    """Where its first record was said to begin."""
    size: int
    mtime_ns: int
    inode: int
    head: str
    """A digest of the log's header."""

    @property
    def name(self) -> str:
        """What the names of its parts begin with; the same when the log has changed."""
        begins = "any" if self.entry is None else f"{self.entry:x}"
        return f"{_short(self.store.encode())}-{self.log_id:x}-{self.start:x}-{self.end:x}-{begins}-"

    def fits(self, part: LogPart) -> bool:
        """Whether the part is about these bytes, as far as it says itself."""
        mine = (self.log_id, self.start, self.end, self.size)
        return mine == (part.log_id, part.start, part.end, part.file_size)


def identity(task: ScanLog, store: str) -> Identity | None:
    """Of the bytes that are there now; `None`: they cannot be told."""
    path = Path(task.path)
    try:
        with path.open("rb") as file:
            head = file.read(HEADER_SIZE)
        found = path.stat()
    except OSError:
        return None
    # The path is not part of it, nor the time of the inode's last change: links of an audit alter both.
    where = (task.log_id, task.start, task.end, task.entry)
    return Identity(store, *where, found.st_size, found.st_mtime_ns, found.st_ino, _short(head))


def _short(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Label:
    """What is written down beside a part."""

    identity: Identity
    manner: str
    """How it was verified: see `recovery.audit.part_manner`."""
    salt: str
    is_final: bool
    """Whether nobody was going to write in its range any more."""
    read_at_ns: int


def encode_label(label: Label) -> str:
    return json.dumps(asdict(label))


def decode_label(text: str) -> Label:
    """Raises `NotAPart`."""
    told = part_text.load(text)
    inside = told.pop("identity", None)
    try:
        label = Label(Identity(**inside), **told)  # type: ignore[arg-type]
    except TypeError:
        raise NotAPart("another label") from None
    if not _is_typed(label) or not _is_typed(label.identity):
        raise NotAPart("another label")
    return label


def _is_typed(told: Label | Identity) -> bool:
    values = ((getattr(told, one.name), str(one.type).split(" | ")) for one in fields(told))
    return all(("None" if value is None else type(value).__name__) in types for value, types in values)


def is_final(part: LogPart, final_end: int | None) -> bool:
    """Whether nobody writes in that range any more: the log is sealed, or what is written goes behind it."""
    is_sealed = isinstance(part.header, Header) and part.header.map_offset > 0
    return is_sealed or (final_end is not None and max(part.end, part.exit) <= final_end)


def is_sound(part: LogPart) -> bool:
    """Whether nothing at all is wrong in it."""
    return (
        isinstance(part.header, Header)
        and not part.flaws
        and not part.runs["bad"].any()
        and not any(isinstance(one.pairs, Damaged) for one in part.maps)
        and (part.stop is None or isinstance(part.stop, EndOfData))
    )
