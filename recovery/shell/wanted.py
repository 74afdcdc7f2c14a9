"""Which rows were asked for."""

from __future__ import annotations

import enum
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """Numbers from `first` to `last`, both included; `None`: no end."""

    first: int = 0
    last: int | None = None

    def covers(self, start: int, end: int) -> bool:
        """Whether any byte of [start, end) is in it; what has no bytes counts as its place."""
        return max(end, start + 1) > self.first and not self.is_before(start)

    def __contains__(self, number: int) -> bool:
        return self.first <= number and not self.is_before(number)

    def is_before(self, number: int) -> bool:
        """Whether the number lies behind the whole span."""
        return self.last is not None and number > self.last


class Shown(enum.Enum):
    """Whether what only fills a file is listed too."""

    RECORDS = "records"
    EVERYTHING = "everything"


class Payload(enum.Enum):
    """How payloads are printed."""

    NONE = "none"
    HEX = "hex"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The filters. Damage is shown whatever ledgers and entries are wanted: it may hide them."""

    ledgers: frozenset[int] = frozenset()
    """Empty: all."""
    entries: Span | None = None
    """`None`: every record, also those that are not entries."""
    offsets: Span = Span()
    limit: int | None = None
    shown: Shown = Shown.RECORDS
    payload: Payload = Payload.NONE

    def takes(self, ledger_id: int, entry_id: int | None) -> bool:
        """Whether a record of that ledger, and entry if it is one, was asked for."""
        if self.ledgers and ledger_id not in self.ledgers:
            return False
        return self.entries is None or (entry_id is not None and entry_id in self.entries)

    @property
    def fillers(self) -> bool:
        """Whether padding, fillers, maps and sound seals are shown."""
        return self.shown is Shown.EVERYTHING and not self.ledgers and self.entries is None
