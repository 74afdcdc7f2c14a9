"""Journals made for tests: ours in sealed groups, a bookie's in padded flushes."""

from __future__ import annotations

from dataclasses import dataclass, field

from memory import MemoryFile

from storage.codec import entry as entry_codec
from storage.codec import journal as codec
from storage.codec import seal as seal_codec
from storage.codec.digest import digester
from storage.codec.seal import GroupFlag, Seal
from storage.codec.survey import EntryVerifier
from storage.entry import DigestType, Entry
from storage.journal_reader import JournalReader
from storage.journal_scan import JournalScan, scan
from storage.position import JournalPosition

START = JournalPosition(0, 0)
CRC32C = digester(DigestType.CRC32C)


def entry_bytes(
    ledger_id: int, entry_id: int, payload: bytes = b"", digest: DigestType = DigestType.CRC32C
) -> bytes:
    """An entry whose length field is what a writer of equal payloads would have counted."""
    payload = payload or f"ledger {ledger_id} entry {entry_id}.".encode()
    length = len(payload) * (entry_id + 1)
    entry = Entry(ledger_id, entry_id, entry_id - 1, length, payload)
    return entry_codec.encode(entry, digester(digest, b"password"))


def entry_record(ledger_id: int, entry_id: int, payload: bytes = b"") -> bytes:
    return codec.encode_record(entry_bytes(ledger_id, entry_id, payload))


@dataclass
class OurJournal:
    """A journal of ours under construction: `data` is the file, `end` where the next group begins."""

    journal_id: int
    salt: int = 0x5EED
    alignment: int = 4096
    size: int = 32768
    data: bytearray = field(default_factory=bytearray)
    sequence: int = 0
    synced: JournalPosition = START
    ends: list[int] = field(default_factory=list)
    filled_until: int = 0
    """What the header says of it; 0, as before it said so."""

    def __post_init__(self) -> None:
        self.data += codec.encode_header(codec.Header(codec.VERSION_MAX, self.salt, self.filled_until))
        self.data += seal_codec.header_padding(self.alignment)

    @property
    def end(self) -> int:
        return len(self.data)

    @property
    def position(self) -> JournalPosition:
        return JournalPosition(self.journal_id, self.end)

    def group(
        self,
        *records: bytes,
        durable_up_to: JournalPosition | None = None,
        flags: GroupFlag = GroupFlag.NONE,
    ) -> OurJournal:
        """Appends a sealed group. Unless told otherwise everything before it was durable."""
        claimed = durable_up_to or (self.position if self.sequence else self.synced)
        self.sequence += 1
        seal = Seal(self.journal_id, self.salt, self.sequence, self.end, claimed, len(records), flags)
        self.data += b"".join(seal_codec.encode_group(records, seal, self.alignment))
        self.ends.append(self.end)
        return self

    def file(self) -> bytes:
        """The whole file, filled with zeros ahead."""
        return bytes(self.data).ljust(self.size, b"\0")


@dataclass
class BookieJournal:
    """A bookie's journal under construction."""

    journal_id: int
    version: int = 6
    size: int = 32768
    data: bytearray = field(default_factory=bytearray)
    ends: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.version in codec.WRITABLE_VERSIONS:
            self.data += codec.encode_header(codec.Header(self.version))
        elif self.version > 1:
            self.data += codec.MAGIC + self.version.to_bytes(4, "big")

    @property
    def position(self) -> JournalPosition:
        return JournalPosition(self.journal_id, len(self.data))

    def flush(self, *records: bytes) -> BookieJournal:
        """Appends records, and padding where the version has it."""
        self.data += b"".join(records)
        if self.version >= 5:
            self.data += codec.encode_padding(len(self.data), 512)
        self.ends.append(len(self.data))
        return self

    def file(self) -> bytes:
        return bytes(self.data).ljust(self.size, b"\0")


def reader(data: bytes, journal_id: int) -> JournalReader:
    return JournalReader(MemoryFile(data, f"{journal_id:x}.txn"), journal_id)


def scan_bytes(
    data: bytes, journal_id: int, start: int = 0, verifier: EntryVerifier | None = None
) -> JournalScan:
    return scan(reader(data, journal_id), verifier or EntryVerifier(), start)


def scan_all(files: dict[int, bytes], mark: JournalPosition = START) -> dict[int, JournalScan]:
    """Every journal from the mark's on, as opening scans them."""
    return {
        journal_id: scan_bytes(data, journal_id, mark.offset if journal_id == mark.journal_id else 0)
        for journal_id, data in files.items()
    }


def change(data: bytes, offset: int, replacement: bytes) -> bytes:
    """The file with some bytes overwritten."""
    return data[:offset] + replacement + data[offset + len(replacement) :]


def flip(data: bytes, offset: int, bit: int = 0) -> bytes:
    """The file with one bit flipped."""
    return change(data, offset, bytes([data[offset] ^ 1 << bit]))


def zero(data: bytes, start: int, end: int) -> bytes:
    """The file with a range of zeros."""
    return change(data, start, bytes(end - start))
