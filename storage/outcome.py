"""How reading ends: nothing more, cut short, or wrong.

A reader answers with data or with one of these three. None of them is an exception, because each is a
normal thing to find in a file that a crash has left; and none of them is `None`, because the caller must
not be able to confuse the end of the data with damage in the middle of it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Flaw(enum.Enum):
    """What is wrong with bytes, as a sentence; the names are stable and appear in machine output."""

    # the announced bytes are not all there: what an interrupted write leaves
    LENGTH_CUT = "the file ends inside a length word"
    BODY_CUT = "the record is longer than the rest of the file"
    FILE_SHORT = "the file is shorter than its fixed part"
    FILE_LONG = "the file is longer than any that was ever written"

    # framing
    LENGTH_NEGATIVE = "the length is negative"
    LENGTH_TOO_SMALL = "the length is too small for a record"
    LENGTH_TOO_LARGE = "the length is above the limit for one record"
    PADDING_NEGATIVE = "a padding record with a negative length"
    INNER_LENGTH = "the length inside the record disagrees with the record's own"
    LEDGER_NEGATIVE = "the ledger id is negative"
    ENTRY_NEGATIVE = "the entry id is negative"
    RECORD_TOO_NEW = "a kind of record that this journal version does not have"
    NOT_ZERO = "bytes that are not zero behind the end of the data"
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
    """What to call a version that is not ours to read."""
    return Flaw.FUTURE_VERSION if found > newest else Flaw.BAD_VERSION


@dataclass(frozen=True, slots=True)
class EndOfData:
    """Nothing more was written: only zeros, or the end of the file, from `offset` on."""

    offset: int


@dataclass(frozen=True, slots=True)
class Torn:
    """The bytes at `offset` announce more than there is, as a write cut short would."""

    offset: int
    flaw: Flaw


@dataclass(frozen=True, slots=True)
class Damaged:
    """The bytes at `offset` cannot be what was written there.

    A codec counts the offset from the start of what it was given, a reader from the start of the file.
    """

    offset: int
    flaw: Flaw
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.flaw.value} ({self.detail})" if self.detail else self.flaw.value


Stop = EndOfData | Torn | Damaged
