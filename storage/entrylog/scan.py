"""A walk along an entry log, over damage too: sound records are found again, and the rest are exact holes.

Damage in a payload costs one entry, which keeps its place. Damage in a size breaks the chain. The next sound
record is then searched for, and if the digest proves that everything up to it is one entry, only the four
bytes of the size are the hole.
"""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.disk.search import find_record
from storage.entry.digest import DigestCheck
from storage.entry.format import HEAD, IDS, decode_head
from storage.entry.model import RECORD_SIZE_MAX
from storage.entry.position import LENGTH_WORD_SIZE, LogPosition
from storage.entry.read_result import Damaged, EndOfData, Flaw, Stop, Torn
from storage.entrylog import format as entrylog_format
from storage.entrylog.reader import LogEntry, LogMap

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from storage.entrylog.reader import EntryLogReader

_CHAIN_MAX = 16
"""This many well framed records in a row are no accident, whatever their digests say."""

_CHAIN_MIN = 3
"""This many records in a row must be framed before one that no digest can prove is believed."""

_DIRECT_FILL = bytes([entrylog_format.DIRECT_FILL])
_SMALL = 8 << 10
"""Up to this size a checksum costs less than a look at what follows."""

_CUT = (Flaw.LENGTH_CUT, Flaw.BODY_CUT)


@dataclass(frozen=True, slots=True)
class LogFiller:
    """Bytes that every scan passes over: a filler record, or a direct-I/O writer's padding."""

    offset: int
    end: int


@dataclass(frozen=True, slots=True)
class Hole:
    """Bytes in [offset, end) that make no sense, followed by something sound."""

    offset: int
    end: int
    flaw: Flaw


Found = LogEntry | LogMap | LogFiller | Hole
LogItem = Found | Stop


class MapSource(enum.Enum):
    """The source of the number of bytes per ledger in a log."""

    MAP = "map"
    SCAN = "scan"


@dataclass(frozen=True, slots=True)
class LogMetadata:
    """The number of bytes per ledger in one log, length words included."""

    sizes: dict[int, int]
    source: MapSource
    stop: Stop
    """How the map, or the scan, ended."""


def items(reader: EntryLogReader, start: int = entrylog_format.HEADER_SIZE) -> Iterator[LogItem]:
    """Return every item from `start` on, which must be a record's place.

    The last item says how they ended.
    """
    at = max(start, entrylog_format.HEADER_SIZE)
    while True:
        found = _items_at(reader, at)
        if isinstance(found, EndOfData | Torn | Damaged):
            yield _unless_sealed(reader, found)
            return
        yield from found
        at = found[-1].end


def learn_digest_types(reader: EntryLogReader) -> None:
    """Infer the ledgers' digest types first.

    Otherwise a damaged entry could pass because its type is not known yet.
    """
    for _ in items(reader):
        pass


def first_sound(reader: EntryLogReader, start: int, end: int) -> int | None:
    """Return the first offset in [start, end) where a sound record seems to begin.

    Payloads can mislead it.
    """
    return find_record(reader.window, start, lambda place: _is_sound(reader, place, reader.size), end)


def metadata(reader: EntryLogReader) -> LogMetadata:
    """Return the bytes per ledger from a sound ledgers map, or else by a walk along the log."""
    sizes = reader.ledgers_map()
    if isinstance(sizes, dict):
        return LogMetadata(sizes, MapSource.MAP, EndOfData(reader.size))
    counted: Counter[int] = Counter()
    stop: Stop = EndOfData(entrylog_format.HEADER_SIZE)
    for item in items(reader):
        match item:
            case LogEntry():
                counted[item.ids[0]] += item.end - item.position.offset
            case EndOfData() | Torn() | Damaged():
                stop = item
    return LogMetadata(dict(counted), MapSource.SCAN, stop)


def _unless_sealed(reader: EntryLogReader, stop: Stop) -> Stop:
    """Return damage if a sealed log ends before its map, because it was complete when it was sealed."""
    header = reader.header
    if (
        isinstance(header, entrylog_format.LogHeader)
        and header.map_offset > 0
        and stop.offset <= header.map_offset
    ):
        words = f"sealed with a map at {header.map_offset}, the file ends at {reader.size}"
        return Damaged(stop.offset, Flaw.FILE_SHORT, words)
    return stop


def _items_at(reader: EntryLogReader, at: int) -> Sequence[Found] | Stop:
    frame = reader.frame_at(at)
    match frame:
        case entrylog_format.LogFrame(kind=entrylog_format.LogFrameKind.ENTRY):
            entry = reader.entry(frame)
            return [entry] if entry.check is DigestCheck.OK else _recheck(reader, entry)
        case entrylog_format.LogFrame(kind=entrylog_format.LogFrameKind.MAP):
            return [reader.map_record(frame)]
        case entrylog_format.DirectPadding() if not _is_padding(reader, frame):
            return _after_damage(reader, at, Flaw.NOT_A_RECORD)
        case entrylog_format.LogFrame() if not _is_filling(reader, frame):
            return _after_damage(reader, at, Flaw.NOT_ZERO)
        case entrylog_format.LogFrame() | entrylog_format.DirectPadding():
            return [LogFiller(at, frame.end)]
        case EndOfData():
            is_end = reader.window.first_nonzero(at) is None
            return frame if is_end else _after_damage(reader, at, Flaw.NOT_ZERO)
        case Torn() | Damaged():
            return _after_damage(reader, at, frame.flaw)


def _after_damage(reader: EntryLogReader, at: int, flaw: Flaw) -> Sequence[Found] | Stop:
    """Return what is known of the bytes from an offset without framing to the next sound record."""
    resumed = _next_sound(reader, at, reader.size)
    rescued = _rescue(reader, at, reader.size if resumed is None else resumed)
    if rescued is not None:
        return [Hole(at, at + LENGTH_WORD_SIZE, flaw), rescued]
    if resumed is not None:
        return [Hole(at, resumed, flaw)]
    return Torn(at, flaw) if flaw in _CUT else Damaged(at, flaw)


def _recheck(reader: EntryLogReader, entry: LogEntry) -> Sequence[Found]:
    """Return what is known of an entry that its digest does not prove: its size may be wrong too."""
    known = reader.verifier.digester(entry.ids[0])
    if known is not None and not known.verifies:
        return [entry]
    at = entry.position.offset
    # If the framing holds, only a record *inside* could show that the size has grown over it.
    framed = _goes_on_at(reader, entry.end)
    limit = entry.end if framed else reader.size
    resumed = _next_sound(reader, at, limit)
    rescued = _rescue(reader, at, limit if resumed is None else resumed)
    if rescued is not None:
        return [Hole(at, at + LENGTH_WORD_SIZE, Flaw.DIGEST), rescued]
    if resumed is not None and resumed < entry.end and not framed:
        return [Hole(at, resumed, Flaw.DIGEST)]
    return [entry]


def _next_sound(reader: EntryLogReader, at: int, limit: int) -> int | None:
    """Return the first sound record after `at` that ends before the limit."""
    return find_record(reader.window, at + 1, lambda place: _is_sound(reader, place, limit), limit)


def _rescue(reader: EntryLogReader, at: int, end: int) -> LogEntry | None:
    """Return the entry between a damaged size and what follows, if its digest proves it whole."""
    body = at + LENGTH_WORD_SIZE
    if not IDS.size <= end - body <= RECORD_SIZE_MAX:
        return None
    data = bytes(reader.window.view(body, end - body))
    # Zeros, or the padding of a direct-I/O writer, may stand before what follows.
    for candidate in (data, data.rstrip(b"\0"), data.rstrip(_DIRECT_FILL)):
        if reader.verifier.proves(candidate):
            position = LogPosition(reader.log_id, at)
            return LogEntry(position, body + len(candidate), candidate, DigestCheck.OK)
    return None


def _is_sound(reader: EntryLogReader, place: int, limit: int) -> bool:
    """Return whether a record begins there that its digest, map or filling proves, and that ends in time."""
    frame = reader.frame_at(place)
    if not isinstance(frame, entrylog_format.LogFrame) or frame.end > limit:
        return False
    ledger_id, _ = IDS.unpack_from(reader.window.peek(frame.body, IDS.size))
    unknown = reader.verifier.digester(ledger_id) is None
    # A false record inside a payload hardly ever names a known ledger. A true record is followed by
    # something.
    if unknown and frame.end - frame.body > _SMALL and not _begins_something(reader, frame.end):
        return False
    body = reader.body(frame)
    match frame.kind:
        case entrylog_format.LogFrameKind.ENTRY:
            return reader.verifier.proves(body) or _is_framed(reader, frame)
        case entrylog_format.LogFrameKind.MAP:
            return not isinstance(entrylog_format.decode_map_batch(body), Damaged)
        case entrylog_format.LogFrameKind.FILLER:
            return _is_filling(reader, frame)


def _is_filling(reader: EntryLogReader, frame: entrylog_format.LogFrame) -> bool:
    """Return whether only zeros fill it, because a size that grew has swallowed records."""
    return not any(reader.body(frame)[IDS.size :])


def _is_padding(reader: EntryLogReader, padding: entrylog_format.DirectPadding) -> bool:
    """Return whether it is padding up to its end, and not a damaged size before a record."""
    size = padding.end - padding.offset
    return bytes(reader.window.view(padding.offset, size)).count(entrylog_format.DIRECT_FILL) == size


def _is_framed(reader: EntryLogReader, frame: entrylog_format.LogFrame) -> bool:
    """Return whether the framing holds for a while. For a ledger whose entries cannot be verified."""
    for _ in range(_CHAIN_MIN):
        ledger_id, _ = IDS.unpack_from(reader.body(frame))
        known = reader.verifier.digester(ledger_id)
        if known is None or known.verifies:
            return False
        match reader.frame_at(frame.end):
            case entrylog_format.LogFrame(kind=entrylog_format.LogFrameKind.ENTRY) as following:
                frame = following
            case entrylog_format.LogFrame() | entrylog_format.DirectPadding():
                return True
            case EndOfData(offset=offset):
                return reader.window.first_nonzero(offset) is None
            case _:
                return False
    return True


def _begins_something(reader: EntryLogReader, offset: int) -> bool:
    frame = reader.frame_at(offset)
    if isinstance(frame, entrylog_format.LogFrame) and frame.kind is entrylog_format.LogFrameKind.ENTRY:
        head = decode_head(reader.window.peek(frame.body, HEAD.size))
        return not isinstance(head, Damaged) and head.last_add_confirmed < head.entry_id
    return not isinstance(frame, Torn | Damaged)


def _goes_on_at(reader: EntryLogReader, place: int) -> bool:
    """Return whether the framing still holds there. More entries with wrong digests do not break it."""
    for _ in range(_CHAIN_MAX):
        match reader.frame_at(place):
            case entrylog_format.LogFrame(kind=entrylog_format.LogFrameKind.ENTRY) as frame:
                if reader.verifier.proves(reader.body(frame)):
                    return True
                place = frame.end
            case entrylog_format.LogFrame():
                return _is_sound(reader, place, reader.size)
            case entrylog_format.DirectPadding():
                return True
            case EndOfData():
                return reader.window.first_nonzero(place) is None
            case _:
                return False
    return True
