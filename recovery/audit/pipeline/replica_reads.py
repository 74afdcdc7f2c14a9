"""Read again what several stores hold of some ledgers: tasks for their entries, and their bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from recovery.audit.checks.texts import text
from recovery.audit.model.store_tables import JOURNAL, LOG
from recovery.audit.scan.index_entries import ReadIndexRows
from recovery.audit.scan.journal_entries import ReadJournalEntries
from recovery.audit.scan.log_entries import ReadLogEntries
from storage.disk.posix import open_file
from storage.entry.format import HEAD
from storage.entry.model import DigestType
from storage.entry.position import LENGTH_WORD_SIZE
from storage.entrylog.format import HEADER_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recovery.audit.checks.replica_entries import EntryCopy
    from recovery.audit.digests.policy import DigestPolicy
    from recovery.audit.engines.sql import SqlEngine
    from recovery.audit.engines.task import AuditTask
    from recovery.audit.model.scan_results import JournalPart
    from recovery.audit.model.store_facts import LogFacts, StoreFacts
    from recovery.audit.snapshot.inventory import JournalFile, StoreInventory

_LENGTH_AT = 24
"""Before it are the ids and the last add confirmed, which alone may differ."""


@dataclass(frozen=True, slots=True, eq=False)
class ScannedStore:
    """One store that was scanned, and its name in the ensembles."""

    name: str
    number: int
    """Its number in the tables of the audit."""
    inventory: StoreInventory
    facts: StoreFacts


HeldLedgers = Mapping[tuple[int, str, int], frozenset[int]]
"""By the number of a store, source and file: which of some ledgers are there."""


def held_ledgers(sql: SqlEngine, ledgers: frozenset[int]) -> HeldLedgers:
    """Return in which logs and journals these ledgers have entries."""
    sql.put_columns("asked_ledgers", {"ledger": np.array(sorted(ledgers), dtype=np.int64)})
    found: defaultdict[tuple[int, str, int], set[int]] = defaultdict(set)
    for store, source, file, ledger in sql.rows(text("ledgers_of_files")):
        found[store, source, file].add(ledger)
    return {key: frozenset(some) for key, some in found.items()}


def read_tasks(store: ScannedStore, ledgers: frozenset[int], held: HeldLedgers) -> Iterator[AuditTask[Any]]:
    """Yield tasks that read every entry of these ledgers in one store."""
    inventory, facts = store.inventory, store.facts
    # The scan of all entries has found out the digest types.
    types = {one: type_of(facts, one) for one in ledgers}
    policy = replace(inventory.policy, declared={**inventory.policy.declared, **types})
    logs = {log.log_id: log for log in inventory.logs}
    for log in facts.logs:
        there = held.get((store.number, LOG, log.log_id))
        if there:
            end = log.file_size if log.limit is None else min(log.limit, log.file_size)
            yield ReadLogEntries(logs[log.log_id].path, log.log_id, HEADER_SIZE, end, there, policy)
    journals = {journal.journal_id: journal for journal in inventory.journals}
    for part in facts.journals:
        there = held.get((store.number, JOURNAL, part.journal_id))
        if there:
            yield _journal_task(journals[part.journal_id], part, facts, there, policy)
    if isinstance(inventory.index, Path):
        yield ReadIndexRows(str(inventory.index), ledgers)


def _journal_task(
    journal: JournalFile, part: JournalPart, facts: StoreFacts, ledgers: frozenset[int], policy: DigestPolicy
) -> ReadJournalEntries:
    deleted_at = {
        one: row.tombstone.journal
        for one, row in facts.rows.items()
        if row.tombstone is not None and one in ledgers
    }
    dead_before = {
        one: grave.offset if grave.journal_id == part.journal_id else part.file_size
        for one, grave in deleted_at.items()
        if grave.journal_id >= part.journal_id
    }
    scan = part.scan
    return ReadJournalEntries(
        journal.path, part.journal_id, scan.start, scan.kept.end, ledgers, policy, dead_before
    )


def type_of(facts: StoreFacts, ledger_id: int) -> DigestType:
    """Return the digest type of the ledger's entries."""
    parts: list[LogFacts | JournalPart] = [*facts.logs, *facts.journals]
    return next((part.types[ledger_id] for part in parts if ledger_id in part.types), DigestType.CRC32C)


class CopyFiles:
    """Reads copies from the files of their stores."""

    def __init__(self, stores: Sequence[ScannedStore]) -> None:
        self._facts = [store.facts for store in stores]
        self._logs = [{log.log_id: log.path for log in store.inventory.logs} for store in stores]
        self._journals = [{one.journal_id: one.path for one in store.inventory.journals} for store in stores]

    def substance(self, copy: EntryCopy) -> bytes:
        """Return the length that the copy carries, and its payload."""
        paths = (self._journals if copy.journaled else self._logs)[copy.store]
        width = type_of(self._facts[copy.store], copy.ledger).width
        with open_file(paths[copy.file]) as file:
            body = bytes(file.read(copy.offset + LENGTH_WORD_SIZE, copy.size - LENGTH_WORD_SIZE))
        return body[_LENGTH_AT : HEAD.size] + body[HEAD.size + width :]
