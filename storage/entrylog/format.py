"""An entry log's header, records and ledgers map.

    header   0    4         8            16        20
             ├────┼─────────┼────────────┼─────────┤
             │BKLO│ version │ map offset │ ledgers │
             └────┴─────────┴────────────┴─────────┘
             20   24        28         44           52             60        68    72        76  1024
             ├────┼─────────┼──────────┼────────────┼──────────────┼─────────┼─────┼─────────┼─ … ─┤
             │LSEL│ version │ store id │ generation │ previous log │ its end │ crc │ map crc │  0  │
             └────┴─────────┴──────────┴────────────┴──────────────┴─────────┴─────┴─────────┴─ … ─┘

    record   ├ size i32 ┼ entry: size bytes ┤                         ledger id ≥ 0
    map      ├ size i32 ┼ -1 i64 ┼ -2 i64 ┼ count i32 ┼ count × (ledger i64, bytes i64) ┤
    filler   ├ size i32 ┼ -1 i64 ┼ -3 i64 ┼ zeros ┤                    to the next 4096; skipped by scans

Map offset, the number of ledgers and the map crc are zero until the log is sealed. Bytes 20 to 75 are ours:
the store that made the log, the log before it, and the checksum of the map. A bookie leaves them zero and
ignores them. The crc is CRC-32C over bytes 0 to 7 and 20 to 67, which sealing does not change. The map crc is
CRC-32C over bytes 8 to 19 and the records of the map; 0 means that there is none, and then the map proves
nothing. Direct-I/O logs of a bookie are padded with 0xF0 up to a
multiple of 4096.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from storage.entry.format import IDS
from storage.entry.model import RECORD_SIZE_MAX
from storage.entry.position import LOG_ID_MAX, LogPosition
from storage.entry.read_result import Damaged, EndOfData, Flaw, Torn, wrong_version
from storage.entry.record_format import PREFIX
from storage.errors import InvalidFormat

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from storage.entry.digest import Buffer

MAGIC = b"BKLO"
OUR_MAGIC = b"LSEL"
VERSION = 1
OUR_VERSION = 1
HEADER_SIZE = 1024
STORE_ID_SIZE = 16
NO_LOG = -1
MAP_FIELDS_OFFSET = 8
"""Where the map fields of the header are written when the ledgers map is in place."""
MAP_CHECKSUM_OFFSET = 72
"""Where the checksum of the ledgers map is written at the same time."""
NO_CHECKSUM = 0

META_LEDGER = -1
MAP_ENTRY = -2
FILLER_ENTRY = -3
MAP_BATCH_MAX = 10_000
BLOCK_SIZE = 4096
DIRECT_FILL = 0xF0
BODY_SIZE_MIN = IDS.size

_SIZE = struct.Struct(">i")
PREFIX_SIZE = PREFIX.size
_HEADER = struct.Struct(">4siqi")
_OURS = struct.Struct(">4sI16sQqqI")
_MAP_HEAD = struct.Struct(">qqi")
_MAP_PAIR = struct.Struct(">qq")
_MAP_FIELDS = struct.Struct(">qi")
_MAP_CHECKSUM = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Origin:
    """The store that made a log, and its place in the order of logs.

    It is needed because only a leftover of our own may ever be removed.
    """

    store_id: bytes
    generation: int
    previous: LogPosition | None
    """The end of the durable content of the log before. `None` if this is the first log."""


@dataclass(frozen=True, slots=True)
class LogHeader:
    """An entry log's header. Version 0 has no ledgers map; `map_offset` is 0 until the log is sealed."""

    version: int = VERSION
    map_offset: int = 0
    ledger_count: int = 0
    origin: Origin | None = None
    map_checksum: int = NO_CHECKSUM
    """The checksum of the ledgers map; 0 if there is none."""


@dataclass(frozen=True, slots=True)
class EmptyLog:
    """Shorter than a header: the file was allocated ahead and never written."""


class LogFrameKind(enum.Enum):
    ENTRY = "entry"
    MAP = "ledgers map"
    FILLER = "filler"


class LogFrame(NamedTuple):
    """The place of one record: `offset` is its length word, `body` the first byte after that."""

    kind: LogFrameKind
    offset: int
    body: int
    end: int


@dataclass(frozen=True, slots=True)
class DirectPadding:
    """Bytes 0xF0 up to the end of a block, as a bookie's direct-I/O writer leaves them."""

    offset: int
    end: int


def encode_header(origin: Origin | None = None) -> bytes:
    """Encode the header of a log that is not sealed yet."""
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
    """Encode the map fields of the header, which are written when the ledgers map is in place."""
    return _MAP_FIELDS.pack(map_offset, ledger_count)


def encode_map_checksum(map_offset: int, records: Iterable[Buffer], ledger_count: int) -> bytes:
    """Encode the checksum of the map with these records and of the fields that name it."""
    return _MAP_CHECKSUM.pack(map_checksum(map_offset, records, ledger_count))


def map_checksum(map_offset: int, records: Iterable[Buffer], ledger_count: int) -> int:
    """Return the checksum of the map with these records and of the fields that name it."""
    checksum = crc32c(encode_map_fields(map_offset, ledger_count))
    for record in records:
        checksum = crc32c(record, checksum)
    return int(checksum)


def decode_header(head: Buffer) -> LogHeader | EmptyLog | Damaged:
    """Decode the first 1024 bytes, fewer only if the file ends. All zeros are a log from before headers."""
    head = bytes(head[:HEADER_SIZE])
    if len(head) < HEADER_SIZE:
        return EmptyLog()
    magic, version, map_offset, ledger_count = _HEADER.unpack_from(head)
    if not any(head):
        return LogHeader(version=0)
    if magic != MAGIC:
        return Damaged(0, Flaw.BAD_MAGIC)
    origin = _decode_origin(head)
    if isinstance(origin, Damaged):
        return origin
    if version not in (0, VERSION):
        return Damaged(4, wrong_version(version, VERSION), f"version {version}")
    if map_offset < 0 or 0 < map_offset < HEADER_SIZE or ledger_count < 0:
        return Damaged(MAP_FIELDS_OFFSET, Flaw.BAD_MAP, f"map at {map_offset}, {ledger_count} ledgers")
    # A bookie's header may have anything there.
    (checksum,) = _MAP_CHECKSUM.unpack_from(head, MAP_CHECKSUM_OFFSET) if origin else (NO_CHECKSUM,)
    return LogHeader(version, map_offset, ledger_count, origin, checksum)


def _decode_origin(head: bytes) -> Origin | Damaged | None:
    magic, version, store_id, generation, log_id, end, checksum = _OURS.unpack_from(head, _HEADER.size)
    if magic != OUR_MAGIC:
        # Other bytes are ignored here, as a bookie ignores them.
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
    """Encode a record around an entry's bytes."""
    if not BODY_SIZE_MIN <= len(body) <= RECORD_SIZE_MAX:
        raise InvalidFormat(f"no reader believes a record of {len(body)} bytes")
    return _SIZE.pack(len(body)) + bytes(body)


def encode_filler(position: int) -> bytes:
    """Encode a record up to the next multiple of 4096, which every scan skips; nothing if already there."""
    missing = -position % BLOCK_SIZE
    if missing == 0:
        return b""
    if missing < PREFIX_SIZE:
        missing += BLOCK_SIZE
    return encode_blank(missing)


def encode_blank(size: int) -> bytes:
    """Encode a record of so many bytes in all that every scan skips. It fills the place of a dead record."""
    return PREFIX.pack(size - _SIZE.size, META_LEDGER, FILLER_ENTRY).ljust(size, b"\0")


def encode_ledgers_map(sizes: Mapping[int, int]) -> list[bytes]:
    """Encode the records of a ledgers map: the bytes of each ledger's records here, with length words."""
    pairs = list(sizes.items())
    batches = (pairs[start : start + MAP_BATCH_MAX] for start in range(0, len(pairs), MAP_BATCH_MAX))
    return [_encode_map_batch(batch) for batch in batches]


def _encode_map_batch(pairs: list[tuple[int, int]]) -> bytes:
    body = _MAP_HEAD.pack(META_LEDGER, MAP_ENTRY, len(pairs)) + b"".join(
        _MAP_PAIR.pack(ledger_id, size) for ledger_id, size in pairs
    )
    return encode_record(body)


def decode_map_batch(body: Buffer) -> list[tuple[int, int]] | Damaged:
    """Return the (ledger, bytes) pairs of one map record."""
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


def frame(
    prefix: Buffer, offset: int, remaining: int
) -> LogFrame | DirectPadding | EndOfData | Torn | Damaged:
    """Return where the record at `offset` ends, and its kind.

    `prefix` is what the file has of its first 20 bytes, `remaining` the size of the file from there on. A
    zero size is `EndOfData`; the caller checks that only zeros follow.
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


def _frame_by_ids(prefix: Buffer, offset: int, size: int) -> LogFrame | Damaged:
    _, ledger_id, entry_id = PREFIX.unpack_from(prefix)
    body = offset + _SIZE.size
    if ledger_id == META_LEDGER:
        kind = LogFrameKind.MAP if entry_id == MAP_ENTRY else LogFrameKind.FILLER
        return LogFrame(kind, offset, body, body + size)
    if ledger_id < 0:
        return Damaged(offset, Flaw.LEDGER_NEGATIVE, f"ledger {ledger_id}")
    if entry_id < 0:
        return Damaged(offset, Flaw.ENTRY_NEGATIVE, f"entry {entry_id}")
    return LogFrame(LogFrameKind.ENTRY, offset, body, body + size)


def _direct_padding(prefix: Buffer, offset: int, remaining: int) -> DirectPadding | None:
    size = min(-offset % BLOCK_SIZE, remaining)
    seen = bytes(prefix[: min(size, _SIZE.size)])
    if not seen or seen.count(DIRECT_FILL) != len(seen):
        return None
    return DirectPadding(offset, offset + size)
