"""The group and its seal: what one leader writes with one write and one sync.

    group    ├ [atomic mark] ┼ record ┼ record ┼ … ┼ padding record … seal ┤  to a multiple of the alignment

    seal     0    4         5       6   8         16     24         32            40
             ├────┼─────────┼───────┼───┼─────────┼──────┼──────────┼─────────────┼─ …
             │LSSL│ version │ flags │ 0 │ journal │ salt │ sequence │ group start │
             └────┴─────────┴───────┴───┴─────────┴──────┴──────────┴─────────────┴─ …
             40                    48                    56             60    64
           … ┼─────────────────────┼─────────────────────┼──────────────┼─────┤
             │ durable: journal    │ durable: offset     │ record count │ crc │
           … ┴─────────────────────┴─────────────────────┴──────────────┴─────┘

The crc is CRC-32C over everything from the group's start up to the crc itself; a later version keeps both in
their places. `durable_up_to` says what was known to be durable when the group was written: damage before it
is rot, never a torn tail. Journal id, salt, place and crc together keep a payload that contains a journal
from passing for one.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from storage.codec import journal
from storage.outcome import Flaw, wrong_version
from storage.position import JournalPosition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.codec.digest import Buffer

MAGIC = journal.OUR_MAGIC
"""The same four letters as in the header: whatever begins with them in a journal is ours."""

VERSION = 1
SIZE = 64
CHECKSUM_SIZE = 4
ALIGNMENTS = (512, 4096)

ATOMIC_MARK = b"LSAT"
"""Content of the padding record in front of a group that is kept whole or not at all."""

_ATOMIC_RECORD = journal.encode_free_padding(journal.PREFIX_SIZE + len(ATOMIC_MARK), ATOMIC_MARK)

_SEAL = struct.Struct(">4sBB2xqQQqqqI")
STORED = struct.Struct(_SEAL.format + "I")
_CHECKSUM = struct.Struct(">I")
_PREFIX = struct.Struct(">ii")
_LEAST_PADDING = journal.PREFIX_SIZE + SIZE
_SECTOR = min(ALIGNMENTS)


class GroupFlag(enum.IntFlag):
    NONE = 0
    ATOMIC = 1


# As a number: the complement of an IntFlag keeps to the flags it knows, and would let others through.
_KNOWN_FLAGS = _ATOMIC = int(GroupFlag.ATOMIC)
_NONE = GroupFlag.NONE


class Seal(NamedTuple):
    """What the end of a group says about it."""

    journal_id: int
    salt: int
    sequence: int
    group_start: int
    durable_up_to: JournalPosition
    record_count: int
    flags: GroupFlag = GroupFlag.NONE


@dataclass(frozen=True, slots=True)
class StoredSeal:
    """A seal as it was found: not to be believed before its checksum is compared with the group."""

    seal: Seal
    checksum: int
    version: int = VERSION

    @property
    def flaw(self) -> Flaw | None:
        """What a seal says that we would not have written, once its checksum has proved it."""
        if self.version != VERSION:
            return wrong_version(self.version, VERSION)
        seal = self.seal
        places = (seal.journal_id, seal.group_start, seal.durable_up_to.journal_id, seal.durable_up_to.offset)
        if int(seal.flags) & ~_KNOWN_FLAGS or min(places) < 0:
            return Flaw.BAD_FIELD
        return None


@dataclass(frozen=True, slots=True)
class NoSeal:
    """Padding without a seal: a bookie's, or the one behind a header."""


def header_padding(alignment: int) -> bytes:
    """The padding record between the header and the first group; none at an alignment of 512."""
    missing = alignment - journal.HEADER_SIZE_MAX
    return journal.encode_free_padding(missing) if missing else b""


def first_group_start(alignment: int) -> int:
    """Where the first group begins in a journal of that alignment."""
    return max(alignment, journal.HEADER_SIZE_MAX)


def padding_size(position: int, alignment: int) -> int:
    """Bytes of the sealed padding record that ends the group: to the alignment, with room for a seal."""
    missing = -position % alignment
    return missing if missing >= _LEAST_PADDING else missing + alignment


def encode_group(records: Iterable[Buffer], seal: Seal, alignment: int) -> list[Buffer]:
    """The buffers of a whole group, to be written one behind the other at `seal.group_start`.

    The records are the caller's buffers, not copies.
    """
    buffers: list[Buffer] = [*begin(seal), *records]
    buffers.append(encode_padding(seal, sum(map(len, buffers)), alignment))
    checksum = 0
    for buffer in buffers:
        checksum = crc32c(buffer, checksum)
    return [*buffers, encode_checksum(checksum)]


def join_group(records: Iterable[bytes], size: int, seal: Seal, alignment: int) -> bytes:
    """The same in one piece: a copy, which is quicker where the records, `size` bytes in all, are few."""
    journal_id, salt, sequence, group_start, durable, count, flags = seal
    start = b"" if flags is _NONE else b"".join(begin(seal))
    end = group_start + len(start) + size
    missing = -end % alignment
    if missing < _LEAST_PADDING:
        missing += alignment
    prefix = _PREFIX.pack(journal.PADDING, missing - journal.PREFIX_SIZE)
    # Not by `_encode`: behind a sync a call costs about as much as packing does.
    place = journal_id, salt, sequence, group_start, *durable, count
    content = _SEAL.pack(MAGIC, VERSION, flags, *place)
    body = b"".join((start, *records, prefix, bytes(missing - _LEAST_PADDING), content))
    assert group_start + len(body) + CHECKSUM_SIZE == end + missing, "the records are of that size"
    return body + _CHECKSUM.pack(crc32c(body))


def join_one(
    front: bytes,
    payload: bytes,
    size: int,
    place: tuple[int, int, int, int],
    durable_up_to: JournalPosition,
    alignment: int,
) -> bytes:
    """The same for a group of one record in two parts, in as few steps as can be: nearly every add writes it.

    The place is journal id, salt, sequence and group start.
    """
    missing = -(place[3] + size) % alignment
    if missing < _LEAST_PADDING:
        missing += alignment
    prefix = _PREFIX.pack(journal.PADDING, missing - journal.PREFIX_SIZE)
    content = _SEAL.pack(MAGIC, VERSION, 0, *place, *durable_up_to, 1)
    assert len(front) + len(payload) == size, "the record is of that size"
    body = b"".join((front, payload, prefix, bytes(missing - _LEAST_PADDING), content))
    return body + _CHECKSUM.pack(crc32c(body))


def begin(seal: Seal) -> tuple[bytes, ...]:
    """What stands in front of the group's records."""
    return () if seal.flags is _NONE or not int(seal.flags) & _ATOMIC else (_ATOMIC_RECORD,)


def encode_atomic_mark() -> bytes:
    """The padding record in front of an atomic group's records."""
    return _ATOMIC_RECORD


def encode_padding(seal: Seal, size: int, alignment: int) -> bytes:
    """The padding record behind `size` bytes of a group, seal included, up to the checksum."""
    padding = padding_size(seal.group_start + size, alignment)
    content = _encode(seal)
    return b"".join((journal.encode_padding_prefix(padding), bytes(padding - _LEAST_PADDING), content))


def encode_checksum(checksum: int) -> bytes:
    """The last bytes of a group: CRC-32C over all that is before them."""
    return _CHECKSUM.pack(checksum)


def _encode(seal: Seal) -> bytes:
    journal_id, salt, sequence, start, durable, count, flags = seal
    return _SEAL.pack(
        MAGIC,
        VERSION,
        flags,
        journal_id,
        salt,
        sequence,
        start,
        durable.journal_id,
        durable.offset,
        count,
    )


def decode(tail: Buffer) -> StoredSeal | NoSeal:
    """What the last 64 bytes of a padding record's content are. Zeros, or anything else unmarked: no seal."""
    if len(tail) < SIZE or tail[: len(MAGIC)] != MAGIC:
        return NoSeal()
    _, version, flags, journal_id, salt, sequence, start, durable_id, durable_offset, count, checksum = (
        STORED.unpack_from(tail)
    )
    durable_up_to = JournalPosition(durable_id, durable_offset)
    seal = Seal(journal_id, salt, sequence, start, durable_up_to, count, GroupFlag(flags))
    return StoredSeal(seal, checksum, version)


def places(block: memoryview) -> list[int]:
    """Where seals may begin in a block that itself begins with a sector: at the end of any sector."""
    last = _SECTOR - SIZE
    # One letter of each sector first: most of what is searched is zeros, or payload.
    letters = bytes(block[last::_SECTOR])
    candidates = (last + number * _SECTOR for number, letter in enumerate(letters) if letter == MAGIC[0])
    return [place for place in candidates if block[place : place + len(MAGIC)] == MAGIC]
