"""The record of a ledger: everything known of it besides its entries."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.entry.model import DigestType
    from storage.entry.position import JournalPosition, LogPosition


class KnownBy(enum.Enum):
    """How a ledger's digest type is known."""

    DECLARED = 0
    INFERRED = 1


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A ledger was deleted: its journal records before `journal`, and its log records before `log`, are dead.

    `log` is known only after a checkpoint has frozen a table after the delete; until then all log records are
    dead. It is the end of the logs that were committed when that checkpoint began, because no record after it
    belongs to the deleted ledger.
    """

    journal: JournalPosition
    log: LogPosition | None = None


@dataclass(frozen=True, slots=True)
class Truncation:
    """The entries before `first` were given up: readers do not find them, and their records are dead.

    If no entry was left, only this record knows how the ledger goes on: with the id `first`, and after the
    `length` and the last add confirmed of the last entry before it. Otherwise the entries that are left say
    it, and the two are 0 and -1.
    """

    first: int
    length: int = 0
    confirmed: int = -1


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """One version of a ledger's facts; of two versions the one with the larger `change` is the later one."""

    ledger_id: int
    change: int
    digest_type: DigestType | None = None
    """`None` if only entries that were never seen could tell."""
    known_by: KnownBy = KnownBy.DECLARED
    master_key: bytes | None = None
    """`None` if no record proves it; then ordinary adds are refused."""
    fenced: bool = False
    explicit_lac: bytes | None = None
    """The packet as the client sent it, with its digest."""
    tombstone: Tombstone | None = None
    """The tombstone of an earlier ledger with this id. The other fields are those of the present ledger."""
    in_limbo: bool = False
    """Whether acknowledged entries may be missing here. If so, an entry that is not found is unknown, not
    missing."""
    truncation: Truncation | None = None
    """The last truncation of the present ledger; each one has a larger `first` than the one before."""

    @property
    def makes_a_ledger(self) -> bool:
        """Return whether there is such a ledger, even if it has no entries."""
        return self.fenced or self.explicit_lac is not None or self.truncation is not None

    @property
    def first_entry_id(self) -> int:
        """Return the first id that was not truncated; no record with a smaller one counts."""
        return 0 if self.truncation is None else self.truncation.first
