"""Runs of consecutive entries under CRC-32C, verified in one loop, for the reads of a bookie in sequence."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from crc32c import crc32c

from storage.entry import format as entry_format
from storage.entry.model import NO_ENTRY
from storage.entry.position import LENGTH_WORD_SIZE
from storage.entry.record_format import CRC32C_OVERHEAD, FRONT_SIZE

if TYPE_CHECKING:
    from collections.abc import Sequence

FRONT = struct.Struct(">iqqqqI")
"""The front of a record under CRC-32C: length word, the four numbers of the head, digest."""
_HEAD_DIGEST = struct.Struct(f">{LENGTH_WORD_SIZE}x{entry_format.HEAD.size}s4s")
"""The same bytes in two parts: those that the digest covers, and the digest."""


def run_of_parts(
    first: tuple[int, int], fronts: bytes, payloads: Sequence[bytes], size_max: int
) -> list[bytes]:
    """Return the entries with these fronts under CRC-32C and these payloads, up to the first wrong one."""
    found: list[bytes] = []
    ledger_id, next_id = first
    size = 0
    # A bookie sends entries as fast as this loop runs, so that it makes no slices and no lists.
    parts = zip(FRONT.iter_unpack(fronts), _HEAD_DIGEST.iter_unpack(fronts), payloads, strict=True)
    for (length, ledger, entry_id, confirmed, ledger_length, checksum), (head, digest), payload in parts:
        if (
            length != CRC32C_OVERHEAD + len(payload)
            or ledger != ledger_id
            or entry_id != next_id
            or confirmed < NO_ENTRY
            or ledger_length < 0
            or checksum != crc32c(payload, crc32c(head))
        ):
            break
        found.append(head + digest + payload)
        next_id += 1
        size += length
        if size >= size_max:
            break
    return found


def run_of_block(first: tuple[int, int], block: bytes, starts: Sequence[int]) -> list[bytes]:
    """Return the entries whose records begin there in a block, up to the first that is wrong or cut."""
    found: list[bytes] = []
    ledger_id, next_id = first
    end, unpack, head_size = len(block) - FRONT_SIZE, FRONT.unpack_from, entry_format.HEAD.size
    for at in starts:
        if at > end:
            break
        length, ledger, entry_id, confirmed, ledger_length, checksum = unpack(block, at)
        data = block[at + LENGTH_WORD_SIZE : at + LENGTH_WORD_SIZE + length]
        if (
            not CRC32C_OVERHEAD <= length == len(data)
            or ledger != ledger_id
            or entry_id != next_id
            or confirmed < NO_ENTRY
            or ledger_length < 0
            or checksum != crc32c(data[CRC32C_OVERHEAD:], crc32c(data[:head_size]))
        ):
            break
        found.append(data)
        next_id += 1
    return found
