"""Check docs/format.md: its tables equal the structs, its hex is encoded again, its numbers equal the code's.

A comment before each table and each block of hex states what it is compared with:

    <!-- table: seal size=64 -->   offset | size | type | …         the structs in TABLES
    <!-- diagram: seal -->         numbers above boxes             the offsets of that table
    <!-- hex: seal -->             lines of offset and bytes        the bytes in EXAMPLES
    <!-- damage: mark -->          found | answer | …               the cases in DAMAGE
    <!-- facts: constants -->      name | value | …                 the rows in FACTS
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import struct
from functools import cache
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import fixtures
import msgpack
import pytest
from crc32c import crc32c

from storage.checkpoint import mark_format
from storage.disk import cookie as cookie_part
from storage.disk import cookie_format, filenames
from storage.disk.filenames import FileKind
from storage.disk.posix import PosixDirectory
from storage.entry import digest, ledger_record_format, record_format
from storage.entry import format as entry_format
from storage.entry import model as entry_model
from storage.entry.digest_inference import EntryVerifier
from storage.entry.ledger_record import LedgerRecord
from storage.entry.model import DigestType, Entry
from storage.entry.position import LOG_ID_MAX, EntryLocation, JournalPosition, LogPosition
from storage.entry.read_result import Flaw
from storage.entrylog import format as entrylog_format
from storage.entrylog import lineage as lineage_file
from storage.entrylog import lineage_format
from storage.entrylog import reader as entrylog_reader
from storage.entrylog import scan as entrylog_scan
from storage.entrylog.reader import EntryLogReader
from storage.index import format as index_format
from storage.index.lmdb import checksum_format
from storage.journal import format as journal_format
from storage.journal import group_reader, seal
from storage.journal import reader as journal_reader
from storage.journal import scan as journal_scan
from storage.journal.group_reader import groups
from storage.journal.reader import JournalReader
from storage.ledgers import metadata_log_format

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

PAGE = Path(__file__).parents[2] / "docs" / "format.md"

# --- the page, taken apart -----------------------------------------------------------------------------

_MARKER = re.compile(r"^<!-- (?P<kind>\w+): (?P<name>[\w.-]+)(?: size=(?P<size>\d+))? -->$")
_HEX_LINE = re.compile(r" *(?P<offset>\d+)  (?P<tokens>[0-9a-f\u00d7]+(?: [0-9a-f\u00d7]+)*)(?:  +.*)?")
_HEX_TOKEN = re.compile(r"(?P<bytes>(?:[0-9a-f]{2})+)(?:\u00d7(?P<times>\d+))?")


class Block:
    """The lines after one marker: a table, or a fenced block."""

    def __init__(self, kind: str, name: str, size: str | None, lines: list[str]) -> None:
        self.kind, self.name, self.size, self.lines = kind, name, size, lines

    def rows(self) -> list[list[str]]:
        """Return the cells of a table, without its header."""
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in self.lines[2:]]


@cache
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


@cache
def words_of_code() -> frozenset[str]:
    """Return the words between backticks in text and tables."""
    unfenced = re.sub(r"^```.*?^```", "", page(), flags=re.DOTALL | re.MULTILINE)
    return frozenset(re.findall(r"`([^`\n]+)`", unfenced))


@cache
def blocks() -> tuple[Block, ...]:
    return tuple(_blocks(page().splitlines()))


def _blocks(lines: list[str]) -> Iterator[Block]:
    for number, line in enumerate(lines):
        if not line.startswith("<!--"):
            continue
        marker = _MARKER.match(line)
        assert marker is not None, f"line {number + 1}: {line}"
        fenced = lines[number + 1].startswith("```")
        rest = lines[number + 2 :] if fenced else lines[number + 1 :]
        end = next(i for i, text in enumerate([*rest, ""]) if text == ("```" if fenced else ""))
        yield Block(marker["kind"], marker["name"], marker["size"], rest[:end])


def of_kind(kind: str) -> dict[str, Block]:
    found = [block for block in blocks() if block.kind == kind]
    assert len({block.name for block in found}) == len(found), f"two {kind} markers of one name"
    return {block.name: block for block in found}


def block_of(kind: str, name: str) -> Block:
    return of_kind(kind)[name]


def parse_hex(block: Block) -> tuple[int, bytes]:
    """Return the start of the example and its bytes. Each line must begin at the offset where the one before
    ends."""
    start, data = 0, b""
    for number, line in enumerate(block.lines):
        match = _HEX_LINE.fullmatch(line)
        assert match is not None, line
        start = start if number else int(match["offset"])
        assert int(match["offset"]) == start + len(data), line
        for token in match["tokens"].split():
            parts = _HEX_TOKEN.fullmatch(token)
            assert parts is not None, line
            data += bytes.fromhex(parts["bytes"]) * int(parts["times"] or 1)
    return start, data


# --- what the code says: fields ------------------------------------------------------------------------

_TYPES = {"q": "i64", "Q": "u64", "i": "i32", "I": "u32", "H": "u16", "B": "u8", "s": "bytes", "x": "zeros"}

Part = struct.Struct | tuple[int | str, str]
Field = tuple[str, str, str]


def _parts(part: Part) -> Iterator[tuple[int | str, str]]:
    """Yield (size, type) of each field of a struct's format."""
    if isinstance(part, tuple):
        yield part
        return
    assert part.format.startswith(">"), "everything on disk is big-endian"
    for count, letter in re.findall(r"(\d*)([a-zA-Z])", part.format[1:]):
        if letter in "sx":
            yield int(count or 1), _TYPES[letter]
        else:
            yield from [(struct.calcsize(">" + letter), _TYPES[letter])] * int(count or 1)


def fields(*parts: Part) -> list[Field]:
    """Return (offset, size, type) of consecutive fields. A size may be a letter."""
    found: list[Field] = []
    letters: list[str] = []
    fixed = 0
    for size, kind in chain.from_iterable(map(_parts, parts)):
        offset = "+".join([*([str(fixed)] if fixed or not letters else []), *letters])
        found.append((offset, str(size), kind))
        if isinstance(size, int):
            fixed += size
        else:
            letters.append(size)
    return found


_MAP_PAIRS = (f"{entrylog_format._MAP_PAIR.size}\N{MULTIPLICATION SIGN}count", "pairs")

TABLES: dict[str, list[Field]] = {
    "entry": fields(entry_format.HEAD, ("m", "bytes"), ("rest", "bytes")),
    "lac-packet": fields(entry_format.LAC_PACKET, ("m", "bytes")),
    "journal-header": fields(
        journal_format._PREFIX,
        journal_format._OURS,
        (journal_format.HEADER_SIZE_MAX - journal_format._OURS_END, "zeros"),
    ),
    "journal-record": fields(journal_format._LENGTH, ("n", "bytes")),
    "journal-special": fields(journal_format._LENGTH, journal_format._SPECIAL, ("n", "bytes")),
    "journal-fence": fields(journal_format._LENGTH, entry_format.IDS),
    "journal-padding": fields(journal_format._TWO_LENGTHS, ("n", "bytes")),
    "seal": fields(seal._SEAL, seal._CHECKSUM),
    "log-header": fields(
        entrylog_format._HEADER,
        entrylog_format._OURS,
        entrylog_format._MAP_CHECKSUM,
        (
            entrylog_format.HEADER_SIZE
            - entrylog_format.MAP_CHECKSUM_OFFSET
            - entrylog_format._MAP_CHECKSUM.size,
            "zeros",
        ),
    ),
    "log-seal": fields(entrylog_format._MAP_FIELDS),
    "log-record": fields(entrylog_format._SIZE, ("n", "bytes")),
    "log-map": fields(entrylog_format._SIZE, entrylog_format._MAP_HEAD, _MAP_PAIRS),
    "log-map-pair": fields(entrylog_format._MAP_PAIR),
    "log-filler": fields(record_format.PREFIX, ("rest", "zeros")),
    "mark": fields(mark_format._POSITION, mark_format._TRAILER, mark_format._CHECKSUM),
    "lineage": fields(lineage_format._HEAD, ("n", "pairs"), ("m", "ids"), lineage_format._CHECKSUM),
    "lineage-pair": fields(lineage_format._PAIR),
    "lineage-id": fields(lineage_format._ID),
    "index-key": fields(index_format._KEY),
    "index-value": fields(index_format._VALUE),
    "row": fields(("n", "msgpack"), ledger_record_format._CHECKSUM),
    "rows-group": fields(
        metadata_log_format._HEAD, metadata_log_format._CHECKSUM, ("n", "rows"), ("rest", "zeros")
    ),
    "rows-item": fields(metadata_log_format._SIZE, ("n", "row")),
    "sums-record": fields(
        checksum_format._HEAD,
        checksum_format._CHECKSUM,
        ("n", "u32 …"),
        ("n", "u32 …"),
        ("m", "u32 …"),
        ("rest", "zeros"),
    ),
    "lock": fields((20, "text"), (1, "text")),
}

SIZES = {
    "journal-header": journal_format.HEADER_SIZE_MAX,
    "journal-padding": journal_format.PREFIX_SIZE,
    "seal": seal.SIZE,
    "log-header": entrylog_format.HEADER_SIZE,
    "log-filler": entrylog_format.PREFIX_SIZE,
    "mark": mark_format.SIZE,
    "lineage": lineage_format.SIZE_MIN,
    "index-key": index_format.KEY_SIZE,
    "index-value": index_format.VALUE_SIZE,
    "rows-group": metadata_log_format.HEAD_SIZE,
    "sums-record": checksum_format.HEAD_SIZE,
}

# --- what the code says: bytes -------------------------------------------------------------------------

PASSWORD = b"pwd"
CRC32C = digest.digester(DigestType.CRC32C)
HELLO = Entry(1, 0, -1, 5, b"hello")
WORLD = Entry(2, 0, -1, 5, b"world")
SECOND = Entry(1, 1, 0, 473, bytes(i & 0xFF for i in range(468)))
JOURNAL_ID = 0x19B0A1B2C3D
SALT = 0x0123456789ABCDEF
FIRST_GROUP = seal.first_group_start(4096)
ORIGIN = entrylog_format.Origin(bytes(range(0xA0, 0xB0)), 7, LogPosition(0x1F3, 8237))
SEAL = seal.Seal(JOURNAL_ID, SALT, 1, FIRST_GROUP, JournalPosition(JOURNAL_ID - 1, 8192), 2)
MARK = mark_format.Mark(
    JournalPosition(JOURNAL_ID, 8192), mark_format.Trailer(7, JOURNAL_ID, LogPosition(0x1F4, 1622), 4)
)
LINEAGE = lineage_format.Lineage(9, (LogPosition(0x1F2, 8237), LogPosition(0x1F4, 0)), (0x1F3,))
ROW = LedgerRecord(1, 3, DigestType.CRC32C, master_key=digest.master_key(PASSWORD))
SUMS = checksum_format.ChecksumRecord(
    7,
    4096,
    0x9D1C0F6A,
    checksum_format.numbers(2, 5),
    checksum_format.numbers(0x11223344, 0xAABBCCDD),
    checksum_format.numbers(9),
)
COOKIE = cookie_format.Cookie("127.0.0.1:3181", ("/data/journal",), ("/data/ledgers",), "inst-1")

Example = tuple[int, bytes]


def entry_bytes(digest_type: DigestType, of: Entry = HELLO) -> bytes:
    return entry_format.encode(of, digest.digester(digest_type, PASSWORD))


def lac_bytes(digest_type: DigestType) -> bytes:
    return entry_format.encode_lac(1, 0, digest.digester(digest_type, PASSWORD))


def key_record() -> bytes:
    return journal_format.encode_ledger_key(1, digest.master_key(PASSWORD))


def journal_records() -> list[bytes]:
    return [key_record(), journal_format.encode_record(entry_bytes(DigestType.CRC32C))]


def group(of: seal.Seal = SEAL) -> bytes:
    return seal.encode_group(journal_records(), sum(map(len, journal_records())), of, alignment=4096)


def our_header(filled_until: int = 0, follows: int = 0) -> bytes:
    return journal_format.encode_header(journal_format.JournalHeader(6, SALT, filled_until, follows))


def our_journal() -> bytes:
    return our_header() + seal.header_padding(4096) + group()


def bookie_batch() -> bytes:
    records = b"".join(journal_records())
    return records + journal_format.encode_padding(journal_format.HEADER_SIZE_MAX + len(records), 512)


def ledgers_map() -> bytes:
    (record,) = entrylog_format.encode_ledgers_map({1: 553, 2: 45})
    return record


def log_records() -> bytes:
    return b"".join(
        entrylog_format.encode_record(entry_format.encode(one, CRC32C)) for one in (HELLO, WORLD, SECOND)
    )


def rows_group() -> bytes:
    return metadata_log_format.encode_group([ledger_record_format.encode(ROW)], 1, 0, 0)


EXAMPLES: dict[str, Callable[[], Example]] = {
    "entry-crc32c": lambda: (0, entry_bytes(DigestType.CRC32C)),
    "entry-crc32": lambda: (0, entry_bytes(DigestType.CRC32)),
    "entry-mac": lambda: (0, entry_bytes(DigestType.MAC)),
    "entry-dummy": lambda: (0, entry_bytes(DigestType.DUMMY)),
    "lac-packet": lambda: (0, lac_bytes(DigestType.CRC32C)),
    "master-key": lambda: (0, digest.master_key(PASSWORD)),
    "mac-key": lambda: (0, digest.mac_key(PASSWORD)),
    "journal-header-bookie": lambda: (0, journal_format.encode_header(journal_format.JournalHeader(6))),
    "journal-header-ours": lambda: (0, our_header(64 << 20, 3) + seal.header_padding(4096)),
    "journal-batch-bookie": lambda: (512, bookie_batch()),
    "journal-fence": lambda: (2560, journal_format.encode_fence(1)),
    "journal-explicit-lac": lambda: (
        3072,
        journal_format.encode_explicit_lac(1, entry_format.encode_lac(1, 2, CRC32C)),
    ),
    "group": lambda: (FIRST_GROUP, group()),
    "atomic-mark": lambda: (FIRST_GROUP, seal.encode_atomic_mark()),
    "log-header-ours": lambda: (0, entrylog_format.encode_header(ORIGIN)),
    "log-header-sealed": lambda: (
        0,
        entrylog_format.encode_header()[: entrylog_format.MAP_FIELDS_OFFSET]
        + entrylog_format.encode_map_fields(1622, 2)
        + bytes(1004),
    ),
    "log-records": lambda: (entrylog_format.HEADER_SIZE, log_records()[:90]),
    "log-map": lambda: (1622, ledgers_map()),
    "log-filler": lambda: (1114, entrylog_format.encode_filler(1114)),
    "mark-bookie": lambda: (0, mark_format.encode(mark_format.Mark(JournalPosition(JOURNAL_ID, 1024)))),
    "mark-ours": lambda: (0, mark_format.encode(MARK)),
    "lineage": lambda: (0, lineage_format.encode(LINEAGE, ORIGIN.store_id)),
    "index-item": lambda: (
        0,
        index_format.encode_key(1) + index_format.encode_value(1, LogPosition(0x1F4, 0x45A).location),
    ),
    "row": lambda: (0, ledger_record_format.encode(ROW)),
    "rows-group": lambda: (0, rows_group()),
    "sums-record": lambda: (4096, checksum_format.encode(SUMS, 4096)),
    "version": lambda: (0, cookie_format.encode(COOKIE)),
    "last-id": lambda: (0, b"%x\n" % 0x1F4),
}

# --- what the code says: damage ------------------------------------------------------------------------


class MemoryFile:
    """Bytes with the interface of a file."""

    name = "memory"

    def __init__(self, data: bytes) -> None:
        self._data = data

    def size(self) -> int:
        return len(self._data)

    def read(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size]

    def read_into(self, offset: int, buffer: memoryview) -> int:
        data = self.read(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None: ...

    def __enter__(self) -> MemoryFile:
        return self

    def __exit__(self, *_: object) -> None: ...


def sums_of(data: bytes) -> object:
    head = checksum_format.decode_head(data, 0, len(data))
    if not isinstance(head, checksum_format.RecordHead):
        return head
    return checksum_format.decode_body(head, data, data[checksum_format.HEAD_SIZE :][: head.body_size])


def sums_with(offset: int, new: bytes, *, resums: bool = False) -> object:
    """Read a checksum record after a change, with a right checksum or the old one."""
    data = put(checksum_format.encode(SUMS, 0), offset, new)
    checksum = crc32c(data[checksum_format.HEAD_SIZE : checksum_format.HEAD_SIZE + 20], crc32c(data[:44]))
    return sums_of(put(data, 44, checksum.to_bytes(4, "big")) if resums else data)


def put(data: bytes, offset: int, new: bytes) -> bytes:
    return data[:offset] + new + data[offset + len(new) :]


def i32(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}i", *numbers)


def i64(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}q", *numbers)


def journal_header(data: bytes) -> object:
    return JournalReader(MemoryFile(data), JOURNAL_ID).header


def journal_stop(data: bytes) -> object:
    """Return the last item of a plain journal with these bytes after its header."""
    header = journal_format.encode_header(journal_format.JournalHeader(6))
    return list(JournalReader(MemoryFile(header + data), JOURNAL_ID).items())[-1]


def group_stop(data: bytes) -> object:
    return list(groups(JournalReader(MemoryFile(data), JOURNAL_ID)))[-1]


def resealed(**changes: Any) -> object:
    """Read our journal after a change of its only seal, with a right checksum."""
    return group_stop(our_header() + seal.header_padding(4096) + group(SEAL._replace(**changes)))


def second_group(**changes: Any) -> object:
    """Read our journal with this second group."""
    return group_stop(our_journal() + group(SEAL._replace(group_start=8192, **changes)))


def scan_stop(data: bytes) -> object:
    """Return how the scan of our journal ends."""
    return journal_scan.scan(JournalReader(MemoryFile(data), JOURNAL_ID), EntryVerifier()).stop


def record_of(*ids: int, rest: bytes = b"", version: int = 6) -> object:
    return journal_format.decode_record(i64(*ids) + rest, version)


def foreign_stop(*bodies: bytes) -> object:
    """Return how a bookie's journal with these records and without padding ends."""
    data = journal_format.encode_header(journal_format.JournalHeader(6)) + b"".join(
        map(journal_format.encode_record, bodies)
    )
    return journal_scan.scan(JournalReader(MemoryFile(data), JOURNAL_ID), EntryVerifier()).stop


def foreign_unknown_digest() -> object:
    """A CRC-32C ledger, and one entry of another ledger whose digest type is unknown."""
    lone = Entry(9, 4, 3, 999, b"lone")
    return foreign_stop(
        entry_bytes(DigestType.CRC32C), entry_format.encode(lone, digest.digester(DigestType.MAC, b"x"))
    )


def foreign_wrong_digest() -> object:
    good = entry_bytes(DigestType.CRC32C)
    return foreign_stop(good, entry_bytes(DigestType.CRC32C, SECOND), put(good, 40, b"!"))


def log_of(records: bytes) -> EntryLogReader:
    return EntryLogReader(MemoryFile(entrylog_format.encode_header() + records), 0, EntryVerifier())


def log_items(records: bytes) -> list[object]:
    reader = log_of(records)
    entrylog_scan.learn_digest_types(reader)
    return list(entrylog_scan.items(reader))


def log_read(records: bytes, offset: int, wanted: tuple[int, int] | None = None) -> object:
    return log_of(records).read(EntryLocation(0, offset), wanted)


def summed(data: bytes) -> bytes:
    """Return the journal with a right checksum of its first group."""
    return put(data, 8188, struct.pack(">I", crc32c(data[4096:8188])))


def sealed_log(ledgers: int, behind: bytes = b"", checksum: int = 0) -> EntryLogReader:
    """Make a log of ours whose map has two ledgers, with bytes after the map and this map crc."""
    header = put(
        entrylog_format.encode_header(ORIGIN),
        entrylog_format.MAP_FIELDS_OFFSET,
        entrylog_format.encode_map_fields(1622, ledgers),
    )
    header = put(header, entrylog_format.MAP_CHECKSUM_OFFSET, i32(checksum))
    data = header + log_records() + ledgers_map() + behind
    return EntryLogReader(MemoryFile(data), 0, EntryVerifier())


def sealed_and_cut() -> EntryLogReader:
    """Make a sealed log without its map."""
    header = put(
        entrylog_format.encode_header(),
        entrylog_format.MAP_FIELDS_OFFSET,
        entrylog_format.encode_map_fields(1622, 2),
    )
    return EntryLogReader(MemoryFile(header + log_records()), 0, EntryVerifier())


def log_origin_with(offset: int, new: bytes) -> object:
    """Read our log header after a change, with a right checksum."""
    data = put(entrylog_format.encode_header(ORIGIN), offset, new)
    return entrylog_format.decode_header(
        put(data, 68, struct.pack(">I", entrylog_format._header_checksum(data)))
    )


def log_header(offset: int, new: bytes) -> object:
    return entrylog_format.decode_header(put(entrylog_format.encode_header(ORIGIN), offset, new))


def bookie_log_header(offset: int, new: bytes) -> object:
    return entrylog_format.decode_header(put(entrylog_format.encode_header(), offset, new))


def mark_with(offset: int, new: bytes) -> object:
    """Read our mark after a change, with a right checksum."""
    data = put(mark_format.encode(MARK), offset, new)
    return mark_format.decode(data[:64] + struct.pack(">I", crc32c(data[:64])))


def lineage_with(offset: int, new: bytes) -> object:
    """Read our lineage after a change, with a right checksum."""
    data = put(lineage_format.encode(LINEAGE, ORIGIN.store_id), offset, new)[:-4]
    return lineage_format.decode(data + struct.pack(">I", crc32c(data)), ORIGIN.store_id)


def no_lineage() -> object:
    def open_nothing(_: str) -> object:
        raise FileNotFoundError

    directory: Any = SimpleNamespace(open=open_nothing)
    return lineage_file.load(directory, ORIGIN.store_id)


def rows_head(offset: int = 0, new: bytes = b"", remaining: int = 4096) -> object:
    return metadata_log_format.decode_group_head(put(rows_group(), offset, new), 0, remaining)


def rows_checksum() -> object:
    head = metadata_log_format.decode_group_head(rows_group(), 0, 4096)
    assert isinstance(head, metadata_log_format.GroupHead)
    return metadata_log_format.decode_group_body(head, rows_group(), b"another body")


def rows_body(body: bytes, count: int = 1) -> object:
    """Read a group with this body and a right checksum."""
    return rows_with(body, count)


def rows_with(
    body: bytes = b"", count: int = 0, version: int = metadata_log_format.VERSION, synced_end: int = 0
) -> object:
    """Read a group with these fields and a right checksum."""
    unsummed = metadata_log_format._HEAD.pack(
        metadata_log_format.MAGIC, version, 1, 0, synced_end, len(body), count
    )
    head = unsummed + struct.pack(">I", crc32c(body, crc32c(unsummed)))
    decoded = metadata_log_format.decode_group_head(head, 0, 1 << 20)
    assert isinstance(decoded, metadata_log_format.GroupHead)
    return metadata_log_format.decode_group_body(decoded, head, body)


def row_of(packed: bytes) -> object:
    return ledger_record_format.decode(packed + struct.pack(">I", crc32c(packed)))


def cookie_of(data: bytes) -> object:
    """Load the cookie from a directory whose only file has these bytes."""
    directory: Any = SimpleNamespace(open=lambda _: MemoryFile(data))
    return cookie_part.load(directory)


def negative_log_size() -> bytes:
    return put(log_records(), 45, i32(-1))


Case = tuple[str, str, "Callable[[], object]"]
_HUGE = entry_model.RECORD_SIZE_MAX + 1


def frame_huge() -> object:
    return journal_format.frame(i32(_HUGE, 0), 512, _HUGE + 4, journal_format.JournalHeader(6))


def frame_huge_log() -> object:
    return entrylog_format.frame(i32(_HUGE) + i64(1, 0), 1024, _HUGE + 4)


DAMAGE: dict[str, list[Case]] = {
    "entry": [
        ("Damaged", "ENTRY_SHORT", lambda: entry_format.decode(bytes(31), CRC32C)),
        ("Damaged", "LEDGER_NEGATIVE", lambda: entry_format.decode_head(i64(-1, 0, 0, 0))),
        ("Damaged", "ENTRY_NEGATIVE", lambda: entry_format.decode_head(i64(1, -1, 0, 0))),
        ("Damaged", "BAD_FIELD", lambda: entry_format.decode_head(i64(1, 0, -2, 0))),
        ("Damaged", "BAD_FIELD", lambda: entry_format.decode_head(i64(1, 0, -1, -1))),
        ("Damaged", "DIGEST", lambda: entry_format.decode(bytes(40), CRC32C)),
        ("Damaged", "INNER_LENGTH", lambda: entry_format.decode_lac(bytes(19), CRC32C)),
    ],
    "journal-header": [
        ("Void", "", lambda: journal_header(b"BKLG\0\0\0")),
        ("Void", "", lambda: journal_header(bytes(8192))),
        ("Void", "", lambda: journal_header(our_header()[:511])),
        (
            "JournalHeader",
            "",
            lambda: journal_header(journal_format.encode_record(entry_bytes(DigestType.CRC32))),
        ),
        ("Damaged", "BAD_MAGIC", lambda: journal_header(put(our_journal(), 0, b"bKLG"))),
        ("Damaged", "BAD_MAGIC", lambda: journal_header(bytes(512) + group())),
        ("Damaged", "CHECKSUM", lambda: journal_header(put(our_journal(), 4, i32(7)))),
        ("Damaged", "CHECKSUM", lambda: journal_header(put(our_journal(), 4, i32(4)))),
        ("Damaged", "FUTURE_VERSION", lambda: journal_header(b"BKLG" + i32(7) + bytes(504))),
        ("Damaged", "BAD_VERSION", lambda: journal_header(b"BKLG" + i32(1) + bytes(504))),
        ("Damaged", "HEADER_FILL", lambda: journal_header(b"BKLG" + i32(6, 1) + bytes(500))),
    ],
    "journal-record": [
        ("EndOfData", "", lambda: journal_stop(bytes(64))),
        ("EndOfData", "", lambda: journal_stop(b"\0\0")),
        ("Damaged", "NOT_ZERO", lambda: journal_stop(bytes(64) + b"\1")),
        ("Torn", "LENGTH_CUT", lambda: journal_stop(b"\0\0\1")),
        ("Torn", "LENGTH_CUT", lambda: journal_stop(i32(journal_format.PADDING) + b"\0")),
        ("Torn", "BODY_CUT", lambda: journal_stop(i32(41) + bytes(40))),
        ("Torn", "BODY_CUT", lambda: journal_stop(i32(journal_format.PADDING, 8) + bytes(7))),
        ("Damaged", "LENGTH_NEGATIVE", lambda: journal_stop(i32(-1) + bytes(64))),
        ("Damaged", "LENGTH_TOO_SMALL", lambda: journal_stop(i32(15) + bytes(64))),
        ("Damaged", "LENGTH_TOO_LARGE", frame_huge),
        ("Damaged", "PADDING_NEGATIVE", lambda: journal_stop(i32(journal_format.PADDING, -1))),
        ("Damaged", "LEDGER_NEGATIVE", lambda: record_of(-1, 0)),
        ("Damaged", "RECORD_TOO_NEW", lambda: record_of(1, journal_format.EXPLICIT_LAC, version=5)),
        ("Damaged", "INNER_LENGTH", lambda: record_of(1, journal_format.FENCE, rest=b"\0")),
        ("Damaged", "INNER_LENGTH", lambda: record_of(1, journal_format.LEDGER_KEY, rest=i32(20))),
        ("UnknownRecord", "", lambda: record_of(1, -0x10000)),
        ("Damaged", "ENTRY_NEGATIVE", lambda: foreign_stop(i64(1, -0x10000))),
        ("Damaged", "ENTRY_SHORT", lambda: foreign_stop(i64(1, 0))),
        ("Damaged", "DIGEST", foreign_wrong_digest),
        ("Damaged", "DIGEST_UNKNOWN", foreign_unknown_digest),
        ("Torn", "UNPADDED", lambda: foreign_stop(i64(1, journal_format.FENCE))),
    ],
    "journal-group": [
        ("Torn", "SEAL_MISSING", lambda: group_stop(put(our_journal(), 4185, bytes(4007)))),
        (
            "Damaged",
            "SEAL_MISSING",
            lambda: group_stop(put(our_journal(), 8128, bytes(64))),
        ),
        ("Damaged", "FUTURE_VERSION", lambda: group_stop(summed(put(our_journal(), 8132, b"\2")))),
        ("Damaged", "BAD_VERSION", lambda: group_stop(summed(put(our_journal(), 8132, b"\0")))),
        ("Damaged", "BAD_FIELD", lambda: group_stop(summed(put(our_journal(), 8133, b"\2")))),
        ("Damaged", "BAD_FIELD", lambda: resealed(durable_up_to=JournalPosition(-1, 0))),
        ("Damaged", "OTHER_PLACE", lambda: resealed(journal_id=JOURNAL_ID - 1)),
        ("Damaged", "OTHER_PLACE", lambda: resealed(salt=1)),
        ("Damaged", "BAD_FIELD", lambda: resealed(record_count=3)),
        ("Damaged", "CHECKSUM", lambda: group_stop(put(our_journal(), 4184, b"0"))),
        (
            "Damaged",
            "SEAL_ORDER",
            lambda: second_group(sequence=3),
        ),
        (
            "Damaged",
            "OTHER_HEADER",
            lambda: scan_stop(
                journal_format.encode_header(journal_format.JournalHeader(6, SALT + 1)) + our_journal()[512:]
            ),
        ),
        ("Torn", "FILE_CUT", lambda: scan_stop(our_header(8193) + our_journal()[512:])),
    ],
    "entry-log": [
        ("EmptyLog", "", lambda: entrylog_format.decode_header(b"")),
        ("LogHeader", "", lambda: entrylog_format.decode_header(bytes(1024))),
        ("Damaged", "BAD_MAGIC", lambda: log_header(0, b"b")),
        ("Damaged", "CHECKSUM", lambda: log_header(4, i32(2))),
        ("Damaged", "FUTURE_VERSION", lambda: bookie_log_header(4, i32(2))),
        ("Damaged", "FUTURE_VERSION", lambda: log_origin_with(24, i32(2))),
        ("Damaged", "BAD_FIELD", lambda: log_origin_with(52, i64(-2))),
        ("Damaged", "BAD_FIELD", lambda: log_origin_with(52, i64(LOG_ID_MAX + 1))),
        ("Damaged", "BAD_FIELD", lambda: log_origin_with(60, i64(-1))),
        ("Damaged", "BAD_VERSION", lambda: bookie_log_header(4, i32(-1))),
        ("Damaged", "BAD_MAP", lambda: log_header(8, i64(1023))),
        ("Damaged", "BAD_MAP", lambda: entrylog_format.decode_map_batch(ledgers_map()[4:-1])),
        ("Damaged", "BAD_MAP", lambda: entrylog_format.decode_map_batch(ledgers_map()[4:23])),
        ("Damaged", "BAD_MAP", lambda: entrylog_format.decode_map_batch(put(ledgers_map(), 12, i64(-3))[4:])),
        ("Damaged", "BAD_MAP", lambda: entrylog_format.decode_map_batch(put(ledgers_map(), 32, i64(-1))[4:])),
        ("Damaged", "CHECKSUM", lambda: sealed_log(2, checksum=1).proven_map()),
        ("UnprovenMap", "", lambda: sealed_log(2).proven_map()),
        ("Damaged", "FILE_SHORT", lambda: sealed_and_cut().ledgers_map()),
        ("Damaged", "BAD_MAP", lambda: sealed_log(3).ledgers_map()),
        ("Damaged", "BAD_MAP", lambda: sealed_log(2, log_records()).ledgers_map()),
        ("EndOfData", "", lambda: log_items(log_records() + bytes(100))[-1]),
        ("Torn", "LENGTH_CUT", lambda: log_items(log_records() + b"\0\0\1")[-1]),
        ("Torn", "BODY_CUT", lambda: log_items(log_records()[:-1])[-1]),
        ("Damaged", "LENGTH_NEGATIVE", lambda: log_items(log_records() + i32(-1) + bytes(16))[-1]),
        ("Damaged", "LENGTH_TOO_SMALL", lambda: log_items(log_records() + i32(15) + bytes(16))[-1]),
        ("Damaged", "LENGTH_TOO_LARGE", frame_huge_log),
        ("Damaged", "LEDGER_NEGATIVE", lambda: log_items(i32(16) + i64(-2, 0))[-1]),
        ("Damaged", "ENTRY_NEGATIVE", lambda: log_items(i32(16) + i64(1, -1))[-1]),
        ("Damaged", "NOT_ZERO", lambda: log_items(bytes(64) + b"\1")[-1]),
        ("Hole", "LENGTH_NEGATIVE", lambda: log_items(negative_log_size())[1]),
        ("Hole", "DIGEST", lambda: log_items(put(log_records() * 2, 643, i32(60)))[4]),
        ("Damaged", "NOT_A_RECORD", lambda: log_read(log_records(), 4)),
        ("Damaged", "OTHER_ENTRY", lambda: log_read(log_records(), 1028, (1, 1))),
        ("Damaged", "DIGEST", lambda: log_read(put(log_records(), 44, b"0") + log_records(), 1028)),
    ],
    "mark": [
        ("EmptyMark", "", lambda: mark_format.decode(b"")),
        ("Mark", "", lambda: mark_format.decode(mark_format.encode(MARK)[:16])),
        ("Torn", "FILE_SHORT", lambda: mark_format.decode(bytes(15))),
        ("Damaged", "FILE_SHORT", lambda: mark_format.decode(mark_format.encode(MARK)[:67])),
        ("Damaged", "CHECKSUM", lambda: mark_format.decode(put(mark_format.encode(MARK), 8, b"\1"))),
        ("Damaged", "BAD_MAGIC", lambda: mark_with(16, b"X")),
        ("Damaged", "FUTURE_VERSION", lambda: mark_with(20, i32(2))),
        ("Damaged", "BAD_VERSION", lambda: mark_with(20, i32(0))),
        ("Damaged", "FILE_LONG", lambda: mark_format.decode(mark_format.encode(MARK) + b"\0")),
        ("Damaged", "BAD_FIELD", lambda: mark_with(8, i64(-1))),
        ("Damaged", "BAD_FIELD", lambda: mark_with(40, i64(-2))),
    ],
    "lineage": [
        ("NoLineage", "", no_lineage),
        ("Damaged", "FILE_SHORT", lambda: lineage_format.decode(bytes(43), ORIGIN.store_id)),
        (
            "Damaged",
            "CHECKSUM",
            lambda: lineage_format.decode(
                put(lineage_format.encode(LINEAGE, ORIGIN.store_id), 40, b"\1"), ORIGIN.store_id
            ),
        ),
        ("Damaged", "BAD_MAGIC", lambda: lineage_with(0, b"X")),
        ("Damaged", "FUTURE_VERSION", lambda: lineage_with(4, i32(2))),
        ("Damaged", "BAD_VERSION", lambda: lineage_with(4, i32(0))),
        ("Damaged", "OTHER_PLACE", lambda: lineage_with(8, b"X")),
        ("Damaged", "INNER_LENGTH", lambda: lineage_with(32, i32(3))),
        ("Damaged", "BAD_FIELD", lambda: lineage_with(72, i64(0x1F2))),
        ("Damaged", "BAD_FIELD", lambda: lineage_with(72, i64(-1))),
        ("Damaged", "BAD_FIELD", lambda: lineage_with(64, i64(-1))),
    ],
    "index": [
        ("Damaged", "BAD_FIELD", lambda: index_format.decode_key(bytes(7))),
        ("Damaged", "BAD_FIELD", lambda: index_format.decode_value(bytes(17))),
        ("Damaged", "LEDGER_NEGATIVE", lambda: index_format.decode_key(i64(-1))),
        ("Damaged", "ENTRY_NEGATIVE", lambda: index_format.decode_value(i64(-1, 1028))),
        ("Damaged", "BAD_FIELD", lambda: index_format.decode_value(i64(1, 0))),
    ],
    "row": [
        (
            "Damaged",
            "CHECKSUM",
            lambda: ledger_record_format.decode(put(ledger_record_format.encode(ROW), 1, b"\2")),
        ),
        ("Damaged", "BAD_TEXT", lambda: row_of(b"\xc1")),
        ("Damaged", "FUTURE_VERSION", lambda: row_of(msgpack.packb([3]))),
        ("Damaged", "BAD_VERSION", lambda: row_of(msgpack.packb([0]))),
        ("Damaged", "BAD_FIELD", lambda: row_of(msgpack.packb([1, 2]))),
    ],
    "rows": [
        ("EndOfData", "", lambda: metadata_log_format.decode_group_head(bytes(44), 4096, 44)),
        ("Torn", "FILE_SHORT", lambda: metadata_log_format.decode_group_head(rows_group()[:43], 0, 43)),
        ("Damaged", "BAD_MAGIC", lambda: rows_head(0, b"X")),
        ("Damaged", "FUTURE_VERSION", lambda: rows_with(version=2)),
        ("Damaged", "BAD_VERSION", lambda: rows_with(version=0)),
        ("Damaged", "OTHER_PLACE", lambda: rows_head(16, i64(4096))),
        ("Torn", "BODY_CUT", lambda: rows_head(remaining=60)),
        ("Damaged", "LENGTH_TOO_LARGE", lambda: rows_head(32, i32((32 << 20) + 1), 1 << 30)),
        ("Damaged", "BAD_FIELD", lambda: rows_with(synced_end=-1)),
        ("Damaged", "CHECKSUM", rows_checksum),
        ("Damaged", "INNER_LENGTH", lambda: rows_body(b"\0\0\0")),
        ("Damaged", "INNER_LENGTH", lambda: rows_body(b"\0", count=0)),
    ],
    "sums": [
        ("EndOfData", "", lambda: sums_of(bytes(48))),
        ("EndOfData", "", lambda: sums_of(b"")),
        ("Torn", "FILE_SHORT", lambda: sums_of(checksum_format.encode(SUMS, 0)[:47])),
        ("Damaged", "BAD_MAGIC", lambda: sums_with(0, b"X")),
        ("Damaged", "OTHER_PLACE", lambda: sums_with(8, i64(4096))),
        ("Torn", "BODY_CUT", lambda: sums_of(checksum_format.encode(SUMS, 0)[:67])),
        ("Damaged", "CHECKSUM", lambda: sums_with(48, b"\1")),
        ("Damaged", "FUTURE_VERSION", lambda: sums_with(4, i32(2), resums=True)),
        ("Damaged", "BAD_VERSION", lambda: sums_with(4, i32(0), resums=True)),
    ],
    "cookie": [
        ("Cookie", "", lambda: cookie_of(b"3\nhost\n/journal\n1\t/ledgers\n")),
        ("Torn", "FILE_SHORT", lambda: cookie_of(b"3\nhost\n/journal\n")),
        ("Torn", "FILE_SHORT", lambda: cookie_of(b"5")),
        ("Torn", "FILE_SHORT", lambda: cookie_of(cookie_format.encode(COOKIE)[:30])),
        ("Damaged", "BAD_TEXT", lambda: cookie_of(b"\xff\n")),
        ("Damaged", "BAD_TEXT", lambda: cookie_of(b"five\n")),
        ("Damaged", "BAD_TEXT", lambda: cookie_of(b"5\nnonsense\n")),
        ("Damaged", "BAD_TEXT", lambda: cookie_of(cookie_format.encode(COOKIE).replace(b"1\\t", b"2\\t"))),
        ("Damaged", "FUTURE_VERSION", lambda: cookie_of(put(cookie_format.encode(COOKIE), 0, b"6"))),
        ("Damaged", "BAD_VERSION", lambda: cookie_of(put(cookie_format.encode(COOKIE), 0, b"2"))),
        ("Damaged", "FILE_LONG", lambda: cookie_of(bytes(cookie_format.SIZE_MAX + 1))),
    ],
}

ANSWERED_BY: dict[tuple[str, ...], tuple[ModuleType, ...]] = {
    ("entry",): (entry_format,),
    ("journal-header", "journal-record", "journal-group"): (
        journal_format,
        seal,
        journal_reader,
        group_reader,
        journal_scan,
    ),
    ("entry-log",): (entrylog_format, entrylog_reader, entrylog_scan),
    ("mark",): (mark_format,),
    ("lineage",): (lineage_format, lineage_file),
    ("index",): (index_format,),
    ("row",): (ledger_record_format,),
    ("rows",): (metadata_log_format,),
    ("sums",): (checksum_format,),
    ("cookie",): (cookie_format, cookie_part),
}
"""The modules whose flaws the damage tables list, completely and without others."""


def flaws_in(module: ModuleType) -> set[str]:
    """Return the flaws that the module's code names, directly or by `wrong_version`."""
    nodes = list(ast.walk(ast.parse(inspect.getsource(module))))
    named = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Flaw"
    }
    judges_versions = any(isinstance(node, ast.Name) and node.id == "wrong_version" for node in nodes)
    return named | ({"FUTURE_VERSION", "BAD_VERSION"} if judges_versions else set())


# --- what the code says: facts -------------------------------------------------------------------------

_CONSTANTS_OF = {
    "journal": journal_format,
    "seal": seal,
    "entrylog": entrylog_format,
    "mark": mark_format,
    "lineage": lineage_format,
    "index": index_format,
    "row": ledger_record_format,
    "rows": metadata_log_format,
    "page_sums": checksum_format,
    "cookie": cookie_format,
    "entry": entry_model,
    "position": importlib.import_module("storage.entry.position"),
}
_SHOWN_ELSEWHERE = {"PADDING_WORD", "START"}  # the bytes of PADDING: a position, not a number
MAGICS = {
    journal_format.MAGIC,
    journal_format.OUR_MAGIC,
    seal.MAGIC,
    seal.ATOMIC_MARK,
    entrylog_format.MAGIC,
    entrylog_format.OUR_MAGIC,
    mark_format.OUR_MAGIC,
    lineage_format.MAGIC,
    metadata_log_format.MAGIC,
    checksum_format.MAGIC,
}


_MINUS = "\N{MINUS SIGN}"


def shown(value: object) -> str:
    match value:
        case bytes():
            return value.decode()
        case tuple():
            return ", ".join(map(str, value))
        case int():
            return f"{_MINUS}{-value}" if value < 0 else str(value)
    return str(value)


def constant(name: str) -> object:
    alias, _, own = name.partition(".")
    return getattr(_CONSTANTS_OF[alias], own)


def constants_of(alias: str) -> Iterator[list[str]]:
    """Return the module's own public constants in the form of the table."""
    for node in ast.parse(inspect.getsource(_CONSTANTS_OF[alias])).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            value = constant(f"{alias}.{name}")
            is_number = isinstance(value, int | bytes | tuple) and name not in _SHOWN_ELSEWHERE
            if is_number and not name.startswith("_"):
                yield [f"{alias}.{name}", shown(value)]


def minus(number: int) -> str:
    return f"{_MINUS}{-number:#x}" if number < 0 else str(number)


def journal_version(version: int) -> list[str]:
    header = journal_format.JournalHeader(version)
    pads = "yes" if header.pads else "no"
    return [
        str(version),
        str(header.size),
        pads,
        "yes" if version in journal_format.WRITABLE_VERSIONS else "no",
    ]


def special(name: str) -> list[str]:
    number = getattr(journal_format, name)
    return [name, minus(number), i64(number).hex(), str(journal_format._VERSION_NEEDED[number])]


def padding_example(position: int, alignment: int) -> list[str]:
    bookies = len(journal_format.encode_padding(position, alignment))
    ours = seal.padding_size(position, alignment)
    return [str(number) for number in (position, alignment, bookies, ours)]


def location_example(log_id: int, position: int) -> list[str]:
    packed = LogPosition(log_id, position).location.pack()
    return [filenames.entry_log(log_id), str(position), i64(packed).hex()]


def ids_up_to(largest: int) -> str:
    power = str(largest.bit_length()).translate(str.maketrans("1236", "\u00b9\u00b2\u00b3\u2076"))
    return f"0 to 2{power} {_MINUS} 1"


def mebibytes(size: int) -> str:
    return f"{size >> 20} MiB"


def limits() -> list[list[str]]:
    return [
        ["one record", mebibytes(entry_model.RECORD_SIZE_MAX)],
        ["one group of rows", mebibytes(metadata_log_format.BODY_SIZE_MAX)],
        ["ids of ledgers, entries, journals", ids_up_to(entry_model.ID_MAX)],
        ["ids of entry logs", ids_up_to(LOG_ID_MAX)],
        ["ledgers in one map record", str(entrylog_format.MAP_BATCH_MAX)],
        ["VERSION", mebibytes(cookie_format.SIZE_MAX)],
    ]


def row_fields() -> Iterator[list[str]]:
    packed = msgpack.unpackb(ledger_record_format.encode(ROW)[:-4])
    assert len(packed) == ledger_record_format._FIELDS[packed[0]]
    for number, value in enumerate(packed):
        yield [str(number), value.hex() if isinstance(value, bytes) else str(value)]


PADDINGS = {512: (601, 1532, 2552, 2560), 4096: (4185, 8120, 8121, 8192)}
PLACES = ((0, 1024), (0, 1069), (0x1F4, 1114))
VERSIONS = (
    "journal.VERSION_MAX",
    "seal.VERSION",
    "entrylog.VERSION",
    "entrylog.OUR_VERSION",
    "mark.VERSION",
    "lineage.VERSION",
    "row.VERSION",
    "rows.VERSION",
    "page_sums.VERSION",
    "cookie.VERSION",
)

FACTS: dict[str, tuple[tuple[int, ...], Callable[[], list[list[str]]]]] = {
    "digests": ((0, 1, 2), lambda: [[kind.name, str(kind.value), str(kind.width)] for kind in DigestType]),
    "journal-versions": (
        (0, 1, 2, 3),
        lambda: [journal_version(v + 1) for v in range(journal_format.VERSION_MAX)],
    ),
    "special-records": ((0, 1, 2, 3), lambda: list(map(special, ("LEDGER_KEY", "FENCE", "EXPLICIT_LAC")))),
    "padding": (
        (0, 1, 2, 3),
        lambda: [padding_example(at, unit) for unit, places in PADDINGS.items() for at in places],
    ),
    "locations": ((0, 1, 2), lambda: [location_example(*place) for place in PLACES]),
    "limits": ((0, 1), limits),
    "row-fields": ((0, 2), lambda: list(row_fields())),
    "versions": ((1, 3), lambda: [[name, shown(constant(name))] for name in VERSIONS]),
    "constants": ((0, 1), lambda: list(chain.from_iterable(map(constants_of, _CONSTANTS_OF)))),
}


# --- the promises --------------------------------------------------------------------------------------


def cells(name: str, columns: tuple[int, ...]) -> list[list[str]]:
    """Return these columns of a table of facts, without backticks."""
    return [[line[column].replace("`", "") for column in columns] for line in block_of("facts", name).rows()]


def damage_told(name: str) -> set[tuple[str, str]]:
    """Yield (answer, flaw) of a damage table. A dash means no flaw."""
    return {(answer, flaw.strip("`\N{EN DASH}")) for _, answer, flaw in block_of("damage", name).rows()}


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        ("table", set(TABLES)),
        (
            "diagram",
            {"entry", "journal-header", "seal", "log-header", "mark", "lineage", "rows-group", "sums-record"},
        ),
        ("hex", set(EXAMPLES)),
        ("damage", set(DAMAGE)),
        ("facts", set(FACTS) | {"names"}),
    ],
)
def test_the_page_has_exactly_the_markers_that_this_test_knows(kind: str, known: set[str]) -> None:
    assert set(of_kind(kind)) == known


def test_every_table_and_every_example_is_checked() -> None:
    kinds = {block.kind for block in blocks()}
    offset_tables = page().count("\n| offset | size | type |")
    damage_tables = page().count("\n| found | answer | flaw |")

    assert kinds == {"table", "diagram", "hex", "damage", "facts"}
    assert offset_tables == len(TABLES)
    assert damage_tables == len(DAMAGE)


@pytest.mark.parametrize("name", TABLES)
def test_a_field_table_is_the_struct(name: str) -> None:
    told = [(offset, size, kind) for offset, size, kind, *_ in block_of("table", name).rows()]

    assert told == TABLES[name]


@pytest.mark.parametrize("name", TABLES)
def test_the_fixed_fields_add_up_to_the_size_in_the_code(name: str) -> None:
    block = block_of("table", name)
    fixed = sum(int(size) for _, size, *_ in block.rows() if size.isdigit())

    assert str(fixed) == block.size
    assert fixed == SIZES.get(name, fixed)


@pytest.mark.parametrize("name", sorted(of_kind("diagram")))
def test_the_offsets_over_a_diagram_are_those_of_its_table(name: str) -> None:
    above = [
        line
        for line in block_of("diagram", name).lines
        if not set(line) & set("\u251c\u2502\u253c\u2514\u2534")
    ]
    offsets = {offset for offset, *_ in TABLES[name]}
    end = {str(SIZES[name])} if all(size.isdigit() for _, size, _ in TABLES[name]) else set()

    assert set(" ".join(above).split()) == offsets | end


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_what_the_code_writes(name: str) -> None:
    assert parse_hex(block_of("hex", name)) == EXAMPLES[name]()


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("journal-header-bookie", "journal-logical.bin"),
        ("journal-batch-bookie", "journal-logical.bin"),
        ("journal-fence", "journal-logical.bin"),
        ("journal-explicit-lac", "journal-logical.bin"),
        ("log-header-sealed", "0.log"),
        ("log-records", "0.log"),
        ("log-map", "0.log"),
        ("mark-bookie", "lastMark"),
    ],
)
def test_an_example_of_a_bookies_file_is_what_a_bookie_wrote(name: str, file: str) -> None:
    start, data = parse_hex(block_of("hex", name))

    assert data == fixtures.golden(file)[start : start + len(data)]


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damage_table_is_what_the_readers_answer(name: str) -> None:
    assert damage_told(name) == {(answer, flaw) for answer, flaw, _ in DAMAGE[name]}


@pytest.mark.parametrize(
    ("answer", "flaw", "read"),
    [
        pytest.param(*case, id=f"{name}-{case[0]}-{case[1]}-{number}")
        for name, cases in DAMAGE.items()
        for number, case in enumerate(cases)
    ],
)
def test_damage_is_answered_as_the_page_states(answer: str, flaw: str, read: Callable[[], object]) -> None:
    found = read()
    found_flaw = getattr(found, "flaw", None)

    assert type(found).__name__ == answer
    assert (found_flaw.name if isinstance(found_flaw, Flaw) else "") == flaw


@pytest.mark.parametrize("names", ANSWERED_BY, ids=" ".join)
def test_every_flaw_of_a_reader_is_in_its_table(names: tuple[str, ...]) -> None:
    told = {flaw for name in names for _, flaw in damage_told(name)}

    assert told - {""} == set().union(*map(flaws_in, ANSWERED_BY[names]))


def test_the_page_mentions_every_flaw() -> None:
    assert {flaw.name for flaw in Flaw} <= words_of_code()


@pytest.mark.parametrize("name", FACTS)
def test_a_table_of_facts_is_the_code(name: str) -> None:
    columns, expected = FACTS[name]

    assert cells(name, columns) == expected()


def test_the_page_names_exactly_our_magics_and_bookkeepers() -> None:
    named = {word.encode() for word in words_of_code() if re.fullmatch("(BK|LS)[A-Z]{2}", word)}

    assert named == MAGICS


def test_names_of_files_are_parsed_as_the_page_states() -> None:
    told = cells("names", (0, 1))

    assert [[name, filenames.parse(name).kind.value] for name, _ in told] == told
    assert {kind for _, kind in told} == {kind.value for kind in FileKind} - {FileKind.UNKNOWN.value}


def test_a_bookie_uses_none_of_our_own_names() -> None:
    ours = [name for name, _, writer in cells("names", (0, 1, 2)) if writer.startswith("us")]

    assert len(ours) == 15
    assert not any(name.endswith((".txn", ".log", ".log.compacting", ".compacted")) for name in ours)


def test_the_lock_file_is_as_the_page_states(tmp_path: Path) -> None:
    with PosixDirectory(tmp_path).lock(filenames.LOCK):
        content = (tmp_path / filenames.LOCK).read_bytes()

    assert str(len(content)) == block_of("table", "lock").size
    assert content == str(os.getpid()).encode().ljust(20) + b"\n"


def test_the_start_hint_of_a_bookie_is_as_the_page_states() -> None:
    assert fixtures.golden("lastId") == b"%x\n" % 0


def test_every_link_inside_the_page_has_a_target() -> None:
    titles = re.findall(r"^#+ (.*)$", page(), re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}

    assert set(re.findall(r"\]\(#([^)]*)\)", page())) <= anchors
