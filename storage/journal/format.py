"""A journal's header and records.

    header   0    4         8      12      16     24       32        40          512
             ├────┼─────────┼──────┼───────┼──────┼────────┼─────────┼───────────┤
             │BKLG│ version │ LSSL │ crc   │ salt │ filled │ follows │ zeros …   │   5 and 6; 2 to 4 end at 8
             └────┴─────────┴──────┴───────┴──────┴────────┴─────────┴───────────┘   version 1 has no header

    record   ├ length i32 ┼ body: length bytes ┤                  an entry, or by its (negative) entry id
                                                                  a master key, a fence, an explicit LAC
    padding  ├ -0x100 i32 ┼ n i32 ┼ n bytes    ┤                  versions 5 and 6; content is free

Bytes 8 to 39 are ours; a bookie leaves them zero and ignores them. The crc is CRC-32C over the 512 bytes
without the crc itself. Zeros in the place of a length, or the end of the file, are the end of the data.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from storage.entry.format import IDS
from storage.entry.model import RECORD_SIZE_MAX
from storage.entry.read_result import Damaged, EndOfData, Flaw, Torn, wrong_version
from storage.errors import InvalidFormat

if TYPE_CHECKING:
    from storage.entry.digest import Buffer

MAGIC = b"BKLG"
OUR_MAGIC = b"LSSL"
VERSION_MAX = 6
HEADER_SIZE_MAX = 512
WRITABLE_VERSIONS = (4, 5, 6)

LEDGER_KEY = -0x1000
FENCE = -0x2000
EXPLICIT_LAC = -0x8000
PADDING = -0x100

PREFIX_SIZE = 8
"""Bytes that `frame` needs to see of a record: the length word, and for padding the second one."""

BODY_SIZE_MIN = IDS.size
_LENGTH = struct.Struct(">i")
_TWO_LENGTHS = struct.Struct(">ii")
_PREFIX = struct.Struct(">4si")
_OURS = struct.Struct(">4sIQQq")
_OURS_END = PREFIX_SIZE + _OURS.size
_SPECIAL = struct.Struct(">qqi")

PADDING_WORD = _LENGTH.pack(PADDING)


@dataclass(frozen=True, slots=True)
class JournalHeader:
    """A journal's header. Only a journal of this store has a salt, a bookie's has none."""

    version: int
    salt: int | None = None
    filled_until: int = 0
    """The length of the file when it got its name; a shorter file has lost its end. 0 if it is unknown."""
    follows: int = 0
    """The newest journal with a durable group when this one was made; 0 if none is known."""

    @property
    def size(self) -> int:
        if self.version == 1:
            return 0
        return HEADER_SIZE_MAX if self.pads else PREFIX_SIZE

    @property
    def pads(self) -> bool:
        """Return whether padding records exist in this version."""
        return self.version >= 5


VERSION_1 = JournalHeader(1)


@dataclass(frozen=True, slots=True)
class Void:
    """Only zeros instead of a header, or too few bytes: nothing was ever acknowledged in this journal."""


class JournalFrameKind(enum.Enum):
    RECORD = "record"
    PADDING = "padding"


class JournalFrame(NamedTuple):
    """The place of one record, before its body is decoded."""

    kind: JournalFrameKind
    offset: int
    body: int
    end: int


@dataclass(frozen=True, slots=True)
class EntryRecord:
    """An entry exactly as the client sent it. `data` begins with the two ids."""

    ledger_id: int
    entry_id: int
    data: bytes


@dataclass(frozen=True, slots=True)
class LedgerKey:
    """The master key of a ledger, logged before the ledger's first record in each journal."""

    ledger_id: int
    master_key: bytes


@dataclass(frozen=True, slots=True)
class Fence:
    """The ledger takes no ordinary adds after this record."""

    ledger_id: int


@dataclass(frozen=True, slots=True)
class ExplicitLac:
    """A last add confirmed that the client sent on its own, with the digest it came with."""

    ledger_id: int
    packet: bytes


@dataclass(frozen=True, slots=True)
class UnknownRecord:
    """A record with a negative entry id that has no meaning yet. It is skipped, as a bookie does."""

    ledger_id: int
    entry_id: int
    data: bytes


Record = EntryRecord | LedgerKey | Fence | ExplicitLac | UnknownRecord

_VERSION_NEEDED = {LEDGER_KEY: 3, FENCE: 4, EXPLICIT_LAC: 6}


def encode_header(header: JournalHeader) -> bytes:
    """Encode the header: only versions that a bookie still writes, and a salt only if it has room."""
    if header.version not in WRITABLE_VERSIONS:
        raise InvalidFormat(f"journal version {header.version} is not written any more")
    prefix = _PREFIX.pack(MAGIC, header.version)
    if not header.pads:
        if header.salt is not None:
            raise InvalidFormat(f"a version {header.version} header has no room for a salt")
        return prefix
    if header.salt is None:
        return prefix.ljust(HEADER_SIZE_MAX, b"\0")
    rest = header.salt, header.filled_until, header.follows
    plain = (prefix + _OURS.pack(OUR_MAGIC, 0, *rest)).ljust(HEADER_SIZE_MAX, b"\0")
    return prefix + _OURS.pack(OUR_MAGIC, _header_checksum(plain), *rest) + plain[_OURS_END:]


def decode_header(head: Buffer) -> JournalHeader | Void | Damaged:
    """Decode the first 512 bytes, fewer only if the file ends.

    A bad magic is damage and never "version 1", because such a journal has to prove itself by its first
    record.
    """
    head = bytes(head[:HEADER_SIZE_MAX])
    if len(head) < PREFIX_SIZE or not any(head):
        return Void()
    magic, version = _PREFIX.unpack_from(head)
    if magic != MAGIC:
        return Damaged(0, Flaw.BAD_MAGIC)
    # If our own magic follows a short header, the header was a long one whose version is damaged.
    if version in (2, 3, 4) and head[PREFIX_SIZE : PREFIX_SIZE + len(OUR_MAGIC)] != OUR_MAGIC:
        return JournalHeader(version)
    if len(head) < HEADER_SIZE_MAX:
        return Void() if version in (5, 6) else _bad_version(version)
    return _decode_long_header(head, version)


def _decode_long_header(head: bytes, version: int) -> JournalHeader | Damaged:
    ours, checksum, salt, filled_until, follows = _OURS.unpack_from(head, PREFIX_SIZE)
    # The checksum comes first, because a flipped bit in the version must not be taken for a newer format.
    if ours == OUR_MAGIC and checksum != _header_checksum(head):
        return Damaged(0, Flaw.CHECKSUM)
    if version not in (5, 6):
        return _bad_version(version)
    if ours == OUR_MAGIC:
        return JournalHeader(version, salt, filled_until, follows)
    if any(head[PREFIX_SIZE:]):
        return Damaged(PREFIX_SIZE, Flaw.HEADER_FILL)
    return JournalHeader(version)


def _bad_version(version: int) -> Damaged:
    return Damaged(4, wrong_version(version, VERSION_MAX), f"version {version}")


def _header_checksum(header: bytes) -> int:
    return crc32c(header[PREFIX_SIZE + 8 :], crc32c(header[: PREFIX_SIZE + 4]))


def encode_record(body: Buffer) -> bytes:
    """Encode a record around a body; the body of an entry is its bytes as they came."""
    if not BODY_SIZE_MIN <= len(body) <= RECORD_SIZE_MAX:
        raise InvalidFormat(f"no reader believes a record of {len(body)} bytes")
    if body[0] & 0x80:
        raise InvalidFormat("a ledger id is never negative")
    return _LENGTH.pack(len(body)) + bytes(body)


def encode_ledger_key(ledger_id: int, master_key: bytes) -> bytes:
    return encode_record(_SPECIAL.pack(ledger_id, LEDGER_KEY, len(master_key)) + master_key)


def encode_fence(ledger_id: int) -> bytes:
    return encode_record(IDS.pack(ledger_id, FENCE))


def encode_explicit_lac(ledger_id: int, packet: bytes) -> bytes:
    return encode_record(_SPECIAL.pack(ledger_id, EXPLICIT_LAC, len(packet)) + packet)


def encode_padding(position: int, alignment: int) -> bytes:
    """Encode the padding that a bookie writes at the end of a flush.

    It goes up to the alignment, and is empty if the flush ends there.
    """
    missing = -position % alignment
    if missing == 0:
        return b""
    # A padding record takes at least its two length words. One that does not fit goes on into the next unit.
    return encode_free_padding(missing if missing >= PREFIX_SIZE else missing + alignment)


def encode_padding_prefix(size: int) -> bytes:
    """Encode the two length words of a padding record of `size` bytes in all."""
    return _TWO_LENGTHS.pack(PADDING, size - PREFIX_SIZE)


def encode_free_padding(size: int, content: bytes = b"") -> bytes:
    """Encode a padding record of `size` bytes in all, whose content ends in these bytes."""
    return encode_padding_prefix(size) + content.rjust(size - PREFIX_SIZE, b"\0")


def frame(
    prefix: Buffer, offset: int, remaining: int, header: JournalHeader
) -> JournalFrame | EndOfData | Torn | Damaged:
    """Return where the record at `offset` ends.

    `prefix` is what the file has of its first 8 bytes, `remaining` the size of the file from there on. No
    length beyond that is believed.
    """
    if remaining < _LENGTH.size:
        return Torn(offset, Flaw.LENGTH_CUT) if any(prefix[:remaining]) else EndOfData(offset)
    (length,) = _LENGTH.unpack_from(prefix)
    if length >= BODY_SIZE_MIN:
        return _frame_record(offset, length, remaining)
    if length == 0:
        return EndOfData(offset)
    if length == PADDING and header.pads:
        return _frame_padding(prefix, offset, remaining)
    return Damaged(offset, Flaw.LENGTH_NEGATIVE if length < 0 else Flaw.LENGTH_TOO_SMALL, f"length {length}")


def _frame_record(offset: int, length: int, remaining: int) -> JournalFrame | Torn | Damaged:
    if length > remaining - _LENGTH.size:
        return Torn(offset, Flaw.BODY_CUT)
    if length > RECORD_SIZE_MAX:
        return Damaged(offset, Flaw.LENGTH_TOO_LARGE, f"length {length}")
    body = offset + _LENGTH.size
    return JournalFrame(JournalFrameKind.RECORD, offset, body, body + length)


def _frame_padding(prefix: Buffer, offset: int, remaining: int) -> JournalFrame | Torn | Damaged:
    if remaining < PREFIX_SIZE:
        return Torn(offset, Flaw.LENGTH_CUT)
    _, length = _TWO_LENGTHS.unpack_from(prefix)
    if length < 0:
        return Damaged(offset, Flaw.PADDING_NEGATIVE, f"length {length}")
    if length > remaining - PREFIX_SIZE:
        return Torn(offset, Flaw.BODY_CUT)
    body = offset + PREFIX_SIZE
    return JournalFrame(JournalFrameKind.PADDING, offset, body, body + length)


def decode_record(body: Buffer, version: int) -> Record | Damaged:
    """Decode a record's body.

    Its entry id tells the kind. The caller has framed it, so it has at least two ids.
    """
    ledger_id, entry_id = IDS.unpack_from(body)
    if ledger_id < 0:
        return Damaged(0, Flaw.LEDGER_NEGATIVE, f"ledger {ledger_id}")
    if entry_id >= 0:
        return EntryRecord(ledger_id, entry_id, bytes(body))
    if version < _VERSION_NEEDED.get(entry_id, 0):
        return Damaged(8, Flaw.RECORD_TOO_NEW, f"entry id {entry_id} in version {version}")
    if entry_id == FENCE:
        return Fence(ledger_id) if len(body) == IDS.size else Damaged(0, Flaw.INNER_LENGTH)
    if entry_id not in (LEDGER_KEY, EXPLICIT_LAC):
        return UnknownRecord(ledger_id, entry_id, bytes(body))
    return _decode_special(body, ledger_id, entry_id)


def _decode_special(body: Buffer, ledger_id: int, entry_id: int) -> Record | Damaged:
    if len(body) < _SPECIAL.size:
        return Damaged(IDS.size, Flaw.INNER_LENGTH)
    _, _, length = _SPECIAL.unpack_from(body)
    if length != len(body) - _SPECIAL.size:
        return Damaged(IDS.size, Flaw.INNER_LENGTH, f"{length} in a body of {len(body)}")
    content = bytes(body[_SPECIAL.size :])
    return LedgerKey(ledger_id, content) if entry_id == LEDGER_KEY else ExplicitLac(ledger_id, content)
