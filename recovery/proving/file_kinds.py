"""The kinds of the store's files, and the fields in their bytes, for the rot layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from recovery.explain import annotate
from storage.disk import filenames
from storage.entry.digest_inference import DigestSurvey
from storage.entry.read_result import Damaged
from storage.entrylog import format as entrylog_format
from storage.index.lmdb import checksum_format, meta_format
from storage.journal import format as journal_format
from storage.journal.format import EntryRecord
from storage.journal.reader import JournalReader, StoredPadding, StoredRecord
from storage.ledgers import metadata_log_format as rows_codec
from storage.ledgers.metadata_log import scan as scan_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from recovery.explain.fields import Field

    Extent = tuple[str, int, int]

JOURNAL, ENTRY_LOG, MARK, ROWS, LINEAGE = "journal", "entry log", "mark", "rows", "lineage"
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
    filenames.LINEAGE: LINEAGE,
    "data.mdb": INDEX,
    "sums": SUMS,
    filenames.COOKIE: COOKIE,
    f"{filenames.RESERVE}*": "",
    filenames.LOCK: "",
    "lock.mdb": "",
}
"""Kinds by pattern of path or name; the first match counts.

Files without a kind are never read by an opening.
"""

IGNORED = (filenames.LOCK, "lock.mdb")
"""Files whose content never matters: they say who holds the lock, and which readers LMDB has."""

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
    """Return the fields of a file of that kind, even if its end is damaged: name, offset, size."""
    return _TAKEN_APART[kind](data) if data and kind in _TAKEN_APART else ()


@dataclass(frozen=True, slots=True)
class _Bytes:
    """Bytes with the interface of a file open for reading."""

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
        """Do nothing, because nothing is open."""

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
    yield from _named("header", annotate.journal_header(data[: reader.records_start]))
    for item in reader.items(reader.records_start):
        if not isinstance(item, StoredRecord | StoredPadding):
            yield "room", item.offset, len(data) - item.offset
            return
        piece = data[item.offset : item.end]
        if isinstance(item, StoredPadding):
            # The zeros before a seal are in the same record but are not a field of it.
            yield from _named("seal", annotate.journal_padding(piece, item.offset))
        elif isinstance(item.record, EntryRecord):
            survey.observe(item.record.data)
            digest_type = survey.digest_type(item.record.ledger_id)
            yield from _named("entry", annotate.journal_record(piece, item.offset, digest_type))
        else:
            yield from _named(_word_of(item.record), annotate.journal_record(piece, item.offset, None))


def _word_of(record: journal_format.Record | Damaged) -> str:
    words = {
        journal_format.LedgerKey: "key",
        journal_format.Fence: "fence",
        journal_format.ExplicitLac: "explicit LAC",
    }
    return words.get(type(record), "record")


def _entry_log(data: bytes) -> Iterator[Extent]:
    survey, at = DigestSurvey(), entrylog_format.HEADER_SIZE
    yield from _named("header", annotate.log_header(data[:at]))
    while True:
        frame = entrylog_format.frame(data[at : at + entrylog_format.PREFIX_SIZE], at, len(data) - at)
        if not isinstance(frame, entrylog_format.LogFrame):
            return
        piece, body = data[at : frame.end], data[frame.body : frame.end]
        if frame.kind is entrylog_format.LogFrameKind.ENTRY:
            survey.observe(body)
        digest_type = survey.digest_type(int.from_bytes(body[:8], "big"))
        yield from _named(frame.kind.value, annotate.log_record(piece, at, digest_type))
        at = frame.end


# ── mark, metadata, cookie ────────────────────────────────────────────────────────────────────────────────


def _mark(data: bytes) -> Iterator[Extent]:
    return _named("mark", annotate.mark_file(data))


def _lineage(data: bytes) -> Iterator[Extent]:
    return _named("lineage", annotate.lineage_file(data))


def _cookie(data: bytes) -> Iterator[Extent]:
    return _named("cookie", annotate.cookie_file(data))


def _rows(data: bytes) -> Iterator[Extent]:
    for head in scan_rows(_Bytes(data)).heads:
        end = rows_codec.group_end(head.start, head.body_size)
        yield from _named("group", annotate.rows_group(data[head.start : end], head.start))


# ── the index ─────────────────────────────────────────────────────────────────────────────────────────────


def _index(data: bytes) -> Iterator[Extent]:
    first = meta_format.decode(data)
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
    while isinstance(
        head := checksum_format.decode_head(data[at:], at, len(data) - at), checksum_format.RecordHead
    ):
        yield from _laid_out("record", at, _SUMS_FIELDS)
        yield "record: body", at + checksum_format.HEAD_SIZE, head.body_size
        at = head.end


_TAKEN_APART: dict[str, Callable[[bytes], Iterator[Extent]]] = {
    JOURNAL: _journal,
    ENTRY_LOG: _entry_log,
    MARK: _mark,
    ROWS: _rows,
    LINEAGE: _lineage,
    INDEX: _index,
    SUMS: _sums,
    COOKIE: _cookie,
}
