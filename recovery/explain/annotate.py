"""Names the fields of bytes in our files, for a person who reads them.

Each function takes the bytes of one item (a header, a record, a small file) and their offset, and names all
of them: the fields are adjacent and cover everything given. Nothing is judged or refused. Bytes that are cut
off or cannot be decoded are named as far as possible; the format module of the file says what is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.explain.fields import Field, FieldReader
from storage.checkpoint import mark_format
from storage.entry import ledger_record_format
from storage.entry.read_result import Damaged
from storage.entrylog import format as entrylog_format
from storage.journal import format as journal_format
from storage.journal import seal
from storage.ledgers import metadata_log_format

if TYPE_CHECKING:
    from storage.entry.model import DigestType

_SPECIAL_NAMES = {
    journal_format.LEDGER_KEY: "ledger key",
    journal_format.FENCE: "fence",
    journal_format.EXPLICIT_LAC: "explicit LAC",
}


def journal_header(data: bytes) -> list[Field]:
    """A journal's first bytes: 8 of them, or 512 from version 5 on."""
    cursor = FieldReader(data, 0)
    cursor.magic("every journal from version 2 on begins so")
    cursor.number(4, "version", "of the journal's format, 1 to 6")
    if cursor.peek(4) == journal_format.OUR_MAGIC:
        cursor.magic("written by us")
        cursor.checksum("over the header without these bytes")
        cursor.raw(8, "salt", "repeated in every seal of this file")
        cursor.number(8, "filled until", "the file's size when it got its name; 0: unknown")
    cursor.zeros(cursor.left, "room up to the first record")
    return cursor.fields


def journal_record(data: bytes, offset: int, digest_type: DigestType | None) -> list[Field]:
    """A record from its length word on."""
    cursor = FieldReader(data, offset)
    cursor.number(4, "length", "bytes behind this word")
    entry_id = int.from_bytes(data[12:20], "big", signed=True)
    if entry_id >= 0:
        return _entry(cursor, digest_type)
    cursor.number(8, "ledger")
    cursor.number(8, "record kind", _SPECIAL_NAMES.get(entry_id, "a kind without a meaning yet"))
    if entry_id == journal_format.LEDGER_KEY:
        cursor.number(4, "key length")
        cursor.rest("master key", 'SHA-1 of "ledger" and the password')
    elif entry_id == journal_format.EXPLICIT_LAC:
        cursor.number(4, "packet length")
        cursor.number(8, "ledger", "repeated inside the packet")
        cursor.number(8, "last add confirmed")
        cursor.rest("digest", "over the packet's 16 bytes")
    cursor.rest("content")
    return cursor.fields


def journal_padding(data: bytes, offset: int) -> list[Field]:
    """A padding record, with the seal at its end if there is one."""
    cursor = FieldReader(data, offset)
    cursor.number(4, "padding mark", "stands where a length would")
    cursor.number(4, "length", "bytes behind this word")
    if cursor.left >= seal.SIZE and data[-seal.SIZE :].startswith(seal.MAGIC):
        if cursor.left > seal.SIZE:
            cursor.zeros(cursor.left - seal.SIZE, "up to the seal")
        _seal(cursor)
    elif cursor.peek(cursor.left) == seal.ATOMIC_MARK:
        cursor.magic("the next group counts as a whole or not at all")
    else:
        cursor.zeros(cursor.left, "up to the alignment")
    return cursor.fields


def _seal(cursor: FieldReader) -> None:
    cursor.magic("a seal: the group ends here")
    cursor.number(1, "version", "of the seal")
    cursor.number(1, "flags", "1: the group is atomic")
    cursor.number(2, "metadata tag", "the metadata log's last durable group; 0: none")
    cursor.number(8, "journal", "the id in this file's name")
    cursor.raw(8, "salt", "as in the header")
    cursor.number(8, "sequence", "one more in each group")
    cursor.number(8, "group start", "where the sealed bytes begin")
    cursor.number(8, "durable journal", "known durable when written:")
    cursor.number(8, "durable offset", "everything before this place")
    cursor.number(4, "records", "in this group")
    cursor.checksum("over the group up to here")


def _entry(cursor: FieldReader, digest_type: DigestType | None) -> list[Field]:
    cursor.number(8, "ledger")
    cursor.number(8, "entry")
    cursor.number(8, "last add confirmed", "known to the writer; -1: none")
    cursor.number(8, "length", "payload bytes of the ledger so far")
    if digest_type is None:
        cursor.rest("digest and payload", "the digest type is unknown")
        return cursor.fields
    if digest_type.width:
        cursor.raw(digest_type.width, "digest", f"{digest_type.name} over head and payload")
    cursor.payload()
    return cursor.fields


def log_header(data: bytes) -> list[Field]:
    """An entry log's first 1024 bytes."""
    cursor = FieldReader(data, 0)
    cursor.magic("every entry log begins so")
    cursor.number(4, "version", "of the log's format, 0 or 1")
    cursor.number(8, "map offset", "where the ledgers map begins; 0: not sealed")
    cursor.number(4, "ledgers", "in the map")
    if cursor.peek(4) == entrylog_format.OUR_MAGIC:
        cursor.magic("written by us")
        cursor.number(4, "version", "of our part")
        cursor.raw(16, "store id", "whose log this is")
        cursor.number(8, "generation", "of the checkpoint that began it")
        cursor.number(8, "previous log", "-1: this is the first")
        cursor.number(8, "its end", "of that log's durable bytes when this one was begun")
        cursor.checksum("over bytes 0 to 7 and 20 to 67")
        cursor.checksum("over the ledgers map and bytes 8 to 19; 0: none")
    cursor.zeros(cursor.left, "room up to the first record")
    return cursor.fields


def log_record(data: bytes, offset: int, digest_type: DigestType | None) -> list[Field]:
    """A record of an entry log from its length word on: an entry, a ledgers map or a filler."""
    cursor = FieldReader(data, offset)
    if data[:1] == bytes([entrylog_format.DIRECT_FILL]):
        cursor.rest("fill", "a direct-I/O writer's, up to a multiple of 4096")
        return cursor.fields
    cursor.number(4, "size", "bytes behind this word")
    if int.from_bytes(data[4:12], "big", signed=True) != entrylog_format.META_LEDGER:
        return _entry(cursor, digest_type)
    cursor.number(8, "ledger", "-1: not an entry")
    if cursor.number(8, "record kind", "-2: ledgers map, -3: filler") != entrylog_format.MAP_ENTRY:
        cursor.zeros(cursor.left, "skipped by every scan")
        return cursor.fields
    cursor.number(4, "ledgers", "in this part of the map")
    while cursor.left >= 2 * 8:
        ledger_id = cursor.number(8, "ledger")
        cursor.number(8, "bytes", f"of ledger {ledger_id} in this log, length words too")
    cursor.rest("content")
    return cursor.fields


def mark_file(data: bytes) -> list[Field]:
    """A lastMark file."""
    cursor = FieldReader(data, 0)
    cursor.number(8, "journal", f"replay begins in {int.from_bytes(data[:8], 'big'):x}.txn")
    cursor.number(8, "offset", "at this place")
    if cursor.peek(4) == mark_format.OUR_MAGIC:
        cursor.magic("written by us")
        cursor.number(4, "version", "of our part")
        cursor.number(8, "generation", "of the checkpoint")
        cursor.number(8, "newest journal", "whose name is durable")
        cursor.number(8, "newest log", "-1: none yet")
        cursor.number(8, "its end", "of the log's durable bytes")
        cursor.number(8, "rows sequence", "the last durable group of the ledger rows")
        cursor.checksum("over everything before it")
    cursor.rest("surplus", "no lastMark is that long")
    return cursor.fields


_COOKIE_MEANINGS = {
    "bookieHost": "who owns the directory",
    "journalDir": "as it was when stamped",
    "ledgerDirs": "how many, and which",
    "instanceId": "of the cluster",
    "indexDirs": "how many, and which",
}


def lineage_file(data: bytes) -> list[Field]:
    """A lineage file."""
    cursor = FieldReader(data, 0)
    cursor.magic("the entry logs that remain")
    cursor.number(4, "version", "of the format")
    cursor.raw(16, "store id", "whose logs these are")
    cursor.number(8, "generation", "of the mark when it was written")
    kept = cursor.number(4, "kept", "logs that count")
    gone = cursor.number(4, "gone", "logs that are being removed")
    for _ in range(min(kept, cursor.left // 16)):
        log_id = cursor.number(8, "log")
        cursor.number(8, "its end", f"of the durable bytes of {max(log_id, 0):x}.log; 0: it was only read")
    for _ in range(min(gone, cursor.left // 8)):
        cursor.number(8, "gone", "a log that does not count, although it may still be there")
    cursor.checksum("over everything before it")
    cursor.rest("surplus", "more than the numbers of logs say")
    return cursor.fields


def cookie_file(data: bytes) -> list[Field]:
    """A VERSION file, line by line."""
    cursor = FieldReader(data, 0)
    for number, line in enumerate(data.splitlines(keepends=True)):
        name, colon, value = line.decode(errors="backslashreplace").rstrip("\r\n").partition(": ")
        if number == 0:
            name, value = "layout version", name
        elif not colon:
            name, value = f"line {number + 1}", name
        cursor.fields.append(
            Field(_end(cursor.fields), len(line), name, value, _COOKIE_MEANINGS.get(name, ""))
        )
    return cursor.fields


def _end(fields: list[Field]) -> int:
    return fields[-1].offset + fields[-1].size if fields else 0


def rows_group(data: bytes, offset: int) -> list[Field]:
    """A group of a ledgers.rows file, with each of its rows as one field."""
    cursor = FieldReader(data, offset)
    cursor.magic("a group of ledger rows")
    cursor.number(4, "version", "of the group")
    cursor.number(8, "sequence", "one more in each group")
    cursor.number(8, "start", "this group's own offset")
    cursor.number(8, "synced end", "known durable when written")
    body_size = cursor.number(4, "body size")
    count = cursor.number(4, "rows")
    cursor.checksum("over the head before it and the body")
    end = min(cursor.left, body_size) if body_size > 0 else 0
    fill = cursor.left - end
    for _ in range(max(0, count)):
        if cursor.left - fill < 4:
            break
        size = cursor.number(4, "row size")
        piece = cursor.peek(min(max(0, size), cursor.left - fill))
        cursor.raw(len(piece), "row", _row(piece))
    if cursor.left > fill:
        cursor.raw(cursor.left - fill, "content")
    if cursor.left:
        cursor.zeros(cursor.left, f"up to a multiple of {metadata_log_format.ALIGNMENT}")
    return cursor.fields


def _row(data: bytes) -> str:
    decoded = ledger_record_format.decode(data)
    if isinstance(decoded, Damaged):
        return str(decoded)
    digest_type = decoded.digest_type.name if decoded.digest_type else "unknown"
    state = ", fenced" if decoded.fenced else ""
    dead = ", deleted" if decoded.tombstone else ""
    return f"ledger {decoded.ledger_id}, change {decoded.change}, {digest_type}{state}{dead}"
