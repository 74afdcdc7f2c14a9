"""What is taken out of a journal on the way through it: runs of its entries, and what is said of ledgers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from crc32c import crc32c

from recovery.audit.chunk_columns import Columns
from recovery.audit.chunk_runs import RunMaker
from recovery.verify.parts import Fact
from storage.codec import journal as codec
from storage.codec.record import FRONT_SIZE
from storage.entry import NO_ENTRY, DigestType
from storage.position import LENGTH_WORD_SIZE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from recovery.audit.chunk_types import Block, Types
    from recovery.audit.journal_chunks import Entries
    from recovery.verify.runs import Fingerprints, Numbers, Runs
    from storage.codec.survey import EntryVerifier


_LOOKED_AT = 16
"""So many entries of a chunk tell what a ledger is protected by."""


class Place:
    """A part of the journal whose entries count together: what lies before the mark, or behind it."""

    def __init__(self, steps: Mapping[int, int]) -> None:
        self._maker = RunMaker(0, steps)

    def add(self, columns: Columns) -> None:
        # Runs of a log count the place of an entry's first byte, those of a journal that of its length word.
        columns.offsets[: columns.count] -= LENGTH_WORD_SIZE
        self._maker.add(columns)

    def runs(self, journal_id: int) -> Runs:
        runs = self._maker.runs()
        runs["file"] = journal_id
        return runs


class Taken:
    """Of one journal. How a ledger is protected its entries may have to tell: `verifier` counts that."""

    def __init__(
        self, steps: Mapping[int, int], types: Types, verifier: EntryVerifier, mark: int, end: int
    ) -> None:
        """What stands before the mark, and from there on before the end, counts; all else is only counted."""
        self.before = Place(steps)
        self.behind = Place(steps)
        self._cuts = ((self.before, 0, mark), (self.behind, mark, end))
        self.types = types
        self.verifier = verifier
        self.facts: list[Fact] = []
        self.records = 0
        self.unverified: Counter[int] = Counter()
        self.ledgers: set[int] = set()

    def entries(self, entries: Entries, digests: Fingerprints, chosen: Numbers | None = None) -> None:
        """The entries, or those chosen of them."""
        chosen = np.arange(len(entries)) if chosen is None else chosen
        offsets = entries.offsets[chosen]
        self.records += len(chosen)
        self.ledgers.update(np.unique(entries.ledgers[chosen]).tolist())
        for place, start, end in self._cuts:
            first, behind = np.searchsorted(offsets, (start, end)).tolist()
            if first < behind:
                place.add(entries.columns(digests, chosen[first:behind]))

    def digests(self, entries: Entries) -> Fingerprints:
        """What each entry carries, of entries that need not be verified."""
        if not len(entries):
            return np.empty(0, dtype=np.uint64)
        ids, inverse = np.unique(entries.ledgers, return_inverse=True)
        for number, ledger_id in enumerate(ids.tolist()):
            if self.types.of(ledger_id) is None:
                self._learn(entries.block, ledger_id, np.flatnonzero(inverse == number)[:_LOOKED_AT].tolist())
        kinds = [self.types.of(ledger_id) or self._told(ledger_id) for ledger_id in ids.tolist()]
        if all(kind is DigestType.CRC32C for kind in kinds) and entries.sizes.min() >= FRONT_SIZE:
            return entries.words()
        return entries.block.digests(kinds, inverse)

    def _learn(self, block: Block, ledger_id: int, indices: list[int]) -> None:
        for index in indices:
            self.verifier.survey.observe(block.body(index))
            self.types.has_looked_at(ledger_id)

    def _told(self, ledger_id: int) -> DigestType | None:
        known = self.verifier.digester(ledger_id)
        return None if known is None else known.digest_type

    def short_entry(self, offset: int, record: codec.EntryRecord) -> None:
        """An entry without a whole head, which only somebody who keeps bytes as they come has written."""
        self.records += 1
        place = self._place(offset)
        if place is not None:
            columns = Columns(1)
            head = record.ledger_id, record.entry_id, NO_ENTRY, 0
            columns.append(offset, LENGTH_WORD_SIZE + len(record.data), head, crc32c(record.data))
            place.add(columns)

    def fact(self, offset: int, record: codec.Record) -> None:
        """What a record says of its ledger."""
        self.records += 1
        if self._place(offset) is None:
            return
        match record:
            case codec.LedgerKey(ledger_id=ledger_id, master_key=key):
                self.facts.append(Fact(offset, ledger_id, master_key=key))
                self.verifier.survey.saw_key(ledger_id)
            case codec.Fence(ledger_id=ledger_id):
                self.facts.append(Fact(offset, ledger_id, fences=True))
            case codec.ExplicitLac(ledger_id=ledger_id, packet=packet):
                self.facts.append(Fact(offset, ledger_id, explicit_lac=packet))

    def _place(self, offset: int) -> Place | None:
        return next((place for place, start, end in self._cuts if start <= offset < end), None)

    def kinds(self) -> dict[int, DigestType]:
        """How the entries of each ledger are protected, where that is not CRC-32C."""
        told = {ledger_id: self._told(ledger_id) for ledger_id in sorted(self.ledgers)}
        return {it: kind for it, kind in told.items() if kind and kind is not DigestType.CRC32C}
