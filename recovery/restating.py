"""What is known of the ledgers, said once more: records from which a bookie learns it that has no index."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from storage.codec import journal as journal_codec
from storage.errors import EntryUnreadable
from storage.grouping import size_of
from storage.journal_writer import Group

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from storage.parts import Parts


@dataclass(slots=True)
class Facts:
    """What the new journal says of the ledgers."""

    ledgers: int = 0
    keys: int = 0
    fences: int = 0
    explicit_lacs: int = 0
    unproven: list[int] = field(default_factory=list)
    """Ledgers whose key nobody knows: no record of theirs makes a bookie know the ledger."""
    restated: tuple[int, int] | None = None
    """The entry that is written again, ledger and id; `None`: there is none that can be read."""

    @property
    def suffice(self) -> bool:
        """Whether a bookie with an empty index of ledgers knows all of them when it has replayed this.

        Then the one that its tool makes, in which each ledger is fenced and none has a key, is of no use.
        """
        return not self.ledgers or not (self.unproven or self.restated is None)


def records_of(parts: Parts, facts: Facts) -> Iterator[list[bytes]]:
    """The records of each ledger, its key in front: without it a bookie skips the others."""
    for ledger_id in sorted({*parts.reading.ledgers(), *parts.registry.existing()}):
        row = parts.registry.of(ledger_id)
        facts.ledgers += 1
        records = []
        if row.master_key is None:
            facts.unproven.append(ledger_id)
        else:
            facts.keys += 1
            records.append(journal_codec.encode_ledger_key(ledger_id, row.master_key))
        if row.fenced:
            facts.fences += 1
            records.append(journal_codec.encode_fence(ledger_id))
        if row.explicit_lac is not None:
            facts.explicit_lacs += 1
            records.append(journal_codec.encode_explicit_lac(ledger_id, row.explicit_lac))
        if facts.restated is None and row.master_key is not None:
            records += _an_entry(parts, ledger_id, facts)
        if records:
            yield records


def _an_entry(parts: Parts, ledger_id: int, facts: Facts) -> list[bytes]:
    """The record of the ledger's last entry, if it has one that can be read."""
    last_id = parts.reading.last_id(ledger_id)
    if last_id is None:
        return []
    try:
        data = parts.reading.data(ledger_id, last_id, parts.registry.digester(ledger_id))
    except EntryUnreadable:
        return []
    if data is None:
        return []
    facts.restated = ledger_id, last_id
    return [journal_codec.encode_record(data)]


def in_groups(records: Iterable[list[bytes]], size_max: int) -> Iterator[Group]:
    """The records of ledgers in groups of at most that size, those of one ledger always in one."""
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
