"""What a caller shows of itself when it adds to a ledger."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.entry import DigestType


class Purpose(enum.Enum):
    """What somebody adds for."""

    WRITING = "the ledger's writer: refused once the ledger is fenced"
    RECOVERING = "who has fenced the ledger, and copies what is left of it"


@dataclass(frozen=True, slots=True)
class Access:
    """The key of a ledger, and how its entries are protected. Compared by the ledger, once for many adds."""

    master_key: bytes = field(repr=False)
    digest_type: DigestType | None = None
    """`None`: however the ledger has it; CRC-32C for a new one."""
    mac_key: bytes | None = field(default=None, repr=False)
    """What digests are made with where the type is a MAC; `None` for who only hands on entries."""
    purpose: Purpose = Purpose.WRITING
    is_told: bool = False
    """The digest type was told from an entry, not declared; `None` where the entry did not tell."""
