"""A walk over the records of a committed entry log, which ends exactly at the log's end or says why not.

The walk decides which logs may be removed, so it believes nothing: a record that is cut short, a length that
cannot be, a filler with content or bytes after the last record are damage and never the end of the log. It
checks the framing only; the digests are checked for records that are moved.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import repeat
from typing import TYPE_CHECKING, Protocol

from storage.entry.digest_inference import EntryVerifier
from storage.entry.format import HEAD
from storage.entry.model import RECORD_SIZE_MAX
from storage.entry.position import LENGTH_WORD_SIZE
from storage.entry.read_result import Damaged, EndOfData, Flaw, Torn
from storage.entry.record_format import PREFIX
from storage.entrylog import format as entrylog_format
from storage.entrylog.format import DirectPadding, LogFrame, LogFrameKind, LogHeader
from storage.entrylog.reader import EntryLogReader
from storage.runtime.worker import yield_gil

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.disk.files import ReadFile

BLOCK_SIZE = 256 << 10
"""Bytes that one step reads; only a larger record makes a larger block."""

_REGULAR_MIN = 16


@dataclass(slots=True, eq=False)
class RecordRun:
    """Records of one ledger with ascending ids, which follow each other in a log."""

    ledger_id: int
    ids: array[int] = field(default_factory=lambda: array("q"))
    positions: array[int] = field(default_factory=lambda: array("q"))
    """The offset of each length word in the log."""
    sizes: array[int] = field(default_factory=lambda: array("q"))
    """The size of each record, its length word included."""

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self.positions[-1] + self.sizes[-1]


@dataclass(frozen=True, slots=True, eq=False)
class LogBlock:
    """Consecutive records of a log, and their bytes. Valid until the next block is read."""

    offset: int
    """The offset of the first byte in the log."""
    data: memoryview
    runs: list[RecordRun]


class _RegularRecords(Protocol):
    def following(
        self, data: memoryview, at: int, size: int, count_max: int
    ) -> Iterator[tuple[int, array[int]]]:
        """Yield the ledger and the ids of each run of records of this size from `at` on."""


@cache
def _numpy_kernel() -> _RegularRecords | None:
    if find_spec("numpy") is None:
        return None
    module: _RegularRecords = import_module("storage.gc.log_walk_numpy")
    return module


def walk(file: ReadFile, log_id: int, end: int) -> Iterator[LogBlock | Damaged]:
    """Yield all records of a log. The last item is `Damaged` if the walk does not end where the log ends.

    `end` is the durable end of the log. An end inside the header means that the log was only read, when a
    bookie's directory was imported: then it ends at its ledgers map, or where only zeros follow.
    """
    reader = EntryLogReader(file, log_id, EntryVerifier())
    limit = end if end > entrylog_format.HEADER_SIZE else end_of_imported(reader)
    if isinstance(reader.header, Damaged):
        yield reader.header
        return
    if isinstance(limit, Damaged):
        yield limit
        return
    walker, at = _Walker(file, reader, limit), min(entrylog_format.HEADER_SIZE, limit)
    while at < limit:
        block, at, damage = walker.block_at(at)
        if block.runs:
            yield block
        if damage is not None:
            yield damage
            return


def end_of_imported(reader: EntryLogReader) -> int | Damaged:
    """Return where the records of a log without a known end can end at the latest."""
    if not isinstance(reader.header, LogHeader) or not reader.header.map_offset:
        return reader.size
    sizes = reader.ledgers_map()
    return sizes if isinstance(sizes, Damaged) else reader.header.map_offset


class _Walker:
    """Splits one log into blocks."""

    def __init__(self, file: ReadFile, reader: EntryLogReader, limit: int) -> None:
        self._file = file
        self._reader = reader
        self._limit = limit
        """Where the walk has to end."""

    def block_at(self, start: int) -> tuple[LogBlock, int, Damaged | None]:
        """Return the records from `start` on, where the next block begins, and what is wrong there."""
        data = self._read(start, BLOCK_SIZE)
        runs, at, damage = self._split(data, start)
        if at == start and damage is None:
            # The first record is larger than a block, or the file is shorter than the log.
            length = PREFIX.unpack_from(data)[0] if len(data) >= PREFIX.size else 0
            data = self._read(start, LENGTH_WORD_SIZE + length)
            runs, at, damage = self._split(data, start)
            if at == start and damage is None:
                damage = Damaged(start, Flaw.BODY_CUT, f"the log ended at {self._limit}")
        return LogBlock(start, data, runs), at, damage

    def _read(self, start: int, size: int) -> memoryview:
        data = memoryview(self._file.read(start, min(size, self._limit - start)))
        yield_gil()
        return data

    def _split(self, data: memoryview, start: int) -> tuple[list[RecordRun], int, Damaged | None]:
        runs: list[RecordRun] = []
        run = RecordRun(-1)
        at, last_id, last_size, length_max = 0, -1, 0, min(RECORD_SIZE_MAX, self._limit - start)
        unpack = PREFIX.unpack_from
        while at < len(data):
            if len(data) - at >= PREFIX.size:
                length, ledger_id, entry_id = unpack(data, at)
            elif start + len(data) < self._limit:
                break  # the next block has all of it
            else:
                length, ledger_id, entry_id = 0, -1, -1
            if ledger_id < 0 or entry_id < 0 or not HEAD.size <= length <= length_max:
                following = self._pass_over(data, at, start)
                if isinstance(following, Damaged):
                    return runs, start + at, following
                at = following - start
                continue
            size = length + LENGTH_WORD_SIZE
            if at + size > len(data):
                if start + at + size > self._limit:
                    words = f"the log ends at {self._limit}"
                    return runs, start + at, Damaged(start + at, Flaw.BODY_CUT, words)
                break
            if ledger_id != run.ledger_id or entry_id <= last_id:
                run = RecordRun(ledger_id)
                runs.append(run)
            run.ids.append(entry_id)
            run.positions.append(start + at)
            run.sizes.append(size)
            at += size
            if size == last_size:
                at += size * _take_regular(data, start, at, size, runs)
                run = runs[-1]
            last_id, last_size = run.ids[-1], size
        return runs, start + at, None

    def _pass_over(self, data: memoryview, at: int, start: int) -> int | Damaged:
        """Return where the bytes end that begin there and are no entry. Damage if they cannot be there."""
        offset = start + at
        frame = entrylog_format.frame(data[at : at + PREFIX.size], offset, self._limit - offset)
        match frame:
            case LogFrame(kind=LogFrameKind.FILLER):
                # A filler whose size has grown would hide records.
                has_content = any(self._reader.body(frame)[entrylog_format.BODY_SIZE_MIN :])
                return Damaged(offset, Flaw.NOT_ZERO, "a filler with content") if has_content else frame.end
            case DirectPadding():
                padding = bytes(self._reader.window.view(offset, frame.end - offset))
                is_padding = padding.count(entrylog_format.DIRECT_FILL) == len(padding)
                return frame.end if is_padding else Damaged(offset, Flaw.NOT_A_RECORD)
            case EndOfData() if self._limit == self._reader.size:
                # In an imported log, of which nothing but its size says where it ends.
                is_end = self._reader.window.first_nonzero(offset) is None
                return self._limit if is_end else Damaged(offset, Flaw.NOT_ZERO)
            case Damaged():
                return frame
            case Torn():
                return Damaged(offset, frame.flaw)
        return Damaged(offset, Flaw.NOT_A_RECORD)


def _take_regular(data: memoryview, start: int, at: int, size: int, runs: list[RecordRun]) -> int:
    """Take the records of that size that follow, with numpy. Return how many."""
    count_max, kernel = (len(data) - at) // size, _numpy_kernel()
    if count_max < _REGULAR_MIN or kernel is None:
        return 0
    begin = at
    for ledger_id, ids in kernel.following(data, at, size, count_max):
        run = runs[-1]
        if ledger_id != run.ledger_id or ids[0] <= run.ids[-1]:
            run = RecordRun(ledger_id)
            runs.append(run)
        run.ids.extend(ids)
        run.positions.extend(range(start + at, start + at + len(ids) * size, size))
        run.sizes.extend(repeat(size, len(ids)))
        at += len(ids) * size
    return (at - begin) // size
