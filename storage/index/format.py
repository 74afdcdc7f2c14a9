"""The keys and values of the index: for each ledger the locations of its entries, in the order of their ids.

    key      ledger id i64
    value    entry id i64 ┼ location i64        location = log id << 32 | offset of the entry's first byte

One key holds many values of the same size (LMDB's DUPSORT | DUPFIXED). Big-endian, so that the bytes sort as
the numbers do; ids are never negative.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left
from itertools import chain
from typing import TYPE_CHECKING

from storage.entry.position import EntryLocation
from storage.entry.read_result import Damaged, Flaw
from storage.entry.record_format import split_evenly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from storage.entry.digest import Buffer

_KEY = struct.Struct(">q")
_VALUE = struct.Struct(">qq")
_PAIR = struct.Struct(">8xqq")

_VALUES_AT_ONCE = 1024

KEY_SIZE = _KEY.size
VALUE_SIZE = _VALUE.size


encode_key: Callable[[int], bytes] = _KEY.pack


def decode_key(key: Buffer) -> int | Damaged:
    if len(key) != KEY_SIZE:
        return Damaged(0, Flaw.BAD_FIELD, f"a key of {len(key)} bytes")
    (ledger_id,) = _KEY.unpack(key)
    return Damaged(0, Flaw.LEDGER_NEGATIVE) if ledger_id < 0 else int(ledger_id)


def encode_value(entry_id: int, location: EntryLocation) -> bytes:
    return _VALUE.pack(entry_id, location.pack())


def encode_floor(entry_id: int) -> bytes:
    """Encode the smallest value that an entry can have, from which a search for it begins."""
    return _VALUE.pack(entry_id, 0)


def encode_values(entry_ids: Sequence[int], locations: Sequence[int]) -> Iterator[bytes]:
    """Encode the values of many entries from their packed locations, some at a time."""
    starts = range(0, len(entry_ids), _VALUES_AT_ONCE)
    parts = (slice(start, start + _VALUES_AT_ONCE) for start in starts)
    return chain.from_iterable(_values(entry_ids[part], locations[part]) for part in parts)


def _values(entry_ids: Sequence[int], locations: Sequence[int]) -> Sequence[bytes]:
    # Both columns at once, because packing each value by itself takes twice as long.
    values = array("q", bytes(VALUE_SIZE * len(entry_ids)))
    values[::2], values[1::2] = array("q", entry_ids), array("q", locations)
    if sys.byteorder == "little":
        values.byteswap()
    return split_evenly(values.tobytes(), len(entry_ids))


split_value: Callable[[Buffer], tuple[int, int]] = _VALUE.unpack
"""Return the entry id and the packed location in a value, unverified. Every look-up calls this."""


def split_pairs(pairs: Buffer, first: int, count: int) -> list[tuple[int, int]]:
    """Split up to `count` values, each preceded by its key, from the entry `first` on."""
    view, size = memoryview(pairs), _PAIR.size
    at = bisect_left(
        range(len(view) // size), first, key=lambda number: _PAIR.unpack_from(view, size * number)[0]
    )
    return list(_PAIR.iter_unpack(view[size * at : size * (at + count)]))


def split_keys(keys: Iterable[Buffer]) -> list[int]:
    """Return the ledger ids in keys, unverified."""
    return list(chain.from_iterable(map(_KEY.unpack, keys)))


def decode_value(value: Buffer) -> tuple[int, EntryLocation] | Damaged:
    if len(value) != VALUE_SIZE:
        return Damaged(0, Flaw.BAD_FIELD, f"a value of {len(value)} bytes")
    entry_id, packed = _VALUE.unpack(value)
    if entry_id < 0:
        return Damaged(0, Flaw.ENTRY_NEGATIVE)
    if packed <= 0:
        return Damaged(8, Flaw.BAD_FIELD, "no location")
    return entry_id, EntryLocation.unpack(packed)
