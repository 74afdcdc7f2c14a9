"""The index's keys and values: for each ledger its entries' places, in the order of their ids.

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

from storage.codec.cutting import cut
from storage.outcome import Damaged, Flaw
from storage.position import EntryLocation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from storage.codec.digest import Buffer

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
    """The smallest value an entry can have: where a search for it begins."""
    return _VALUE.pack(entry_id, 0)


def encode_values(entry_ids: Sequence[int], locations: Sequence[int]) -> Iterator[bytes]:
    """The values of many entries, from their packed locations; made some at a time."""
    starts = range(0, len(entry_ids), _VALUES_AT_ONCE)
    parts = (slice(start, start + _VALUES_AT_ONCE) for start in starts)
    return chain.from_iterable(_values(entry_ids[part], locations[part]) for part in parts)


def _values(entry_ids: Sequence[int], locations: Sequence[int]) -> Sequence[bytes]:
    # Both columns at once: packing each value by itself costs twice as much.
    values = array("q", bytes(VALUE_SIZE * len(entry_ids)))
    values[::2], values[1::2] = array("q", entry_ids), array("q", locations)
    if sys.byteorder == "little":
        values.byteswap()
    return cut(values.tobytes(), len(entry_ids))


split_value: Callable[[Buffer], tuple[int, int]] = _VALUE.unpack
"""Entry id and packed location of a value of ours, unverified: every look-up comes through here."""


def split_pairs(pairs: Buffer, first: int, count: int) -> list[tuple[int, int]]:
    """The same of many values, each behind its key, from that entry on."""
    view, size = memoryview(pairs), _PAIR.size
    at = bisect_left(
        range(len(view) // size), first, key=lambda number: _PAIR.unpack_from(view, size * number)[0]
    )
    return list(_PAIR.iter_unpack(view[size * at : size * (at + count)]))


def split_keys(keys: Iterable[Buffer]) -> list[int]:
    """The ledger ids of keys of ours, unverified."""
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
