"""The parts that listings of journals and of entry logs share.

These are the cells of an entry, the counts of a listing and its verdict, and the inference of digest types
from entries that are listed later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recovery.shell.options import PayloadFormat
from recovery.shell.output import Column, counted, free_text, number_column
from storage.entry import format as entry_format
from storage.entry.digest import DigestCheck
from storage.entry.read_result import Damaged, EndOfData, Flaw, Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from recovery.shell.options import RowFilter
    from recovery.shell.output import Cell, Row
    from recovery.shell.passwords import Keyring
    from storage.entry.digest import Digester


OK = {DigestCheck.OK: True, DigestCheck.MISMATCH: False, DigestCheck.UNVERIFIED: None}

_CHECKABLE = ("entry", "explicit-lac", "seal", "ledger-key")


def _ok_text(row: Mapping[str, Cell], name: str) -> str:
    match row.get(name):
        case True:
            return "ok"
        case False:
            return "BAD"
    return "?" if row["kind"] in _CHECKABLE else "-"


def entry_columns(payload: PayloadFormat, digits: int) -> list[Column]:
    """Return the columns of an entry: ledger, entry, …, ok, and the payload if it is to be printed."""
    shown = [] if payload is PayloadFormat.NONE else [Column("payload")]
    return [
        number_column("ledger"),
        number_column("entry"),
        number_column("lac", 4),
        number_column("length", digits, rank=2),
        Column("digest_type", width=6, rank=3),
        Column("digest", width=8, rank=4),
        Column("ok", width=3, text=_ok_text),
        *shown,
        Column("detail", text=free_text),
    ]


def entry_cells(data: bytes, known: Digester | None, check: DigestCheck, payload: PayloadFormat) -> Row:
    """Decode the bytes of an entry into cells.

    If the digest type is unknown, so is the boundary between digest and payload: both stay out of the row.
    """
    ledger_id, entry_id = entry_format.IDS.unpack_from(data)
    head = entry_format.decode_head(data)
    cells = blank_cells(payload) | {"ledger": ledger_id, "entry": entry_id, "ok": OK[check]}
    if isinstance(head, Damaged):
        return cells | {"ok": False, "flaw": head.flaw.name, "detail": str(head)}
    if check is DigestCheck.MISMATCH:
        cells |= {"flaw": Flaw.DIGEST.name, "detail": Flaw.DIGEST.value}
    cells |= {"lac": head.last_add_confirmed, "length": head.length}
    if known is None:
        return cells
    start = entry_format.HEAD.size + known.digest_type.width
    cells |= {
        "digest_type": known.digest_type.name,
        "digest": data[entry_format.HEAD.size : start].hex() or None,
    }
    if payload is not PayloadFormat.NONE:
        cells["payload"] = _payload_text(data[start:], payload)
    return cells


def blank_cells(payload: PayloadFormat) -> Row:
    """Return empty entry cells, for a row that is not an entry."""
    names = ("ledger", "entry", "lac", "length", "digest_type", "digest", "ok")
    cells: Row = dict.fromkeys(names)
    if payload is not PayloadFormat.NONE:
        cells["payload"] = None
    return cells | {"flaw": None, "detail": None}


def _payload_text(data: bytes, payload: PayloadFormat) -> str:
    return data.hex() if payload is PayloadFormat.HEX else data.decode(errors="backslashreplace")


class FileListing:
    """Lists one file, row by row. Read `counts`, `stop` and `last_item` after the last row."""

    def __init__(self, row_filter: RowFilter, keyring: Keyring, reached: Callable[[int], None]) -> None:
        """`reached` is called with the offset of each record that is read, for a progress bar."""
        self.counts = ListingCounts()
        self.stop: Stop | None = None
        """`None` when the listing ended before the file did."""
        self.last_item = 0
        """Offset of the last record or padding with sound framing."""
        self._filter = row_filter
        self._keyring = keyring
        self._reached = reached

    def rows(self) -> Iterator[Row]:
        """Return the records that match the filter, and all damage, in the order of the file."""
        limit = self._filter.limit
        if limit == 0:
            return
        for number, row in enumerate(self._all_rows(), 1):
            yield row
            if number == limit:
                self.stop = None
                return

    def _all_rows(self) -> Iterator[Row]:
        """Return the rows to the end of the file, or of the offsets of the filter."""
        raise NotImplementedError


@dataclass(slots=True)
class ListingCounts:
    """Counts of the listing of one file.

    Only entries that match the filter are verified and counted as such.
    """

    records: int = 0
    """All records that were read."""
    shown: int = 0
    """Records that match the filter."""
    entries: int = 0
    verified: int = 0
    unverified: int = 0
    bad: int = 0
    first_bad: int | None = None
    last_bad: int | None = None
    holes: int = 0
    hole_bytes: int = 0

    def count(self, row: Row) -> None:
        """Count a row."""
        offset = int(row["offset"] or 0)
        if row["ok"] is False:
            self.wrong(offset)
        if row["kind"] == "entry":
            self.entries += 1
            self.verified += row["ok"] is True
            self.unverified += row["ok"] is None

    def wrong(self, offset: int) -> None:
        """Count a record whose checksum, digest or content is wrong, although its extent is known."""
        self.bad += 1
        self.first_bad = offset if self.first_bad is None else self.first_bad
        self.last_bad = offset

    def hole(self, size: int) -> None:
        self.holes += 1
        self.hole_bytes += size

    def __str__(self) -> str:
        """Return a summary such as `342 records (339 entries, 339 verified)`."""
        some = self.shown != self.records
        records = (
            f"{self.shown} of {counted(self.records, 'record')}" if some else counted(self.records, "record")
        )
        parts = [counted(self.entries, "entry", "entries"), f"{self.verified} verified"]
        parts += [f"{self.unverified} unverified"] if self.unverified else []
        parts += [f"{self.bad} BAD"] if self.bad else []
        holes = f", {counted(self.holes, 'hole')} of {counted(self.hole_bytes, 'byte')}" if self.holes else ""
        return f"{records} ({', '.join(parts)}){holes}"


def reason(stop: Stop) -> str:
    """Say why reading stopped."""
    match stop:
        case EndOfData():
            return "the end of the data"
        case Damaged():
            return str(stop)
        case _:
            return stop.flaw.value


@dataclass(frozen=True, slots=True)
class ListingVerdict:
    is_finding: bool
    words: str


AHEAD_MAX = 64 << 20


class DigestLookahead:
    """Reads the records of a file ahead of the listing, to learn digest types and passwords.

    The digest type of a ledger follows from many entries together. If a damaged entry were checked with what
    was learnt from earlier entries only, the result would depend on its place. The distance is bounded, so
    that the first rows appear at once even if the file is large.
    """

    def __init__(
        self,
        bodies: Callable[[int], Iterator[tuple[int, memoryview]]],
        learn: Callable[[int, memoryview], None],
    ) -> None:
        self._bodies = bodies
        self._learn = learn
        self._walk: Iterator[tuple[int, memoryview]] = iter(())
        self._read_to = 0

    def restart(self, offset: int) -> None:
        """Continue at the record at `offset`, after damage or after skipped records."""
        if offset >= self._read_to:
            self._walk = self._bodies(offset)
            self._read_to = offset

    def reach(self, offset: int) -> None:
        """Read ahead if needed. Call this before the record at `offset` is checked."""
        if self._read_to - offset >= AHEAD_MAX // 2:
            return
        # Read many records at once, because the width of a digest follows only from several neighbours
        # together.
        for at, body in self._walk:
            self._learn(at, body)
            self._read_to = at
            if at - offset >= AHEAD_MAX:
                return
