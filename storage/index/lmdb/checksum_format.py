"""The records of the index's `sums` file: the checksums of the pages that LMDB's file consists of.

    0    4         8       16       24          32     36      40     44    48
    ├────┼─────────┼───────┼────────┼───────────┼──────┼───────┼──────┼─────┼───────┼──────┼───────┼─ … ─┤
    │LSPS│ version │ start │ number │ page size │ meta │ count │ gone │ crc │ pages │ sums │ pages │  0  │
    └────┴─────────┴───────┴────────┴───────────┴──────┴───────┴──────┴─────┴───────┴──────┴───────┴─ … ─┘
    body     count × page u32 ┼ count × CRC-32C u32 ┼ gone × page u32      padded to a multiple of 4096

The first record has every page. Each later record belongs to one transaction, by its number: the pages that
it has written, with their checksums, and the pages that it has released (`gone`). `meta` is the CRC-32C of
its meta page. The crc is CRC-32C over bytes 0 to 43 and the body.
"""

from __future__ import annotations

import struct
import sys
from array import array
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from crc32c import crc32c

from storage.entry.read_result import Damaged, EndOfData, Flaw, Torn, wrong_version

if TYPE_CHECKING:
    from storage.entry.digest import Buffer

MAGIC = b"LSPS"
VERSION = 1
ALIGNMENT = 4096
PAGE_MAX = (1 << 32) - 1

_CHECKSUM = struct.Struct(">I")
_HEAD = struct.Struct(">4sIQQQIII")
_ITEM_SIZE = 4

HEAD_SIZE = _HEAD.size + _CHECKSUM.size


def numbers(*values: int) -> array[int]:
    """Return numbers of 4 bytes each, as in a record."""
    return array("I", values)


assert numbers().itemsize == _ITEM_SIZE, "an int has 4 bytes"


@dataclass(frozen=True, slots=True)
class ChecksumRecord:
    """The pages that one transaction has written and released."""

    number: int
    page_size: int
    meta: int
    """The checksum of its meta page."""
    pages: array[int] = field(default_factory=numbers)
    sums: array[int] = field(default_factory=numbers)
    """The checksum of each of `pages`."""
    gone: array[int] = field(default_factory=numbers)

    @property
    def size(self) -> int:
        """Bytes that it takes in the file."""
        return record_size(len(self.pages), len(self.gone))


@dataclass(frozen=True, slots=True)
class RecordHead:
    """The fixed part of a record, before its body is read and its checksum is compared."""

    version: int
    start: int
    number: int
    page_size: int
    meta: int
    count: int
    gone: int
    checksum: int

    @property
    def body_size(self) -> int:
        return _body_size(self.count, self.gone)

    @property
    def end(self) -> int:
        """The offset of the next record, after the padding."""
        return self.start + record_size(self.count, self.gone)


def record_size(count: int, gone: int) -> int:
    """Return the size of a record of so many pages, padding included."""
    unpadded = HEAD_SIZE + _body_size(count, gone)
    return unpadded + -unpadded % ALIGNMENT


def _body_size(count: int, gone: int) -> int:
    return (2 * count + gone) * _ITEM_SIZE


def encode(record: ChecksumRecord, start: int) -> bytes:
    """Encode a record for that offset of the file, with its padding."""
    assert len(record.pages) == len(record.sums), "a checksum for each page"
    head = _HEAD.pack(
        MAGIC,
        VERSION,
        start,
        record.number,
        record.page_size,
        record.meta,
        len(record.pages),
        len(record.gone),
    )
    body = b"".join(map(_swapped, (record.pages, record.sums, record.gone)))
    return (head + _CHECKSUM.pack(crc32c(body, crc32c(head))) + body).ljust(record.size, b"\0")


def decode_head(head: Buffer, offset: int, remaining: int) -> RecordHead | EndOfData | Torn | Damaged:
    """Decode the head of the record at `offset`. `remaining` is the largest size that it may claim."""
    head = bytes(head[:HEAD_SIZE])
    if not any(head):
        return EndOfData(offset)
    if len(head) < HEAD_SIZE:
        return Torn(offset, Flaw.FILE_SHORT)
    magic, *fields = _HEAD.unpack_from(head)
    if magic != MAGIC:
        return Damaged(offset, Flaw.BAD_MAGIC)
    found = RecordHead(*fields, *_CHECKSUM.unpack_from(head, _HEAD.size))
    if found.start != offset:
        return Damaged(offset, Flaw.OTHER_PLACE, f"a record of offset {found.start}")
    if HEAD_SIZE + found.body_size > remaining:
        return Torn(offset, Flaw.BODY_CUT)
    return found


def decode_body(head: RecordHead, head_bytes: Buffer, body: Buffer) -> ChecksumRecord | Damaged:
    """Decode a record after verifying its checksum over head and body."""
    if crc32c(body, crc32c(bytes(head_bytes[: _HEAD.size]))) != head.checksum:
        return Damaged(head.start, Flaw.CHECKSUM)
    if head.version != VERSION:
        return Damaged(head.start, wrong_version(head.version, VERSION), f"version {head.version}")
    ends = (0, head.count, 2 * head.count, 2 * head.count + head.gone)
    pages, sums, gone = (_numbers(body, *part) for part in pairwise(ends))
    return ChecksumRecord(head.number, head.page_size, head.meta, pages, sums, gone)


def _numbers(body: Buffer, first: int, end: int) -> array[int]:
    return array("I", _swapped(array("I", bytes(body[first * _ITEM_SIZE : end * _ITEM_SIZE]))))


def _swapped(values: array[int]) -> bytes:
    """Convert between the machine's byte order and the file's."""
    if sys.byteorder == "little":
        values = values[:]
        values.byteswap()
    return values.tobytes()
