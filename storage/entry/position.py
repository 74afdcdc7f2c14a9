"""Positions in files, as types: each type says which byte it means, and the type checker keeps them apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

LENGTH_WORD_SIZE = 4
LOG_ID_MAX = 0x7FFF_FFFF
_OFFSET_MAX = 0xFFFF_FFFF


class JournalPosition(NamedTuple):
    """The offset of a record's length word in a journal. Ordered as the journals were written.

    A tuple, because each group of adds makes one, and a frozen dataclass costs three times as much.
    """

    journal_id: int
    offset: int

    def __str__(self) -> str:
        return f"{self.journal_id:x}.txn@{self.offset}"


START = JournalPosition(0, 0)
"""Before every journal: the mark of a store that never had an entry."""


@dataclass(frozen=True, slots=True, order=True)
class LogPosition:
    """The offset of a record's *length word* in an entry log, as a scan uses it."""

    log_id: int
    offset: int

    @property
    def location(self) -> EntryLocation:
        return EntryLocation(self.log_id, self.offset + LENGTH_WORD_SIZE)

    def __str__(self) -> str:
        return f"{self.log_id:x}.log@{self.offset}"


@dataclass(frozen=True, slots=True, order=True)
class EntryLocation:
    """The offset of an entry's *first byte* in an entry log, after the length word, as the index holds it."""

    log_id: int
    offset: int

    @property
    def position(self) -> LogPosition:
        return LogPosition(self.log_id, self.offset - LENGTH_WORD_SIZE)

    def pack(self) -> int:
        """Return BookKeeper's form: the log id in the upper half of an i64, the offset in the lower half."""
        assert self.offset <= _OFFSET_MAX, "an entry log ends before 4 GiB"
        return self.log_id << 32 | self.offset

    @classmethod
    def unpack(cls, packed: int) -> EntryLocation:
        return cls(packed >> 32, packed & _OFFSET_MAX)

    def __str__(self) -> str:
        return f"{self.log_id:x}.log+{self.offset}"
