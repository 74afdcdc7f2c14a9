"""A record: an entry with its length in front, the same bytes in a journal, a memtable and an entry log.

    0        4        12       20                   28       36          36+m
    ├────────┼────────┼────────┼────────────────────┼────────┼───────────┼─────────
    │ length │ ledger │ entry  │ last add confirmed │ length │ digest: m │ payload
    └────────┴────────┴────────┴────────────────────┴────────┴───────────┴─────────

The first length counts the bytes behind itself, the second the payload bytes of the ledger so far.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from crc32c import crc32c

from storage.codec import entry as entry_codec

if TYPE_CHECKING:
    from storage.codec.digest import Digester
    from storage.entry import Entry

LENGTH_SIZE = 4
CRC32C_OVERHEAD = entry_codec.HEAD.size + 4
"""What an entry protected by CRC-32C takes beside its payload."""

_LENGTH = struct.Struct(">i")
_HEAD = entry_codec.HEAD
_FRONT = struct.Struct(">iqqqqI")
_ID = struct.Struct(">q")
_LENGTHS = struct.Struct(">i24xq")


def encode(entry: Entry, digester: Digester) -> bytes:
    """The record of an entry that the caller has made whole."""
    data = entry_codec.encode(entry, digester)
    return _LENGTH.pack(len(data)) + data


def encode_fields(
    ledger_id: int, entry_id: int, last_add_confirmed: int, length: int, payload: bytes
) -> bytes:
    """The same for an entry in parts, protected by CRC-32C: the way of every add of an embedded store."""
    checksum = crc32c(payload, crc32c(_HEAD.pack(ledger_id, entry_id, last_add_confirmed, length)))
    size = CRC32C_OVERHEAD + len(payload)
    return _FRONT.pack(size, ledger_id, entry_id, last_add_confirmed, length, checksum) + payload


def ledger_id(record: bytes) -> int:
    """The ledger of the entry."""
    (found,) = _ID.unpack_from(record, LENGTH_SIZE)
    return int(found)


def ledger_length(record: bytes) -> int:
    """The payload bytes of the ledger up to and with this entry."""
    _, length = _LENGTHS.unpack_from(record)
    return int(length)


def entry_bytes(record: bytes) -> memoryview:
    """The entry without the length in front."""
    return memoryview(record)[LENGTH_SIZE:]
