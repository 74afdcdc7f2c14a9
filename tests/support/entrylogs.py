"""Entry logs made for tests."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from journals import entry_bytes
from memory import MemoryFile

from storage import entrylog_scan
from storage.codec import entrylog as codec
from storage.codec.entry import IDS
from storage.codec.survey import EntryVerifier
from storage.entrylog_reader import EntryLogReader, LogEntry


@dataclass
class Log:
    """An entry log under construction."""

    data: bytearray = field(default_factory=lambda: bytearray(codec.encode_header()))
    sizes: dict[int, int] = field(default_factory=dict)
    places: list[int] = field(default_factory=list)

    def add(self, *entries: bytes) -> Log:
        for entry in entries:
            self.places.append(len(self.data))
            self.data += codec.encode_record(entry)
            ledger_id, _ = IDS.unpack_from(entry)
            self.sizes[ledger_id] = self.sizes.get(ledger_id, 0) + 4 + len(entry)
        return self

    def seal(self) -> Log:
        """Appends the ledgers map and patches the header, as a log that is rolled over."""
        map_offset = len(self.data)
        self.data += b"".join(codec.encode_ledgers_map(self.sizes))
        seal = codec.encode_map_fields(map_offset, len(self.sizes))
        self.data[codec.MAP_FIELDS_OFFSET : codec.MAP_FIELDS_OFFSET + len(seal)] = seal
        return self

    def file(self) -> bytes:
        return bytes(self.data)


def reader(data: bytes, log_id: int = 0, verifier: EntryVerifier | None = None) -> EntryLogReader:
    return EntryLogReader(MemoryFile(data, f"{log_id:x}.log"), log_id, verifier or EntryVerifier())


def items(data: bytes, verifier: EntryVerifier | None = None) -> list[entrylog_scan.LogItem]:
    """Everything in the log, its digest types surveyed first."""
    opened = reader(data, verifier=verifier)
    entrylog_scan.survey(opened)
    return list(entrylog_scan.items(opened))


def entries(found: list[entrylog_scan.LogItem]) -> list[tuple[int, int]]:
    """The (ledger, entry) of the entries among the items."""
    return [item.ids for item in found if isinstance(item, LogEntry)]


def holes(found: list[entrylog_scan.LogItem]) -> list[tuple[int, int]]:
    return [(item.offset, item.end) for item in found if isinstance(item, entrylog_scan.Hole)]


def direct_log() -> bytes:
    """A log as the direct-I/O writer makes it: a filler behind the header, 0xF0 behind each flush, sealed."""
    data = bytearray(codec.encode_header()) + struct.pack(">iq", 3068, -1)
    data = bytearray(data.ljust(4096, b"\0"))
    for number in range(3):
        data = _flushed(data + codec.encode_record(entry_bytes(1, number)))
    fields = codec.encode_map_fields(len(data), 1)
    data[codec.MAP_FIELDS_OFFSET : codec.MAP_FIELDS_OFFSET + len(fields)] = fields
    size = sum(4 + len(entry_bytes(1, number)) for number in range(3))
    data = _flushed(data + b"".join(codec.encode_ledgers_map({1: size})))
    return bytes(data).ljust(65536, b"\0")


def _flushed(data: bytearray) -> bytearray:
    return data + bytes([0xF0] * (-len(data) % 4096))
