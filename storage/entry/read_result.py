"""The ways in which reading ends: at the end of the data, at a torn record, or at damage.

A reader returns data or one of these three. None of them is an exception, because a crash normally leaves
such files; and none of them is `None`, because a caller must not confuse the end of the data with damage in
the middle of it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Literal


class Flaw(enum.Enum):
    """The flaws that bytes can have, as sentences. The names are stable and appear in machine output."""

    # not all of the announced bytes are there, as after an interrupted write
    LENGTH_CUT = "the file ends inside a length word"
    BODY_CUT = "the record is longer than the rest of the file"
    FILE_SHORT = "the file is shorter than its fixed part"
    FILE_LONG = "the file is longer than any that was ever written"

    UNREADABLE = "the system cannot read the file"

    # framing
    LENGTH_NEGATIVE = "the length is negative"
    LENGTH_TOO_SMALL = "the length is too small for a record"
    LENGTH_TOO_LARGE = "the length is above the limit for one record"
    PADDING_NEGATIVE = "a padding record with a negative length"
    INNER_LENGTH = "the length inside the record disagrees with the record's own"
    LEDGER_NEGATIVE = "the ledger id is negative"
    ENTRY_NEGATIVE = "the entry id is negative"
    RECORD_TOO_NEW = "a kind of record that this journal version does not have"
    NOT_ZERO = "bytes that are not zero after the end of the data"
    UNPADDED = "the last flush was not padded to its end"
    NOT_A_RECORD = "no record begins here"

    # headers and fixed files
    BAD_MAGIC = "the magic number is wrong"
    BAD_VERSION = "a version that was never written"
    FUTURE_VERSION = "written by a newer version of the format"
    HEADER_FILL = "header bytes that must be zero are not"
    CHECKSUM = "the checksum does not match"
    BAD_MAP = "the ledgers map contradicts itself"
    BAD_TEXT = "the text cannot be parsed"
    BAD_FIELD = "a field holds a value that was never written"

    # entries
    DIGEST = "the digest does not match the entry"
    DIGEST_UNKNOWN = "nothing tells the digest type of this ledger"
    ENTRY_SHORT = "too short to be an entry"
    OTHER_ENTRY = "another entry stands here"

    # seals
    OTHER_PLACE = "written for another place"
    FILE_CUT = "the file has lost its end"
    OTHER_HEADER = "header and groups are of different journals"
    SEAL_MISSING = "the group has no seal"
    SEAL_ORDER = "a seal out of sequence"


def wrong_version(found: int, newest: int) -> Flaw:
    """Return the flaw of a version that this code cannot read."""
    return Flaw.FUTURE_VERSION if found > newest else Flaw.BAD_VERSION


@dataclass(frozen=True, slots=True)
class EndOfData:
    """Nothing more was written: from `offset` on there are only zeros, or the file ends."""

    offset: int


@dataclass(frozen=True, slots=True)
class Torn:
    """The bytes at `offset` announce more than there is, as an interrupted write leaves them."""

    offset: int
    flaw: Flaw


@dataclass(frozen=True, slots=True)
class Damaged:
    """The bytes at `offset` cannot be the ones that were written there.

    A decoder counts the offset from the start of its input, a reader from the start of the file.
    """

    offset: int
    flaw: Flaw
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.flaw.value} ({self.detail})" if self.detail else self.flaw.value


Stop = EndOfData | Torn | Damaged


class Missing(enum.Enum):
    """There is no such entry. Its truth value is false, so that a test for the common case needs no call."""

    MISSING = "there is no such entry"

    def __bool__(self) -> Literal[False]:
        return False


MISSING = Missing.MISSING


@dataclass(frozen=True, slots=True)
class Unreadable:
    """There is such an entry, but its bytes are damaged or cannot be read. Its truth value is false."""

    reason: str
    file: str | None = None
    """The file that was read; `None` if the entry was in memory."""
    offset: int | None = None
    cause: BaseException | None = field(default=None, compare=False, repr=False)
    """The error of the system, if there was one."""

    def __bool__(self) -> Literal[False]:
        return False
