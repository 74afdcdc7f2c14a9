"""One ledger row: a msgpack array with a checksum; the same bytes in `ledgers.rows` and in the index.

    ├ version, ledger, change, digest type, known by, master key, fenced, explicit LAC,
      tombstone, in limbo [, truncation] ┼ crc u32 ┤

    tombstone    nil │ journal id, offset │ journal id, offset, log id, log offset
    truncation   first entry id, length, last add confirmed

The crc is CRC-32C over the array's bytes. Only a row of version 2 has a truncation, and it always has one:
so a store in which no ledger was truncated stays readable by programs that know version 1 only.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import msgpack
from crc32c import crc32c

from storage.entry.ledger_record import KnownBy, LedgerRecord, Tombstone, Truncation
from storage.entry.model import ID_MAX, NO_ENTRY, DigestType
from storage.entry.position import LOG_ID_MAX, JournalPosition, LogPosition
from storage.entry.read_result import Damaged, Flaw, wrong_version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.entry.digest import Buffer

VERSION = 2
"""The newest version, which a row with a truncation has."""

UNTRUNCATED_VERSION = 1
"""The version of every other row."""

_CHECKSUM = struct.Struct(">I")
_FIELDS = {UNTRUNCATED_VERSION: 10, VERSION: 11}


def encode(row: LedgerRecord) -> bytes:
    """Encode the record with its checksum."""
    truncation = row.truncation
    fields: tuple[object, ...] = (
        UNTRUNCATED_VERSION if truncation is None else VERSION,
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
    if truncation is not None:
        fields += ((truncation.first, truncation.length, truncation.confirmed),)
    body: bytes = msgpack.packb(fields)
    return body + _CHECKSUM.pack(crc32c(body))


def _pack_tombstone(tombstone: Tombstone | None) -> tuple[int, ...] | None:
    if tombstone is None:
        return None
    journal = (tombstone.journal.journal_id, tombstone.journal.offset)
    return journal if tombstone.log is None else (*journal, tombstone.log.log_id, tombstone.log.offset)


def has_right_checksum(data: bytes) -> bool:
    """Return whether the bytes end in the checksum of all bytes before it."""
    return len(data) > _CHECKSUM.size and crc32c(data[: -_CHECKSUM.size]) == int.from_bytes(
        data[-_CHECKSUM.size :]
    )


def have_right_checksums(encoded: Sequence[bytes]) -> bool:
    """Return whether each record ends in its checksum, in a third of the time of single checks."""
    size = _CHECKSUM.size
    checksums = map(crc32c, [one[:-size] for one in encoded])
    return struct.pack(f">{len(encoded)}I", *checksums) == b"".join([one[-size:] for one in encoded])


def decode(data: Buffer) -> LedgerRecord | Damaged:
    """Return the record; verify its checksum before anything in it is believed."""
    data = bytes(data)
    if not has_right_checksum(data):
        return Damaged(0, Flaw.CHECKSUM)
    body = data[: -_CHECKSUM.size]
    try:
        fields = msgpack.unpackb(body, use_list=False)
    except (ValueError, msgpack.UnpackException) as error:
        return Damaged(0, Flaw.BAD_TEXT, str(error))
    if not isinstance(fields, tuple) or not fields:
        return Damaged(0, Flaw.BAD_FIELD, "not a row")
    if type(fields[0]) is not int:
        return Damaged(0, Flaw.BAD_FIELD, "no version")
    if fields[0] not in _FIELDS:
        return Damaged(0, wrong_version(fields[0], VERSION), f"version {fields[0]}")
    if len(fields) != _FIELDS[fields[0]]:
        return Damaged(0, Flaw.BAD_FIELD, f"{len(fields)} fields")
    return _row(fields)


def _row(fields: tuple[Any, ...]) -> LedgerRecord | Damaged:
    _, ledger_id, change, digest, known_by, key, fenced, lac, tombstone, in_limbo, *truncation = fields
    if {type(fenced), type(in_limbo)} != {bool} or {type(digest), type(known_by)} - {int, type(None)}:
        return Damaged(0, Flaw.BAD_FIELD, "a field of the wrong kind")
    try:
        row = LedgerRecord(
            ledger_id,
            change,
            None if digest is None else DigestType(digest),
            KnownBy(known_by),
            key,
            fenced,
            lac,
            _unpack_tombstone(tombstone),
            in_limbo,
            _unpack_truncation(*truncation) if truncation else None,
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


def _unpack_truncation(numbers: object) -> Truncation:
    if not isinstance(numbers, tuple):
        raise TypeError("a truncation is an array")
    first, length, confirmed = numbers
    return Truncation(first, length, confirmed)


def _holds(row: LedgerRecord) -> bool:
    """Return whether every field is of the kind and in the range that `encode` writes."""
    blobs = (row.master_key, row.explicit_lac)
    return (
        all(map(_is_id, (row.ledger_id, row.change, *_places(row.tombstone))))
        and all(blob is None or type(blob) is bytes for blob in blobs)
        and (row.tombstone is None or row.tombstone.log is None or row.tombstone.log.log_id <= LOG_ID_MAX)
        and (row.truncation is None or _truncates(row.truncation))
    )


def _truncates(truncation: Truncation) -> bool:
    return (
        _is_id(truncation.first)
        and truncation.first > 0
        and _is_id(truncation.length)
        and (_is_id(truncation.confirmed) or truncation.confirmed == NO_ENTRY)
    )


def _places(tombstone: Tombstone | None) -> tuple[int, ...]:
    return _pack_tombstone(tombstone) or ()


def _is_id(number: object) -> bool:
    return type(number) is int and 0 <= number <= ID_MAX
