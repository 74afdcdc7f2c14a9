"""The row: what is known of a ledger beside its entries."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.entry import DigestType
    from storage.position import JournalPosition, LogPosition


class KnownBy(enum.Enum):
    """How a ledger's digest type is known."""

    DECLARED = 0
    INFERRED = 1


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A ledger was deleted: its journal records before `journal`, and its log records before `log`, are dead.

    `log` is known only once a checkpoint has frozen after the delete; until then all of them are. It is what
    was committed when that checkpoint began: of what lies behind, nothing is the deleted ledger's.
    """

    journal: JournalPosition
    log: LogPosition | None = None


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One version of a ledger's facts; of two, the larger `change` is the later one."""

    ledger_id: int
    change: int
    digest_type: DigestType | None = None
    """`None` where only entries that were never seen could tell."""
    known_by: KnownBy = KnownBy.DECLARED
    master_key: bytes | None = None
    """`None`: no record proves it, and ordinary adds are refused."""
    fenced: bool = False
    explicit_lac: bytes | None = None
    """The packet as the client sent it, digest included."""
    tombstone: Tombstone | None = None
    """Of the ledger that had this id before: the other fields are of the one that has it now."""
    in_limbo: bool = False
    """Entries that were acknowledged may be missing here: what is not found is unknown, not missing."""

    @property
    def makes_a_ledger(self) -> bool:
        """Whether there is such a ledger, be it without entries."""
        return self.fenced or self.explicit_lac is not None
