"""The credentials of a caller that adds to a ledger."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.entry.model import DigestType


class Purpose(enum.Enum):
    """The purpose of an add."""

    WRITING = "the ledger's writer: refused once the ledger is fenced"
    RECOVERING = "a client that has fenced the ledger and copies what is left of it"


@dataclass(frozen=True, slots=True)
class Access:
    """The key of a ledger, and how its entries are protected.

    The ledger compares it once for many adds.
    """

    master_key: bytes = field(repr=False)
    digest_type: DigestType | None = None
    """`None` means the type that the ledger has already, or CRC-32C for a new ledger."""
    mac_key: bytes | None = field(default=None, repr=False)
    """The key of the digests if the type is a MAC. `None` for a caller that only passes on entries."""
    purpose: Purpose = Purpose.WRITING
    is_told: bool = False
    """Whether the digest type was inferred from an entry and not declared. It is `None` if the entry does not
    tell."""
