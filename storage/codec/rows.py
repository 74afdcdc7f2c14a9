"""The groups of the `ledgers.rows` file.

    0    4         8          16      24           32          36      40    44
    ├────┼─────────┼──────────┼───────┼────────────┼───────────┼───────┼─────┼──────┼─ … ─┤
    │LSRG│ version │ sequence │ start │ synced end │ body size │ count │ crc │ body │  0  │
    └────┴─────────┴──────────┴───────┴────────────┴───────────┴───────┴─────┴──────┴─ … ─┘
    body     count × (size u32 ┼ row)                padded with zeros to a multiple of 4096

The crc is CRC-32C over bytes 0 to 39 and the body. `synced end` is what was known to be durable when
the group was written, like a seal's `durable_up_to`. A file rewritten and synced before its name appeared
vouches for itself: each of its groups carries the file's own end.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crc32c import crc32c

from storage.codec import row
from storage.outcome import Damaged, EndOfData, Flaw, Torn, wrong_version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.codec.digest import Buffer
    from storage.row import LedgerRow

MAGIC = b"LSRG"
VERSION = 1
ALIGNMENT = 4096
BODY_SIZE_MAX = 32 << 20
"""More rows than this make several groups."""

_CHECKSUM = struct.Struct(">I")
_HEAD = struct.Struct(">4sIQqqII")
_SIZE = struct.Struct(">I")

HEAD_SIZE = _HEAD.size + _CHECKSUM.size


@dataclass(frozen=True, slots=True)
class GroupHead:
    """The fixed part of a group, before its body was read and its checksum compared."""

    version: int
    sequence: int
    start: int
    synced_end: int
    body_size: int
    count: int
    checksum: int

    @property
    def end(self) -> int:
        """Where the next group begins, behind the padding."""
        return group_end(self.start, self.body_size)


def group_end(start: int, body_size: int) -> int:
    """Where the next group begins."""
    unpadded = start + HEAD_SIZE + body_size
    return unpadded + -unpadded % ALIGNMENT


def item_size(encoded_row: bytes) -> int:
    """Bytes that the row takes in a body."""
    return _SIZE.size + len(encoded_row)


def encode_group(encoded_rows: Sequence[bytes], sequence: int, start: int, synced_end: int) -> bytes:
    """One group, padded. The rows are encoded already: the same bytes go into the index."""
    body = b"".join(_SIZE.pack(len(encoded)) + encoded for encoded in encoded_rows)
    head = _HEAD.pack(MAGIC, VERSION, sequence, start, synced_end, len(body), len(encoded_rows))
    checksum = crc32c(body, crc32c(head))
    size = group_end(start, len(body)) - start
    return (head + _CHECKSUM.pack(checksum) + body).ljust(size, b"\0")


def decode_group_head(head: Buffer, offset: int, remaining: int) -> GroupHead | EndOfData | Torn | Damaged:
    """The group at `offset`; `remaining` bounds what its lengths may claim."""
    head = bytes(head[:HEAD_SIZE])
    if not any(head):
        return EndOfData(offset)
    if len(head) < HEAD_SIZE:
        return Torn(offset, Flaw.FILE_SHORT)
    magic, version, sequence, start, synced_end, body_size, count = _HEAD.unpack_from(head)
    if magic != MAGIC:
        return Damaged(offset, Flaw.BAD_MAGIC)
    if start != offset:
        return Damaged(offset, Flaw.OTHER_PLACE, f"a group of offset {start}")
    if body_size > remaining - HEAD_SIZE:
        return Torn(offset, Flaw.BODY_CUT)
    if body_size > BODY_SIZE_MAX:
        return Damaged(offset, Flaw.LENGTH_TOO_LARGE, f"body of {body_size}")
    (checksum,) = _CHECKSUM.unpack_from(head, _HEAD.size)
    return GroupHead(version, sequence, start, synced_end, body_size, count, checksum)


def decode_group_body(head: GroupHead, head_bytes: Buffer, body: Buffer) -> list[LedgerRow] | Damaged:
    """The rows of a group, its checksum verified over head and body."""
    if crc32c(body, crc32c(bytes(head_bytes[: _HEAD.size]))) != head.checksum:
        return Damaged(head.start, Flaw.CHECKSUM)
    if head.version != VERSION:
        return Damaged(head.start, wrong_version(head.version, VERSION), f"version {head.version}")
    if head.synced_end < 0:
        return Damaged(head.start, Flaw.BAD_FIELD, f"synced end {head.synced_end}")
    return _rows(head, body)


def _rows(head: GroupHead, body: Buffer) -> list[LedgerRow] | Damaged:
    rows: list[LedgerRow] = []
    at = 0
    for _ in range(head.count):
        if at + _SIZE.size > len(body):
            return Damaged(head.start, Flaw.INNER_LENGTH)
        (size,) = _SIZE.unpack_from(body, at)
        decoded = row.decode(body[at + _SIZE.size : at + _SIZE.size + size])
        if isinstance(decoded, Damaged):
            return Damaged(head.start + HEAD_SIZE + at, decoded.flaw, decoded.detail)
        rows.append(decoded)
        at += _SIZE.size + size
    return rows if at == len(body) else Damaged(head.start, Flaw.INNER_LENGTH)
