"""Explanations of parts of files: headers, records, groups of ledger rows, and the small files as a whole.

The listings find the record at an offset and check it. This module only shows one of their rows in detail.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.explain import annotate
from recovery.explain.fields import Field
from recovery.shell.exit_codes import CannotDo
from recovery.shell.listing.journal import JournalListing
from recovery.shell.listing.log import LogListing
from recovery.shell.listing.record import reason
from recovery.shell.options import ListingScope, NumberRange, RowFilter
from recovery.shell.output import Align, Column, counted, free_text, number_column
from storage.checkpoint import mark_format
from storage.disk import cookie_format
from storage.entry import format as entry_format
from storage.entry.model import RECORD_SIZE_MAX, DigestType
from storage.entry.read_result import Damaged, EndOfData, Flaw, Torn
from storage.entrylog import format as entrylog_format
from storage.entrylog import lineage_format
from storage.journal import format as journal_format
from storage.ledgers import metadata_log_format

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from recovery.shell.output import Cell, Row
    from recovery.shell.passwords import Keyring
    from storage.disk.files import ReadFile


_TABLE_MAX = 8
_END = 4
_JSON_MAX = 64


@dataclass(frozen=True, slots=True)
class Explanation:
    """Bytes of a file that begin at `offset`, the fields that cover them, and one line that sums them up."""

    offset: int
    data: bytes
    fields: list[Field]
    finding: str
    is_wrong: bool

    def rows(self) -> Iterator[Row]:
        """Yield one row for each field: offset, size, bytes, name, value, meaning."""
        for field in self.fields:
            start = field.offset - self.offset
            yield {
                "offset": field.offset,
                "size": field.size,
                "bytes": _hex(self.data[start : start + field.size], _JSON_MAX),
                "name": field.name,
                "value": field.value,
                "meaning": field.meaning or None,
            }


def _hex(piece: bytes, size_max: int) -> str:
    """Return the bytes as hexadecimal digits: all of them, or the first and last ones."""
    if len(piece) <= size_max:
        return piece.hex()
    end = size_max // 2
    return f"{piece[:end].hex()}…{piece[-end:].hex()}"


def _bytes_text(row: Mapping[str, Cell], name: str) -> str:
    """Return the bytes in groups of four, which are easier to count."""
    first, dots, last = str(row[name]).partition("…")
    size = 2 * _TABLE_MAX
    if dots or len(first) > size:
        return f"{first[: 2 * _END]} … {(last or first)[-2 * _END :]}"
    return " ".join(first[at : at + 2 * _END] for at in range(0, len(first), 2 * _END))


FIELD_COLUMNS = [
    number_column("offset"),
    number_column("size", rank=1),
    Column("bytes", text=_bytes_text),
    Column("name"),
    Column("value", Align.LEFT),
    Column("meaning", text=free_text),
]


def explain_journal(file: ReadFile, journal_id: int, offset: int, keyring: Keyring) -> Explanation:
    """Explain the header if the offset is in it, otherwise the record or the damaged bytes at the offset."""
    listing = JournalListing(file, journal_id, _filter_at(offset), keyring)
    header = listing.reader.header
    if isinstance(header, journal_format.Void):
        return _explain_unwritten(file, offset, "never written: no header, only zeros")
    if offset < listing.reader.records_start:
        data = file.read(0, listing.reader.records_start)
        return _explain_header("journal", data, annotate.journal_header(data), header)
    row = next(listing.rows(), None)
    if row is None:
        return _explain_unwritten(file, offset, "never written: the data ends before this offset")
    data = _bytes(file, row)
    padding = data[:4] == journal_format.PADDING_WORD
    start = int(row["offset"] or 0)
    fields = (
        annotate.journal_padding(data, start) if padding else annotate.journal_record(data, start, _type(row))
    )
    return _explain_record(row, data, fields, offset)


def explain_log(file: ReadFile, log_id: int, offset: int, keyring: Keyring) -> Explanation:
    """Explain the header if the offset is in it, otherwise the record or the damaged bytes at the offset."""
    listing = LogListing(file, log_id, _filter_at(offset), keyring)
    header = listing.reader.header
    if isinstance(header, entrylog_format.EmptyLog):
        return _explain_unwritten(file, offset, "allocated in advance and never written")
    if offset < entrylog_format.HEADER_SIZE:
        data = file.read(0, entrylog_format.HEADER_SIZE)
        return _explain_header("entry log", data, annotate.log_header(data), header)
    row = next(listing.rows(), None)
    if row is None:
        return _explain_unwritten(file, offset, "never written: the data ends before this offset")
    data = _bytes(file, row)
    return _explain_record(row, data, annotate.log_record(data, int(row["offset"] or 0), _type(row)), offset)


def _filter_at(offset: int) -> RowFilter:
    return RowFilter(offsets=NumberRange(offset, offset), shown=ListingScope.EVERYTHING)


def _type(row: Row) -> DigestType | None:
    name = row["digest_type"]
    return DigestType[name] if isinstance(name, str) else None


def _bytes(file: ReadFile, row: Row) -> bytes:
    # A hole can be as long as the file. Show only its beginning.
    return file.read(int(row["offset"] or 0), min(int(row["size"] or 0), RECORD_SIZE_MAX))


def _explain_header(what: str, data: bytes, fields: list[Field], header: object) -> Explanation:
    if isinstance(header, Damaged):
        return Explanation(0, data, fields, f"{what} header, DAMAGED: {header}", is_wrong=True)
    return Explanation(0, data, fields, f"{what} header, sound", is_wrong=False)


def _explain_unwritten(file: ReadFile, offset: int, words: str) -> Explanation:
    if offset >= max(1, file.size()):
        raise CannotDo(f"{file.name} ends at {file.size()}, before offset {offset}")
    return Explanation(offset, b"", [], words, is_wrong=False)


def _explain_record(row: Row, data: bytes, fields: list[Field], offset: int) -> Explanation:
    if not any(data[: entry_format.HEAD.size]):
        fields = [Field(int(row["offset"] or 0), len(data), "zeros", counted(len(data), "byte"))]
    start, size, kind = int(row["offset"] or 0), int(row["size"] or 0), str(row["kind"])
    into = f", {counted(offset - start, 'byte')} into it" if offset > start else ""
    place = f"{_name(row)}, {counted(size, 'byte')} from {start}{into}"
    wrong = kind in ("hole", "damage") or row["ok"] is False
    return Explanation(start, data, fields, f"{place}{_finding(row)}", is_wrong=wrong)


def _name(row: Row) -> str:
    names = {
        "hole": "damaged bytes",
        "damage": "damaged bytes",
        "torn": "a torn tail",
        "unknown": "unknown record",
    }
    kind = str(row["kind"])
    of = f" of ledger {row['ledger']}" if row["ledger"] is not None else ""
    number = f" {row['entry']}" if row["entry"] is not None else ""
    return f"{names.get(kind, kind)}{number}{of}"


def _finding(row: Row) -> str:
    match row["kind"], row["ok"]:
        case "hole", _:
            return f": {row['detail']}; sound records follow, so this is damage and not a torn write"
        case "torn", _:
            return f": {row['detail']}; no sound record follows, as after an interrupted write"
        case "damage", _:
            return f": {row['detail']}"
        case (("entry" | "explicit-lac"), None):
            return ": not verified" + (
                ", because a MAC needs the password" if row["digest_type"] == "MAC" else ""
            )
        case (("entry" | "explicit-lac"), ok):
            return ": the digest is right" if ok else f": {row['detail'] or Flaw.DIGEST.value}"
        case "seal", ok:
            return ": its checksum is right" if ok else f": {row['detail']}"
    return f": {row['detail']}" if row["detail"] else ""


def explain_mark(file: ReadFile) -> Explanation:
    """Explain a lastMark file."""
    data = file.read(0, mark_format.SIZE + 64)
    decoded = mark_format.decode(data)
    return Explanation(
        0, data, annotate.mark_file(data), _mark_words(decoded), isinstance(decoded, Torn | Damaged)
    )


def _mark_words(decoded: mark_format.Mark | mark_format.EmptyMark | Torn | Damaged) -> str:
    match decoded:
        case mark_format.EmptyMark():
            return "lastMark, empty: every journal is replayed"
        case mark_format.Mark(position=position, trailer=trailer):
            name = "lastMark of a bookie" if trailer is None else "lastMark of ledgerstore"
            # Journal 0 stands for no journal: the directory has had no checkpoint yet.
            at = f"at {position}" if position.journal_id else "with the oldest journal"
            return f"{name}: replay begins {at}"
        case wrong:
            return f"lastMark, not valid: {reason(wrong)}"


def explain_lineage(file: ReadFile) -> Explanation:
    """Explain a lineage file."""
    data = file.read(0, file.size())
    decoded = lineage_format.decode(data, lineage_format.written_by(data))
    fields = annotate.lineage_file(data)
    if isinstance(decoded, Damaged):
        return Explanation(0, data, fields, f"lineage, not valid: {reason(decoded)}", is_wrong=True)
    words = f"lineage: {counted(len(decoded.kept), 'log')} counted in generation {decoded.generation}"
    return Explanation(0, data, fields, f"{words}, {len(decoded.gone)} being removed", is_wrong=False)


def explain_cookie(file: ReadFile) -> Explanation:
    """Explain a VERSION file."""
    data = file.read(0, cookie_format.SIZE_MAX)
    decoded = cookie_format.decode(data)
    if isinstance(decoded, Torn | Damaged):
        return Explanation(
            0, data, annotate.cookie_file(data), f"VERSION, unreadable: {reason(decoded)}", is_wrong=True
        )
    words = f"VERSION: the directory of {decoded.bookie_host}, layout {decoded.layout_version}"
    return Explanation(0, data, annotate.cookie_file(data), words, is_wrong=False)


def explain_rows(file: ReadFile, offset: int) -> Explanation:
    """Explain the group of ledger rows that covers the offset."""
    at, size = 0, file.size()
    while True:
        head_bytes = file.read(at, metadata_log_format.HEAD_SIZE)
        head = metadata_log_format.decode_group_head(head_bytes, at, size - at)
        if isinstance(head, EndOfData):
            return Explanation(offset, b"", [], f"no group here: the rows end at {at}", is_wrong=False)
        if isinstance(head, Torn | Damaged):
            data = file.read(
                at, min(size - at, metadata_log_format.HEAD_SIZE + metadata_log_format.BODY_SIZE_MAX)
            )
            words = f"the group at {at} cannot be read: {reason(head)}"
            return Explanation(at, data, annotate.rows_group(data, at), words, isinstance(head, Damaged))
        if head.end > offset:
            return _group(file, head, head_bytes)
        at = head.end


def _group(file: ReadFile, head: metadata_log_format.GroupHead, head_bytes: bytes) -> Explanation:
    data = file.read(head.start, head.end - head.start)
    body = data[metadata_log_format.HEAD_SIZE : metadata_log_format.HEAD_SIZE + head.body_size]
    decoded = metadata_log_format.decode_group_body(head, head_bytes, body)
    words = f"group {head.sequence} of {counted(head.count, 'ledger row')} at {head.start}"
    if isinstance(decoded, Damaged):
        return Explanation(
            head.start, data, annotate.rows_group(data, head.start), f"{words}: {decoded}", is_wrong=True
        )
    return Explanation(
        head.start, data, annotate.rows_group(data, head.start), f"{words}, sound", is_wrong=False
    )
