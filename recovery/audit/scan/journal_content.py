"""The content that a walk collects from a journal: runs of entries, and records about ledgers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from crc32c import crc32c

from recovery.audit.model.scan_results import JournalFact
from recovery.audit.scan.chunk_columns import ChunkColumns
from recovery.audit.scan.chunk_runs import RunMaker
from storage.entry.model import NO_ENTRY, DigestType
from storage.entry.position import LENGTH_WORD_SIZE
from storage.entry.record_format import FRONT_SIZE
from storage.journal import format as journal_format

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recovery.audit.digests.mixed_types import EntryBlock, InferredTypes
    from recovery.audit.model.runs import Fingerprints, Numbers, Runs
    from recovery.audit.scan.journal_chunks import ChunkEntries
    from storage.entry.digest_inference import EntryVerifier


_LOOKED_AT = 16
"""The number of entries of a chunk from which the digest type of a ledger is inferred."""


class EntrySection:
    """A part of the journal whose entries count together: before the mark, or after it."""

    def __init__(self, steps: Mapping[int, int]) -> None:
        self._maker = RunMaker(0, steps)

    def add(self, columns: ChunkColumns) -> None:
        # Runs of a log count the place of an entry's first byte, runs of a journal that of its length word.
        columns.offsets[: columns.count] -= LENGTH_WORD_SIZE
        self._maker.add(columns)

    def runs(self, journal_id: int) -> Runs:
        runs = self._maker.runs()
        runs["file"] = journal_id
        return runs


class JournalContent:
    """The content of one journal. `verifier` counts the evidence for digest types that are not declared."""

    def __init__(
        self, steps: Mapping[int, int], types: InferredTypes, verifier: EntryVerifier, mark: int, end: int
    ) -> None:
        """Entries before `mark`, and from `mark` to `end`, become runs; all others are only counted."""
        self.before_mark = EntrySection(steps)
        self.after_mark = EntrySection(steps)
        self._cuts = ((self.before_mark, 0, mark), (self.after_mark, mark, end))
        self.types = types
        self.verifier = verifier
        self.facts: list[JournalFact] = []
        self.records = 0
        self.unverified: Counter[int] = Counter()
        self.ledgers: set[int] = set()

    def entries(self, entries: ChunkEntries, digests: Fingerprints, chosen: Numbers | None = None) -> None:
        """Take all entries, or the chosen ones."""
        chosen = np.arange(len(entries)) if chosen is None else chosen
        offsets = entries.offsets[chosen]
        self.records += len(chosen)
        self.ledgers.update(np.unique(entries.ledgers[chosen]).tolist())
        for place, start, end in self._cuts:
            first, after = np.searchsorted(offsets, (start, end)).tolist()
            if first < after:
                place.add(entries.columns(digests, chosen[first:after]))

    def digests(self, entries: ChunkEntries) -> Fingerprints:
        """Return what each entry carries as its digest, for entries that need not be verified."""
        if not len(entries):
            return np.empty(0, dtype=np.uint64)
        ids, inverse = np.unique(entries.ledgers, return_inverse=True)
        for number, ledger_id in enumerate(ids.tolist()):
            if self.types.of(ledger_id) is None:
                self._learn(entries.block, ledger_id, np.flatnonzero(inverse == number)[:_LOOKED_AT].tolist())
        kinds = [self.types.of(ledger_id) or self._settled_type(ledger_id) for ledger_id in ids.tolist()]
        if all(kind is DigestType.CRC32C for kind in kinds) and entries.sizes.min() >= FRONT_SIZE:
            return entries.words()
        return entries.block.digests(kinds, inverse)

    def _learn(self, block: EntryBlock, ledger_id: int, indices: list[int]) -> None:
        for index in indices:
            self.verifier.survey.observe(block.body(index))
            self.types.saw_entry(ledger_id)

    def _settled_type(self, ledger_id: int) -> DigestType | None:
        known = self.verifier.digester(ledger_id)
        return None if known is None else known.digest_type

    def short_entry(self, offset: int, record: journal_format.EntryRecord) -> None:
        """Take an entry without a whole head. Only a program that stores bytes unchecked writes one."""
        self.records += 1
        place = self._place(offset)
        if place is not None:
            columns = ChunkColumns(1)
            head = record.ledger_id, record.entry_id, NO_ENTRY, 0
            columns.append(offset, LENGTH_WORD_SIZE + len(record.data), head, crc32c(record.data))
            place.add(columns)

    def fact(self, offset: int, record: journal_format.Record) -> None:
        """Take a record about a ledger."""
        self.records += 1
        if self._place(offset) is None:
            return
        match record:
            case journal_format.LedgerKey(ledger_id=ledger_id, master_key=key):
                self.facts.append(JournalFact(offset, ledger_id, master_key=key))
                self.verifier.survey.note_key(ledger_id)
            case journal_format.Fence(ledger_id=ledger_id):
                self.facts.append(JournalFact(offset, ledger_id, fences=True))
            case journal_format.ExplicitLac(ledger_id=ledger_id, packet=packet):
                self.facts.append(JournalFact(offset, ledger_id, explicit_lac=packet))

    def _place(self, offset: int) -> EntrySection | None:
        return next((place for place, start, end in self._cuts if start <= offset < end), None)

    def kinds(self) -> dict[int, DigestType]:
        """Return the digest type of each ledger whose type is not CRC-32C."""
        types = {ledger_id: self._settled_type(ledger_id) for ledger_id in sorted(self.ledgers)}
        return {it: kind for it, kind in types.items() if kind and kind is not DigestType.CRC32C}
