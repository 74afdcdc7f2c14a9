"""Walking through an entry log in chunks: plain entries by the thousand, whatever else step by step.

What is out of the ordinary (a ledgers map, fillers and padding, the end of the data, every kind of damage)
is left to `storage.entrylog_scan`, one step at a time, and so are entries that no digest proves. What comes
out is exactly what it would have found alone.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from crc32c import crc32c

from recovery.audit import chunk_proof, chunk_types
from recovery.audit.chunk_columns import Columns
from recovery.audit.chunk_proof import SLACK
from recovery.audit.chunk_types import Block, Types
from storage import entrylog_scan
from storage.codec.digest import DigestCheck
from storage.codec.entry import HEAD
from storage.codec.record import FRONT_SIZE
from storage.codec.survey import matching_checksum
from storage.entry import NO_ENTRY, DigestType
from storage.entrylog_reader import EntryLogReader, LogEntry, LogMap
from storage.entrylog_scan import Hole, LogFiller
from storage.outcome import Damaged, EndOfData, Torn
from storage.position import LENGTH_WORD_SIZE

if TYPE_CHECKING:
    from typing import Any

    from recovery.audit.task import Pace
    from recovery.audit.ways import Ways
    from storage.codec.digest import Digester
    from storage.codec.survey import EntryVerifier
    from storage.entrylog_scan import Found
    from storage.files import ReadFile
    from storage.outcome import Stop

CHUNK_SIZE = 4 << 20
"""What is read at once: large enough that calls cost nothing, small enough for the processor's caches."""

_CHUNK_MIN = 64 << 10
"""And what is read behind a place that was out of the ordinary: another one may follow soon."""


class Watcher(Protocol):
    """Who is told what a walk finds."""

    def entries(self, columns: Columns) -> None:
        """Entries in the order of the file; the columns are emptied afterwards."""

    def mismatch(self, entry: LogEntry) -> None:
        """An entry that does not carry the digest of its bytes. It is among the columns too."""

    def unverified(self, ledger_id: int, count: int) -> None:
        """So many more entries of that ledger that nothing verifies, though its type is known."""

    def unknown(self, entry: LogEntry) -> None:
        """An entry of a ledger whose type nothing tells yet."""

    def other(self, item: LogMap | LogFiller | Hole) -> None:
        """Whatever is no entry."""


@dataclass(slots=True)
class _Held:
    """The part of the file that is in the buffer."""

    file: ReadFile
    work: Any
    start: int = 0
    end: int = 0

    def load(self, offset: int, size: int) -> None:
        self.start = offset
        self.end = offset + self.file.read_into(offset, memoryview(self.work)[:size])
        if self.end < offset + size:
            raise OSError(errno.EIO, "the file became shorter while it was read", self.file.name)


class LogWalk:
    """One walk through a range of a log."""

    def __init__(
        self, file: ReadFile, log_id: int, ways: Ways, verifier: EntryVerifier, watcher: Watcher, pace: Pace
    ) -> None:
        self.reader = EntryLogReader(file, log_id, verifier)
        self.stop: Stop | None = None
        self.types = Types(ways, verifier)
        self.is_plain = True
        """Whether nothing was met of which a ledger's type would have decided."""
        self._watcher = watcher
        self._pace = pace
        self._columns = Columns()
        self._proven_from: int | None = None
        size = min(CHUNK_SIZE, self.reader.size)
        self._held = _Held(file, np.empty(size + SLACK, dtype=np.uint8))
        self._chunk = CHUNK_SIZE
        self._end = 0

    @property
    def depends_on_types(self) -> bool:
        """Whether another walk, with what is known of the types in the end, might find something else."""
        return self.types.asks and not (self.is_plain and self.types.were_right)

    def run(self, entry: int, end: int) -> int:
        """Walks over all records that begin in [entry, end); returns where the next one has to begin."""
        self._end = end if end < self.reader.size else max(end, self.reader.size, entry) + 1
        at = entry
        while self.stop is None and at < self._end:
            behind = self._step(at)
            self._pace.read(max(0, min(behind, self.reader.size) - at))
            at = behind
        self._flush()
        return at

    def _step(self, at: int) -> int:
        held = self._held
        if not held.start <= at < held.end:
            self._load(at)
        found = self._places(at)
        if found is not None:
            return self._take(at, found)
        if held.start != at and self._is_cut(at):
            self._load(at)
            return at
        return self._careful(at)

    def _load(self, at: int) -> None:
        # What begins before the range's end may go on behind it: usually not far.
        wanted = min(self._chunk, self.reader.size - at, self._end - at + _CHUNK_MIN)
        self._held.load(at, max(0, min(wanted, len(self._held.work) - SLACK)))
        self._chunk = min(2 * self._chunk, CHUNK_SIZE)

    def _is_cut(self, at: int) -> bool:
        """Whether a record may begin there that is not whole in the buffer, though in the file."""
        held = self._held
        if held.end == self.reader.size:
            return False
        begin, left = at - held.start, held.end - at
        return left < FRONT_SIZE or chunk_proof.record_size(held.work, begin) > left

    def _places(self, at: int) -> chunk_proof.Places | None:
        held, columns = self._held, self._columns
        if not columns.room:
            self._flush()
        begin, end, last = at - held.start, held.end - held.start, self._end - held.start
        return chunk_proof.places(held.work, begin, end, last, columns.room)

    # ── plain entries ────────────────────────────────────────────────────────────────────────────────

    def _take(self, at: int, found: chunk_proof.Places) -> int:
        held, columns, types = self._held, self._columns, self.types
        found.take(columns, held.start)
        count = chunk_proof.entries_before(columns, found.count)
        if not count:
            return self._careful(at)
        ledgers = columns.ledgers[columns.count : columns.count + count]
        if len(types.others) and np.isin(ledgers, types.others).any():
            return self._by_type(found, count)
        behind = held.start + found.end(count)
        if chunk_proof.all_match(held.work, found, columns, count):
            if self._proven_from is None:
                self._proven_from = columns.count
            columns.count += count
            return behind
        # What was summed is of no use any more.
        held.load(at, behind - at)
        self._chunk = _CHUNK_MIN
        again = self._places(at)
        return self._careful(at) if again is None else self._by_type(again, count)

    def _flush(self) -> None:
        if self._proven_from is not None and self.types.asks:
            self.types.have_proven(self._columns.ledgers[self._proven_from : self._columns.count])
        self._proven_from = None
        self._watcher.entries(self._columns)
        self._columns.clear()

    # ── entries under several digests, and damaged ones ──────────────────────────────────────────────

    def _by_type(self, found: chunk_proof.Places, count: int) -> int:
        self._learn()
        held, columns = self._held, self._columns
        count = min(count, found.count)
        found.take(columns, held.start)
        place = slice(columns.count, columns.count + count)
        ledgers = columns.ledgers[place]
        if self.types.asks and not chunk_types.knows_all(ledgers, self.types):
            count = min(count, chunk_types.UNKNOWN_MAX)
            place = slice(columns.count, columns.count + count)
        bounds = np.append(columns.offsets[place], held.start + found.end(count)) - held.start
        block = Block(held.work, bounds)
        judged, digests = chunk_types.judge(block, columns.ledgers[place], self.types)
        return self._accept(place, bounds + held.start, judged, digests)

    def _accept(self, place: slice, bounds: Any, judged: chunk_types.Judged, digests: Any) -> int:
        """Takes the entries that were proven, and goes carefully over those that were not."""
        columns = self._columns
        rows = {name: getattr(columns, name)[place].copy() for name in _COLUMNS}
        rows["digests"] = digests
        first = 0
        for index in judged.doubtful:
            self._append(rows, first, index)
            behind = self._careful(int(bounds[index]))
            if behind != bounds[index + 1] or self.stop is not None:
                self._tell_unverified(judged, index)
                return behind
            first = index + 1
        self._append(rows, first, len(bounds) - 1)
        self._tell_unverified(judged, len(bounds) - 1)
        return int(bounds[-1])

    def _append(self, rows: dict[str, Any], first: int, end: int) -> None:
        columns = self._columns
        if columns.room < end - first:
            self._flush()
        for name, values in rows.items():
            getattr(columns, name)[columns.count : columns.count + end - first] = values[first:end]
        columns.count += end - first

    def _tell_unverified(self, judged: chunk_types.Judged, end: int) -> None:
        for ledger_id, entries in judged.unverified.items():
            count = int(np.searchsorted(entries, end))
            if count:
                self._watcher.unverified(ledger_id, count)

    # ── one step of the careful walk ─────────────────────────────────────────────────────────────────

    def _learn(self) -> None:
        """The careful walk has to know what was proven without it."""
        if self._proven_from is not None and self.types.asks:
            self._flush()

    def _careful(self, at: int) -> int:
        self._learn()
        for item in entrylog_scan.items(self.reader, at):
            begin = item.position.offset if isinstance(item, LogEntry) else item.offset
            if begin >= self._end:
                break
            if isinstance(item, EndOfData | Torn | Damaged):
                self.stop = item
                return begin
            self._take_item(item)
            at = item.end
            # Behind a damaged length word alone may come the entry whose length it was.
            if not isinstance(item, Hole) or item.end - item.offset != LENGTH_WORD_SIZE:
                break
        return at

    def _take_item(self, item: Found) -> None:
        if not isinstance(item, LogEntry):
            self.is_plain &= not isinstance(item, Hole)
            self._watcher.other(item)
            return
        ledger_id = item.ids[0]
        known = self.reader.verifier.digester(ledger_id)
        self._append_entry(item, known)
        self.types.has_looked_at(ledger_id)
        if item.check is DigestCheck.MISMATCH:
            self.is_plain = False
            self._columns.is_bad()
            self._watcher.mismatch(item)
        elif item.check is DigestCheck.UNVERIFIED and known is not None:
            self._watcher.unverified(ledger_id, 1)
        elif item.check is DigestCheck.UNVERIFIED:
            self.is_plain = False
            self._watcher.unknown(item)

    def _append_entry(self, item: LogEntry, known: Digester | None) -> None:
        if not self._columns.room:
            self._flush()
        offset, data = item.position.offset, item.data
        head = HEAD.unpack_from(data) if len(data) >= HEAD.size else (*item.ids, NO_ENTRY, 0)
        kind = known.digest_type if known is not None else matching_checksum(data)
        self._columns.append(offset, item.end - offset, head, digest_word(data, kind))


_COLUMNS = ("offsets", "sizes", "ledgers", "entries", "confirmed", "lengths")
_WIDE = 8


def digest_word(data: bytes, kind: DigestType | None) -> int:
    """What an entry carries, as `recovery.verify.runs` counts it."""
    width = 0 if kind is None else kind.width
    if not width or len(data) < HEAD.size + width:
        return crc32c(data)
    return int.from_bytes(data[HEAD.size : HEAD.size + min(width, _WIDE)], "big")
