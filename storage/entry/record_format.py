"""A record: an entry after its length word. The same bytes are in a journal, a memtable and an entry log.

    0        4        12       20                   28       36          36+m
    ├────────┼────────┼────────┼────────────────────┼────────┼───────────┼─────────
    │ length │ ledger │ entry  │ last add confirmed │ length │ digest: m │ payload
    └────────┴────────┴────────┴────────────────────┴────────┴───────────┴─────────

The first length counts the bytes after itself, the second the payload bytes of the ledger so far. The *front*
of a record is everything before its payload.
"""

from __future__ import annotations

import struct
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from itertools import accumulate, count, repeat
from typing import TYPE_CHECKING, Any, Protocol

from crc32c import crc32c

from storage.entry import format as entry_format
from storage.entry.model import NO_ENTRY, DigestType, Entry, UncheckedEntry
from storage.entry.position import LENGTH_WORD_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from storage.entry.digest import Buffer, Digester

PREFIX = struct.Struct(">iqq")
"""The beginning of every record: its length word and the two ids."""

CRC32C_OVERHEAD = entry_format.HEAD.size + 4
"""Bytes of an entry under CRC-32C beside its payload."""

FRONT_SIZE = LENGTH_WORD_SIZE + CRC32C_OVERHEAD
"""Bytes of a front under CRC-32C."""

HEAD_FRONT_SIZE = LENGTH_WORD_SIZE + entry_format.HEAD.size
"""Bytes of the smallest front, which has no digest. No record is shorter."""

MANY = 128
"""From this number on, fronts are encoded with numpy. For fewer its calls cost more than they save."""

_HEAD = entry_format.HEAD
_LENGTH = struct.Struct(">i")
_FRONT = struct.Struct(">iqqqqI")
_ID = struct.Struct(">q")
_CRC32C = DigestType.CRC32C  # a name, because access to the enum member is a fifth of the cost of a front
_DIGESTED_HEAD = slice(LENGTH_WORD_SIZE, FRONT_SIZE - 4)


class FrontEncoder(Protocol):
    """Encodes the fronts of many records in one call."""

    def encode_fronts(
        self, ledger_id: int, first_id: int, last_add_confirmed: int, length: int, payloads: Sequence[bytes]
    ) -> bytes | None:
        """As `encode_fronts` below; `None` if a number is larger than a record can hold."""


@cache
def many_at_once() -> FrontEncoder | None:
    """Return the encoder of `MANY` fronts or more, if there is numpy. The first call loads it in 0.1 s."""
    if find_spec("numpy") is None:
        return None
    module: FrontEncoder = import_module("storage.entry.headers_numpy")
    return module


def front_size(digest_type: DigestType) -> int:
    """Return the size of a front under that digest type."""
    return HEAD_FRONT_SIZE + digest_type.width


def encode_front(
    ledger_id: int, entry_id: int, last_add_confirmed: int, length: int, payload: bytes
) -> bytes:
    """Encode the front of a record under CRC-32C, as each add of a store does."""
    checksum = crc32c(payload, crc32c(_HEAD.pack(ledger_id, entry_id, last_add_confirmed, length)))
    size = CRC32C_OVERHEAD + len(payload)
    return _FRONT.pack(size, ledger_id, entry_id, last_add_confirmed, length, checksum)


def encode_fronts(
    ledger_id: int, first_id: int, last_add_confirmed: int, length: int, payloads: Sequence[bytes]
) -> bytes:
    """Encode and join the fronts of entries with consecutive ids that follow a ledger of that length."""
    if len(payloads) >= MANY and (kernel := many_at_once()) is not None:
        fronts = kernel.encode_fronts(ledger_id, first_id, last_add_confirmed, length, payloads)
        if fronts is not None:
            return fronts
    sizes = list(map(len, payloads))
    ids, size = range(first_id, first_id + len(sizes)), sizes[0] if sizes else 0
    ledger, confirmed = repeat(ledger_id), repeat(last_add_confirmed)
    lengths: Sequence[int]
    if size and sizes.count(size) == len(sizes):  # the usual case, in which nothing has to be added up
        lengths = range(length + size, length + size * len(sizes) + 1, size)
    else:
        lengths = list(accumulate(sizes, initial=length))[1:]
    checksums = map(crc32c, payloads, map(crc32c, map(_HEAD.pack, ledger, ids, confirmed, lengths)))
    lengths_in_front = [CRC32C_OVERHEAD + size for size in sizes]
    return b"".join(map(_FRONT.pack, lengths_in_front, ledger, ids, confirmed, lengths, checksums))


def ledger_length(front: bytes) -> int:
    """Return the ledger's length up to and with the last entry of these fronts, which are under CRC-32C."""
    (found,) = _ID.unpack_from(front, len(front) - FRONT_SIZE + HEAD_FRONT_SIZE - _ID.size)
    return int(found)


def buffers(fronts: bytes, payloads: Sequence[bytes]) -> Sequence[bytes]:
    """Return the records of these fronts and payloads as buffers to be written one after the other."""
    count = len(payloads)
    if count == 1:
        return fronts, payloads[0]
    parts = [b""] * (2 * count)
    parts[::2] = split_evenly(fronts, count)
    parts[1::2] = payloads
    return parts


def encode_front_with(
    digester: Digester, ledger_id: int, entry_id: int, last_add_confirmed: int, length: int, payload: bytes
) -> bytes:
    """Encode the front of a record under the digest type of that digester."""
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
    """Do for any digest type what `encode_fronts` does for CRC-32C."""
    if digester.digest_type is _CRC32C:
        return encode_fronts(ledger_id, first_id, last_add_confirmed, length, payloads)
    fronts = []
    for entry_id, payload in zip(count(first_id), payloads, strict=False):
        length += len(payload)
        fronts.append(encode_front_with(digester, ledger_id, entry_id, last_add_confirmed, length, payload))
    return b"".join(fronts)


def split(record: bytes, front_size: int) -> tuple[bytes, bytes]:
    """Split a record into its front and its payload."""
    assert len(record) >= front_size, "a front is never cut"
    return record[:front_size], record[front_size:]


def ledger_id(record: bytes) -> int:
    """Return the ledger id of the entry."""
    (found,) = _ID.unpack_from(record, LENGTH_WORD_SIZE)
    return int(found)


def entry_bytes(record: bytes) -> memoryview:
    """Return the entry without the length word."""
    return memoryview(record)[LENGTH_WORD_SIZE:]


def decode_crc32c(front: Buffer, ledger_id: int, entry_id: int, payload: bytes | None = None) -> Entry | None:
    """Return the entry of a record under CRC-32C, if it is the wanted one and nothing is wrong with it.

    Nearly every read takes this way, which tells only that a record is right; `storage.entry.format` finds
    what is wrong with another one. If no payload is given, it follows the front, which then is bytes.
    """
    if len(front) < FRONT_SIZE:
        return None
    record: Any = front
    size, found_ledger, found_entry, confirmed, length, checksum = _FRONT.unpack_from(front)
    if payload is None:
        payload = record[FRONT_SIZE : LENGTH_WORD_SIZE + size]
    assert payload is not None
    if checksum != crc32c(payload, crc32c(front[_DIGESTED_HEAD])) or size != CRC32C_OVERHEAD + len(payload):
        return None
    if found_entry != entry_id or found_ledger != ledger_id or confirmed < NO_ENTRY or length < 0:
        return None
    unchecked: Any = UncheckedEntry()
    unchecked.ledger_id = found_ledger
    unchecked.entry_id = found_entry
    unchecked.last_add_confirmed = confirmed
    unchecked.length = length
    unchecked.payload = payload
    unchecked.__class__ = Entry
    entry: Entry = unchecked
    return entry


_SPLIT_MAX = 1024
"""The most pieces of one call of `struct`."""

_SPLITTERS_MAX = 32
"""The most counts for which the `struct` is kept, at most a megabyte."""


def split_evenly(joined: bytes, count: int) -> Sequence[bytes]:
    """Split a buffer into `count` pieces of one size, in a fifth of the time that slices take."""
    width = len(joined) // count
    if count <= _SPLIT_MAX:
        return _splitter(width, count)(joined)
    size = width * _SPLIT_MAX
    parts = (joined[start : start + size] for start in range(0, len(joined), size))
    return [piece for part in parts for piece in _splitter(width, len(part) // width)(part)]


@lru_cache(_SPLITTERS_MAX)
def _splitter(width: int, count: int) -> Callable[[bytes], tuple[bytes, ...]]:
    return struct.Struct(f"{width}s" * count).unpack
