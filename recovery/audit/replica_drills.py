"""Reading again what several stores have of some ledgers: tasks for their entries, and their bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from recovery.audit.drill import DrillLog
from recovery.audit.drill_index import DrillIndex
from recovery.audit.drill_journal import DrillJournal
from storage.codec.entry import HEAD
from storage.codec.entrylog import HEADER_SIZE
from storage.entry import DigestType
from storage.position import LENGTH_WORD_SIZE
from storage.posix_files import open_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recovery.audit.ground import Ground, JournalFile
    from recovery.audit.task import Task
    from recovery.audit.ways import Ways
    from recovery.verify.facts import LogFacts, StoreFacts
    from recovery.verify.parts import JournalPart
    from recovery.verify.replica_entries import Copy

_LENGTH_AT = 24
"""In front of it stand the ids, and the last add confirmed: the one thing that may differ."""


@dataclass(frozen=True, slots=True, eq=False)
class Looked:
    """One store that was looked at, by the name that the ensembles have for it."""

    name: str
    ground: Ground
    facts: StoreFacts


def drills(store: Looked, ledgers: frozenset[int]) -> Iterator[Task[Any]]:
    """What has to be read of one store to know every entry of these ledgers."""
    ground, facts = store.ground, store.facts
    # What a ledger's entries are verified with was found out by those who read all of them.
    types = {one: type_of(facts, one) for one in ledgers}
    ways = replace(ground.ways, declared={**ground.ways.declared, **types})
    logs = {log.log_id: log for log in ground.logs}
    for log in facts.logs:
        there = ledgers & frozenset(np.unique(log.runs["ledger"]).tolist())
        if there and not log.is_leftover:
            end = log.file_size if log.limit is None else min(log.limit, log.file_size)
            yield DrillLog(logs[log.log_id].path, log.log_id, HEADER_SIZE, end, there, ways)
    journals = {journal.journal_id: journal for journal in ground.journals}
    for part in facts.journals:
        there = ledgers & frozenset(np.unique(part.behind["ledger"]).tolist())
        if there:
            yield _of_journal(journals[part.journal_id], part, facts, there, ways)
    if isinstance(ground.index, Path):
        yield DrillIndex(str(ground.index), ledgers)


def _of_journal(
    journal: JournalFile, part: JournalPart, facts: StoreFacts, ledgers: frozenset[int], ways: Ways
) -> DrillJournal:
    graves = {
        one: row.tombstone.journal
        for one, row in facts.rows.items()
        if row.tombstone is not None and one in ledgers
    }
    dead_before = {
        one: grave.offset if grave.journal_id == part.journal_id else part.file_size
        for one, grave in graves.items()
        if grave.journal_id >= part.journal_id
    }
    scan = part.scan
    return DrillJournal(journal.path, part.journal_id, scan.start, scan.kept.end, ledgers, ways, dead_before)


def type_of(facts: StoreFacts, ledger_id: int) -> DigestType:
    """How the ledger's entries were verified."""
    parts: list[LogFacts | JournalPart] = [*facts.logs, *facts.journals]
    return next((part.types[ledger_id] for part in parts if ledger_id in part.types), DigestType.CRC32C)


class Bodies:
    """Reads copies in the files of their stores."""

    def __init__(self, stores: Sequence[Looked]) -> None:
        self._facts = [store.facts for store in stores]
        self._logs = [{log.log_id: log.path for log in store.ground.logs} for store in stores]
        self._journals = [{one.journal_id: one.path for one in store.ground.journals} for store in stores]

    def substance(self, copy: Copy) -> bytes:
        """The length that it carries, and its payload."""
        paths = (self._journals if copy.journaled else self._logs)[copy.store]
        width = type_of(self._facts[copy.store], copy.ledger).width
        with open_file(paths[copy.file]) as file:
            body = bytes(file.read(copy.offset + LENGTH_WORD_SIZE, copy.size - LENGTH_WORD_SIZE))
        return body[_LENGTH_AT : HEAD.size] + body[HEAD.size + width :]
