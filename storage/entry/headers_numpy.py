"""Encode the fronts of many records with numpy.

An add of a large batch spends most of its time on this. CRC is linear: the checksums of two heads differ by
the sum of the contributions of each differing byte in its place. So one head is summed, and the contributions
of the other heads' bytes are looked up, one column at a time. Only the columns differ in which ids and
lengths differ: two or three of each. What remains for each entry is one checksum over its payload, which
begins with that of its head.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from crc32c import crc32c

from storage.entry.format import HEAD
from storage.entry.model import ID_MAX
from storage.entry.position import LENGTH_WORD_SIZE

if TYPE_CHECKING:
    from collections.abc import Sequence

    Checksums = np.ndarray[Any, np.dtype[np.uint32]]

_FRONT = np.dtype(
    [
        ("size", ">i4"),
        ("ledger_id", ">i8"),
        ("entry_id", ">i8"),
        ("last_add_confirmed", ">i8"),
        ("length", ">i8"),
        ("checksum", ">u4"),
    ]
)
_OVERHEAD = _FRONT.itemsize - LENGTH_WORD_SIZE
_WORD = 8
_ENTRY_ID = slice(8, 16)
_LENGTH = slice(24, 32)


def encode_fronts(
    ledger_id: int, first_id: int, last_add_confirmed: int, length: int, payloads: Sequence[bytes]
) -> bytes | None:
    """Do what `record_format.encode_fronts` does.

    Return `None` if a number is larger than a record can hold.
    """
    sizes, count = list(map(len, payloads)), len(payloads)
    last = length + sum(sizes)
    if first_id + count - 1 > ID_MAX or last > ID_MAX:
        return None
    fronts = np.empty(count, dtype=_FRONT)
    fronts["ledger_id"] = ledger_id
    numbers = np.arange(count)
    fronts["entry_id"] = numbers + first_id
    fronts["last_add_confirmed"] = last_add_confirmed
    size = sizes[0]
    if size and sizes.count(size) == count:  # the usual case
        fronts["size"] = size + _OVERHEAD
        fronts["length"] = (numbers + 1) * size + length
    else:
        fronts["size"] = np.array(sizes) + _OVERHEAD
        fronts["length"] = np.cumsum(sizes) + length
    heads = fronts.view(np.uint8).reshape(len(fronts), _FRONT.itemsize)[:, LENGTH_WORD_SIZE:-LENGTH_WORD_SIZE]
    checksums = map(crc32c, payloads, _head_checksums(heads).tolist())
    fronts["checksum"] = np.fromiter(checksums, dtype=np.uint32, count=count)
    return fronts.tobytes()


def _head_checksums(heads: Any) -> Checksums:
    checksums = np.full(len(heads), crc32c(heads[0].tobytes()), dtype=np.uint32)
    for word in _ENTRY_ID, _LENGTH:
        # Both numbers only grow, so the bytes that the first and the last share are the same in all between
        # them.
        shared = _shared(heads[0, word].tobytes(), heads[-1, word].tobytes())
        for column in range(word.start + shared, word.stop):
            checksums ^= _contributions(column).take(heads[:, column] ^ heads[0, column])
    return checksums


def _shared(one: bytes, other: bytes) -> int:
    """Return how many bytes the two words begin with in common."""
    return next((at for at in range(_WORD) if one[at] != other[at]), _WORD)


@cache
def _contributions(column: int) -> Checksums:
    """Return what each value of the byte in that column contributes to the checksum of a head."""
    rest = bytes(HEAD.size - column - 1)
    nothing = crc32c(bytes(HEAD.size))
    values = [crc32c(bytes(column) + bytes((value,)) + rest) ^ nothing for value in range(256)]
    return np.array(values, dtype=np.uint32)
