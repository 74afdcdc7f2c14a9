"""A journal as tables: its entries, their runs, its flaws, and one row about itself.

It is read as an opening would read it from its first record on. Entries after damage appear in the flaws
only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from recovery.audit.engines.task import ReadThrottle
from recovery.audit.model.runs import merged
from recovery.audit.scan.entry_log_walk import digest_word
from recovery.audit.scan.journal import ScanJournal
from recovery.audit.spark.entry_tables import (
    EntryTable,
    TableEntries,
    end_row,
    flaw_row,
    is_settled,
    learned,
    run_columns,
    unreadable_row,
)
from recovery.audit.spark.pushdown import EVERYTHING
from recovery.audit.spark.tables import JOURNAL, with_payload
from storage.disk.posix import open_file
from storage.entry.digest import DigestCheck
from storage.entry.format import HEAD, check_digest
from storage.journal import format as journal_format
from storage.journal.reader import JournalReader, StoredRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from recovery.audit.digests.policy import DigestPolicy
    from recovery.audit.model.scan_results import JournalPart
    from recovery.audit.spark.pushdown import IdFilter
    from storage.disk.files import ReadFile
    from storage.entry.ledger_record import LedgerRecord

_ROWS_AT_ONCE = 16 << 10


@dataclass(frozen=True, slots=True)
class JournalTables:
    """One journal, read for one query."""

    path: str
    journal_id: int
    policy: DigestPolicy
    known: Mapping[int, LedgerRecord] = field(default_factory=dict, repr=False)
    ledgers: IdFilter = EVERYTHING
    """Rows of other ledgers are left out, in tables with a ledger column."""

    def entries(self, *, payload: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield entries in the order of the file."""
        table = with_payload(JOURNAL["entries"]) if payload else JOURNAL["entries"]
        with open_file(self.path) as file:
            policy = self._learned(file)
            made = EntryTable(table, "journal", self.journal_id, policy, self.ledgers)
            for found in _found(file, self.journal_id, policy, self.ledgers):
                batch = made.batch(found, file)
                if batch is not None:
                    yield batch

    def runs(self) -> Iterator[pa.RecordBatch]:
        part = self._part()
        runs = merged((part.before_mark, part.after_mark))
        chosen = self.ledgers.mask(runs["ledger"])
        yield JOURNAL["runs"].batch(run_columns("journal", runs if chosen is None else runs[chosen]))

    def flaws(self) -> Iterator[pa.RecordBatch]:
        """Yield what is wrong inside the journal, and at its end."""
        part = self._part()
        rows = [flaw_row(self.journal_id, flaw) for flaw in part.flaws]
        ending = end_row(self.journal_id, part.scan.stop, part.file_size, 0)
        return JOURNAL["flaws"].rows(rows if ending is None else [*rows, ending])

    def parts(self) -> Iterator[pa.RecordBatch]:
        return JOURNAL["parts"].rows([_row(self._part())])

    def unreadable(self, rows: str, error: OSError) -> Iterator[pa.RecordBatch]:
        """Yield what is known of a journal that cannot be read: a flaw, and a part without content."""
        if rows == "flaws":
            yield from JOURNAL["flaws"].rows([unreadable_row(self.journal_id, error)])
        if rows == "parts":
            yield from JOURNAL["parts"].rows([(self.journal_id, *(None,) * 7, "Unreadable", None, None)])

    def _part(self) -> JournalPart:
        return ScanJournal(self.path, self.journal_id, 0, self.known, self.policy).run(ReadThrottle())

    def _learned(self, file: ReadFile) -> DigestPolicy:
        if is_settled(self.policy):
            return self.policy
        verifier = self.policy.verifier()
        ledgers = set()
        for _, record in _records(file, self.journal_id):
            verifier.check(record.data)
            ledgers.add(record.ledger_id)
        told = ((one, verifier.digester(one)) for one in ledgers)
        return learned(self.policy, {one: known.digest_type for one, known in told if known is not None})


def _records(file: ReadFile, journal_id: int) -> Iterator[tuple[StoredRecord, journal_format.EntryRecord]]:
    for item in JournalReader(file, journal_id).items():
        if isinstance(item, StoredRecord) and isinstance(item.record, journal_format.EntryRecord):
            yield item, item.record


def _found(
    file: ReadFile, journal_id: int, policy: DigestPolicy, ledgers: IdFilter
) -> Iterator[TableEntries]:
    rows = (
        _entry(item, record.data, policy)
        for item, record in _records(file, journal_id)
        if record.ledger_id in ledgers
    )
    while some := list(islice(rows, _ROWS_AT_ONCE)):
        *numbers, digests, good = zip(*some, strict=True)
        columns = [np.array(column, dtype=np.int64) for column in numbers]
        columns += [np.array(digests, dtype=np.uint64), np.array(good, dtype=np.bool_)]
        yield TableEntries(*columns)


def _entry(item: StoredRecord, data: bytes, policy: DigestPolicy) -> tuple[int, ...]:
    head = HEAD.unpack_from(data.ljust(HEAD.size, b"\0"))
    kind = policy.type_of(head[0])
    known = None if kind is None else policy.digester(head[0], kind)
    is_bad = known is not None and check_digest(data, known) is DigestCheck.MISMATCH
    return item.offset, item.end - item.offset, *head, digest_word(data, kind), not is_bad


def _row(part: JournalPart) -> tuple[object, ...]:
    runs, stop = merged((part.before_mark, part.after_mark)), part.scan.stop
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
