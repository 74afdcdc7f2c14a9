"""The kinds of the store's files, and where in their bytes which field lies: what rot may strike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from recovery import anatomy
from storage import filenames
from storage.codec import entrylog as log_codec
from storage.codec import journal as journal_codec
from storage.codec import lmdb_meta, page_sums
from storage.codec import rows as rows_codec
from storage.codec.journal import EntryRecord
from storage.codec.survey import DigestSurvey
from storage.journal_reader import JournalReader, StoredPadding, StoredRecord
from storage.ledger_rows_scan import scan as scan_rows
from storage.outcome import Damaged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from recovery.fields import Field

    Extent = tuple[str, int, int]

JOURNAL, ENTRY_LOG, MARK, ROWS = "journal", "entry log", "mark", "rows"
INDEX, SUMS, COOKIE = "index", "index sums", "cookie"

KINDS = {
    "*.draft": "",
    f"*/{filenames.damaged(filenames.INDEX)}/*": "",
    f"*/{filenames.draft(filenames.INDEX)}/*": "",
    f"*/{filenames.QUARANTINE}/*": "",
    "*.txn": JOURNAL,
    "*.log": ENTRY_LOG,
    f"{filenames.LAST_MARK}*": MARK,
    filenames.LEDGER_ROWS: ROWS,
    "data.mdb": INDEX,
    "sums": SUMS,
    filenames.COOKIE: COOKIE,
    filenames.LOCK: "",
    "lock.mdb": "",
}
"""By a pattern of path or name; without a kind is what no opening reads. The first that fits counts."""

IGNORED = (filenames.LOCK, "lock.mdb")
"""Whose content never matters: who holds the lock, and which readers LMDB has."""

_META_FIELDS = (
    *(("page number", 8), ("pad", 2), ("flags", 2), ("lower", 2), ("upper", 2)),
    *(("magic", 4), ("version", 4), ("address", 8), ("map size", 8)),
    *(("page size", 4), ("free tree", 44), ("main tree", 48), ("last page", 8), ("transaction", 8)),
)
_PAGE_FIELDS = (("page number", 8), ("pad", 2), ("flags", 2), ("lower", 2), ("upper", 2))
_SUMS_FIELDS = (
    *(("magic", 4), ("version", 4), ("start", 8), ("transaction", 8), ("page size", 8)),
    *(("meta sum", 4), ("count", 4), ("gone", 4), ("crc", 4)),
)
_META_PAGES = 2


def fields(kind: str, data: bytes) -> Iterable[Extent]:
    """The fields of a file of that kind, sound up to its end or not: name, offset, size."""
    return _TAKEN_APART[kind](data) if data and kind in _TAKEN_APART else ()


@dataclass(frozen=True, slots=True)
class _Bytes:
    """A file's bytes, for readers of files."""

    data: bytes
    name: str = "bytes"

    def size(self) -> int:
        return len(self.data)

    def read(self, offset: int, size: int) -> bytes:
        return self.data[offset : offset + size]

    def read_into(self, offset: int, buffer: memoryview) -> int:
        data = self.read(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Nothing is open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()


def _named(what: str, found: Iterable[Field]) -> Iterator[Extent]:
    return ((f"{what}: {field.name}", field.offset, field.size) for field in found)


def _laid_out(what: str, at: int, sizes: Iterable[tuple[str, int]]) -> Iterator[Extent]:
    for name, size in sizes:
        yield f"{what}: {name}", at, size
        at += size


# ── journals and logs ─────────────────────────────────────────────────────────────────────────────────────


def _journal(data: bytes) -> Iterator[Extent]:
    reader, survey = JournalReader(_Bytes(data), 0), DigestSurvey()
    yield from _named("header", anatomy.journal_header(data[: reader.records_start]))
    for item in reader.items(reader.records_start):
        if not isinstance(item, StoredRecord | StoredPadding):
            yield "room", item.offset, len(data) - item.offset
            return
        piece = data[item.offset : item.end]
        if isinstance(item, StoredPadding):
            # Zeros up to a seal are no field of it, though they stand in the same record.
            yield from _named("seal", anatomy.journal_padding(piece, item.offset))
        elif isinstance(item.record, EntryRecord):
            survey.observe(item.record.data)
            digest_type = survey.digest_type(item.record.ledger_id)
            yield from _named("entry", anatomy.journal_record(piece, item.offset, digest_type))
        else:
            yield from _named(_word_of(item.record), anatomy.journal_record(piece, item.offset, None))


def _word_of(record: journal_codec.Record | Damaged) -> str:
    words = {
        journal_codec.LedgerKey: "key",
        journal_codec.Fence: "fence",
        journal_codec.ExplicitLac: "explicit LAC",
    }
    return words.get(type(record), "record")


def _entry_log(data: bytes) -> Iterator[Extent]:
    survey, at = DigestSurvey(), log_codec.HEADER_SIZE
    yield from _named("header", anatomy.log_header(data[:at]))
    while True:
        frame = log_codec.frame(data[at : at + log_codec.PREFIX_SIZE], at, len(data) - at)
        if not isinstance(frame, log_codec.Frame):
            return
        piece, body = data[at : frame.end], data[frame.body : frame.end]
        if frame.kind is log_codec.FrameKind.ENTRY:
            survey.observe(body)
        digest_type = survey.digest_type(int.from_bytes(body[:8], "big"))
        yield from _named(frame.kind.value, anatomy.log_record(piece, at, digest_type))
        at = frame.end


# ── mark, rows, cookie ────────────────────────────────────────────────────────────────────────────────────


def _mark(data: bytes) -> Iterator[Extent]:
    return _named("mark", anatomy.mark_file(data))


def _cookie(data: bytes) -> Iterator[Extent]:
    return _named("cookie", anatomy.cookie_file(data))


def _rows(data: bytes) -> Iterator[Extent]:
    for head in scan_rows(_Bytes(data)).heads:
        end = rows_codec.group_end(head.start, head.body_size)
        yield from _named("group", anatomy.rows_group(data[head.start : end], head.start))


# ── the index ─────────────────────────────────────────────────────────────────────────────────────────────


def _index(data: bytes) -> Iterator[Extent]:
    first = lmdb_meta.decode(data)
    if isinstance(first, Damaged):
        return
    for at in range(0, len(data), first.page_size):
        number = at // first.page_size
        if number < _META_PAGES:
            yield from _laid_out(f"meta {number}", at, _META_FIELDS)
        else:
            yield from _laid_out("page", at, _PAGE_FIELDS)
            yield "page: nodes", at + _page_head_size(), first.page_size - _page_head_size()


def _page_head_size() -> int:
    return sum(size for _, size in _PAGE_FIELDS)


def _sums(data: bytes) -> Iterator[Extent]:
    at = 0
    while isinstance(head := page_sums.decode_head(data[at:], at, len(data) - at), page_sums.Head):
        yield from _laid_out("record", at, _SUMS_FIELDS)
        yield "record: body", at + page_sums.HEAD_SIZE, head.body_size
        at = head.end


_TAKEN_APART: dict[str, Callable[[bytes], Iterator[Extent]]] = {
    JOURNAL: _journal,
    ENTRY_LOG: _entry_log,
    MARK: _mark,
    ROWS: _rows,
    INDEX: _index,
    SUMS: _sums,
    COOKIE: _cookie,
}
