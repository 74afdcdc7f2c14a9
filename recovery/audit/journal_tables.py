"""A journal as tables: its entries, their runs, its flaws, and itself as one row.

As an opening would read it from its first record on: what stands behind damage is among the flaws only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from recovery.audit.choice import EVERYTHING
from recovery.audit.entry_tables import EntryTable, Found, flaw_row, is_settled, learned, run_columns
from recovery.audit.journal_scan import ScanJournal
from recovery.audit.log_walk import digest_word
from recovery.audit.tables import JOURNAL, with_payload
from recovery.audit.task import Pace
from recovery.verify.runs import merged
from storage.codec import journal as codec
from storage.codec.digest import DigestCheck
from storage.codec.entry import HEAD, check_digest
from storage.journal_reader import JournalReader, StoredRecord
from storage.posix_files import open_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from recovery.audit.choice import Choice
    from recovery.audit.ways import Ways
    from recovery.verify.parts import JournalPart
    from storage.files import ReadFile
    from storage.row import LedgerRow

_ROWS_AT_ONCE = 16 << 10


@dataclass(frozen=True, slots=True)
class JournalTables:
    """One journal, read for one query."""

    path: str
    journal_id: int
    ways: Ways
    known: Mapping[int, LedgerRow] = field(default_factory=dict, repr=False)
    ledgers: Choice = EVERYTHING
    """Rows of other ledgers are left out, where rows are of ledgers."""

    def entries(self, *, payload: bool = False) -> Iterator[pa.RecordBatch]:
        """In the order of the file."""
        table = with_payload(JOURNAL["entries"]) if payload else JOURNAL["entries"]
        with open_file(self.path) as file:
            ways = self._learned(file)
            made = EntryTable(table, "journal", self.journal_id, ways, self.ledgers)
            for found in _found(file, self.journal_id, ways, self.ledgers):
                batch = made.batch(found, file)
                if batch is not None:
                    yield batch

    def runs(self) -> Iterator[pa.RecordBatch]:
        part = self._part()
        runs = merged((part.before, part.behind))
        chosen = self.ledgers.mask(runs["ledger"])
        yield JOURNAL["runs"].batch(run_columns("journal", runs if chosen is None else runs[chosen]))

    def flaws(self) -> Iterator[pa.RecordBatch]:
        return JOURNAL["flaws"].rows(flaw_row(self.journal_id, flaw) for flaw in self._part().flaws)

    def parts(self) -> Iterator[pa.RecordBatch]:
        return JOURNAL["parts"].rows([_row(self._part())])

    def _part(self) -> JournalPart:
        return ScanJournal(self.path, self.journal_id, 0, self.known, self.ways).run(Pace())

    def _learned(self, file: ReadFile) -> Ways:
        if is_settled(self.ways):
            return self.ways
        verifier = self.ways.verifier()
        ledgers = set()
        for _, record in _records(file, self.journal_id):
            verifier.check(record.data)
            ledgers.add(record.ledger_id)
        told = ((one, verifier.digester(one)) for one in ledgers)
        return learned(self.ways, {one: known.digest_type for one, known in told if known is not None})


def _records(file: ReadFile, journal_id: int) -> Iterator[tuple[StoredRecord, codec.EntryRecord]]:
    for item in JournalReader(file, journal_id).items():
        if isinstance(item, StoredRecord) and isinstance(item.record, codec.EntryRecord):
            yield item, item.record


def _found(file: ReadFile, journal_id: int, ways: Ways, ledgers: Choice) -> Iterator[Found]:
    rows = (
        _entry(item, record.data, ways)
        for item, record in _records(file, journal_id)
        if record.ledger_id in ledgers
    )
    while some := list(islice(rows, _ROWS_AT_ONCE)):
        *numbers, digests, good = zip(*some, strict=True)
        columns = [np.array(column, dtype=np.int64) for column in numbers]
        columns += [np.array(digests, dtype=np.uint64), np.array(good, dtype=np.bool_)]
        yield Found(*columns)


def _entry(item: StoredRecord, data: bytes, ways: Ways) -> tuple[int, ...]:
    head = HEAD.unpack_from(data.ljust(HEAD.size, b"\0"))
    kind = ways.type_of(head[0])
    known = None if kind is None else ways.digester(head[0], kind)
    is_bad = known is not None and check_digest(data, known) is DigestCheck.MISMATCH
    return item.offset, item.end - item.offset, *head, digest_word(data, kind), not is_bad


def _row(part: JournalPart) -> tuple[object, ...]:
    runs, stop = merged((part.before, part.behind)), part.scan.stop
    return (
        part.journal_id,
        part.file_size,
        part.records,
        int(runs["count"].sum()),
        int(runs["bad"].sum()),
        sum(part.unverified.values()),
        len(part.flaws),
        part.scan.owner.value,
        type(stop).__name__,
        stop.offset,
        part.seconds,
    )
