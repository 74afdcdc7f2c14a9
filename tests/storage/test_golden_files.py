"""The golden vectors, which BookKeeper's own writers produce too, byte for byte in both directions."""

from __future__ import annotations

import re

import fixtures
import pytest
from memory_files import MemoryFile

from storage.checkpoint import mark_format
from storage.disk import filenames
from storage.entry import format as entry_format
from storage.entry import record_format
from storage.entry.digest import digester, mac_key, master_key
from storage.entry.digest_inference import EntryVerifier
from storage.entry.model import DigestType, Entry
from storage.entry.position import EntryLocation, JournalPosition
from storage.entry.read_result import EndOfData
from storage.entrylog import format as entrylog_format
from storage.entrylog.reader import EntryLogReader, LogEntry
from storage.entrylog.scan import items as log_items
from storage.journal import format as journal_format
from storage.journal.reader import JournalReader, StoredRecord

PASSWORD = b"pwd"
JOURNAL_ID = 0x19B0A1B2C3D

HELLO = Entry(1, 0, -1, 5, b"hello")
WORLD = Entry(2, 0, -1, 5, b"world")
SECOND = Entry(1, 1, 0, 473, bytes(i & 0xFF for i in range(468)))
THIRD = Entry(1, 2, 1, 937, bytes(7 * i & 0xFF for i in range(464)))


def listed(title: str) -> bytes:
    """Return the bytes after a title in the description of the vectors."""
    text = fixtures.golden("README.txt").decode()
    match = re.search(rf"^## {re.escape(title)}.*\n((?:    [0-9a-f]+\n)+)", text, re.MULTILINE)
    assert match, title
    return bytes.fromhex(match.group(1))


@pytest.mark.parametrize("digest_type", DigestType)
def test_an_entry_of_each_digest_type(digest_type: DigestType) -> None:
    vector = listed(f"entry L1 E0 LAC-1 length5 'hello' {digest_type.name}  ")
    assert entry_format.encode(HELLO, digester(digest_type, PASSWORD)) == vector
    assert entry_format.decode(vector, digester(digest_type, PASSWORD)) == HELLO


@pytest.mark.parametrize("digest_type", DigestType)
def test_a_record_in_two_parts_of_each_digest_type(digest_type: DigestType) -> None:
    vector = listed(f"entry L1 E0 LAC-1 length5 'hello' {digest_type.name}  ")
    protect = digester(digest_type, PASSWORD)
    front = record_format.encode_fronts_with(protect, 1, 0, -1, 0, [b"hello"])
    assert front == record_format.encode_front_with(protect, 1, 0, -1, 5, b"hello")
    assert front + b"hello" == len(vector).to_bytes(4, "big") + vector


@pytest.mark.parametrize("digest_type", DigestType)
def test_an_explicit_lac_packet_of_each_digest_type(digest_type: DigestType) -> None:
    vector = listed(f"explicit-LAC packet L1 lac0 {digest_type.name}  ")
    assert entry_format.encode_lac(1, 0, digester(digest_type, PASSWORD)) == vector
    assert entry_format.decode_lac(vector, digester(digest_type, PASSWORD)) == 0


def test_keys_from_a_password() -> None:
    assert master_key(PASSWORD).hex() == "9c31dcb7214645e06dbf8a67daa6cfcdcd13a611"
    assert mac_key(PASSWORD).hex() == "add528aadda7d5537007946e5789459a188a998f"
    assert master_key(b"").hex() == "850bf1071c5e3d8c24235676f8816ae0cbe2f14f"


def golden_journal() -> bytes:
    """Encode the golden journal: a header, and five flushes padded to 512 bytes."""
    crc32c = digester(DigestType.CRC32C)

    def entry(one: Entry) -> bytes:
        return journal_format.encode_record(entry_format.encode(one, crc32c))

    flushes = [
        journal_format.encode_ledger_key(1, master_key(PASSWORD)) + entry(HELLO),
        entry(SECOND),
        entry(THIRD),
        journal_format.encode_fence(1),
        journal_format.encode_explicit_lac(1, entry_format.encode_lac(1, 2, crc32c)),
    ]
    data = journal_format.encode_header(journal_format.JournalHeader(6))
    for flush in flushes:
        data += flush
        data += journal_format.encode_padding(len(data), 512)
    return data


def test_the_journal_is_written_as_the_real_writer_writes_it() -> None:
    assert golden_journal() == fixtures.golden("journal-logical.bin")


def test_the_journal_is_read_as_the_real_reader_reads_it() -> None:
    data = fixtures.golden("journal-logical.bin").ljust(16 << 20, b"\0")
    reader = JournalReader(MemoryFile(data), JOURNAL_ID)
    records = [item for item in reader.items() if isinstance(item, StoredRecord)]
    assert [item.offset for item in records] == [512, 556, 1024, 2048, 2560, 3072]
    assert [type(item.record).__name__ for item in records] == [
        "LedgerKey", "EntryRecord", "EntryRecord", "EntryRecord", "Fence", "ExplicitLac",
    ]  # fmt: skip
    assert list(reader.items())[-1] == EndOfData(3584)
    assert sum(isinstance(item, StoredRecord) for item in reader.items(1024)) == 4
    assert list(reader.items(3584)) == [EndOfData(3584)]
    assert [entry_format.decode(item.record.data, digester(DigestType.CRC32C)) for item in records[1:4]
            if isinstance(item.record, journal_format.EntryRecord)] == [HELLO, SECOND, THIRD]  # fmt: skip


def test_a_version_4_header() -> None:
    vector = listed("journal V4 header")
    assert journal_format.encode_header(journal_format.JournalHeader(4)) == vector
    assert journal_format.decode_header(vector) == journal_format.JournalHeader(4)


def golden_log() -> bytes:
    crc32c = digester(DigestType.CRC32C)
    data = bytearray(entrylog_format.encode_header())
    for entry in (HELLO, WORLD, SECOND):
        data += entrylog_format.encode_record(entry_format.encode(entry, crc32c))
    map_offset = len(data)
    data += b"".join(entrylog_format.encode_ledgers_map({1: 45 + 508, 2: 45}))
    seal = entrylog_format.encode_map_fields(map_offset, 2)
    data[entrylog_format.MAP_FIELDS_OFFSET : entrylog_format.MAP_FIELDS_OFFSET + len(seal)] = seal
    return bytes(data)


def test_the_entry_log_is_written_as_the_real_writer_writes_it() -> None:
    assert golden_log() == fixtures.golden("0.log")


@pytest.mark.parametrize(
    ("log_id", "packed"),
    [(0, [0x404, 0x431, 0x45E]), (0x1F4, [0x1F400000404, 0x1F400000431, 0x1F40000045E])],
)
def test_the_entry_log_is_read_and_its_locations_are_the_real_ones(log_id: int, packed: list[int]) -> None:
    reader = EntryLogReader(MemoryFile(fixtures.golden("0.log")), log_id, EntryVerifier())
    entries = [item for item in log_items(reader) if isinstance(item, LogEntry)]
    assert [item.position.location.pack() for item in entries] == packed
    assert [EntryLocation.unpack(one) for one in packed] == [item.position.location for item in entries]
    assert reader.ledgers_map() == {1: 553, 2: 45}
    crc32c = digester(DigestType.CRC32C)
    assert [entry_format.decode(item.data, crc32c) for item in entries] == [HELLO, WORLD, SECOND]


def test_the_last_mark() -> None:
    mark = mark_format.Mark(JournalPosition(JOURNAL_ID, 1024))
    assert mark_format.encode(mark) == fixtures.golden("lastMark")
    assert mark_format.decode(fixtures.golden("lastMark")) == mark


def test_file_names() -> None:
    assert filenames.journal(JOURNAL_ID) == "19b0a1b2c3d.txn"
    assert filenames.entry_log(0) == "0.log"
