"""A reader of entry logs by place: the entry at a location, the record at an offset, the ledgers map."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.disk.buffered import Window
from storage.entry.digest import DigestCheck
from storage.entry.format import IDS
from storage.entry.position import LogPosition
from storage.entry.read_result import Damaged, EndOfData, Flaw, Stop, Torn
from storage.entrylog import format as entrylog_format

if TYPE_CHECKING:
    from storage.disk.files import ReadFile
    from storage.entry.digest_inference import EntryVerifier
    from storage.entry.position import EntryLocation


@dataclass(frozen=True, slots=True)
class LogEntry:
    """An entry in its place: its bytes, and the result of its digest check."""

    position: LogPosition
    end: int
    data: bytes
    check: DigestCheck

    @property
    def offset(self) -> int:
        """The offset of its length word."""
        return self.position.offset

    @property
    def ids(self) -> tuple[int, int]:
        """The ledger id and the entry id in the bytes."""
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
    """The log has no ledgers map, because it was never sealed or is older than maps."""


@dataclass(frozen=True, slots=True)
class UnprovenMap:
    """The log has a ledgers map without a checksum, as the logs of a bookie and of older versions do."""


class EntryLogReader:
    """One entry log of any kind, ours or a bookie's. Reads only; the file may have a live writer."""

    def __init__(self, file: ReadFile, log_id: int, verifier: EntryVerifier) -> None:
        self.log_id = log_id
        self.verifier = verifier
        self.window = Window(file)
        self.size = self.window.size
        self.header = entrylog_format.decode_header(self.window.view(0, entrylog_format.HEADER_SIZE))

    def read(
        self, location: EntryLocation, wanted: tuple[int, int] | None = None
    ) -> LogEntry | EndOfData | Torn | Damaged:
        """Return the entry at the location, its digest checked. `wanted` are the ids that it must have."""
        offset = location.position.offset
        if location.log_id != self.log_id or offset < entrylog_format.HEADER_SIZE:
            return Damaged(offset, Flaw.NOT_A_RECORD, f"location {location} in log {self.log_id:x}")
        match self.frame_at(offset):
            case entrylog_format.LogFrame(kind=entrylog_format.LogFrameKind.ENTRY) as frame:
                return _as_wanted(self.entry(frame), wanted)
            case EndOfData() | Torn() | Damaged() as stop:
                return stop
        return Damaged(offset, Flaw.NOT_A_RECORD)

    def frame_at(self, offset: int) -> entrylog_format.LogFrame | entrylog_format.DirectPadding | Stop:
        """Return the frame that begins at the offset of a record."""
        remaining = max(0, self.size - offset)
        return entrylog_format.frame(self.window.peek(offset, entrylog_format.PREFIX_SIZE), offset, remaining)

    def body(self, frame: entrylog_format.LogFrame) -> memoryview:
        """Return the record's bytes after its length word. Valid until the next call."""
        return self.window.view(frame.body, frame.end - frame.body)

    def entry(self, frame: entrylog_format.LogFrame) -> LogEntry:
        """Return the framed entry, its digest checked."""
        data = bytes(self.body(frame))
        return LogEntry(LogPosition(self.log_id, frame.offset), frame.end, data, self.verifier.check(data))

    def map_record(self, frame: entrylog_format.LogFrame) -> LogMap:
        """Return the framed record of the ledgers map."""
        return LogMap(frame.offset, frame.end, entrylog_format.decode_map_batch(self.body(frame)))

    def ledgers_map(self) -> dict[int, int] | NotSealed | Damaged:
        """Return the bytes of each ledger that the sealed log states.

        `Damaged` if header and map disagree.
        """
        match self.header:
            case Damaged():
                return self.header
            case (
                entrylog_format.EmptyLog()
                | entrylog_format.LogHeader(version=0)
                | entrylog_format.LogHeader(map_offset=0)
            ):
                return NotSealed()
        if self.header.map_offset >= self.size:
            words = f"sealed with a map at {self.header.map_offset}, the file ends at {self.size}"
            return Damaged(entrylog_format.MAP_FIELDS_OFFSET, Flaw.FILE_SHORT, words)
        read = self._read_map(self.header.map_offset)
        if isinstance(read, Damaged):
            return read
        sizes, _ = read
        if sum(sizes.values()) > self.header.map_offset - entrylog_format.HEADER_SIZE:
            return Damaged(
                entrylog_format.MAP_FIELDS_OFFSET, Flaw.BAD_MAP, "more bytes than stand before the map"
            )
        if not sizes or len(sizes) != self.header.ledger_count:
            detail = f"{len(sizes)} ledgers, {self.header.ledger_count} in the header"
            return Damaged(entrylog_format.MAP_FIELDS_OFFSET, Flaw.BAD_MAP, detail)
        return dict(sizes)

    def proven_map(self) -> dict[int, int] | NotSealed | UnprovenMap | Damaged:
        """Return what `ledgers_map` returns if a checksum proves it.

        A map without a checksum proves nothing: a bookie writes an empty map into a log that it could not
        read.
        """
        sizes = self.ledgers_map()
        if not isinstance(sizes, dict):
            return sizes
        header = self.header
        assert isinstance(header, entrylog_format.LogHeader), "it has a map"
        if header.map_checksum == entrylog_format.NO_CHECKSUM:
            return UnprovenMap()
        read = self._read_map(header.map_offset)
        if isinstance(read, Damaged):
            return read
        checksum = entrylog_format.map_checksum(header.map_offset, read[1], header.ledger_count)
        if checksum != header.map_checksum:
            return Damaged(entrylog_format.MAP_CHECKSUM_OFFSET, Flaw.CHECKSUM)
        return sizes

    def _read_map(self, offset: int) -> tuple[Counter[int], list[bytes]] | Damaged:
        """Return the bytes of each ledger, and the records of the map."""
        sizes: Counter[int] = Counter()
        records: list[bytes] = []
        while True:
            match frame := self.frame_at(offset):
                case entrylog_format.LogFrame(kind=entrylog_format.LogFrameKind.MAP):
                    records.append(bytes(self.window.view(offset, frame.end - offset)))
                    pairs = self.map_record(frame).pairs
                    if isinstance(pairs, Damaged):
                        return Damaged(offset, pairs.flaw, pairs.detail)
                    for ledger_id, size in pairs:
                        sizes[ledger_id] += size
                    offset = frame.end
                case EndOfData() | entrylog_format.DirectPadding():
                    return sizes, records  # a direct-I/O writer pads after the map too
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
