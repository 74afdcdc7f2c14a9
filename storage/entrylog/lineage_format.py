"""The lineage file: which entry logs remain after others were removed from their midst.

    0    4         8          24           32     36     40        40+16k      40+16k+8g
    ├────┼─────────┼──────────┼────────────┼──────┼──────┼─────────┼───────────┼─────┤
    │LSLN│ version │ store id │ generation │ kept │ gone │ k pairs │ g log ids │ crc │
    └────┴─────────┴──────────┴────────────┴──────┴──────┴─────────┴───────────┴─────┘

    pair     log id i64 ┼ its end i64        the end is 0 if the log was only read, as after an import

Each log's header names the log before it. After a removal this chain leads to a log that does not exist, so
the lineage names the committed logs of one generation, oldest first. The crc is CRC-32C over all bytes before
it. The file is replaced as a whole, so bytes that do not fit are damage and never a torn write.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from crc32c import crc32c

from storage.entry.position import LOG_ID_MAX, LogPosition
from storage.entry.read_result import Damaged, Flaw, wrong_version

if TYPE_CHECKING:
    from storage.entry.digest import Buffer

MAGIC = b"LSLN"
VERSION = 1

_HEAD = struct.Struct(">4sI16sQII")
_PAIR = struct.Struct(">qq")
_ID = struct.Struct(">q")
_CHECKSUM = struct.Struct(">I")
_STORE_ID_OFFSET = 8
_GENERATION_OFFSET = 24

SIZE_MIN = _HEAD.size + _CHECKSUM.size


@dataclass(frozen=True, slots=True)
class Lineage:
    """The logs of one committed state."""

    generation: int
    """The generation of the mark that was durable when the lineage was written."""
    kept: tuple[LogPosition, ...]
    """The committed logs in the order in which they were written, each with its durable end; the end is 0 for
    a log that was only read."""
    gone: tuple[int, ...]
    """Logs that are being removed, and removed logs whose unlink is not known to be durable."""


def encode(lineage: Lineage, store_id: bytes) -> bytes:
    """Encode the whole file."""
    head = _HEAD.pack(MAGIC, VERSION, store_id, lineage.generation, len(lineage.kept), len(lineage.gone))
    pairs = b"".join(_PAIR.pack(one.log_id, one.offset) for one in lineage.kept)
    summed = head + pairs + b"".join(map(_ID.pack, lineage.gone))
    return summed + _CHECKSUM.pack(crc32c(summed))


def written_by(data: Buffer) -> bytes:
    """Return the store id in the file, for a reader that does not know whose file it is."""
    return bytes(data[_STORE_ID_OFFSET:_GENERATION_OFFSET])


def decode(data: Buffer, store_id: bytes) -> Lineage | Damaged:
    """Decode the whole file of the store with this id."""
    data = bytes(data)
    if len(data) < SIZE_MIN:
        return Damaged(0, Flaw.FILE_SHORT, f"{len(data)} bytes")
    if crc32c(data[: -_CHECKSUM.size]) != _CHECKSUM.unpack_from(data, len(data) - _CHECKSUM.size)[0]:
        return Damaged(0, Flaw.CHECKSUM)
    magic, version, written_by, generation, kept, gone = _HEAD.unpack_from(data)
    if magic != MAGIC:
        return Damaged(0, Flaw.BAD_MAGIC)
    if version != VERSION:
        return Damaged(len(MAGIC), wrong_version(version, VERSION), f"version {version}")
    if written_by != store_id:
        return Damaged(_STORE_ID_OFFSET, Flaw.OTHER_PLACE, "written by another store")
    if len(data) != SIZE_MIN + kept * _PAIR.size + gone * _ID.size:
        return Damaged(_GENERATION_OFFSET, Flaw.INNER_LENGTH, f"{kept} and {gone} logs in {len(data)} bytes")
    pairs_end = _HEAD.size + kept * _PAIR.size
    pairs = [*_PAIR.iter_unpack(data[_HEAD.size : pairs_end])]
    ids = [*chain.from_iterable(_ID.iter_unpack(data[pairs_end : -_CHECKSUM.size]))]
    named = [*(log_id for log_id, _ in pairs), *ids]
    if len(set(named)) < len(named) or not all(0 <= one <= LOG_ID_MAX for one in named):
        return Damaged(_HEAD.size, Flaw.BAD_FIELD, "a log that is named twice, or whose id is out of range")
    if any(end < 0 for _, end in pairs):
        return Damaged(_HEAD.size, Flaw.BAD_FIELD, "a negative end")
    return Lineage(generation, tuple(LogPosition(*pair) for pair in pairs), tuple(ids))
