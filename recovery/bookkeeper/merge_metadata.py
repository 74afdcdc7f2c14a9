"""Merges what we knew about the ledgers of an imported directory with what its files say.

The records of an earlier run of ours stay, except for what can only have been added: a fence, a larger
explicit LAC, a key that was unknown. A ledger that we have written to and that has no record is plain: it has
no password and is protected by CRC-32C. Nothing is presumed of any other ledger.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from recovery.rebuild.index_builder import IN_BOOKIE_LOGS, IN_OUR_LOGS
from recovery.replay.journal_metadata import JournaledLedger, larger_lac
from storage.entry.digest_inference import digest_type_of_lac
from storage.entry.ledger_record import KnownBy, LedgerRecord
from storage.ledgers.metadata import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from storage.entry.digest_inference import DigestSurvey
    from storage.entry.model import DigestType

_NOTHING = JournaledLedger()


@dataclass(frozen=True, slots=True)
class MetadataMerge:
    """The evidence about the ledgers of a directory, and the records that follow from it."""

    known: Mapping[int, LedgerRecord]
    """The records of an earlier run of ours."""
    indexed: frozenset[int]
    """The ledgers with entries in its index."""
    journaled: Mapping[int, JournaledLedger]
    """Keys, fences and explicit LACs from the journals."""
    logged: Mapping[int, int]
    """The ledgers with entries in logs, and whether in ours or in a bookie's."""
    survey: DigestSurvey

    def rows(self) -> dict[int, LedgerRecord]:
        """Return a record for each ledger that is not plain, with a new change number if it differs."""
        change = max((row.change for row in self.known.values()), default=0)
        rows: dict[int, LedgerRecord] = {}
        for ledger_id in sorted({*self.known, *self.journaled, *self.logged}):
            before, row = self.known.get(ledger_id), self._row(ledger_id)
            if row == before:
                rows[ledger_id] = row
            elif before is not None or not _is_plain(row) or self._is_known_by_index_only(ledger_id):
                change += 1
                rows[ledger_id] = replace(row, change=change)
        return rows

    def findings(self) -> Iterator[str]:
        """Yield a finding for each deleted ledger of which there are entries again."""
        for ledger_id, row in sorted(self.known.items()):
            if row.tombstone is not None and self._has_bookie_records(ledger_id):
                yield f"LGR-003 ledger {ledger_id}: deleted before a bookie ran here, and may have come back"

    def _has_bookie_records(self, ledger_id: int) -> bool:
        journaled = self.journaled.get(ledger_id, _NOTHING)
        return journaled.by_a_bookie or bool(self.logged.get(ledger_id, 0) & IN_BOOKIE_LOGS)

    def _was_known(self, ledger_id: int) -> bool:
        """Return whether we knew the ledger. Then it has a record unless it is plain."""
        return ledger_id in self.indexed or self._is_written_by_us(ledger_id)

    def _is_written_by_us(self, ledger_id: int) -> bool:
        journaled = self.journaled.get(ledger_id)
        only_ours = journaled is not None and not journaled.by_a_bookie
        return only_ours or bool(self.logged.get(ledger_id, 0) & IN_OUR_LOGS)

    def _is_known_by_index_only(self, ledger_id: int) -> bool:
        """Return whether only the old index, which is replaced, says that the ledger is plain."""
        has_key = self.journaled.get(ledger_id, _NOTHING).master_key is not None
        return not has_key and not self._is_written_by_us(ledger_id)

    def _row(self, ledger_id: int) -> LedgerRecord:
        journaled = self.journaled.get(ledger_id, _NOTHING)
        base = self._base(ledger_id)
        row = replace(
            base,
            master_key=journaled.master_key or base.master_key,
            fenced=base.fenced or journaled.fenced,
            explicit_lac=larger_lac(base.explicit_lac, journaled.explicit_lac, ledger_id),
        )
        if row.digest_type is not None:
            return row
        return replace(row, digest_type=self._digest_type(row), known_by=KnownBy.INFERRED)

    def _base(self, ledger_id: int) -> LedgerRecord:
        """Return what is known of the ledger without the journals."""
        known = self.known.get(ledger_id)
        if known is None:
            return plain(ledger_id) if self._was_known(ledger_id) else _unproven(ledger_id)
        if self._has_bookie_records(ledger_id) and not self._was_known(ledger_id) and is_only_deleted(known):
            # Its new writer may be another one than that of the deleted ledger.
            return replace(_unproven(ledger_id), change=known.change, tombstone=known.tombstone)
        return known

    def _digest_type(self, row: LedgerRecord) -> DigestType | None:
        by_entries = self.survey.digest_type(row.ledger_id)
        if by_entries is None and row.explicit_lac is not None:
            return digest_type_of_lac(row.explicit_lac)
        return by_entries


def _unproven(ledger_id: int) -> LedgerRecord:
    return LedgerRecord(ledger_id, 0, known_by=KnownBy.INFERRED)


def _is_plain(row: LedgerRecord) -> bool:
    """Return whether the record says nothing else than the absence of a record."""
    like = plain(row.ledger_id)
    return row == replace(like, change=row.change, known_by=row.known_by)


def is_only_deleted(row: LedgerRecord) -> bool:
    """Return whether the record has only the tombstone of an earlier ledger with the id."""
    return row.tombstone is not None and _is_plain(replace(row, tombstone=None))
