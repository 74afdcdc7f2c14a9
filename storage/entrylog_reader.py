"""Reading an entry log by place: one entry at its location, the record at an offset, the ledgers map."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.codec import entrylog as codec
from storage.codec.digest import DigestCheck
from storage.codec.entry import IDS
from storage.outcome import Damaged, EndOfData, Flaw, Stop, Torn
from storage.position import LogPosition
from storage.window import Window

if TYPE_CHECKING:
    from storage.codec.survey import EntryVerifier
    from storage.files import ReadFile
    from storage.position import EntryLocation


@dataclass(frozen=True, slots=True)
class LogEntry:
    """An entry in its place. `data` is the entry's bytes, `check` what its digest says of them."""

    position: LogPosition
    end: int
    data: bytes
    check: DigestCheck

    @property
    def ids(self) -> tuple[int, int]:
        """Ledger and entry, as the bytes say."""
        ledger_id, entry_id = IDS.unpack_from(self.data)
        return ledger_id, entry_id


@dataclass(frozen=True, slots=True)
class LogMap:
    """One record of the ledgers map: (ledger, bytes) pairs."""

    offset: int
    end: int
    pairs: list[tuple[int, int]] | Damaged


@dataclass(frozen=True, slots=True)
class NotSealed:
    """The log has no ledgers map: it was never sealed, or is older than maps."""


class EntryLogReader:
    """One entry log, ours or a bookie's, of any kind. Reads only; may stand beside a live writer."""

    def __init__(self, file: ReadFile, log_id: int, verifier: EntryVerifier) -> None:
        self.log_id = log_id
        self.verifier = verifier
        self.window = Window(file)
        self.size = self.window.size
        self.header = codec.decode_header(self.window.view(0, codec.HEADER_SIZE))

    def read(
        self, location: EntryLocation, wanted: tuple[int, int] | None = None
    ) -> LogEntry | EndOfData | Torn | Damaged:
        """The entry at the location, its digest checked; `wanted` are the ledger and entry it has to be."""
        offset = location.position.offset
        if location.log_id != self.log_id or offset < codec.HEADER_SIZE:
            return Damaged(offset, Flaw.NOT_A_RECORD, f"location {location} in log {self.log_id:x}")
        match self.frame_at(offset):
            case codec.Frame(kind=codec.FrameKind.ENTRY) as frame:
                return _as_wanted(self.entry(frame), wanted)
            case EndOfData() | Torn() | Damaged() as stop:
                return stop
        return Damaged(offset, Flaw.NOT_A_RECORD)

    def frame_at(self, offset: int) -> codec.Frame | codec.DirectPadding | Stop:
        """What begins at the offset, which must be a record's place."""
        remaining = max(0, self.size - offset)
        return codec.frame(self.window.peek(offset, codec.PREFIX_SIZE), offset, remaining)

    def body(self, frame: codec.Frame) -> memoryview:
        """The record's bytes behind its size. Valid until the next call."""
        return self.window.view(frame.body, frame.end - frame.body)

    def entry(self, frame: codec.Frame) -> LogEntry:
        """The framed entry, its digest checked."""
        data = bytes(self.body(frame))
        return LogEntry(LogPosition(self.log_id, frame.offset), frame.end, data, self.verifier.check(data))

    def map_record(self, frame: codec.Frame) -> LogMap:
        """The framed record of the ledgers map."""
        return LogMap(frame.offset, frame.end, codec.decode_map_batch(self.body(frame)))

    def ledgers_map(self) -> dict[int, int] | NotSealed | Damaged:
        """Bytes per ledger as the sealed log states them; `Damaged` when header and map disagree."""
        match self.header:
            case Damaged():
                return self.header
            case codec.EmptyLog() | codec.Header(version=0) | codec.Header(map_offset=0):
                return NotSealed()
        if self.header.map_offset >= self.size:
            words = f"sealed with a map at {self.header.map_offset}, the file ends at {self.size}"
            return Damaged(codec.MAP_FIELDS_OFFSET, Flaw.FILE_SHORT, words)
        sizes = self._read_map(self.header.map_offset)
        if isinstance(sizes, Damaged):
            return sizes
        if sum(sizes.values()) > self.header.map_offset - codec.HEADER_SIZE:
            return Damaged(codec.MAP_FIELDS_OFFSET, Flaw.BAD_MAP, "more bytes than stand before the map")
        if not sizes or len(sizes) != self.header.ledger_count:
            detail = f"{len(sizes)} ledgers, {self.header.ledger_count} in the header"
            return Damaged(codec.MAP_FIELDS_OFFSET, Flaw.BAD_MAP, detail)
        return dict(sizes)

    def _read_map(self, offset: int) -> Counter[int] | Damaged:
        sizes: Counter[int] = Counter()
        while True:
            match frame := self.frame_at(offset):
                case codec.Frame(kind=codec.FrameKind.MAP):
                    pairs = self.map_record(frame).pairs
                    if isinstance(pairs, Damaged):
                        return Damaged(offset, pairs.flaw, pairs.detail)
                    for ledger_id, size in pairs:
                        sizes[ledger_id] += size
                    offset = frame.end
                case EndOfData() | codec.DirectPadding():
                    return sizes  # a direct-I/O writer pads behind the map as well
                case Torn() | Damaged():
                    return Damaged(offset, Flaw.BAD_MAP, frame.flaw.value)
                case _:
                    return Damaged(offset, Flaw.BAD_MAP, "another record inside the map")


def _as_wanted(entry: LogEntry, wanted: tuple[int, int] | None) -> LogEntry | Damaged:
    if wanted is not None and entry.ids != wanted:
        ledger_id, entry_id = entry.ids
        return Damaged(entry.position.offset, Flaw.OTHER_ENTRY, f"ledger {ledger_id}, entry {entry_id}")
    if entry.check is DigestCheck.MISMATCH:
        return Damaged(entry.position.offset, Flaw.DIGEST)
    return entry
