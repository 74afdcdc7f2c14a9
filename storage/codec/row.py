"""One ledger row: a msgpack array with a checksum; the same bytes in `ledgers.rows` and in the index.

    ├ version, ledger, change, digest type, known by, master key, fenced, explicit LAC,
      tombstone, in limbo ┼ crc u32 ┤

    tombstone   nil │ journal id, offset │ journal id, offset, log id, log offset

The crc is CRC-32C over the array's bytes.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import msgpack
from crc32c import crc32c

from storage.entry import ID_MAX, DigestType
from storage.outcome import Damaged, Flaw, wrong_version
from storage.position import LOG_ID_MAX, JournalPosition, LogPosition
from storage.row import KnownBy, LedgerRow, Tombstone

if TYPE_CHECKING:
    from storage.codec.digest import Buffer

VERSION = 1

_CHECKSUM = struct.Struct(">I")
_FIELDS = 10


def encode(row: LedgerRow) -> bytes:
    """The row with its checksum."""
    body: bytes = msgpack.packb(
        (
            VERSION,
            row.ledger_id,
            row.change,
            row.digest_type.value if row.digest_type else None,
            row.known_by.value,
            row.master_key,
            row.fenced,
            row.explicit_lac,
            _pack_tombstone(row.tombstone),
            row.in_limbo,
        )
    )
    return body + _CHECKSUM.pack(crc32c(body))


def _pack_tombstone(tombstone: Tombstone | None) -> tuple[int, ...] | None:
    if tombstone is None:
        return None
    journal = (tombstone.journal.journal_id, tombstone.journal.offset)
    return journal if tombstone.log is None else (*journal, tombstone.log.log_id, tombstone.log.offset)


def decode(data: Buffer) -> LedgerRow | Damaged:
    """The row, its checksum verified before anything in it is believed."""
    data = bytes(data)
    body, checksum = data[: -_CHECKSUM.size], data[-_CHECKSUM.size :]
    if not body or _CHECKSUM.pack(crc32c(body)) != checksum:
        return Damaged(0, Flaw.CHECKSUM)
    try:
        fields = msgpack.unpackb(body, use_list=False)
    except (ValueError, msgpack.UnpackException) as error:
        return Damaged(0, Flaw.BAD_TEXT, str(error))
    if not isinstance(fields, tuple) or not fields:
        return Damaged(0, Flaw.BAD_FIELD, "not a row")
    if type(fields[0]) is not int:
        return Damaged(0, Flaw.BAD_FIELD, "no version")
    if fields[0] != VERSION:
        return Damaged(0, wrong_version(fields[0], VERSION), f"version {fields[0]}")
    return _row(fields) if len(fields) == _FIELDS else Damaged(0, Flaw.BAD_FIELD, f"{len(fields)} fields")


def _row(fields: tuple[Any, ...]) -> LedgerRow | Damaged:
    _, ledger_id, change, digest, known_by, key, fenced, lac, tombstone, in_limbo = fields
    if {type(fenced), type(in_limbo)} != {bool} or {type(digest), type(known_by)} - {int, type(None)}:
        return Damaged(0, Flaw.BAD_FIELD, "a field of the wrong kind")
    try:
        row = LedgerRow(
            ledger_id,
            change,
            None if digest is None else DigestType(digest),
            KnownBy(known_by),
            key,
            fenced,
            lac,
            _unpack_tombstone(tombstone),
            in_limbo,
        )
    except (TypeError, ValueError) as error:
        return Damaged(0, Flaw.BAD_FIELD, str(error))
    return row if _holds(row) else Damaged(0, Flaw.BAD_FIELD, "a field of the wrong kind")


def _unpack_tombstone(numbers: object) -> Tombstone | None:
    if numbers is None:
        return None
    if not isinstance(numbers, tuple):
        raise TypeError("a tombstone is an array")
    journal_id, offset, *log = numbers
    if not log:
        return Tombstone(JournalPosition(journal_id, offset))
    log_id, log_offset = log
    return Tombstone(JournalPosition(journal_id, offset), LogPosition(log_id, log_offset))


def _holds(row: LedgerRow) -> bool:
    """Whether every field is of the kind and in the range that `encode` writes."""
    blobs = (row.master_key, row.explicit_lac)
    return (
        all(map(_is_id, (row.ledger_id, row.change, *_places(row.tombstone))))
        and all(blob is None or type(blob) is bytes for blob in blobs)
        and (row.tombstone is None or row.tombstone.log is None or row.tombstone.log.log_id <= LOG_ID_MAX)
    )


def _places(tombstone: Tombstone | None) -> tuple[int, ...]:
    return _pack_tombstone(tombstone) or ()


def _is_id(number: object) -> bool:
    return type(number) is int and 0 <= number <= ID_MAX
