"""A walk over the records of a committed entry log, which ends exactly at the log's end or says why not.

The walk decides which logs may be removed, so it believes nothing: a record that is cut short, a length that
cannot be, a filler with content or bytes after the last record are damage and never the end of the log. It
checks the framing only; the digests are checked for records that are moved.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
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
    from collections.abc import Iterator, Sequence

    from storage.disk.files import ReadFile

BLOCK_SIZE = 256 << 10
"""Bytes that one step reads; only a larger record makes a larger block."""

_REGULAR_MIN = 16


@dataclass(slots=True, eq=False)
class RecordRun:
    """Records of one ledger with ascending ids, which follow each other in a log.

    Ids and positions are ranges where numpy has found that they are regular: these cost no work for each
    record.
    """

    ledger_id: int
    ids: Sequence[int]
    positions: Sequence[int]
    """The offset of each length word in the log."""
    sizes: Sequence[int]
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
    ) -> Iterator[tuple[int, Sequence[int]]]:
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
        self._buffer = memoryview(bytearray(BLOCK_SIZE))
        """The bytes of the present block, because new memory for each block costs as much as reading it."""

    def block_at(self, start: int) -> tuple[LogBlock, int, Damaged | None]:
        """Return the records from `start` on, where the next block begins, and what is wrong there."""
        data = self._read(start, self._buffer)
        runs, at, damage = self._split(data, start)
        if at == start and damage is None:
            # The first record is larger than a block, or the file is shorter than the log.
            length = PREFIX.unpack_from(data)[0] if len(data) >= PREFIX.size else 0
            size = min(LENGTH_WORD_SIZE + length, self._limit - start)
            data = self._read(start, memoryview(bytearray(size)))
            runs, at, damage = self._split(data, start)
            if at == start and damage is None:
                damage = Damaged(start, Flaw.BODY_CUT, f"the log ended at {self._limit}")
        return LogBlock(start, data, runs), at, damage

    def _read(self, start: int, buffer: memoryview) -> memoryview:
        buffer = buffer[: self._limit - start]
        data = buffer[: self._file.read_into(start, buffer)]
        yield_gil()
        return data

    def _split(self, data: memoryview, start: int) -> tuple[list[RecordRun], int, Damaged | None]:
        runs: list[RecordRun] = []
        ids: list[int] = []
        positions: list[int] = []
        sizes: list[int] = []
        at, last_ledger, last_id, length_max = 0, -1, -1, min(RECORD_SIZE_MAX, self._limit - start)
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
            is_next_alike = data[at : at + LENGTH_WORD_SIZE] == data[at + size : at + size + LENGTH_WORD_SIZE]
            if is_next_alike and (regular := _regular_runs(data, start, at, size)):
                runs += regular
                at, last_ledger = runs[-1].end - start, -1
                continue
            if ledger_id != last_ledger or entry_id <= last_id:
                ids, positions, sizes = [], [], []
                runs.append(RecordRun(ledger_id, ids, positions, sizes))
            ids.append(entry_id)
            positions.append(start + at)
            sizes.append(size)
            at += size
            last_ledger, last_id = ledger_id, entry_id
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


def _regular_runs(data: memoryview, start: int, at: int, size: int) -> list[RecordRun]:
    """Return the records of that size from `at` on, found with numpy; none if there is no room for many."""
    kernel, count_max = _numpy_kernel(), (len(data) - at) // size
    if kernel is None or count_max < _REGULAR_MIN:
        return []
    runs, position = [], start + at
    for ledger_id, ids in kernel.following(data, at, size, count_max):
        end = position + len(ids) * size
        runs.append(RecordRun(ledger_id, ids, range(position, end, size), [size] * len(ids)))
        position = end
    return runs
