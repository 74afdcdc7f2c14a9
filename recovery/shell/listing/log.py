"""The rows of an entry log.

offset, size            of the record in the file, its length word included: offset + size is the next one
location                the value in the index: log id and the offset after the length word, packed
kind                    entry, map, filler; hole (damaged bytes with sound records after them),
                        damage (in the header, or up to the end), torn (an interrupted write)
ledger, entry, lac, length, digest_type, digest, payload
ok                      true, false, or null if not verified
flaw, detail            a stable name of what is wrong; an explanation

The rows of its metadata (`metadata_rows`):

kind                    header, then ledger for each ledger
ledger, bytes           length words included; in the row of the header the size of the file
source                  map (the ledgers map of a sealed log) or scan (counted entry by entry)
version, map_offset, ledgers, sealed, store_id, generation, previous_log, previous_end      only for header
flaw, detail            a stable name of what is wrong; an explanation
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.shell.listing.record import (
    DigestLookahead,
    FileListing,
    ListingVerdict,
    blank_cells,
    entry_cells,
    entry_columns,
    reason,
)
from recovery.shell.output import Column, counted, free_text, number_column
from storage.entry.digest_inference import EntryVerifier
from storage.entry.position import LogPosition
from storage.entry.read_result import Damaged, EndOfData, Flaw, Torn
from storage.entrylog import format as entrylog_format
from storage.entrylog import scan as entrylog_scan
from storage.entrylog.reader import EntryLogReader, LogEntry, LogMap
from storage.entrylog.scan import Hole, LogFiller

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from recovery.shell.options import PayloadFormat, RowFilter
    from recovery.shell.output import Row
    from recovery.shell.passwords import Keyring
    from storage.disk.files import ReadFile
    from storage.entry.read_result import Stop
    from storage.entrylog.scan import LogItem, LogMetadata


def log_columns(payload: PayloadFormat, file_size: int) -> list[Column]:
    digits = len(str(file_size))
    return [
        number_column("offset", digits),
        Column("location", rank=5),
        number_column("size", rank=1),
        Column("kind", width=6),
        *entry_columns(payload, 6),
    ]


class LogListing(FileListing):
    """Lists one entry log."""

    def __init__(
        self,
        file: ReadFile,
        log_id: int,
        row_filter: RowFilter,
        keyring: Keyring,
        reached: Callable[[int], None] = lambda _: None,
    ) -> None:
        super().__init__(row_filter, keyring, reached)
        self.reader = EntryLogReader(file, log_id, EntryVerifier(password_of=keyring.password_of))
        # The walk ahead needs a reader of its own, otherwise it would move the read window of the listing.
        self._walker = EntryLogReader(file, log_id, self.reader.verifier)
        self._ahead = DigestLookahead(self._bodies, self._learn)

    def _bodies(self, start: int) -> Iterator[tuple[int, memoryview]]:
        at = start
        while isinstance(
            frame := self._walker.frame_at(at), entrylog_format.LogFrame | entrylog_format.DirectPadding
        ):
            if (
                isinstance(frame, entrylog_format.LogFrame)
                and frame.kind is entrylog_format.LogFrameKind.ENTRY
            ):
                yield frame.offset, self._walker.body(frame)
            at = frame.end

    def _learn(self, _: int, body: memoryview) -> None:
        survey = self.reader.verifier.survey
        survey.observe(body)
        self._keyring.saw_entry(body, survey)

    def _all_rows(self) -> Iterator[Row]:
        header = self.reader.header
        if isinstance(header, entrylog_format.EmptyLog):
            self.stop = EndOfData(0)
            return
        if isinstance(header, Damaged) and self._filter.offsets.covers(0, entrylog_format.HEADER_SIZE):
            yield self._flawed("damage", 0, entrylog_format.HEADER_SIZE, header)
        self._ahead.restart(entrylog_format.HEADER_SIZE)
        self._ahead.reach(entrylog_format.HEADER_SIZE)
        start = self._start()
        self._ahead.restart(start)
        for item in entrylog_scan.items(self.reader, start):
            offset, end = self._extent(item)
            if self._filter.offsets.is_before(offset):
                return
            self._reached(offset)
            self._ahead.reach(offset)
            row = self._row_of(item)
            if row is not None and self._filter.offsets.covers(offset, end):
                yield row

    def _extent(self, item: LogItem) -> tuple[int, int]:
        match item:
            case LogEntry():
                return item.position.offset, item.end
            case LogMap() | LogFiller() | Hole():
                return item.offset, item.end
            case _:
                return item.offset, self.reader.size

    def _start(self) -> int:
        """Return where to begin: at the record that covers the first offset of the filter."""
        before = at = entrylog_format.HEADER_SIZE
        while isinstance(
            frame := self._walker.frame_at(at), entrylog_format.LogFrame | entrylog_format.DirectPadding
        ):
            if frame.end > self._filter.offsets.first:
                return at
            before, at = at, frame.end
        # Framing is lost before that offset. Begin one record earlier, because its size may be what is wrong.
        return before

    def _row_of(self, item: LogItem) -> Row | None:
        match item:
            case LogEntry():
                self.last_item = item.position.offset
                return self._entry(item)
            case LogMap():
                self.last_item = item.offset
                return self._map(item)
            case LogFiller():
                self.last_item = item.offset
                return self._row("filler", item.offset, item.end) if self._filter.includes_fillers else None
            case Hole(offset=start, end=end):
                self.counts.hole(end - start)
                self._ahead.restart(end)
                return self._flawed("hole", start, end, Damaged(start, item.flaw))
            case _:
                return self._end(item)

    def _end(self, stop: Stop) -> Row | None:
        self.stop = stop
        if isinstance(stop, EndOfData):
            return None
        kind = "torn" if isinstance(stop, Torn) else "damage"
        return self._flawed(kind, stop.offset, self.reader.size, stop)

    def _entry(self, item: LogEntry) -> Row | None:
        self.counts.records += 1
        ledger_id, entry_id = item.ids
        offset = item.position.offset
        covered = self._filter.offsets.covers(offset, item.end)
        if not covered or not self._filter.matches(ledger_id, entry_id):
            return None
        self.counts.shown += 1
        known = self.reader.verifier.digester(ledger_id)
        cells = entry_cells(item.data, known, item.check, self._filter.payload)
        row = self._row("entry", offset, item.end) | cells
        self.counts.count(row)
        return row

    def _map(self, item: LogMap) -> Row | None:
        row = self._row("map", item.offset, item.end)
        if isinstance(item.pairs, Damaged):
            self.counts.wrong(item.offset)
            return row | {"ok": False, "flaw": item.pairs.flaw.name, "detail": str(item.pairs)}
        if not self._filter.includes_fillers:
            return None
        size = sum(size for _, size in item.pairs)
        return row | {"detail": f"{counted(len(item.pairs), 'ledger')}, {counted(size, 'byte')} in all"}

    def _flawed(self, kind: str, start: int, end: int, stop: Torn | Damaged) -> Row:
        return self._row(kind, start, end) | {"flaw": stop.flaw.name, "detail": reason(stop)}

    def _row(self, kind: str, start: int, end: int) -> Row:
        position = LogPosition(self.reader.log_id, start)
        place: Row = {
            "offset": start,
            "location": f"{position.location.pack():#x}" if kind == "entry" else None,
            "size": end - start,
            "kind": kind,
        }
        return place | blank_cells(self._filter.payload)


def log_verdict(listing: LogListing) -> ListingVerdict:
    """Return the verdict of a listing that has ended. Damage is a finding, a torn tail is not."""
    counts, stop, header = listing.counts, listing.stop, listing.reader.header
    if isinstance(header, entrylog_format.EmptyLog):
        return _empty_words(listing.reader.size)
    wrong_header = isinstance(header, Damaged)
    words = f"{counts}, damaged header" if wrong_header else str(counts)
    finding = wrong_header or counts.holes > 0 or (counts.bad > 0 and not _is_tail(listing))
    match stop:
        case None:
            return ListingVerdict(
                wrong_header or counts.bad > 0 or counts.holes > 0, f"{words}, listed in part"
            )
        case EndOfData():
            return _at_the_end(listing, finding, words, stop)
        case Torn():
            return ListingVerdict(finding, f"{words}, torn tail at {stop.offset}: {reason(stop)}")
        case Damaged():
            return ListingVerdict(
                is_finding=True, words=f"{words}, damaged from {stop.offset} to the end: {reason(stop)}"
            )


def _at_the_end(listing: LogListing, finding: object, words: str, stop: EndOfData) -> ListingVerdict:
    ledgers_map = listing.reader.ledgers_map()
    if isinstance(ledgers_map, Damaged) and not isinstance(listing.reader.header, Damaged):
        return ListingVerdict(is_finding=True, words=f"{words}, ends at {stop.offset}, {reason(ledgers_map)}")
    if listing.counts.bad and not finding:
        words = f"{words}, torn tail at {listing.counts.last_bad}: {Flaw.DIGEST.value}"
        return ListingVerdict(is_finding=False, words=words)
    clean = "ends" if finding else "ends cleanly"
    sealed = "sealed" if isinstance(ledgers_map, dict) else "not sealed"
    return ListingVerdict(bool(finding), f"{words}, {clean} at {stop.offset}, {sealed}")


def _is_tail(listing: LogListing) -> bool:
    """Return whether only the last entry of an open log is wrong: its write may be unfinished."""
    sealed = (
        isinstance(listing.reader.header, entrylog_format.LogHeader) and listing.reader.header.map_offset > 0
    )
    return not sealed and listing.counts.first_bad == listing.last_item


def _empty_words(size: int) -> ListingVerdict:
    if size:
        return ListingVerdict(
            is_finding=False, words=f"shorter than a header ({size} bytes): it never held synced entries"
        )
    return ListingVerdict(is_finding=False, words="allocated in advance and never written")


METADATA_COLUMNS = [
    Column("kind"),
    number_column("ledger"),
    number_column("bytes", 12),
    Column("source"),
    Column("detail", text=free_text),
]


def load_metadata(reader: EntryLogReader) -> LogMetadata:
    """Return the bytes per ledger.

    Without a ledgers map, infer all digest types before the entries are checked.
    """
    if not isinstance(reader.ledgers_map(), dict):
        entrylog_scan.learn_digest_types(reader)
    return entrylog_scan.metadata(reader)


def metadata_rows(reader: EntryLogReader, metadata: LogMetadata) -> Iterator[Row]:
    """Yield the header, then the ledgers by id."""
    yield header_row(reader)
    for ledger_id, size in sorted(metadata.sizes.items()):
        yield {
            "kind": "ledger",
            "ledger": ledger_id,
            "bytes": size,
            "source": metadata.source.value,
            "flaw": None,
            "detail": None,
        }


def header_row(reader: EntryLogReader) -> Row:
    row: Row = {"kind": "header", "ledger": None, "bytes": reader.size, "source": None}
    match reader.header:
        case entrylog_format.LogHeader() as header:
            return row | header_cells(header) | {"flaw": None, "detail": header_words(header)}
        case Damaged() as damaged:
            return row | {"flaw": damaged.flaw.name, "detail": str(damaged)}
        case entrylog_format.EmptyLog():
            return row | {"flaw": None, "detail": "allocated in advance and never written"}


def header_cells(header: entrylog_format.LogHeader) -> Row:
    origin = header.origin
    previous = origin.previous if origin else None
    return {
        "version": header.version,
        "map_offset": header.map_offset,
        "ledgers": header.ledger_count,
        "sealed": header.map_offset > 0,
        "store_id": origin.store_id.hex() if origin else None,
        "generation": origin.generation if origin else None,
        "previous_log": f"{previous.log_id:x}" if previous else None,
        "previous_end": previous.offset if previous else None,
    }


def header_words(header: entrylog_format.LogHeader) -> str:
    sealed = f"sealed: map of {counted(header.ledger_count, 'ledger')} at {header.map_offset}"
    state = sealed if header.map_offset else "not sealed"
    return ", ".join([f"version {header.version}", state, *origin_words(header)])


def origin_words(header: entrylog_format.LogHeader) -> list[str]:
    """Say which store wrote the log, and which log it follows, if the header names them."""
    origin = header.origin
    if origin is None:
        return []
    previous = origin.previous
    follows = (
        f"follows log {previous.log_id:x}, which ended at {previous.offset}" if previous else "follows no log"
    )
    return [f"store {origin.store_id.hex()}, generation {origin.generation}", follows]
