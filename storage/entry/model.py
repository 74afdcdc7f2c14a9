"""The entry, which a client adds to a ledger, and the four ways to protect it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from storage.errors import InvalidEntry

ID_MAX = (1 << 63) - 1
NO_ENTRY = -1
"""The last add confirmed of an entry whose writer knew of none."""

RECORD_SIZE_MAX = 32 << 20
"""A reader takes a larger length for damage, and does not allocate memory for it."""


class DigestType(enum.Enum):
    """How an entry's bytes are protected. The values are those of BookKeeper's ledger metadata."""

    CRC32 = 1
    MAC = 2
    CRC32C = 3
    DUMMY = 4

    @property
    def width(self) -> int:
        """Bytes of the digest, between the head of the entry and its payload."""
        return _WIDTHS[self]


_WIDTHS = {DigestType.CRC32: 8, DigestType.MAC: 20, DigestType.CRC32C: 4, DigestType.DUMMY: 0}


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a ledger. `length` counts the payload bytes of the ledger up to and with this entry."""

    ledger_id: int
    entry_id: int
    last_add_confirmed: int
    length: int
    payload: bytes

    def __post_init__(self) -> None:
        if not 0 <= self.ledger_id <= ID_MAX:
            raise InvalidEntry(f"ledger id {self.ledger_id} is not between 0 and 2^63 - 1")
        if not 0 <= self.entry_id <= ID_MAX:
            raise InvalidEntry(f"entry id {self.entry_id} is not between 0 and 2^63 - 1")
        if not NO_ENTRY <= self.last_add_confirmed <= ID_MAX:
            raise InvalidEntry(f"last add confirmed {self.last_add_confirmed} is not between -1 and 2^63 - 1")
        if not 0 <= self.length <= ID_MAX:
            raise InvalidEntry(f"length {self.length} is not between 0 and 2^63 - 1")


class UncheckedEntry:
    """An entry under construction by a reader that has checked the numbers already.

    The reader sets the fields, then sets the class to `Entry`. The constructor of `Entry` takes five times as
    long, because it is frozen and so sets each field by a call, and because it checks each number again.
    """

    __slots__ = ("entry_id", "last_add_confirmed", "ledger_id", "length", "payload")
