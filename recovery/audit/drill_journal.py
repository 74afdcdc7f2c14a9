"""Entries one by one, of some ledgers and from the mark on: out of a journal whose sound part is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from crc32c import crc32c

from recovery.verify.entries import ENTRY
from storage.codec import journal as codec
from storage.codec.digest import DigestCheck
from storage.codec.entry import HEAD
from storage.entry import DigestType
from storage.journal_reader import JournalReader, StoredPadding, StoredRecord
from storage.posix_files import open_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from recovery.audit.task import Pace
    from recovery.audit.ways import Ways
    from recovery.verify.entries import Entries
    from storage.files import ReadFile

_MAC_TOLD = 8
"""So many bytes of a MAC stand for it."""


@dataclass(frozen=True, slots=True)
class DrillJournal:
    """The entries of some ledgers in a journal, between two places at which records begin."""

    path: str
    journal_id: int
    start: int
    end: int
    ledgers: frozenset[int]
    ways: Ways
    """In which the type of each of the ledgers is declared."""
    dead_before: Mapping[int, int]
    """Of ledgers that were deleted: the offset before which their entries do not count."""

    @property
    def name(self) -> str:
        return f"entries of {self.path}"

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)

    def run(self, pace: Pace) -> Entries:
        with open_file(self.path) as file:
            rows = list(self._rows(file, pace))
        return np.array(rows, dtype=ENTRY)

    def _rows(self, file: ReadFile, pace: Pace) -> Iterator[tuple[int | bool, ...]]:
        verifier = self.ways.verifier()
        for item in self._items(file, pace):
            record = item.record
            if not isinstance(record, codec.EntryRecord) or record.ledger_id not in self.ledgers:
                continue
            if item.offset < self.dead_before.get(record.ledger_id, 0) or len(record.data) < HEAD.size:
                continue
            ledger_id, entry_id, confirmed, length = HEAD.unpack_from(record.data)
            good = verifier.check(record.data) is not DigestCheck.MISMATCH
            digest = _told(bytes(record.data), self.ways.type_of(ledger_id))
            place = self.journal_id, item.offset, item.end - item.offset
            yield (*place, ledger_id, entry_id, confirmed, length, digest, good)

    def _items(self, file: ReadFile, pace: Pace) -> Iterator[StoredRecord]:
        for item in JournalReader(file, self.journal_id).items(self.start):
            if not isinstance(item, StoredRecord | StoredPadding) or item.offset >= self.end:
                return
            pace.read(item.end - item.offset)
            if isinstance(item, StoredRecord):
                yield item


def _told(data: bytes, kind: DigestType | None) -> int:
    """The digest as runs count it."""
    behind = data[HEAD.size :]
    match kind:
        case DigestType.CRC32C | DigestType.CRC32:
            return int.from_bytes(behind[: kind.width], "big")
        case DigestType.MAC:
            return int.from_bytes(behind[:_MAC_TOLD], "big")
    return int(crc32c(data))
