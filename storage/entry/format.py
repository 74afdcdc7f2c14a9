"""An entry's bytes, as a client makes them and a bookie keeps them. Big-endian, like everything on disk.

    0        8        16                   24       32          32+m
    ├────────┼────────┼────────────────────┼────────┼───────────┼─────────
    │ ledger │ entry  │ last add confirmed │ length │ digest: m │ payload
    └────────┴────────┴────────────────────┴────────┴───────────┴─────────

The digest covers the head (the first 32 bytes) and the payload, not itself. m is 8, 20, 4 or 0 by type.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from storage.entry.digest import DigestCheck
from storage.entry.model import ID_MAX, NO_ENTRY, Entry
from storage.entry.read_result import Damaged, Flaw
from storage.errors import InvalidEntry

if TYPE_CHECKING:
    from storage.entry.digest import Buffer, Digester

HEAD = struct.Struct(">qqqq")
IDS = struct.Struct(">qq")
LAC_PACKET = struct.Struct(">qq")


class Head(NamedTuple):
    """The first 32 bytes of an entry."""

    ledger_id: int
    entry_id: int
    last_add_confirmed: int
    length: int


def encode(entry: Entry, digester: Digester) -> bytes:
    """Encode the entry with its digest, as it is stored in a journal and an entry log."""
    head = HEAD.pack(entry.ledger_id, entry.entry_id, entry.last_add_confirmed, entry.length)
    return b"".join((head, digester.compute(head, entry.payload), entry.payload))


def decode_head(data: Buffer) -> Head | Damaged:
    """Return the four numbers of the head, or why these bytes are no entry. Verifies no digest."""
    if len(data) < HEAD.size:
        return Damaged(0, Flaw.ENTRY_SHORT)
    head = Head(*HEAD.unpack_from(data))
    if head.ledger_id < 0:
        return Damaged(0, Flaw.LEDGER_NEGATIVE)
    if head.entry_id < 0:
        return Damaged(8, Flaw.ENTRY_NEGATIVE)
    if head.last_add_confirmed < NO_ENTRY:
        return Damaged(16, Flaw.BAD_FIELD, f"last add confirmed {head.last_add_confirmed}")
    if head.length < 0:
        return Damaged(24, Flaw.BAD_FIELD, f"length {head.length}")
    return head


def decode(data: Buffer, digester: Digester) -> Entry | Damaged:
    """Return the entry, its digest verified if the digester can; the payload is a copy."""
    head = decode_head(data)
    if isinstance(head, Damaged):
        return head
    start = HEAD.size + digester.digest_type.width
    if len(data) < start:
        return Damaged(0, Flaw.ENTRY_SHORT)
    if check_digest(data, digester) is DigestCheck.MISMATCH:
        return Damaged(HEAD.size, Flaw.DIGEST)
    payload = bytes(data[start:])
    return Entry(head.ledger_id, head.entry_id, head.last_add_confirmed, head.length, payload)


def check_digest(data: Buffer, digester: Digester) -> DigestCheck:
    """Return whether the digest inside the entry's bytes belongs to them."""
    start = HEAD.size + digester.digest_type.width
    if len(data) < start:
        return DigestCheck.MISMATCH if digester.verifies else DigestCheck.UNVERIFIED
    view = memoryview(data)
    return digester.check(view[: HEAD.size], view[HEAD.size : start], view[start:])


def encode_lac(ledger_id: int, last_add_confirmed: int, digester: Digester) -> bytes:
    """Encode an explicit last add confirmed, as the client sends it and the journal keeps it."""
    if not 0 <= ledger_id <= ID_MAX or not NO_ENTRY <= last_add_confirmed <= ID_MAX:
        raise InvalidEntry(f"no last add confirmed {last_add_confirmed} for ledger {ledger_id}")
    head = LAC_PACKET.pack(ledger_id, last_add_confirmed)
    return head + digester.compute(head, b"")


def decode_lac(packet: Buffer, digester: Digester) -> int | Damaged:
    """Return the last add confirmed in the packet, its digest verified if the digester can."""
    if len(packet) != LAC_PACKET.size + digester.digest_type.width:
        return Damaged(0, Flaw.INNER_LENGTH)
    view = memoryview(packet)
    head = view[: LAC_PACKET.size]
    if digester.check(head, view[LAC_PACKET.size :], b"") is DigestCheck.MISMATCH:
        return Damaged(LAC_PACKET.size, Flaw.DIGEST)
    ledger_id, last_add_confirmed = LAC_PACKET.unpack(head)
    if ledger_id < 0:
        return Damaged(0, Flaw.LEDGER_NEGATIVE)
    if last_add_confirmed < NO_ENTRY:
        return Damaged(8, Flaw.BAD_FIELD, f"last add confirmed {last_add_confirmed}")
    return int(last_add_confirmed)
