"""Walk through an entry log in chunks: plain entries by the thousand, everything else on a slow path.

The slow path uses `storage.entrylog.scan`, one record at a time. It reads everything that is not a plain
entry (a ledgers map, fillers and padding, the end of the data, all kinds of damage) and entries that no
digest proves. The result is exactly what the slow path alone would return.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from crc32c import crc32c

from recovery.audit.digests import mixed_types
from recovery.audit.digests.mixed_types import EntryBlock, InferredTypes
from recovery.audit.scan import chunk_verify
from recovery.audit.scan.chunk_columns import ChunkColumns
from recovery.audit.scan.chunk_verify import SLACK
from storage.entry.digest import DigestCheck
from storage.entry.digest_inference import matching_checksum
from storage.entry.format import HEAD
from storage.entry.model import NO_ENTRY, DigestType
from storage.entry.position import LENGTH_WORD_SIZE
from storage.entry.read_result import Damaged, EndOfData, Torn
from storage.entry.record_format import FRONT_SIZE
from storage.entrylog import scan as entrylog_scan
from storage.entrylog.reader import EntryLogReader, LogEntry, LogMap
from storage.entrylog.scan import Hole, LogFiller

if TYPE_CHECKING:
    from typing import Any

    from recovery.audit.digests.policy import DigestPolicy
    from recovery.audit.engines.task import ReadThrottle
    from storage.disk.files import ReadFile
    from storage.entry.digest import Digester
    from storage.entry.digest_inference import EntryVerifier
    from storage.entry.read_result import Stop
    from storage.entrylog.scan import Found

CHUNK_SIZE = 4 << 20
"""The read size: large enough that the calls cost nothing, small enough for the processor's caches."""

_CHUNK_MIN = 64 << 10
"""The read size after the slow path was used, because it may soon be needed again."""


class WalkListener(Protocol):
    """Receives what a walk finds."""

    def entries(self, columns: ChunkColumns) -> None:
        """Take entries in the order of the file. The columns are emptied afterwards."""

    def mismatch(self, entry: LogEntry) -> None:
        """Take an entry that does not carry the digest of its bytes. It is also in the columns."""

    def unverified(self, ledger_id: int, count: int) -> None:
        """Count further entries of a ledger that cannot be verified although its type is known."""

    def unknown(self, entry: LogEntry) -> None:
        """Take an entry of a ledger whose type is not known yet."""

    def other(self, item: LogMap | LogFiller | Hole) -> None:
        """Take an item that is not an entry."""


@dataclass(slots=True)
class _ChunkBuffer:
    """The part of the file that is in memory."""

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
        self,
        file: ReadFile,
        log_id: int,
        policy: DigestPolicy,
        verifier: EntryVerifier,
        listener: WalkListener,
        throttle: ReadThrottle,
    ) -> None:
        self.reader = EntryLogReader(file, log_id, verifier)
        self.stop: Stop | None = None
        self.types = InferredTypes(policy, verifier)
        self.is_plain = True
        """Whether nothing was found whose meaning depends on the type of a ledger."""
        self._listener = listener
        self._throttle = throttle
        self._columns = ChunkColumns()
        self._proven_from: int | None = None
        size = min(CHUNK_SIZE, self.reader.size)
        self._buffer = _ChunkBuffer(file, np.empty(size + SLACK, dtype=np.uint8))
        self._chunk = CHUNK_SIZE
        self._end = 0

    @property
    def depends_on_types(self) -> bool:
        """Whether another walk, which starts with the types known at the end, might find something else."""
        return self.types.needs_inference and not (self.is_plain and self.types.are_consistent)

    def run(self, entry: int, end: int) -> int:
        """Walk over all records that begin in [entry, end). Return where the next one has to begin."""
        self._end = end if end < self.reader.size else max(end, self.reader.size, entry) + 1
        at = entry
        while self.stop is None and at < self._end:
            after = self._step(at)
            self._throttle.read(max(0, min(after, self.reader.size) - at))
            at = after
        self._flush()
        return at

    def _step(self, at: int) -> int:
        buffer = self._buffer
        if not buffer.start <= at < buffer.end:
            self._load(at)
        found = self._places(at)
        if found is not None:
            return self._take(at, found)
        if buffer.start != at and self._is_cut(at):
            self._load(at)
            return at
        return self._slow_path(at)

    def _load(self, at: int) -> None:
        # A record that begins before the end of the range may extend beyond it, usually not far.
        wanted = min(self._chunk, self.reader.size - at, self._end - at + _CHUNK_MIN)
        self._buffer.load(at, max(0, min(wanted, len(self._buffer.work) - SLACK)))
        self._chunk = min(2 * self._chunk, CHUNK_SIZE)

    def _is_cut(self, at: int) -> bool:
        """Return whether a record that begins here is whole in the file but not in the buffer."""
        buffer = self._buffer
        if buffer.end == self.reader.size:
            return False
        begin, left = at - buffer.start, buffer.end - at
        return left < FRONT_SIZE or chunk_verify.record_size(buffer.work, begin) > left

    def _places(self, at: int) -> chunk_verify.ChunkRecords | None:
        buffer, columns = self._buffer, self._columns
        if not columns.room:
            self._flush()
        begin, end, last = at - buffer.start, buffer.end - buffer.start, self._end - buffer.start
        return chunk_verify.find_records(buffer.work, begin, end, last, columns.room)

    # ── plain entries ────────────────────────────────────────────────────────────────────────────────

    def _take(self, at: int, found: chunk_verify.ChunkRecords) -> int:
        buffer, columns, types = self._buffer, self._columns, self.types
        found.take(columns, buffer.start)
        count = chunk_verify.entries_before(columns, found.count)
        if not count:
            return self._slow_path(at)
        ledgers = columns.ledgers[columns.count : columns.count + count]
        if len(types.others) and np.isin(ledgers, types.others).any():
            return self._by_type(found, count)
        after = buffer.start + found.end(count)
        if chunk_verify.all_match(buffer.work, found, columns, count):
            if self._proven_from is None:
                self._proven_from = columns.count
            columns.count += count
            return after
        # The checksum has overwritten the records, so that they have to be read again.
        buffer.load(at, after - at)
        self._chunk = _CHUNK_MIN
        again = self._places(at)
        return self._slow_path(at) if again is None else self._by_type(again, count)

    def _flush(self) -> None:
        if self._proven_from is not None and self.types.needs_inference:
            self.types.saw_proof_of(self._columns.ledgers[self._proven_from : self._columns.count])
        self._proven_from = None
        self._listener.entries(self._columns)
        self._columns.clear()

    # ── entries with several digest types, and damaged ones ──────────────────────────────────────────────

    def _by_type(self, found: chunk_verify.ChunkRecords, count: int) -> int:
        self._learn()
        buffer, columns = self._buffer, self._columns
        count = min(count, found.count)
        found.take(columns, buffer.start)
        place = slice(columns.count, columns.count + count)
        ledgers = columns.ledgers[place]
        if self.types.needs_inference and not mixed_types.knows_types_of(ledgers, self.types):
            count = min(count, mixed_types.UNKNOWN_MAX)
            place = slice(columns.count, columns.count + count)
        bounds = np.append(columns.offsets[place], buffer.start + found.end(count)) - buffer.start
        block = EntryBlock(buffer.work, bounds)
        judged, digests = mixed_types.verify_block(block, columns.ledgers[place], self.types)
        return self._accept(place, bounds + buffer.start, judged, digests)

    def _accept(self, place: slice, bounds: Any, judged: mixed_types.BlockVerdict, digests: Any) -> int:
        """Take the entries that were proven, and use the slow path for the others."""
        columns = self._columns
        rows = {name: getattr(columns, name)[place].copy() for name in _COLUMNS}
        rows["digests"] = digests
        first = 0
        for index in judged.doubtful:
            self._append(rows, first, index)
            after = self._slow_path(int(bounds[index]))
            if after != bounds[index + 1] or self.stop is not None:
                self._report_unverified(judged, index)
                return after
            first = index + 1
        self._append(rows, first, len(bounds) - 1)
        self._report_unverified(judged, len(bounds) - 1)
        return int(bounds[-1])

    def _append(self, rows: dict[str, Any], first: int, end: int) -> None:
        columns = self._columns
        if columns.room < end - first:
            self._flush()
        for name, values in rows.items():
            getattr(columns, name)[columns.count : columns.count + end - first] = values[first:end]
        columns.count += end - first

    def _report_unverified(self, judged: mixed_types.BlockVerdict, end: int) -> None:
        for ledger_id, entries in judged.unverified.items():
            count = int(np.searchsorted(entries, end))
            if count:
                self._listener.unverified(ledger_id, count)

    # ── one step of the slow path ────────────────────────────────────────────────────────────────────────

    def _learn(self) -> None:
        """Tell the slow path what was proven without it."""
        if self._proven_from is not None and self.types.needs_inference:
            self._flush()

    def _slow_path(self, at: int) -> int:
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
            # Only a length word may be damaged: then the entry that it belongs to follows.
            if not isinstance(item, Hole) or item.end - item.offset != LENGTH_WORD_SIZE:
                break
        return at

    def _take_item(self, item: Found) -> None:
        if not isinstance(item, LogEntry):
            self.is_plain &= not isinstance(item, Hole)
            self._listener.other(item)
            return
        ledger_id = item.ids[0]
        known = self.reader.verifier.digester(ledger_id)
        self._append_entry(item, known)
        self.types.saw_entry(ledger_id)
        if item.check is DigestCheck.MISMATCH:
            self.is_plain = False
            self._columns.mark_last_bad()
            self._listener.mismatch(item)
        elif item.check is DigestCheck.UNVERIFIED and known is not None:
            self._listener.unverified(ledger_id, 1)
        elif item.check is DigestCheck.UNVERIFIED:
            self.is_plain = False
            self._listener.unknown(item)

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
    """Return the digest that an entry carries, as `recovery.audit.model.runs` counts it."""
    width = 0 if kind is None else kind.width
    if not width or len(data) < HEAD.size + width:
        return crc32c(data)
    return int.from_bytes(data[HEAD.size : HEAD.size + min(width, _WIDE)], "big")
