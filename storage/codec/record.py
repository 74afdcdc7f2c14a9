"""A record: an entry with its length in front, the same bytes in a journal, a memtable and an entry log.

    0        4        12       20                   28       36          36+m
    ├────────┼────────┼────────┼────────────────────┼────────┼───────────┼─────────
    │ length │ ledger │ entry  │ last add confirmed │ length │ digest: m │ payload
    └────────┴────────┴────────┴────────────────────┴────────┴───────────┴─────────

The first length counts the bytes behind itself, the second the payload bytes of the ledger so far.
"""

from __future__ import annotations

import struct
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import accumulate, count, repeat
from typing import TYPE_CHECKING, Protocol

from crc32c import crc32c

from storage.codec import entry as entry_codec
from storage.codec.cutting import cut
from storage.entry import DigestType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.codec.digest import Digester

LENGTH_SIZE = 4
CRC32C_OVERHEAD = entry_codec.HEAD.size + 4
"""What an entry protected by CRC-32C takes beside its payload."""

FRONT_SIZE = LENGTH_SIZE + CRC32C_OVERHEAD
"""What stands in front of the payload where CRC-32C protects it."""

HEAD_FRONT_SIZE = LENGTH_SIZE + entry_codec.HEAD.size
"""The smallest front, where nothing protects the payload: no record is shorter."""

MANY = 128
"""From so many on fronts are quicker made all at once; of fewer, calls to numpy cost more than they spare."""

_HEAD = entry_codec.HEAD
_LENGTH = struct.Struct(">i")
_FRONT = struct.Struct(">iqqqqI")
_ID = struct.Struct(">q")
_CRC32C = DigestType.CRC32C  # looked up once: for an enum's member that is a fifth of what a front costs


class Kernel(Protocol):
    """What encodes the fronts of many records at once."""

    def encode_fronts(
        self, ledger_id: int, first_id: int, last_add_confirmed: int, length: int, payloads: Sequence[bytes]
    ) -> bytes | None:
        """As `encode_fronts` below; `None` where a number is larger than a record can hold."""


@cache
def many_at_once() -> Kernel | None:
    """What encodes `MANY` fronts or more, if there is numpy. The first call loads it: a tenth of a second."""
    if find_spec("numpy") is None:
        return None
    module: Kernel = import_module("storage.codec.fronts_numpy")
    return module


def front_size(digest_type: DigestType) -> int:
    """What stands in front of the payload under that digest type."""
    return HEAD_FRONT_SIZE + digest_type.width


def encode_front(
    ledger_id: int, entry_id: int, last_add_confirmed: int, length: int, payload: bytes
) -> bytes:
    """All of an entry's record but the payload, protected by CRC-32C: the way of every add of a store."""
    checksum = crc32c(payload, crc32c(_HEAD.pack(ledger_id, entry_id, last_add_confirmed, length)))
    size = CRC32C_OVERHEAD + len(payload)
    return _FRONT.pack(size, ledger_id, entry_id, last_add_confirmed, length, checksum)


def encode_fronts(
    ledger_id: int, first_id: int, last_add_confirmed: int, length: int, payloads: Sequence[bytes]
) -> bytes:
    """The same, one behind the other, for entries with consecutive ids behind a ledger of that length."""
    if len(payloads) >= MANY and (kernel := many_at_once()) is not None:
        fronts = kernel.encode_fronts(ledger_id, first_id, last_add_confirmed, length, payloads)
        if fronts is not None:
            return fronts
    sizes = list(map(len, payloads))
    ids, size = range(first_id, first_id + len(sizes)), sizes[0] if sizes else 0
    ledger, confirmed = repeat(ledger_id), repeat(last_add_confirmed)
    lengths: Sequence[int]
    if size and sizes.count(size) == len(sizes):  # as it mostly is: then nothing has to be added up
        lengths = range(length + size, length + size * len(sizes) + 1, size)
    else:
        lengths = list(accumulate(sizes, initial=length))[1:]
    checksums = map(crc32c, payloads, map(crc32c, map(_HEAD.pack, ledger, ids, confirmed, lengths)))
    lengths_in_front = [CRC32C_OVERHEAD + size for size in sizes]
    return b"".join(map(_FRONT.pack, lengths_in_front, ledger, ids, confirmed, lengths, checksums))


def ledger_length(front: bytes) -> int:
    """The payload bytes of the ledger up to and with the last entry of these fronts, under CRC-32C."""
    (found,) = _ID.unpack_from(front, len(front) - FRONT_SIZE + HEAD_FRONT_SIZE - _ID.size)
    return int(found)


def buffers(fronts: bytes, payloads: Sequence[bytes]) -> Sequence[bytes]:
    """The records of these fronts and payloads, one behind the other, in as many pieces as it takes."""
    count = len(payloads)
    if count == 1:
        return fronts, payloads[0]
    parts = [b""] * (2 * count)
    parts[::2] = cut(fronts, count)
    parts[1::2] = payloads
    return parts


def encode_front_with(
    digester: Digester, ledger_id: int, entry_id: int, last_add_confirmed: int, length: int, payload: bytes
) -> bytes:
    """All of an entry's record but the payload, protected by that digester."""
    if digester.digest_type is _CRC32C:
        return encode_front(ledger_id, entry_id, last_add_confirmed, length, payload)
    head = _HEAD.pack(ledger_id, entry_id, last_add_confirmed, length)
    digest = digester.compute(head, payload)
    return b"".join((_LENGTH.pack(len(head) + len(digest) + len(payload)), head, digest))


def encode_fronts_with(
    digester: Digester,
    ledger_id: int,
    first_id: int,
    last_add_confirmed: int,
    length: int,
    payloads: Sequence[bytes],
) -> bytes:
    """The same, one behind the other, for entries with consecutive ids behind a ledger of that length."""
    if digester.digest_type is _CRC32C:
        return encode_fronts(ledger_id, first_id, last_add_confirmed, length, payloads)
    fronts = []
    for entry_id, payload in zip(count(first_id), payloads, strict=False):
        length += len(payload)
        fronts.append(encode_front_with(digester, ledger_id, entry_id, last_add_confirmed, length, payload))
    return b"".join(fronts)


def split(record: bytes, front_size: int) -> tuple[bytes, bytes]:
    """So many bytes of a record, and the rest: its payload, if that is the front size of its digest type."""
    assert len(record) >= front_size, "a front is never cut"
    return record[:front_size], record[front_size:]


def ledger_id(record: bytes) -> int:
    """The ledger of the entry."""
    (found,) = _ID.unpack_from(record, LENGTH_SIZE)
    return int(found)


def entry_bytes(record: bytes) -> memoryview:
    """The entry without the length in front."""
    return memoryview(record)[LENGTH_SIZE:]
