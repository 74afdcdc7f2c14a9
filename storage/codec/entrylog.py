"""An entry log's header, records and ledgers map.

    header   0    4         8            16        20
             ├────┼─────────┼────────────┼─────────┤
             │BKLO│ version │ map offset │ ledgers │
             └────┴─────────┴────────────┴─────────┘
             20   24        28         44           52             60        68    72  1024
             ├────┼─────────┼──────────┼────────────┼──────────────┼─────────┼─────┼─ … ─┤
             │LSEL│ version │ store id │ generation │ previous log │ its end │ crc │  0  │
             └────┴─────────┴──────────┴────────────┴──────────────┴─────────┴─────┴─ … ─┘

    record   ├ size i32 ┼ entry: size bytes ┤                         ledger id ≥ 0
    map      ├ size i32 ┼ -1 i64 ┼ -2 i64 ┼ count i32 ┼ count × (ledger i64, bytes i64) ┤
    filler   ├ size i32 ┼ -1 i64 ┼ -3 i64 ┼ zeros ┤                    to the next 4096; skipped by scans

Map offset and the number of ledgers are zero until the log is sealed. Bytes 20 to 71 are ours: whose log this
is, and behind which other; a bookie leaves them zero and ignores them. The crc is CRC-32C over bytes 0 to 7
and 20 to 67, the ones that sealing does not change. Direct-I/O logs of a bookie are padded with 0xF0 up to a
multiple of 4096.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from storage.codec.entry import IDS
from storage.entry import RECORD_SIZE_MAX
from storage.errors import InvalidFormat
from storage.outcome import Damaged, EndOfData, Flaw, Torn, wrong_version
from storage.position import LOG_ID_MAX, LogPosition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from storage.codec.digest import Buffer

MAGIC = b"BKLO"
OUR_MAGIC = b"LSEL"
VERSION = 1
OUR_VERSION = 1
HEADER_SIZE = 1024
STORE_ID_SIZE = 16
NO_LOG = -1
MAP_FIELDS_OFFSET = 8
"""Where `encode_map_fields` is written when the ledgers map is in place."""

META_LEDGER = -1
MAP_ENTRY = -2
FILLER_ENTRY = -3
MAP_BATCH_MAX = 10_000
BLOCK_SIZE = 4096
DIRECT_FILL = 0xF0
BODY_SIZE_MIN = IDS.size

_SIZE = struct.Struct(">i")
_PREFIX = struct.Struct(">iqq")
PREFIX_SIZE = _PREFIX.size
_HEADER = struct.Struct(">4siqi")
_OURS = struct.Struct(">4sI16sQqqI")
_MAP_HEAD = struct.Struct(">qqi")
_MAP_PAIR = struct.Struct(">qq")
_MAP_FIELDS = struct.Struct(">qi")


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose log this is, and where in the order of logs: only a leftover of our own may ever be removed."""

    store_id: bytes
    generation: int
    previous: LogPosition | None
    """Where the durable content of the log before ends, if this one has any; `None`: it is the first."""


@dataclass(frozen=True, slots=True)
class Header:
    """An entry log's header. Version 0 has no ledgers map; `map_offset` is 0 until the log is sealed."""

    version: int = VERSION
    map_offset: int = 0
    ledger_count: int = 0
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class EmptyLog:
    """Shorter than a header: allocated ahead, and never written."""


class FrameKind(enum.Enum):
    ENTRY = "entry"
    MAP = "ledgers map"
    FILLER = "filler"


class Frame(NamedTuple):
    """Where one record lies: `offset` is its length word, `body` its first byte behind that."""

    kind: FrameKind
    offset: int
    body: int
    end: int


@dataclass(frozen=True, slots=True)
class DirectPadding:
    """0xF0 up to the end of a block, as a bookie's direct-I/O writer leaves it."""

    offset: int
    end: int


def encode_header(origin: Origin | None = None) -> bytes:
    """The header of a log that is not sealed yet."""
    plain = _HEADER.pack(MAGIC, VERSION, 0, 0)
    if origin is None:
        return plain.ljust(HEADER_SIZE, b"\0")
    if len(origin.store_id) != STORE_ID_SIZE:
        raise InvalidFormat(f"a store id has {STORE_ID_SIZE} bytes, not {len(origin.store_id)}")
    checksum = _header_checksum(plain + _encode_origin(origin, 0))
    return (plain + _encode_origin(origin, checksum)).ljust(HEADER_SIZE, b"\0")


def _encode_origin(origin: Origin, checksum: int) -> bytes:
    previous = origin.previous
    log_id, end = (previous.log_id, previous.offset) if previous is not None else (NO_LOG, 0)
    return _OURS.pack(OUR_MAGIC, OUR_VERSION, origin.store_id, origin.generation, log_id, end, checksum)


def encode_map_fields(map_offset: int, ledger_count: int) -> bytes:
    """What is written at `MAP_FIELDS_OFFSET` when the ledgers map is in place."""
    return _MAP_FIELDS.pack(map_offset, ledger_count)


def decode_header(head: Buffer) -> Header | EmptyLog | Damaged:
    """What the first 1024 bytes (fewer only if the file ends) say. All zeros: a log from before headers."""
    head = bytes(head[:HEADER_SIZE])
    if len(head) < HEADER_SIZE:
        return EmptyLog()
    magic, version, map_offset, ledger_count = _HEADER.unpack_from(head)
    if not any(head):
        return Header(version=0)
    if magic != MAGIC:
        return Damaged(0, Flaw.BAD_MAGIC)
    origin = _decode_origin(head)
    if isinstance(origin, Damaged):
        return origin
    if version not in (0, VERSION):
        return Damaged(4, wrong_version(version, VERSION), f"version {version}")
    if map_offset < 0 or 0 < map_offset < HEADER_SIZE or ledger_count < 0:
        return Damaged(MAP_FIELDS_OFFSET, Flaw.BAD_MAP, f"map at {map_offset}, {ledger_count} ledgers")
    return Header(version, map_offset, ledger_count, origin)


def _decode_origin(head: bytes) -> Origin | Damaged | None:
    magic, version, store_id, generation, log_id, end, checksum = _OURS.unpack_from(head, _HEADER.size)
    if magic != OUR_MAGIC:
        # Whatever else stands there: a bookie ignores these bytes, and so must we.
        return None
    if checksum != _header_checksum(head):
        return Damaged(0, Flaw.CHECKSUM)
    if version != OUR_VERSION:
        flaw = wrong_version(version, OUR_VERSION)
        return Damaged(_HEADER.size + len(OUR_MAGIC), flaw, f"origin {version}")
    if not NO_LOG <= log_id <= LOG_ID_MAX or end < 0:
        return Damaged(_HEADER.size, Flaw.BAD_FIELD, f"previous log {log_id}, its end {end}")
    return Origin(store_id, generation, None if log_id == NO_LOG else LogPosition(log_id, end))


def _header_checksum(header: bytes) -> int:
    return crc32c(header[_HEADER.size : _HEADER.size + _OURS.size - 4], crc32c(header[:MAP_FIELDS_OFFSET]))


def encode_record(body: Buffer) -> bytes:
    """A record around an entry's bytes."""
    if not BODY_SIZE_MIN <= len(body) <= RECORD_SIZE_MAX:
        raise InvalidFormat(f"no reader believes a record of {len(body)} bytes")
    return _SIZE.pack(len(body)) + bytes(body)


def encode_filler(position: int) -> bytes:
    """A record up to the next multiple of 4096, which every scan skips; nothing if already there."""
    missing = -position % BLOCK_SIZE
    if missing == 0:
        return b""
    if missing < PREFIX_SIZE:
        missing += BLOCK_SIZE
    return encode_blank(missing)


def encode_blank(size: int) -> bytes:
    """A record of so many bytes in all that every scan skips: what a dead record's place is filled with."""
    return _PREFIX.pack(size - _SIZE.size, META_LEDGER, FILLER_ENTRY).ljust(size, b"\0")


def encode_ledgers_map(sizes: Mapping[int, int]) -> list[bytes]:
    """The records of a ledgers map: for each ledger the bytes of its records here, length words too."""
    pairs = list(sizes.items())
    batches = (pairs[start : start + MAP_BATCH_MAX] for start in range(0, len(pairs), MAP_BATCH_MAX))
    return [_encode_map_batch(batch) for batch in batches]


def _encode_map_batch(pairs: list[tuple[int, int]]) -> bytes:
    body = _MAP_HEAD.pack(META_LEDGER, MAP_ENTRY, len(pairs)) + b"".join(
        _MAP_PAIR.pack(ledger_id, size) for ledger_id, size in pairs
    )
    return encode_record(body)


def decode_map_batch(body: Buffer) -> list[tuple[int, int]] | Damaged:
    """The (ledger, bytes) pairs of one map record."""
    if len(body) < _MAP_HEAD.size:
        return Damaged(0, Flaw.BAD_MAP, "a record too short for a map")
    ledger_id, entry_id, count = _MAP_HEAD.unpack_from(body)
    if (ledger_id, entry_id) != (META_LEDGER, MAP_ENTRY):
        return Damaged(0, Flaw.BAD_MAP, "another record inside the map")
    if count < 0 or count * _MAP_PAIR.size != len(body) - _MAP_HEAD.size:
        return Damaged(_MAP_HEAD.size - 4, Flaw.BAD_MAP, f"{count} ledgers in a record of {len(body)}")
    pairs = list(_map_pairs(body))
    if any(ledger < 0 or size < 0 for ledger, size in pairs):
        return Damaged(_MAP_HEAD.size, Flaw.BAD_MAP, "a negative ledger or size")
    return pairs


def _map_pairs(body: Buffer) -> Iterator[tuple[int, int]]:
    return _MAP_PAIR.iter_unpack(memoryview(body)[_MAP_HEAD.size :])


def frame(prefix: Buffer, offset: int, remaining: int) -> Frame | DirectPadding | EndOfData | Torn | Damaged:
    """Where the record at `offset` ends, and of what kind it is.

    `prefix` is what there is of its first 20 bytes, `remaining` the bytes of the file from there on. Zeros
    answer `EndOfData`; whether there are only zeros behind is for the caller to see.
    """
    padding = _direct_padding(prefix, offset, remaining)
    if padding is not None:
        return padding
    if remaining < _SIZE.size:
        return Torn(offset, Flaw.LENGTH_CUT) if any(prefix[:remaining]) else EndOfData(offset)
    (size,) = _SIZE.unpack_from(prefix)
    if size == 0:
        return EndOfData(offset)
    if size < BODY_SIZE_MIN:
        return Damaged(offset, Flaw.LENGTH_NEGATIVE if size < 0 else Flaw.LENGTH_TOO_SMALL, f"size {size}")
    if size > remaining - _SIZE.size:
        return Torn(offset, Flaw.BODY_CUT)
    if size > RECORD_SIZE_MAX:
        return Damaged(offset, Flaw.LENGTH_TOO_LARGE, f"size {size}")
    return _frame_by_ids(prefix, offset, size)


def _frame_by_ids(prefix: Buffer, offset: int, size: int) -> Frame | Damaged:
    _, ledger_id, entry_id = _PREFIX.unpack_from(prefix)
    body = offset + _SIZE.size
    if ledger_id == META_LEDGER:
        kind = FrameKind.MAP if entry_id == MAP_ENTRY else FrameKind.FILLER
        return Frame(kind, offset, body, body + size)
    if ledger_id < 0:
        return Damaged(offset, Flaw.LEDGER_NEGATIVE, f"ledger {ledger_id}")
    if entry_id < 0:
        return Damaged(offset, Flaw.ENTRY_NEGATIVE, f"entry {entry_id}")
    return Frame(FrameKind.ENTRY, offset, body, body + size)


def _direct_padding(prefix: Buffer, offset: int, remaining: int) -> DirectPadding | None:
    size = min(-offset % BLOCK_SIZE, remaining)
    seen = bytes(prefix[: min(size, _SIZE.size)])
    if not seen or seen.count(DIRECT_FILL) != len(seen):
        return None
    return DirectPadding(offset, offset + size)
