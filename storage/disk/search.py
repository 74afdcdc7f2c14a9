"""Search for the next sound record after the framing is lost.

A filter finds the offsets at which a record might begin: it passes every offset at which an entry, a ledgers
map or a filler of ours could start, and few others. The caller judges whether a record really starts there.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

from storage.disk.buffered import CHUNK_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from storage.disk.buffered import Window
    from storage.entry.digest import Buffer

SIZE_MIN = 32
PROBE_SIZE = 4 + SIZE_MIN
"""Bytes from an offset on that must be seen to judge it."""

_DIGEST_SIZE_MAX = 20
_FIELDS = struct.Struct(">iqqqq")

# size at most 32 MiB and at least 32; ledger, entry and length not negative; last add confirmed from -1 on
_ENTRY = (
    rb"(?!\x00\x00\x00[\x00-\x1f])(?:[\x00\x01][\x00-\xff]{3}|\x02\x00\x00\x00)"
    rb"(?:[\x00-\x7f][\x00-\xff]{7}){2}(?:[\x00-\x7f][\x00-\xff]{7}|\xff{8})[\x00-\x7f][\x00-\xff]{7}"
)
_META = rb"[\x00\x01][\x00-\xff]{3}\xff{15}[\xfd\xfe]"
_PLACE = re.compile(rb"(?=" + _ENTRY + rb"|" + _META + rb")")


def find_record(window: Window, start: int, is_sound: Callable[[int], bool], end: int) -> int | None:
    """Return the first offset in [start, end) at which a sound record begins; `None` if there is none."""
    while start < end:
        # A copy, because `is_sound` moves the window. Blocks of zeros are skipped, because most of a file may
        # be zeros.
        block = bytes(window.view(start, min(CHUNK_SIZE, end - start + PROBE_SIZE)))
        is_zero = block.count(0) == len(block)
        for place in () if is_zero else candidates(block):
            if start + place >= end:
                return None
            if is_sound(start + place):
                return start + place
        if start + len(block) >= window.size:
            return None
        start += max(1, len(block) - PROBE_SIZE + 1)
    return None


def candidates(block: Buffer) -> Iterator[int]:
    """Return the offsets in the block at which a record might begin, ascending."""
    return (match.start() for match in _PLACE.finditer(block) if _plausible(block, match.start()))


def _plausible(block: Buffer, at: int) -> bool:
    """Return whether the numbers fit: an entry confirms earlier ones only, and its ledger is long enough."""
    if len(block) - at < _FIELDS.size:
        return True
    size, ledger_id, entry_id, confirmed, length = _FIELDS.unpack_from(block, at)
    return bool(ledger_id < 0 or (confirmed < entry_id and length >= size - SIZE_MIN - _DIGEST_SIZE_MAX))
