"""Walking through an entry log, over damage too: what is sound is found again, what is not is an exact hole.

Damage in a payload costs one entry, which keeps its place. Damage in a size breaks the chain; the next sound
record is then searched for, and if the digest proves that everything up to it is one entry, only the four
bytes of the size are the hole.
"""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.codec import entrylog as codec
from storage.codec.digest import DigestCheck
from storage.codec.entry import HEAD, IDS, decode_head
from storage.entry import RECORD_SIZE_MAX
from storage.entrylog_reader import LogEntry, LogMap
from storage.outcome import Damaged, EndOfData, Flaw, Stop, Torn
from storage.position import LENGTH_WORD_SIZE, LogPosition
from storage.resync import find_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from storage.entrylog_reader import EntryLogReader

_CHAIN_MAX = 16
"""So many well framed records in a row are no accident, whatever their digests say."""

_CHAIN_MIN = 3
"""So many records in a row must be framed before one that no digest can prove is believed."""

_DIRECT_FILL = bytes([codec.DIRECT_FILL])
_SMALL = 8 << 10
"""Up to this size a checksum costs less than looking at what follows."""

_CUT = (Flaw.LENGTH_CUT, Flaw.BODY_CUT)


@dataclass(frozen=True, slots=True)
class LogFiller:
    """Bytes that every scan passes over: a filler record, or a direct-I/O writer's padding."""

    offset: int
    end: int


@dataclass(frozen=True, slots=True)
class Hole:
    """Bytes in [offset, end) that make no sense; something sound follows them."""

    offset: int
    end: int
    flaw: Flaw


Found = LogEntry | LogMap | LogFiller | Hole
LogItem = Found | Stop


class MapSource(enum.Enum):
    """Where a log's bytes per ledger were read from."""

    MAP = "map"
    SCAN = "scan"


@dataclass(frozen=True, slots=True)
class LogMetadata:
    """Bytes per ledger in one log, length words included."""

    sizes: dict[int, int]
    source: MapSource
    stop: Stop
    """How the map, or the scan, ended."""


def items(reader: EntryLogReader, start: int = codec.HEADER_SIZE) -> Iterator[LogItem]:
    """Everything from `start` on, which must be a record's place. The last item says how it ended."""
    at = max(start, codec.HEADER_SIZE)
    while True:
        found = _items_at(reader, at)
        if isinstance(found, EndOfData | Torn | Damaged):
            yield _unless_sealed(reader, found)
            return
        yield from found
        at = found[-1].end


def survey(reader: EntryLogReader) -> None:
    """Learns the ledgers' digest types first, so that a damaged entry cannot hide behind not knowing."""
    for _ in items(reader):
        pass


def first_sound(reader: EntryLogReader, start: int, end: int) -> int | None:
    """The first offset in [start, end) at which a sound record begins: a guess that payloads can mislead."""
    return find_record(reader.window, start, lambda place: _is_sound(reader, place, reader.size), end)


def metadata(reader: EntryLogReader) -> LogMetadata:
    """Bytes per ledger: from the ledgers map if there is a sound one, otherwise by walking through."""
    sizes = reader.ledgers_map()
    if isinstance(sizes, dict):
        return LogMetadata(sizes, MapSource.MAP, EndOfData(reader.size))
    counted: Counter[int] = Counter()
    stop: Stop = EndOfData(codec.HEADER_SIZE)
    for item in items(reader):
        match item:
            case LogEntry():
                counted[item.ids[0]] += item.end - item.position.offset
            case EndOfData() | Torn() | Damaged():
                stop = item
    return LogMetadata(dict(counted), MapSource.SCAN, stop)


def _unless_sealed(reader: EntryLogReader, stop: Stop) -> Stop:
    """A sealed log was complete: if it ends before its map, that is no end and no torn tail."""
    header = reader.header
    if isinstance(header, codec.Header) and header.map_offset > 0 and stop.offset <= header.map_offset:
        words = f"sealed with a map at {header.map_offset}, the file ends at {reader.size}"
        return Damaged(stop.offset, Flaw.FILE_SHORT, words)
    return stop


def _items_at(reader: EntryLogReader, at: int) -> Sequence[Found] | Stop:
    frame = reader.frame_at(at)
    match frame:
        case codec.Frame(kind=codec.FrameKind.ENTRY):
            entry = reader.entry(frame)
            return [entry] if entry.check is DigestCheck.OK else _second_look(reader, entry)
        case codec.Frame(kind=codec.FrameKind.MAP):
            return [reader.map_record(frame)]
        case codec.DirectPadding() if not _is_padding(reader, frame):
            return _behind_damage(reader, at, Flaw.NOT_A_RECORD)
        case codec.Frame() if not _is_filling(reader, frame):
            return _behind_damage(reader, at, Flaw.NOT_ZERO)
        case codec.Frame() | codec.DirectPadding():
            return [LogFiller(at, frame.end)]
        case EndOfData():
            nothing_behind = reader.window.first_nonzero(at) is None
            return frame if nothing_behind else _behind_damage(reader, at, Flaw.NOT_ZERO)
        case Torn() | Damaged():
            return _behind_damage(reader, at, frame.flaw)


def _behind_damage(reader: EntryLogReader, at: int, flaw: Flaw) -> Sequence[Found] | Stop:
    """What is known of the bytes from a place without framing to the next sound record."""
    resumed = _next_sound(reader, at, reader.size)
    rescued = _rescue(reader, at, reader.size if resumed is None else resumed)
    if rescued is not None:
        return [Hole(at, at + LENGTH_WORD_SIZE, flaw), rescued]
    if resumed is not None:
        return [Hole(at, resumed, flaw)]
    return Torn(at, flaw) if flaw in _CUT else Damaged(at, flaw)


def _second_look(reader: EntryLogReader, entry: LogEntry) -> Sequence[Found]:
    """An entry that its digest does not prove: its size, and not only its content, may be wrong."""
    known = reader.verifier.digester(entry.ids[0])
    if known is not None and not known.verifies:
        return [entry]
    at = entry.position.offset
    # Where the framing holds, only a record *inside* could show that the size has grown over it.
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
    """The first sound record behind `at` that lies before the limit as a whole."""
    return find_record(reader.window, at + 1, lambda place: _is_sound(reader, place, limit), limit)


def _rescue(reader: EntryLogReader, at: int, end: int) -> LogEntry | None:
    """The entry between a damaged size and what follows, if its digest proves it whole."""
    body = at + LENGTH_WORD_SIZE
    if not IDS.size <= end - body <= RECORD_SIZE_MAX:
        return None
    data = bytes(reader.window.view(body, end - body))
    # What follows may begin with zeros, or with a direct-I/O writer's padding.
    for candidate in (data, data.rstrip(b"\0"), data.rstrip(_DIRECT_FILL)):
        if reader.verifier.proves(candidate):
            position = LogPosition(reader.log_id, at)
            return LogEntry(position, body + len(candidate), candidate, DigestCheck.OK)
    return None


def _is_sound(reader: EntryLogReader, place: int, limit: int) -> bool:
    """Whether a record begins there, and ends before the limit, that its digest, map or filling proves."""
    frame = reader.frame_at(place)
    if not isinstance(frame, codec.Frame) or frame.end > limit:
        return False
    ledger_id, _ = IDS.unpack_from(reader.window.peek(frame.body, IDS.size))
    unknown = reader.verifier.digester(ledger_id) is None
    # A place inside a payload hardly ever names a known ledger; a true one goes on to something.
    if unknown and frame.end - frame.body > _SMALL and not _begins_something(reader, frame.end):
        return False
    body = reader.body(frame)
    match frame.kind:
        case codec.FrameKind.ENTRY:
            return reader.verifier.proves(body) or _is_framed(reader, frame)
        case codec.FrameKind.MAP:
            return not isinstance(codec.decode_map_batch(body), Damaged)
        case codec.FrameKind.FILLER:
            return _is_filling(reader, frame)


def _is_filling(reader: EntryLogReader, frame: codec.Frame) -> bool:
    """Whether nothing but zeros fills it: a size that grew has swallowed records."""
    return not any(reader.body(frame)[IDS.size :])


def _is_padding(reader: EntryLogReader, padding: codec.DirectPadding) -> bool:
    """Whether it is padding up to its end, and not a damaged size in front of a record."""
    size = padding.end - padding.offset
    return bytes(reader.window.view(padding.offset, size)).count(codec.DIRECT_FILL) == size


def _is_framed(reader: EntryLogReader, frame: codec.Frame) -> bool:
    """For a ledger known to carry nothing that can be verified: whether the framing holds for a while."""
    for _ in range(_CHAIN_MIN):
        ledger_id, _ = IDS.unpack_from(reader.body(frame))
        known = reader.verifier.digester(ledger_id)
        if known is None or known.verifies:
            return False
        match reader.frame_at(frame.end):
            case codec.Frame(kind=codec.FrameKind.ENTRY) as following:
                frame = following
            case codec.Frame() | codec.DirectPadding():
                return True
            case EndOfData(offset=offset):
                return reader.window.first_nonzero(offset) is None
            case _:
                return False
    return True


def _begins_something(reader: EntryLogReader, offset: int) -> bool:
    frame = reader.frame_at(offset)
    if isinstance(frame, codec.Frame) and frame.kind is codec.FrameKind.ENTRY:
        head = decode_head(reader.window.peek(frame.body, HEAD.size))
        return not isinstance(head, Damaged) and head.last_add_confirmed < head.entry_id
    return not isinstance(frame, Torn | Damaged)


def _goes_on_at(reader: EntryLogReader, place: int) -> bool:
    """Whether the framing still holds there; more entries with wrong digests do not break it."""
    for _ in range(_CHAIN_MAX):
        match reader.frame_at(place):
            case codec.Frame(kind=codec.FrameKind.ENTRY) as frame:
                if reader.verifier.proves(reader.body(frame)):
                    return True
                place = frame.end
            case codec.Frame():
                return _is_sound(reader, place, reader.size)
            case codec.DirectPadding():
                return True
            case EndOfData():
                return reader.window.first_nonzero(place) is None
            case _:
                return False
    return True
