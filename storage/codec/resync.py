"""Where a record might begin inside bytes whose framing is lost.

Only a filter: it lets through every place at which an entry, a ledgers map or a filler of ours could start,
and few others. Whether one does, its digest has to prove.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.codec.digest import Buffer

SIZE_MIN = 32
PROBE_SIZE = 4 + SIZE_MIN
"""Bytes that must be seen from a place on to judge it."""

_DIGEST_SIZE_MAX = 20
_FIELDS = struct.Struct(">iqqqq")

# size at most 32 MiB and at least 32; ledger, entry and length not negative; last add confirmed from -1 on
_ENTRY = (
    rb"(?!\x00\x00\x00[\x00-\x1f])(?:[\x00\x01][\x00-\xff]{3}|\x02\x00\x00\x00)"
    rb"(?:[\x00-\x7f][\x00-\xff]{7}){2}(?:[\x00-\x7f][\x00-\xff]{7}|\xff{8})[\x00-\x7f][\x00-\xff]{7}"
)
_META = rb"[\x00\x01][\x00-\xff]{3}\xff{15}[\xfd\xfe]"
_PLACE = re.compile(rb"(?=" + _ENTRY + rb"|" + _META + rb")")


def places(block: Buffer) -> Iterator[int]:
    """The offsets in the block at which a record might begin, ascending."""
    return (match.start() for match in _PLACE.finditer(block) if _plausible(block, match.start()))


def _plausible(block: Buffer, at: int) -> bool:
    """Nothing confirmed that comes after the entry, and no entry longer than its ledger's payload bytes."""
    if len(block) - at < _FIELDS.size:
        return True
    size, ledger_id, entry_id, confirmed, length = _FIELDS.unpack_from(block, at)
    return bool(ledger_id < 0 or (confirmed < entry_id and length >= size - SIZE_MIN - _DIGEST_SIZE_MAX))
