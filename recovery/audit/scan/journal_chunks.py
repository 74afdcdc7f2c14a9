"""Split chunks of a journal: plain entries as columns, all other records one by one."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from recovery.audit.digests.mixed_types import EntryBlock
from recovery.audit.scan.chunk_columns import ChunkColumns
from storage.entry.format import HEAD
from storage.entry.model import RECORD_SIZE_MAX
from storage.entry.position import LENGTH_WORD_SIZE
from storage.journal import format as journal_format

if TYPE_CHECKING:
    from recovery.audit.model.runs import Fingerprints, Numbers

    Items = np.ndarray[Any, Any]

CHUNK_SIZE = 1 << 20

_LENGTH = struct.Struct(">i")
_IDS = np.dtype([("size", ">i4"), ("ledger", ">i8"), ("entry", ">i8")])
_FRONT = np.dtype(
    [("size", ">i4"), ("ledger", ">i8"), ("entry", ">i8"), ("confirmed", ">i8"), ("length", ">i8")]
)
_NO_FRONTS = np.empty(0, dtype=_FRONT)
_ALIKE_MIN, _ALIKE_MAX = 16, 256
"""After this number of records of one length in a row, up to the second number of records are checked at
once.
"""

_PLAIN_MIN = LENGTH_WORD_SIZE + HEAD.size


class FramedRecords(NamedTuple):
    """Where the records of a chunk begin. Everything before `end` is one of them, or padding."""

    begins: list[int]
    paddings: list[tuple[int, int]]
    """Where each padding begins and ends."""
    end: int


def frame(chunk: bytes, header: journal_format.JournalHeader) -> FramedRecords:
    """Return the records from the first byte of the chunk on that have correct framing and are
    whole in it.
    """
    begins: list[int] = []
    paddings: list[tuple[int, int]] = []
    unpack, begin, size, at = _LENGTH.unpack_from, begins.append, len(chunk), 0
    last, before, alike = size - journal_format.PREFIX_SIZE, 0, 0
    while at <= last:
        (length,) = unpack(chunk, at)
        end = at + LENGTH_WORD_SIZE + length
        if journal_format.BODY_SIZE_MIN <= length <= RECORD_SIZE_MAX and end <= size:
            begin(at)
            alike = alike + 1 if length == before else 0
            before = length
            if alike == _ALIKE_MIN:
                more = _more_alike(chunk, end, length)
                begins += more
                end += len(more) * (end - at)
                alike = 0
        elif length == journal_format.PADDING and header.pads:
            (length,) = unpack(chunk, at + LENGTH_WORD_SIZE)
            end = at + journal_format.PREFIX_SIZE + length
            if length < 0 or end > size:
                break
            paddings.append((at, end))
        else:
            break
        at = end
    return FramedRecords(begins, paddings, at)


def _more_alike(chunk: bytes, at: int, length: int) -> range:
    """Return where consecutive records of that length begin, from `at` on."""
    stride = LENGTH_WORD_SIZE + length
    most = min((len(chunk) - at) // stride, _ALIKE_MAX)
    words = np.ndarray(most, ">i4", cast("Any", chunk), at, (stride,))
    same = words == length
    count = len(words) if same.all() else int(same.argmin())
    return range(at, at + count * stride, stride)


class ChunkEntries:
    """Plain entries of a chunk. `offsets` are those of their length words in the journal."""

    def __init__(self, data: bytes, begins: Numbers, ends: Numbers, offset: int) -> None:
        self.offsets: Numbers = begins + offset
        self.fronts: Items = _items(data, _FRONT)[begins].view(_FRONT) if len(begins) else _NO_FRONTS
        self.sizes: Numbers = ends - begins
        self._data = data
        self._begins = begins
        self._ends = ends

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def ledgers(self) -> Numbers:
        found: Numbers = self.fronts["ledger"].astype(np.int64)
        return found

    @cached_property
    def block(self) -> EntryBlock:
        """All entries side by side."""
        begins, ends, data = self._begins, self._ends, self._data
        if not len(begins):
            return EntryBlock(_bytes(b""), np.zeros(1, dtype=np.int64))
        if (begins[1:] == ends[:-1]).all():
            return EntryBlock(_bytes(data), np.append(begins, ends[-1]))
        places = zip(begins.tolist(), ends.tolist(), strict=True)
        joined = b"".join([data[begin:end] for begin, end in places])
        return EntryBlock(_bytes(joined), np.append(0, self.sizes.cumsum()))

    def words(self) -> Fingerprints:
        """Return the four bytes after each head. All entries must have them."""
        items = _items(self._data, np.dtype("V4"))[self._begins + _PLAIN_MIN]
        words: Fingerprints = items.view(">u4").astype(np.uint64)
        return words

    def columns(self, digests: Fingerprints, chosen: Numbers) -> ChunkColumns:
        """Return some of the entries as columns."""
        fronts = self.fronts[chosen]
        columns = ChunkColumns(len(fronts))
        columns.count = len(fronts)
        columns.offsets[:], columns.sizes[:] = self.offsets[chosen], self.sizes[chosen]
        columns.ledgers[:], columns.entries[:] = fronts["ledger"], fronts["entry"]
        columns.confirmed[:], columns.lengths[:] = fronts["confirmed"], fronts["length"]
        columns.digests[:] = digests[chosen]
        return columns


@dataclass(frozen=True, slots=True, eq=False)
class JournalChunk:
    """A part of a journal with correct framing."""

    data: bytes
    offset: int
    framed: FramedRecords
    entries: ChunkEntries
    numbers: Numbers
    """For each plain entry its index among the records of `framed`."""
    others: list[int]
    """The indices of all other records."""

    @property
    def end(self) -> int:
        return self.offset + self.framed.end

    def place(self, number: int) -> tuple[int, int]:
        """Return where a record begins and ends in the journal."""
        begin = self.offset + self.framed.begins[number]
        return begin, begin + LENGTH_WORD_SIZE + len(self.body(number))

    def body(self, number: int) -> bytes:
        begin = self.framed.begins[number]
        (length,) = _LENGTH.unpack_from(self.data, begin)
        return self.data[begin + LENGTH_WORD_SIZE : begin + LENGTH_WORD_SIZE + length]


def split_chunk(data: bytes, offset: int, header: journal_format.JournalHeader) -> JournalChunk:
    """Split the records at the beginning of the data, which is at `offset` in the journal."""
    framed = frame(data, header)
    begins = np.array(framed.begins, dtype=np.int64)
    ids = _items(data, _IDS)[begins].view(_IDS) if len(begins) else np.empty(0, dtype=_IDS)
    ends = begins + ids["size"] + LENGTH_WORD_SIZE
    plain = (ids["ledger"] >= 0) & (ids["entry"] >= 0) & (ends - begins >= _PLAIN_MIN)
    entries = ChunkEntries(data, begins[plain], ends[plain], offset)
    return JournalChunk(data, offset, framed, entries, np.flatnonzero(plain), np.flatnonzero(~plain).tolist())


def _bytes(data: bytes) -> Any:
    return np.frombuffer(data, dtype=np.uint8)


def _items(data: bytes, kind: np.dtype[Any]) -> Items:
    """Return the data as overlapping items, one beginning at every byte."""
    size = kind.itemsize
    return np.ndarray(max(0, len(data) - size + 1), f"V{size}", cast("Any", data), 0, (1,))
