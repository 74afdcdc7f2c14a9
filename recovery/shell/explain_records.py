"""The record of a journal or an entry log that covers an offset, and what is to be said of it.

Which record that is and whether it is sound, the listings know: this only looks at one of their rows closely.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery import anatomy
from recovery.fields import Field
from recovery.shell.exhibit import Exhibit
from recovery.shell.exits import CannotDo
from recovery.shell.journal_rows import JournalListing
from recovery.shell.log_rows import LogListing
from recovery.shell.tally import counted
from recovery.shell.wanted import Shown, Span, Wanted
from storage.codec import entry, entrylog, journal
from storage.entry import RECORD_SIZE_MAX, DigestType
from storage.outcome import Damaged, Flaw

if TYPE_CHECKING:
    from recovery.shell.columns import Row
    from recovery.shell.passwords import Keyring
    from storage.files import ReadFile


def explain_journal(file: ReadFile, journal_id: int, offset: int, keyring: Keyring) -> Exhibit:
    """The header, for an offset inside of it; else the record around it, or the damage."""
    listing = JournalListing(file, journal_id, _only(offset), keyring)
    header = listing.reader.header
    if isinstance(header, journal.Void):
        return _nothing(file, offset, "nothing was ever written here: no header, only zeros")
    if offset < listing.reader.records_start:
        data = file.read(0, listing.reader.records_start)
        return _header("journal", data, anatomy.journal_header(data), header)
    row = next(listing.rows(), None)
    if row is None:
        return _nothing(file, offset, "nothing was written here: the data ends before it")
    data = _bytes(file, row)
    padding = data[:4] == journal.PADDING_WORD
    start = int(row["offset"] or 0)
    fields = (
        anatomy.journal_padding(data, start) if padding else anatomy.journal_record(data, start, _type(row))
    )
    return _record(row, data, fields, offset)


def explain_log(file: ReadFile, log_id: int, offset: int, keyring: Keyring) -> Exhibit:
    """The header, for an offset inside of it; else the record around it, or the damage."""
    listing = LogListing(file, log_id, _only(offset), keyring)
    header = listing.reader.header
    if isinstance(header, entrylog.EmptyLog):
        return _nothing(file, offset, "allocated ahead and never written")
    if offset < entrylog.HEADER_SIZE:
        data = file.read(0, entrylog.HEADER_SIZE)
        return _header("entry log", data, anatomy.log_header(data), header)
    row = next(listing.rows(), None)
    if row is None:
        return _nothing(file, offset, "nothing was written here: the data ends before it")
    data = _bytes(file, row)
    return _record(row, data, anatomy.log_record(data, int(row["offset"] or 0), _type(row)), offset)


def _only(offset: int) -> Wanted:
    return Wanted(offsets=Span(offset, offset), shown=Shown.EVERYTHING)


def _type(row: Row) -> DigestType | None:
    name = row["digest_type"]
    return DigestType[name] if isinstance(name, str) else None


def _bytes(file: ReadFile, row: Row) -> bytes:
    # A hole can be as long as the file; its beginning is what can be explained.
    return file.read(int(row["offset"] or 0), min(int(row["size"] or 0), RECORD_SIZE_MAX))


def _header(what: str, data: bytes, fields: list[Field], header: object) -> Exhibit:
    if isinstance(header, Damaged):
        return Exhibit(0, data, fields, f"{what} header, DAMAGED: {header}", is_wrong=True)
    return Exhibit(0, data, fields, f"{what} header, sound", is_wrong=False)


def _nothing(file: ReadFile, offset: int, words: str) -> Exhibit:
    if offset >= max(1, file.size()):
        raise CannotDo(f"{file.name} ends at {file.size()}: there is nothing at {offset}")
    return Exhibit(offset, b"", [], words, is_wrong=False)


def _record(row: Row, data: bytes, fields: list[Field], offset: int) -> Exhibit:
    if not any(data[: entry.HEAD.size]):
        fields = [Field(int(row["offset"] or 0), len(data), "zeros", counted(len(data), "byte"))]
    start, size, kind = int(row["offset"] or 0), int(row["size"] or 0), str(row["kind"])
    into = f", {offset - start} into it" if offset > start else ""
    place = f"{_name(row)}, {counted(size, 'byte')} from {start}{into}"
    wrong = kind in ("hole", "damage") or row["ok"] is False
    return Exhibit(start, data, fields, f"{place}{_finding(row)}", is_wrong=wrong)


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
            return f": {row['detail']}; something sound follows, so this is damage and no torn write"
        case "torn", _:
            return f": {row['detail']}; nothing sound follows: what an interrupted write leaves"
        case "damage", _:
            return f": {row['detail']}"
        case (("entry" | "explicit-lac"), None):
            return ": not verified" + (", a MAC needs its password" if row["digest_type"] == "MAC" else "")
        case (("entry" | "explicit-lac"), ok):
            return ": the digest is right" if ok else f": {row['detail'] or Flaw.DIGEST.value}"
        case "seal", ok:
            return ": its checksum is right" if ok else f": {row['detail']}"
    return f": {row['detail']}" if row["detail"] else ""
