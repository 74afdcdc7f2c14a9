"""Read entries of some ledgers one by one, from the mark on, out of the sound part of a journal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from crc32c import crc32c

from recovery.audit.model.entry_columns import ENTRY
from recovery.audit.scan.read_around import ReadAroundFile
from storage.disk.posix import open_file
from storage.entry.digest import DigestCheck
from storage.entry.format import HEAD
from storage.entry.model import DigestType
from storage.journal import format as journal_format
from storage.journal.reader import JournalReader, StoredPadding, StoredRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from recovery.audit.digests.policy import DigestPolicy
    from recovery.audit.engines.task import ReadThrottle
    from recovery.audit.model.entry_columns import EntryArray
    from storage.disk.files import ReadFile

_MAC_PREFIX = 8
"""The number of bytes of a MAC that stand for it."""


@dataclass(frozen=True, slots=True)
class ReadJournalEntries:
    """The task to read the entries of some ledgers between two offsets at which records begin."""

    path: str
    journal_id: int
    start: int
    end: int
    ledgers: frozenset[int]
    policy: DigestPolicy
    """It declares the type of each of the ledgers."""
    dead_before: Mapping[int, int]
    """For deleted ledgers the offset before which their entries do not count."""

    @property
    def name(self) -> str:
        return f"entries of {self.path}"

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)

    def run(self, throttle: ReadThrottle) -> EntryArray:
        with ReadAroundFile(open_file(self.path)) as file:
            rows = list(self._rows(file, throttle))
        return np.array(rows, dtype=ENTRY)

    def _rows(self, file: ReadFile, throttle: ReadThrottle) -> Iterator[tuple[int | bool, ...]]:
        verifier = self.policy.verifier()
        for item in self._items(file, throttle):
            record = item.record
            if not isinstance(record, journal_format.EntryRecord) or record.ledger_id not in self.ledgers:
                continue
            if item.offset < self.dead_before.get(record.ledger_id, 0) or len(record.data) < HEAD.size:
                continue
            ledger_id, entry_id, confirmed, length = HEAD.unpack_from(record.data)
            good = verifier.check(record.data) is not DigestCheck.MISMATCH
            digest = _digest_word(bytes(record.data), self.policy.type_of(ledger_id))
            place = self.journal_id, item.offset, item.end - item.offset
            yield (*place, ledger_id, entry_id, confirmed, length, digest, good)

    def _items(self, file: ReadFile, throttle: ReadThrottle) -> Iterator[StoredRecord]:
        for item in JournalReader(file, self.journal_id).items(self.start):
            if not isinstance(item, StoredRecord | StoredPadding) or item.offset >= self.end:
                return
            throttle.read(item.end - item.offset)
            if isinstance(item, StoredRecord):
                yield item


def _digest_word(data: bytes, kind: DigestType | None) -> int:
    """Return the digest as runs count it."""
    after = data[HEAD.size :]
    match kind:
        case DigestType.CRC32C | DigestType.CRC32:
            return int.from_bytes(after[: kind.width], "big")
        case DigestType.MAC:
            return int.from_bytes(after[:_MAC_PREFIX], "big")
    return int(crc32c(data))
