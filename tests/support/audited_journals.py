"""Read journals as the audit does, and by a slow walk over single records, to compare the two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from crc32c import crc32c
from memory_files import MemoryFile

from recovery.audit.digests.policy import DigestPolicy
from recovery.audit.engines.task import ReadThrottle
from recovery.audit.model.fingerprint import fingerprints
from recovery.audit.scan.journal import ScanJournal, read_journal
from storage.entry.format import HEAD
from storage.entry.model import DigestType
from storage.journal import format as journal_format
from storage.journal.reader import JournalReader, StoredPadding, StoredRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from recovery.audit.model.runs import Runs
    from recovery.audit.model.scan_results import JournalPart

JOURNAL_ID = 5
OURS = DigestPolicy(presumed=DigestType.CRC32C)


def part_of(
    data: bytes,
    start: int | None = 0,
    policy: DigestPolicy = OURS,
    journal_id: int = JOURNAL_ID,
    **more: object,
) -> JournalPart:
    """Return the audit's result for a journal of these bytes."""
    task = ScanJournal("", journal_id, start, {}, policy, **more)  # type: ignore[arg-type]
    return read_journal(MemoryFile(data, f"{journal_id:x}.txn"), task, ReadThrottle())


@dataclass(frozen=True)
class AuditedItem:
    """One item of a journal: a record, or a padding record with its end."""

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


def items(data: bytes, start: int = 0, journal_id: int = JOURNAL_ID) -> list[AuditedItem]:
    """Yield the items one by one, from an offset at which an item begins."""
    found = []
    for item in JournalReader(MemoryFile(data), journal_id).items(start):
        match item:
            case StoredRecord(offset, end, journal_format.EntryRecord(ledger_id, entry_id, body)):
                found.append(AuditedItem(offset, end, ledger_id, entry_id, body))
            case StoredRecord(offset, end, record):
                assert not isinstance(record, journal_format.EntryRecord)
                is_unknown = isinstance(record, journal_format.UnknownRecord)
                found.append(
                    AuditedItem(offset, end, getattr(record, "ledger_id", None), is_unknown=is_unknown)
                )
            case StoredPadding(offset, end):
                found.append(AuditedItem(offset, end))
    return found


def totals(runs: Runs) -> dict[int, tuple[int, int, int, int]]:
    """Return for each ledger: number of entries, their size, and both fingerprints."""
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
    """Yield ledger id and entry id of each entry."""
    return sorted(
        (int(run["ledger"]), entry_id)
        for run in runs
        for entry_id in range(int(run["first"]), int(run["last"]) + 1, int(run["step"]))
    )


def slow_totals(
    entries: Iterable[AuditedItem], types: Mapping[int, DigestType] | None = None
) -> dict[int, tuple[int, int, int, int]]:
    """Compute the same as `totals`, entry by entry."""
    found: dict[int, tuple[int, int, int, int]] = {}
    for item in entries:
        if item.ledger_id is None or item.entry_id is None:
            continue
        kind = (types or {}).get(item.ledger_id, DigestType.CRC32C)
        place = int(fingerprints([item.ledger_id], [item.entry_id], [item.start])[0])
        word = np.array([digest_of(item.data, kind)], dtype=np.uint64)
        digest = int(fingerprints([item.ledger_id], [item.entry_id], word)[0])
        count, size, places, digests = found.get(item.ledger_id, (0, 0, 0, 0))
        found[item.ledger_id] = count + 1, size + item.end - item.start, places ^ place, digests ^ digest
    return found


def digest_of(data: bytes, kind: DigestType) -> int:
    """Compute the entry digest that `recovery.audit.model.runs` uses."""
    width = min(kind.width, 8)
    if not width or len(data) < HEAD.size + kind.width:
        return crc32c(data)
    return int.from_bytes(data[HEAD.size : HEAD.size + width])
