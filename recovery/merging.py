"""The rows of a directory in which a bookie wrote last: what we knew, and what its files tell.

What an earlier run of ours wrote down stays, but for what can only have been added to: a fence, a larger
explicit LAC, the key that nobody could prove. A ledger that we have written to and that has no row is plain:
without a password, protected by CRC-32C. Of any other nothing is taken for granted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from recovery.journal_facts import Told, larger_lac
from recovery.placing import IN_A_BOOKIE_S, IN_OURS
from storage.codec.survey import lac_digest_type
from storage.registry import plain
from storage.row import KnownBy, LedgerRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from storage.codec.survey import DigestSurvey
    from storage.entry import DigestType
    from storage.position import LogPosition

_NOTHING = Told()


@dataclass(frozen=True, slots=True)
class Merging:
    """The evidence, and what follows from it."""

    known: Mapping[int, LedgerRow]
    """The rows of an earlier run of ours."""
    indexed: frozenset[int]
    """The ledgers that had entries in its index."""
    told: Mapping[int, Told]
    """What the journals tell."""
    placed: Mapping[int, int]
    """The ledgers with entries in logs, and in whose."""
    logs: frozenset[int]
    survey: DigestSurvey

    def rows(self) -> dict[int, LedgerRow]:
        """A row for each ledger that is not plain. One that says something new has a later change."""
        change = max((row.change for row in self.known.values()), default=0)
        rows: dict[int, LedgerRow] = {}
        for ledger_id in sorted({*self.known, *self.told, *self.placed}):
            before, row = self.known.get(ledger_id), self._row(ledger_id)
            if row == before:
                rows[ledger_id] = row
            elif before is not None or not _is_plain(row) or self._is_forgotten(ledger_id):
                change += 1
                rows[ledger_id] = replace(row, change=change)
        return rows

    def findings(self) -> Iterator[str]:
        """The deleted ledgers of which there are records again."""
        for ledger_id, row in sorted(self.known.items()):
            if row.tombstone is not None and (
                self._is_a_bookie_s(ledger_id) or self._is_unburied(ledger_id, row.tombstone.log)
            ):
                yield f"LGR-003 ledger {ledger_id}: deleted before a bookie ran here, and may have come back"

    def _is_a_bookie_s(self, ledger_id: int) -> bool:
        told = self.told.get(ledger_id, _NOTHING)
        return told.by_a_bookie or bool(self.placed.get(ledger_id, 0) & IN_A_BOOKIE_S)

    def _is_ours(self, ledger_id: int) -> bool:
        """Whether it was once known here: then it has a row if it is not plain."""
        return ledger_id in self.indexed or self._is_written_by_us(ledger_id)

    def _is_written_by_us(self, ledger_id: int) -> bool:
        told = self.told.get(ledger_id)
        only_ours = told is not None and not told.by_a_bookie
        return only_ours or bool(self.placed.get(ledger_id, 0) & IN_OURS)

    def _is_forgotten(self, ledger_id: int) -> bool:
        """Whether nothing but the old index, which is about to go, tells that it is plain."""
        has_key = self.told.get(ledger_id, _NOTHING).master_key is not None
        return not has_key and not self._is_written_by_us(ledger_id)

    def _is_unburied(self, ledger_id: int, log: LogPosition | None) -> bool:
        """Whether the log is gone that told which records are the deleted ledger's."""
        is_lost = log is not None and log.offset > 0 and log.log_id not in self.logs
        return is_lost and ledger_id in self.placed

    def _row(self, ledger_id: int) -> LedgerRow:
        told = self.told.get(ledger_id, _NOTHING)
        base = self._base(ledger_id)
        row = replace(
            base,
            master_key=told.master_key or base.master_key,
            fenced=base.fenced or told.fenced,
            explicit_lac=larger_lac(base.explicit_lac, told.explicit_lac, ledger_id),
        )
        if row.digest_type is not None:
            return row
        return replace(row, digest_type=self._digest_type(row), known_by=KnownBy.INFERRED)

    def _base(self, ledger_id: int) -> LedgerRow:
        """What holds of the ledger before the journals are asked."""
        known = self.known.get(ledger_id)
        if known is None:
            return plain(ledger_id) if self._is_ours(ledger_id) else _unproven(ledger_id)
        if self._is_a_bookie_s(ledger_id) and not self._is_ours(ledger_id) and is_only_deleted(known):
            # Whoever wrote to it again need not have been its old writer.
            return replace(_unproven(ledger_id), change=known.change, tombstone=known.tombstone)
        return known

    def _digest_type(self, row: LedgerRow) -> DigestType | None:
        by_entries = self.survey.digest_type(row.ledger_id)
        if by_entries is None and row.explicit_lac is not None:
            return lac_digest_type(row.explicit_lac)
        return by_entries


def _unproven(ledger_id: int) -> LedgerRow:
    return LedgerRow(ledger_id, 0, known_by=KnownBy.INFERRED)


def _is_plain(row: LedgerRow) -> bool:
    """Whether it says nothing that does not hold of a ledger without a row."""
    like = plain(row.ledger_id)
    return row == replace(like, change=row.change, known_by=row.known_by)


def is_only_deleted(row: LedgerRow) -> bool:
    """Whether it says of an earlier ledger that it is gone, and nothing of the one that has its id now."""
    return row.tombstone is not None and _is_plain(replace(row, tombstone=None))
