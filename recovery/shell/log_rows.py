"""The rows of an entry log.

offset, size            of the record in the file, its length word included: offset + size is the next one
location                where the index points: log id and the offset behind the length word, packed
kind                    entry, map, filler; hole (bytes that make no sense, and something sound behind
                        them), damage (in the header, or up to the end), torn (a write cut short)
ledger, entry, lac, length, digest_type, digest, payload
ok                      true, false, or null: not verified
flaw, detail            a stable name of what is wrong; words
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.shell import entry_cells
from recovery.shell.columns import Column, numbers
from recovery.shell.lookahead import Lookahead
from recovery.shell.tally import Tally, counted, reason
from storage import entrylog_scan
from storage.codec import entrylog as codec
from storage.codec.survey import EntryVerifier
from storage.entrylog_reader import EntryLogReader, LogEntry, LogMap
from storage.entrylog_scan import Hole, LogFiller
from storage.outcome import Damaged, EndOfData, Torn
from storage.position import LogPosition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from recovery.shell.columns import Row
    from recovery.shell.passwords import Keyring
    from recovery.shell.wanted import Payload, Wanted
    from storage.entrylog_scan import LogItem
    from storage.files import ReadFile
    from storage.outcome import Stop


def columns(payload: Payload, file_size: int) -> list[Column]:
    digits = len(str(file_size))
    return [
        numbers("offset", digits),
        Column("location", rank=5),
        numbers("size", rank=1),
        Column("kind", width=6),
        *entry_cells.columns(payload, 6),
    ]


class LogListing:
    """One entry log, row by row; when the rows have ended, `tally`, `stop` and `last_item` say how."""

    def __init__(
        self,
        file: ReadFile,
        log_id: int,
        wanted: Wanted,
        keyring: Keyring,
        reached: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.reader = EntryLogReader(file, log_id, EntryVerifier(password_of=keyring.password_of))
        self.tally = Tally()
        self.stop: Stop | None = None
        """`None` when the listing ended before the file did."""
        self.last_item = 0
        """Where the last thing with sound framing begins."""
        self._wanted = wanted
        self._keyring = keyring
        self._reached = reached
        # A second window: the one that looks ahead must not move the one that lists.
        self._walker = EntryLogReader(file, log_id, self.reader.verifier)
        self._ahead = Lookahead(self._bodies, self._learn)

    def _bodies(self, start: int) -> Iterator[tuple[int, memoryview]]:
        at = start
        while isinstance(frame := self._walker.frame_at(at), codec.Frame | codec.DirectPadding):
            if isinstance(frame, codec.Frame) and frame.kind is codec.FrameKind.ENTRY:
                yield frame.offset, self._walker.body(frame)
            at = frame.end

    def _learn(self, _: int, body: memoryview) -> None:
        survey = self.reader.verifier.survey
        survey.observe(body)
        self._keyring.saw_entry(body, survey)

    def rows(self) -> Iterator[Row]:
        """What was asked for, and all damage, in the order of the file."""
        limit = self._wanted.limit
        if limit == 0:
            return
        for number, row in enumerate(self._all_rows(), 1):
            yield row
            if number == limit:
                self.stop = None
                return

    def _all_rows(self) -> Iterator[Row]:
        header = self.reader.header
        if isinstance(header, codec.EmptyLog):
            self.stop = EndOfData(0)
            return
        if isinstance(header, Damaged) and self._wanted.offsets.covers(0, codec.HEADER_SIZE):
            yield self._flawed("damage", 0, codec.HEADER_SIZE, header)
        self._ahead.restart(codec.HEADER_SIZE)
        self._ahead.reach(codec.HEADER_SIZE)
        start = self._start()
        self._ahead.restart(start)
        for item in entrylog_scan.items(self.reader, start):
            offset, end = self._extent(item)
            if self._wanted.offsets.is_before(offset):
                return
            self._reached(offset)
            self._ahead.reach(offset)
            row = self._row_of(item)
            if row is not None and self._wanted.offsets.covers(offset, end):
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
        """The record that covers the first wanted offset, or where framing is lost before it."""
        before = at = codec.HEADER_SIZE
        while isinstance(frame := self._walker.frame_at(at), codec.Frame | codec.DirectPadding):
            if frame.end > self._wanted.offsets.first:
                return at
            before, at = at, frame.end
        # Lost: the size of the record before may be what is wrong.
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
                return self._row("filler", item.offset, item.end) if self._wanted.fillers else None
            case Hole(offset=start, end=end):
                self.tally.hole(end - start)
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
        self.tally.records += 1
        ledger_id, entry_id = item.ids
        offset = item.position.offset
        covered = self._wanted.offsets.covers(offset, item.end)
        if not covered or not self._wanted.takes(ledger_id, entry_id):
            return None
        self.tally.shown += 1
        known = self.reader.verifier.digester(ledger_id)
        cells = entry_cells.describe(item.data, known, item.check, self._wanted.payload)
        row = self._row("entry", offset, item.end) | cells
        self.tally.count(row)
        return row

    def _map(self, item: LogMap) -> Row | None:
        row = self._row("map", item.offset, item.end)
        if isinstance(item.pairs, Damaged):
            self.tally.wrong(item.offset)
            return row | {"ok": False, "flaw": item.pairs.flaw.name, "detail": str(item.pairs)}
        if not self._wanted.fillers:
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
        return place | entry_cells.blank(self._wanted.payload)
