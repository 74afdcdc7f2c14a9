"""The lastMark file: the position from which the journals must be replayed.

    0         8        16   20        24           32               40         48        56     64    68
    ├─────────┼────────┼────┼─────────┼────────────┼────────────────┼──────────┼─────────┼──────┼─────┤
    │ journal │ offset │LSMK│ version │ generation │ newest journal │ last log │ its end │ rows │ crc │
    └─────────┴────────┴────┴─────────┴────────────┴────────────────┴──────────┴─────────┴──────┴─────┘

The first 16 bytes are BookKeeper's whole file, and it ignores the rest. The crc is CRC-32C over the 64 bytes
before it. A file of exactly 16 bytes was written by a bookie. An empty file was left by a bookie that crashed
while it rewrote the file in place; a bookie then replays everything. Any other size or a wrong crc is damage,
and never means "no trailer".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crc32c import crc32c

from storage.entry.position import LOG_ID_MAX, JournalPosition, LogPosition
from storage.entry.read_result import Damaged, Flaw, Torn, wrong_version

if TYPE_CHECKING:
    from storage.entry.digest import Buffer

OUR_MAGIC = b"LSMK"
VERSION = 1
NO_LOG = -1

_POSITION = struct.Struct(">qq")
_TRAILER = struct.Struct(">4sIQqqqq")
_CHECKSUM = struct.Struct(">I")

BOOKIE_SIZE = _POSITION.size
SIZE = _POSITION.size + _TRAILER.size + _CHECKSUM.size


@dataclass(frozen=True, slots=True)
class Trailer:
    """The facts that our marks have in addition to a bookie's."""

    generation: int
    newest_journal: int
    """The newest journal whose name is durable."""
    log_end: LogPosition | None
    """The end of the newest entry log's durable content; `None` before the first log."""
    rows_sequence: int
    """The last durable group of `ledgers.rows`; 0 before the first group."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Every journal record before `position` is in entry log and index. A bookie's mark has no trailer."""

    position: JournalPosition
    trailer: Trailer | None = None


@dataclass(frozen=True, slots=True)
class EmptyMark:
    """An empty file: replay every journal."""


def encode(mark: Mark) -> bytes:
    """Encode the whole file."""
    position = _POSITION.pack(mark.position.journal_id, mark.position.offset)
    if mark.trailer is None:
        return position
    trailer = mark.trailer
    log_id, log_end = (trailer.log_end.log_id, trailer.log_end.offset) if trailer.log_end else (NO_LOG, 0)
    summed = position + _TRAILER.pack(
        OUR_MAGIC, VERSION, trailer.generation, trailer.newest_journal, log_id, log_end, trailer.rows_sequence
    )
    return summed + _CHECKSUM.pack(crc32c(summed))


def decode(data: Buffer) -> Mark | EmptyMark | Torn | Damaged:
    """Decode the whole file."""
    data = bytes(data)
    if not data:
        return EmptyMark()
    if len(data) < BOOKIE_SIZE:
        return Torn(0, Flaw.FILE_SHORT)
    position = JournalPosition(*_POSITION.unpack_from(data))
    trailer = None if len(data) == BOOKIE_SIZE else _decode_trailer(data)
    if isinstance(trailer, Damaged):
        return trailer
    if position.journal_id < 0 or position.offset < 0:
        return Damaged(0, Flaw.BAD_FIELD, f"journal {position.journal_id}, offset {position.offset}")
    return Mark(position, trailer)


def _decode_trailer(data: bytes) -> Trailer | Damaged:
    if len(data) < SIZE:
        return Damaged(BOOKIE_SIZE, Flaw.FILE_SHORT, f"{len(data)} bytes")
    (checksum,) = _CHECKSUM.unpack_from(data, SIZE - _CHECKSUM.size)
    if checksum != crc32c(data[: SIZE - _CHECKSUM.size]):
        return Damaged(0, Flaw.CHECKSUM)
    magic, version, generation, newest, log_id, log_end, rows_sequence = _TRAILER.unpack_from(
        data, BOOKIE_SIZE
    )
    if magic != OUR_MAGIC:
        return Damaged(BOOKIE_SIZE, Flaw.BAD_MAGIC)
    if version != VERSION:
        return Damaged(BOOKIE_SIZE + len(OUR_MAGIC), wrong_version(version, VERSION), f"version {version}")
    if len(data) > SIZE:
        return Damaged(SIZE, Flaw.FILE_LONG, f"{len(data)} bytes")
    if not NO_LOG <= log_id <= LOG_ID_MAX or min(newest, log_end, rows_sequence) < 0:
        return Damaged(BOOKIE_SIZE, Flaw.BAD_FIELD)
    end = None if log_id == NO_LOG else LogPosition(log_id, log_end)
    return Trailer(generation, newest, end, rows_sequence)
