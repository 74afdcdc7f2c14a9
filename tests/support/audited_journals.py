"""Journals as the audit reads them, and as a slow walk does that looks at each record by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from crc32c import crc32c
from memory import MemoryFile

from recovery.audit.journal_scan import ScanJournal, read_journal
from recovery.audit.task import Pace
from recovery.audit.ways import Ways
from recovery.verify.runs import mix
from storage.codec import journal as codec
from storage.codec.entry import HEAD
from storage.entry import DigestType
from storage.journal_reader import JournalReader, StoredPadding, StoredRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from recovery.verify.parts import JournalPart
    from recovery.verify.runs import Runs

JOURNAL_ID = 5
OURS = Ways(presumed=DigestType.CRC32C)


def part_of(
    data: bytes, start: int | None = 0, ways: Ways = OURS, journal_id: int = JOURNAL_ID, **more: object
) -> JournalPart:
    """What the audit finds in a journal of these bytes."""
    task = ScanJournal("", journal_id, start, {}, ways, **more)  # type: ignore[arg-type]
    return read_journal(MemoryFile(data, f"{journal_id:x}.txn"), task, Pace())


@dataclass(frozen=True)
class Item:
    """Something in a journal: a record, or a padding record with what it ends in."""

    start: int
    end: int
    ledger_id: int | None = None
    entry_id: int | None = None
    data: bytes = b""
    is_unknown: bool = False

    @property
    def is_entry(self) -> bool:
        return self.entry_id is not None

    @property
    def is_padding(self) -> bool:
        return self.ledger_id is None


def items(data: bytes, start: int = 0, journal_id: int = JOURNAL_ID) -> list[Item]:
    """One by one, from a place at which one begins."""
    found = []
    for item in JournalReader(MemoryFile(data), journal_id).items(start):
        match item:
            case StoredRecord(offset, end, codec.EntryRecord(ledger_id, entry_id, body)):
                found.append(Item(offset, end, ledger_id, entry_id, body))
            case StoredRecord(offset, end, record):
                assert not isinstance(record, codec.EntryRecord)
                is_unknown = isinstance(record, codec.UnknownRecord)
                found.append(Item(offset, end, getattr(record, "ledger_id", None), is_unknown=is_unknown))
            case StoredPadding(offset, end):
                found.append(Item(offset, end))
    return found


def told(runs: Runs) -> dict[int, tuple[int, int, int, int]]:
    """Of each ledger how many entries there are, how large they are, and both fingerprints."""
    found: dict[int, tuple[int, int, int, int]] = {}
    for run in runs:
        count, size, places, digests = found.get(int(run["ledger"]), (0, 0, 0, 0))
        found[int(run["ledger"])] = (
            count + int(run["count"]),
            size + int(run["size"]),
            places ^ int(run["places"]),
            digests ^ int(run["digests"]),
        )
    return found


def ids(runs: Runs) -> list[tuple[int, int]]:
    """Ledger and entry of each entry, one by one."""
    return sorted(
        (int(run["ledger"]), entry_id)
        for run in runs
        for entry_id in range(int(run["first"]), int(run["last"]) + 1, int(run["step"]))
    )


def slowly_told(
    entries: Iterable[Item], types: Mapping[int, DigestType] | None = None
) -> dict[int, tuple[int, int, int, int]]:
    """The same, added up entry by entry."""
    found: dict[int, tuple[int, int, int, int]] = {}
    for item in entries:
        if item.ledger_id is None or item.entry_id is None:
            continue
        kind = (types or {}).get(item.ledger_id, DigestType.CRC32C)
        place = int(mix([item.ledger_id], [item.entry_id], [item.start])[0])
        word = np.array([digest_of(item.data, kind)], dtype=np.uint64)
        digest = int(mix([item.ledger_id], [item.entry_id], word)[0])
        count, size, places, digests = found.get(item.ledger_id, (0, 0, 0, 0))
        found[item.ledger_id] = count + 1, size + item.end - item.start, places ^ place, digests ^ digest
    return found


def digest_of(data: bytes, kind: DigestType) -> int:
    """As `recovery.verify.runs` has it."""
    width = min(kind.width, 8)
    if not width or len(data) < HEAD.size + kind.width:
        return crc32c(data)
    return int.from_bytes(data[HEAD.size : HEAD.size + width])
