"""The groups of the `ledgers.rows` file.

    0    4         8          16      24           32          36      40    44
    ├────┼─────────┼──────────┼───────┼────────────┼───────────┼───────┼─────┼──────┼─ … ─┤
    │LSRG│ version │ sequence │ start │ synced end │ body size │ count │ crc │ body │  0  │
    └────┴─────────┴──────────┴───────┴────────────┴───────────┴───────┴─────┴──────┴─ … ─┘
    body     count × (size u32 ┼ row)                padded with zeros to a multiple of 4096

The crc is CRC-32C over bytes 0 to 39 and the body. The file was durable up to `synced end` when the group was
written, like up to a seal's `durable_up_to`. A file that was rewritten was synced before it got its name, so
each of its groups has the file's own end.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from crc32c import crc32c

from storage.entry import ledger_record_format
from storage.entry.read_result import Damaged, EndOfData, Flaw, Torn, wrong_version

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from storage.entry.digest import Buffer
    from storage.entry.ledger_record import LedgerRecord

MAGIC = b"LSRG"
VERSION = 1
ALIGNMENT = 4096
BODY_SIZE_MAX = 32 << 20
"""The largest body of a group. More rows make several groups."""

_CHECKSUM = struct.Struct(">I")
_HEAD = struct.Struct(">4sIQqqII")
_SIZE = struct.Struct(">I")

HEAD_SIZE = _HEAD.size + _CHECKSUM.size


@dataclass(frozen=True, slots=True)
class GroupHead:
    """The fixed part of a group, before its body is read and its checksum is compared."""

    version: int
    sequence: int
    start: int
    synced_end: int
    body_size: int
    count: int
    checksum: int

    @property
    def end(self) -> int:
        """The offset of the next group, after the padding."""
        return group_end(self.start, self.body_size)


def group_end(start: int, body_size: int) -> int:
    """Return the offset of the next group."""
    unpadded = start + HEAD_SIZE + body_size
    return unpadded + -unpadded % ALIGNMENT


def body_size(encoded_rows: Collection[bytes]) -> int:
    """Return the size of a body of these rows."""
    return _SIZE.size * len(encoded_rows) + sum(map(len, encoded_rows))


def item_size(encoded_row: bytes) -> int:
    """Return the size of the row in a body."""
    return _SIZE.size + len(encoded_row)


def encode_group(encoded_rows: Sequence[bytes], sequence: int, start: int, synced_end: int) -> bytes:
    """Encode one group, padded. The rows come encoded, because the same bytes go into the index."""
    sizes = map(_SIZE.pack, map(len, encoded_rows))
    body = b"".join(chain.from_iterable(zip(sizes, encoded_rows, strict=True)))
    head = _HEAD.pack(MAGIC, VERSION, sequence, start, synced_end, len(body), len(encoded_rows))
    checksum = crc32c(body, crc32c(head))
    size = group_end(start, len(body)) - start
    return (head + _CHECKSUM.pack(checksum) + body).ljust(size, b"\0")


def decode_group_head(head: Buffer, offset: int, remaining: int) -> GroupHead | EndOfData | Torn | Damaged:
    """Decode the head of the group at `offset`. `remaining` is the largest size that it may claim."""
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


def decode_group_body(head: GroupHead, head_bytes: Buffer, body: Buffer) -> list[LedgerRecord] | Damaged:
    """Decode the rows of a group after verifying its checksum over head and body."""
    items = split_group_body(head, head_bytes, body)
    if isinstance(items, Damaged):
        return items
    rows: list[LedgerRecord] = []
    for number, item in enumerate(items):
        decoded = ledger_record_format.decode(item)
        if isinstance(decoded, Damaged):
            return Damaged(item_offset(head, items, number), decoded.flaw, decoded.detail)
        rows.append(decoded)
    return rows


def item_offset(head: GroupHead, items: Sequence[bytes], number: int) -> int:
    """Return the offset in the file of the size word of one of a group's rows."""
    return head.start + HEAD_SIZE + sum(map(item_size, items[:number]))


def split_group_body(head: GroupHead, head_bytes: Buffer, body: Buffer) -> list[bytes] | Damaged:
    """Return the encoded rows of a group after verifying its checksum over head and body."""
    if crc32c(body, crc32c(bytes(head_bytes[: _HEAD.size]))) != head.checksum:
        return Damaged(head.start, Flaw.CHECKSUM)
    if head.version != VERSION:
        return Damaged(head.start, wrong_version(head.version, VERSION), f"version {head.version}")
    if head.synced_end < 0:
        return Damaged(head.start, Flaw.BAD_FIELD, f"synced end {head.synced_end}")
    return _items(head, bytes(body))


def _items(head: GroupHead, body: bytes) -> list[bytes] | Damaged:
    items: list[bytes] = []
    at, size_of = 0, _SIZE.unpack_from
    for _ in range(head.count):
        start = at + _SIZE.size
        if start > len(body):
            return Damaged(head.start, Flaw.INNER_LENGTH)
        at = start + size_of(body, at)[0]
        items.append(body[start:at])
    return items if at == len(body) else Damaged(head.start, Flaw.INNER_LENGTH)
