"""Encodes the metadata of all ledgers as journal records, from which a bookie without an index learns it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from storage.commit.portions import size_of
from storage.journal import format as journal_format
from storage.journal.writer import Group

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from storage.engine import Engine


@dataclass(slots=True)
class RestatedMetadata:
    """Counts of the records in the new journal."""

    ledgers: int = 0
    keys: int = 0
    fences: int = 0
    explicit_lacs: int = 0
    unproven: list[int] = field(default_factory=list)
    """Ledgers whose key is unknown, so that no record makes the ledger known to a bookie."""
    restated: tuple[int, int] | None = None
    """Ledger and id of the entry that is written again; `None` if no entry can be read."""

    @property
    def is_sufficient(self) -> bool:
        """Whether a bookie with an empty index knows all ledgers after it has replayed the journal.

        Then the index that its tool makes is not needed, in which each ledger is fenced and none has a key.
        """
        return not self.ledgers or not (self.unproven or self.restated is None)


def metadata_records(engine: Engine, facts: RestatedMetadata) -> Iterator[list[bytes]]:
    """Yield the records of each ledger, its key first, because a bookie skips records without a key."""
    for ledger_id in sorted({*engine.reader.ledgers(), *engine.metadata.existing_ledgers()}):
        row = engine.metadata.of(ledger_id)
        facts.ledgers += 1
        records = []
        if row.master_key is None:
            facts.unproven.append(ledger_id)
        else:
            facts.keys += 1
            records.append(journal_format.encode_ledger_key(ledger_id, row.master_key))
        if row.fenced:
            facts.fences += 1
            records.append(journal_format.encode_fence(ledger_id))
        if row.explicit_lac is not None:
            facts.explicit_lacs += 1
            records.append(journal_format.encode_explicit_lac(ledger_id, row.explicit_lac))
        if facts.restated is None and row.master_key is not None:
            records += _last_entry(engine, ledger_id, facts)
        if records:
            yield records


def _last_entry(engine: Engine, ledger_id: int, facts: RestatedMetadata) -> list[bytes]:
    """Return the record of the ledger's last entry; nothing if it cannot be read."""
    last_id = engine.reader.last_id(ledger_id)
    if last_id is None:
        return []
    data = engine.reader.data(ledger_id, last_id, engine.metadata.digester(ledger_id))
    if not isinstance(data, bytes):
        return []
    facts.restated = ledger_id, last_id
    return [journal_format.encode_record(data)]


def in_groups(records: Iterable[list[bytes]], size_max: int) -> Iterator[Group]:
    """Yield groups of at most that size, and never divide the records of one ledger."""
    members: list[bytes] = []
    size = 0
    for some in records:
        more = size_of(some)
        if members and size + more > size_max:
            yield Group(members, len(members), size)
            members, size = [], 0
        members += some
        size += more
    if members:
        yield Group(members, len(members), size)
