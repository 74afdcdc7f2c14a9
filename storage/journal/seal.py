"""The group and its seal, which one leader writes with one write and one sync.

    group    ├ [atomic mark] ┼ record ┼ record ┼ … ┼ padding record … seal ┤  to a multiple of the alignment

    seal     0    4         5       6     8         16     24         32            40
             ├────┼─────────┼───────┼─────┼─────────┼──────┼──────────┼─────────────┼─ …
             │LSSL│ version │ flags │ tag │ journal │ salt │ sequence │ group start │
             └────┴─────────┴───────┴─────┴─────────┴──────┴──────────┴─────────────┴─ …
             40                    48                    56             60    64
           … ┼─────────────────────┼─────────────────────┼──────────────┼─────┤
             │ durable: journal    │ durable: offset     │ record count │ crc │
           … ┴─────────────────────┴─────────────────────┴──────────────┴─────┘

The crc is CRC-32C over everything from the group's start up to the crc itself; a later version keeps both in
their places. Everything before `durable_up_to` was known to be durable when the group was written, so damage
there is rot and never a torn tail. Journal id, salt, group start and crc together tell a seal from a payload
that contains a copy of a journal.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from storage.entry.position import JournalPosition
from storage.entry.read_result import Flaw, wrong_version
from storage.journal import format as journal_format

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.entry.digest import Buffer

MAGIC = journal_format.OUR_MAGIC
"""The same four bytes as in the header, so that everything of ours in a journal begins with them."""

VERSION = 1
SIZE = 64
CHECKSUM_SIZE = 4
ALIGNMENTS = (512, 4096)

ATOMIC_MARK = b"LSAT"
"""Content of the padding record before a group that is kept whole or not at all."""

_ATOMIC_RECORD = journal_format.encode_free_padding(
    journal_format.PREFIX_SIZE + len(ATOMIC_MARK), ATOMIC_MARK
)

_SEAL = struct.Struct(">4sBBHqQQqqqI")
STORED = struct.Struct(_SEAL.format + "I")
_CHECKSUM = struct.Struct(">I")
_PREFIX = struct.Struct(">ii")
_LEAST_PADDING = journal_format.PREFIX_SIZE + SIZE
_SECTOR = min(ALIGNMENTS)


class GroupFlag(enum.IntFlag):
    NONE = 0
    ATOMIC = 1


# A number, because the complement of an IntFlag contains only the flags it knows, and would let others pass.
_KNOWN_FLAGS = _ATOMIC = int(GroupFlag.ATOMIC)
_NONE = GroupFlag.NONE


_TAGS = 65535
"""The number of tags, 0 not counted."""


def metadata_tag(sequence: int) -> int:
    """Return the tag for a metadata log whose last durable group has this number; 0 for none."""
    return 1 + sequence % _TAGS if sequence else 0


def metadata_sequence(tag: int, known: int) -> int:
    """Return the group of the metadata log that was durable when a seal with this tag was written.

    `known` is a group that is known to be durable. It is the result if the tag tells of no later one. The tag
    is the number modulo 65,535, because `known`, which a checkpoint brings, is never half as many groups old.
    """
    ahead = (tag - 1 - known) % _TAGS if tag else 0
    return known + ahead if ahead < _TAGS // 2 else known


class Seal(NamedTuple):
    """The facts about a group that stand at its end."""

    journal_id: int
    salt: int
    sequence: int
    group_start: int
    durable_up_to: JournalPosition
    record_count: int
    flags: GroupFlag = GroupFlag.NONE
    metadata_tag: int = 0
    """See `metadata_sequence`. 0 in the seals of a store whose metadata log has no group."""


@dataclass(frozen=True, slots=True)
class StoredSeal:
    """A seal as it was found. It must not be believed before its checksum is compared with the group."""

    seal: Seal
    checksum: int
    version: int = VERSION

    @property
    def flaw(self) -> Flaw | None:
        """Return what this store would not have written in the seal, once its checksum has proved it."""
        if self.version != VERSION:
            return wrong_version(self.version, VERSION)
        seal = self.seal
        places = (seal.journal_id, seal.group_start, seal.durable_up_to.journal_id, seal.durable_up_to.offset)
        if int(seal.flags) & ~_KNOWN_FLAGS or min(places) < 0:
            return Flaw.BAD_FIELD
        return None


@dataclass(frozen=True, slots=True)
class NoSeal:
    """Padding without a seal: a bookie's, or the one after a header."""


def header_padding(alignment: int) -> bytes:
    """Encode the padding record between the header and the first group; none at an alignment of 512."""
    missing = alignment - journal_format.HEADER_SIZE_MAX
    return journal_format.encode_free_padding(missing) if missing else b""


def first_group_start(alignment: int) -> int:
    """Return the offset of the first group in a journal of that alignment."""
    return max(alignment, journal_format.HEADER_SIZE_MAX)


def padding_size(position: int, alignment: int) -> int:
    """Return the size of the sealed padding that ends the group: to the alignment, with room for a seal."""
    missing = -position % alignment
    return missing if missing >= _LEAST_PADDING else missing + alignment


def encode_group(records: Iterable[Buffer], size: int, seal: Seal, alignment: int) -> bytes:
    """Return the bytes of a whole group, whose records have `size` bytes, to be written at its start."""
    journal_id, salt, sequence, group_start, durable, count, flags, tag = seal
    start = b"" if flags is _NONE else b"".join(atomic_prefix(seal))
    end = group_start + len(start) + size
    missing = -end % alignment
    if missing < _LEAST_PADDING:
        missing += alignment
    prefix = _PREFIX.pack(journal_format.PADDING, missing - journal_format.PREFIX_SIZE)
    # Not by `_encode`, because a call after a sync costs about as much as packing does.
    place = journal_id, salt, sequence, group_start, *durable, count
    content = _SEAL.pack(MAGIC, VERSION, flags, tag, *place)
    body = b"".join((start, *records, prefix, bytes(missing - _LEAST_PADDING), content))
    assert group_start + len(body) + CHECKSUM_SIZE == end + missing, "the records are of that size"
    return body + _CHECKSUM.pack(crc32c(body))


def encode_single(
    front: bytes,
    payload: bytes,
    size: int,
    place: tuple[int, int, int, int],
    durable_up_to: JournalPosition,
    tag: int,
    alignment: int,
) -> bytes:
    """Return the bytes of a group of one record, which comes in two parts of `size` bytes together.

    It takes few steps, because nearly every add of a store takes them. The place is journal id, salt,
    sequence and group start.
    """
    missing = -(place[3] + size) % alignment
    if missing < _LEAST_PADDING:
        missing += alignment
    prefix = _PREFIX.pack(journal_format.PADDING, missing - journal_format.PREFIX_SIZE)
    content = _SEAL.pack(MAGIC, VERSION, 0, tag, *place, *durable_up_to, 1)
    assert len(front) + len(payload) == size, "the record is of that size"
    body = b"".join((front, payload, prefix, bytes(missing - _LEAST_PADDING), content))
    return body + _CHECKSUM.pack(crc32c(body))


def atomic_prefix(seal: Seal) -> tuple[bytes, ...]:
    """Return what is written before the group's records."""
    return () if seal.flags is _NONE or not int(seal.flags) & _ATOMIC else (_ATOMIC_RECORD,)


def encode_atomic_mark() -> bytes:
    """Encode the padding record before an atomic group's records."""
    return _ATOMIC_RECORD


def encode_padding(seal: Seal, size: int, alignment: int) -> bytes:
    """Encode the padding record after `size` bytes of a group, seal included, up to the checksum."""
    padding = padding_size(seal.group_start + size, alignment)
    content = _encode(seal)
    return b"".join((journal_format.encode_padding_prefix(padding), bytes(padding - _LEAST_PADDING), content))


def encode_checksum(checksum: int) -> bytes:
    """Encode the last bytes of a group: CRC-32C over all bytes before them."""
    return _CHECKSUM.pack(checksum)


def _encode(seal: Seal) -> bytes:
    journal_id, salt, sequence, start, durable, count, flags, tag = seal
    return _SEAL.pack(
        MAGIC,
        VERSION,
        flags,
        tag,
        journal_id,
        salt,
        sequence,
        start,
        durable.journal_id,
        durable.offset,
        count,
    )


def decode(tail: Buffer) -> StoredSeal | NoSeal:
    """Decode the last 64 bytes of a padding record.

    Zeros, and anything else without the magic, are no seal.
    """
    if len(tail) < SIZE or tail[: len(MAGIC)] != MAGIC:
        return NoSeal()
    fields = STORED.unpack_from(tail)
    _, version, flags, tag, journal_id, salt, sequence, start, *durable, count, checksum = fields
    durable_up_to = JournalPosition(*durable)
    seal = Seal(journal_id, salt, sequence, start, durable_up_to, count, GroupFlag(flags), tag)
    return StoredSeal(seal, checksum, version)


def sealed_end(block: Buffer, start: int) -> int | None:
    """Return where the padding record at `start` ends, if it carries a seal and the block holds all of it."""
    if len(block) - start < _LEAST_PADDING:
        return None
    word, length = _PREFIX.unpack_from(block, start)
    end = start + journal_format.PREFIX_SIZE + length
    if word != journal_format.PADDING or length < SIZE or end > len(block):
        return None
    return end if block[end - SIZE : end - SIZE + len(MAGIC)] == MAGIC else None


def candidates(block: memoryview) -> list[int]:
    """Return where seals may begin in a block that begins with a sector: at the end of any sector."""
    last, found = _SECTOR - SIZE, []
    # One byte of each sector is compared first, because most of what is searched is zeros or payload.
    letters = bytes(block[last::_SECTOR])
    number = letters.find(MAGIC[0])
    while number >= 0:
        place = last + number * _SECTOR
        if block[place : place + len(MAGIC)] == MAGIC:
            found.append(place)
        number = letters.find(MAGIC[0], number + 1)
    return found
