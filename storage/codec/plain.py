"""Records under CRC-32C, verified and taken apart in one go: the way of nearly every read.

It says of a record that all is right with it, or nothing. What is wrong, `codec.entry` finds out.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from crc32c import crc32c

from storage.codec.record import CRC32C_OVERHEAD, FRONT_SIZE, LENGTH_SIZE
from storage.entry import NO_ENTRY, Blank, Entry

if TYPE_CHECKING:
    from storage.codec.digest import Buffer

_FRONT = struct.Struct(">iqqqqI")
_HEAD = slice(LENGTH_SIZE, FRONT_SIZE - 4)


def decode(front: Buffer, ledger_id: int, entry_id: int, payload: bytes | None = None) -> Entry | None:
    """The entry with that front, if it is the one that is wanted and nothing is wrong with it.

    Its payload follows the front, which is bytes then, unless it is given.
    """
    if len(front) < FRONT_SIZE:
        return None
    record: Any = front
    size, found_ledger, found_entry, confirmed, length, checksum = _FRONT.unpack_from(front)
    if payload is None:
        payload = record[FRONT_SIZE : LENGTH_SIZE + size]
    assert payload is not None
    if checksum != crc32c(payload, crc32c(front[_HEAD])) or size != CRC32C_OVERHEAD + len(payload):
        return None
    if found_entry != entry_id or found_ledger != ledger_id or confirmed < NO_ENTRY or length < 0:
        return None
    blank: Any = Blank()
    blank.ledger_id = found_ledger
    blank.entry_id = found_entry
    blank.last_add_confirmed = confirmed
    blank.length = length
    blank.payload = payload
    blank.__class__ = Entry
    entry: Entry = blank
    return entry
