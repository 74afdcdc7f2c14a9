"""Builds journals for tests: ours of sealed groups, a bookie's of padded flushes."""

from __future__ import annotations

from dataclasses import dataclass, field

from memory_files import MemoryFile

from storage.entry import format as entry_format
from storage.entry.digest import digester
from storage.entry.digest_inference import EntryVerifier
from storage.entry.model import DigestType, Entry
from storage.entry.position import JournalPosition
from storage.journal import format as journal_format
from storage.journal import seal as journal_seal
from storage.journal.reader import JournalReader
from storage.journal.scan import JournalScan, scan
from storage.journal.seal import GroupFlag, Seal

START = JournalPosition(0, 0)
CRC32C = digester(DigestType.CRC32C)


def entry_bytes(
    ledger_id: int, entry_id: int, payload: bytes = b"", digest: DigestType = DigestType.CRC32C
) -> bytes:
    """Encode an entry. Its length field is that of a ledger in which all payloads have this size."""
    payload = payload or f"ledger {ledger_id} entry {entry_id}.".encode()
    length = len(payload) * (entry_id + 1)
    entry = Entry(ledger_id, entry_id, entry_id - 1, length, payload)
    return entry_format.encode(entry, digester(digest, b"password"))


def entry_record(ledger_id: int, entry_id: int, payload: bytes = b"") -> bytes:
    return journal_format.encode_record(entry_bytes(ledger_id, entry_id, payload))


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
    """The filled size in the header; 0 as in journals of earlier versions."""

    def __post_init__(self) -> None:
        self.data += journal_format.encode_header(
            journal_format.JournalHeader(journal_format.VERSION_MAX, self.salt, self.filled_until)
        )
        self.data += journal_seal.header_padding(self.alignment)

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
        metadata_tag: int = 0,
    ) -> OurJournal:
        """Append a sealed group. By default its seal states that everything before it was durable."""
        claimed = durable_up_to or (self.position if self.sequence else self.synced)
        self.sequence += 1
        place = (self.journal_id, self.salt, self.sequence, self.end)
        seal = Seal(*place, claimed, len(records), flags, metadata_tag)
        self.data += journal_seal.encode_group(records, sum(map(len, records)), seal, self.alignment)
        self.ends.append(self.end)
        return self

    def file(self) -> bytes:
        """Return the whole file, filled with zeros after the groups."""
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
        if self.version in journal_format.WRITABLE_VERSIONS:
            self.data += journal_format.encode_header(journal_format.JournalHeader(self.version))
        elif self.version > 1:
            self.data += journal_format.MAGIC + self.version.to_bytes(4, "big")

    @property
    def position(self) -> JournalPosition:
        return JournalPosition(self.journal_id, len(self.data))

    def flush(self, *records: bytes) -> BookieJournal:
        """Append records, and padding if the version has it."""
        self.data += b"".join(records)
        if self.version >= 5:
            self.data += journal_format.encode_padding(len(self.data), 512)
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
    """Scan every journal from the mark's on, as an opening does."""
    return {
        journal_id: scan_bytes(data, journal_id, mark.offset if journal_id == mark.journal_id else 0)
        for journal_id, data in files.items()
    }


def change(data: bytes, offset: int, replacement: bytes) -> bytes:
    """Return the file with some bytes overwritten."""
    return data[:offset] + replacement + data[offset + len(replacement) :]


def flip(data: bytes, offset: int, bit: int = 0) -> bytes:
    """Return the file with one bit flipped."""
    return change(data, offset, bytes([data[offset] ^ 1 << bit]))


def zero(data: bytes, start: int, end: int) -> bytes:
    """Return the file with a range of zeros."""
    return change(data, start, bytes(end - start))
