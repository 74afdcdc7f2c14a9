"""Builds entry logs for tests."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from journal_builder import entry_bytes
from memory_files import MemoryFile

from storage.entry.digest_inference import EntryVerifier
from storage.entry.format import IDS
from storage.entrylog import format as entrylog_format
from storage.entrylog import scan as entrylog_scan
from storage.entrylog.reader import EntryLogReader, LogEntry


@dataclass
class Log:
    """An entry log under construction."""

    data: bytearray = field(default_factory=lambda: bytearray(entrylog_format.encode_header()))
    sizes: dict[int, int] = field(default_factory=dict)
    places: list[int] = field(default_factory=list)

    def add(self, *entries: bytes) -> Log:
        for entry in entries:
            self.places.append(len(self.data))
            self.data += entrylog_format.encode_record(entry)
            ledger_id, _ = IDS.unpack_from(entry)
            self.sizes[ledger_id] = self.sizes.get(ledger_id, 0) + 4 + len(entry)
        return self

    def seal(self) -> Log:
        """Appends the ledgers map and patches the header, as a log that is rolled over."""
        map_offset = len(self.data)
        self.data += b"".join(entrylog_format.encode_ledgers_map(self.sizes))
        seal = entrylog_format.encode_map_fields(map_offset, len(self.sizes))
        self.data[entrylog_format.MAP_FIELDS_OFFSET : entrylog_format.MAP_FIELDS_OFFSET + len(seal)] = seal
        return self

    def file(self) -> bytes:
        return bytes(self.data)


def reader(data: bytes, log_id: int = 0, verifier: EntryVerifier | None = None) -> EntryLogReader:
    return EntryLogReader(MemoryFile(data, f"{log_id:x}.log"), log_id, verifier or EntryVerifier())


def items(data: bytes, verifier: EntryVerifier | None = None) -> list[entrylog_scan.LogItem]:
    """Return all items of the log. The digest types are inferred first."""
    opened = reader(data, verifier=verifier)
    entrylog_scan.learn_digest_types(opened)
    return list(entrylog_scan.items(opened))


def entries(found: list[entrylog_scan.LogItem]) -> list[tuple[int, int]]:
    """The (ledger, entry) of the entries among the items."""
    return [item.ids for item in found if isinstance(item, LogEntry)]


def holes(found: list[entrylog_scan.LogItem]) -> list[tuple[int, int]]:
    return [(item.offset, item.end) for item in found if isinstance(item, entrylog_scan.Hole)]


def direct_log() -> bytes:
    """Make a sealed log as the direct-I/O writer does: a filler after the header, 0xF0 after each flush."""
    data = bytearray(entrylog_format.encode_header()) + struct.pack(">iq", 3068, -1)
    data = bytearray(data.ljust(4096, b"\0"))
    for number in range(3):
        data = _flushed(data + entrylog_format.encode_record(entry_bytes(1, number)))
    fields = entrylog_format.encode_map_fields(len(data), 1)
    data[entrylog_format.MAP_FIELDS_OFFSET : entrylog_format.MAP_FIELDS_OFFSET + len(fields)] = fields
    size = sum(4 + len(entry_bytes(1, number)) for number in range(3))
    data = _flushed(data + b"".join(entrylog_format.encode_ledgers_map({1: size})))
    return bytes(data).ljust(65536, b"\0")


def _flushed(data: bytearray) -> bytearray:
    return data + bytes([0xF0] * (-len(data) % 4096))
