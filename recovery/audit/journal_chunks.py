"""Chunks of a journal, taken apart: its plain entries as columns, and whatever else one by one."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from recovery.audit.chunk_columns import Columns
from recovery.audit.chunk_types import Block
from storage.codec import journal as codec
from storage.codec.entry import HEAD
from storage.entry import RECORD_SIZE_MAX
from storage.position import LENGTH_WORD_SIZE

if TYPE_CHECKING:
    from recovery.verify.runs import Fingerprints, Numbers

    Items = np.ndarray[Any, Any]

CHUNK_SIZE = 1 << 20

_LENGTH = struct.Struct(">i")
_IDS = np.dtype([("size", ">i4"), ("ledger", ">i8"), ("entry", ">i8")])
_FRONT = np.dtype(
    [("size", ">i4"), ("ledger", ">i8"), ("entry", ">i8"), ("confirmed", ">i8"), ("length", ">i8")]
)
_NO_FRONTS = np.empty(0, dtype=_FRONT)
_ALIKE_MIN, _ALIKE_MAX = 16, 256
"""After so many records of one length in a row the next ones are looked at all at once: so many at most."""

_PLAIN_MIN = LENGTH_WORD_SIZE + HEAD.size


class Framed(NamedTuple):
    """Where the records of a chunk begin; everything before `end` is one of them, or padding."""

    begins: list[int]
    paddings: list[tuple[int, int]]
    """Where each begins and ends."""
    end: int


def frame(chunk: bytes, header: codec.Header) -> Framed:
    """The records from the chunk's first byte on, as far as they are framed and whole in it."""
    begins: list[int] = []
    paddings: list[tuple[int, int]] = []
    unpack, begin, size, at = _LENGTH.unpack_from, begins.append, len(chunk), 0
    last, before, alike = size - codec.PREFIX_SIZE, 0, 0
    while at <= last:
        (length,) = unpack(chunk, at)
        end = at + LENGTH_WORD_SIZE + length
        if codec.BODY_SIZE_MIN <= length <= RECORD_SIZE_MAX and end <= size:
            begin(at)
            alike = alike + 1 if length == before else 0
            before = length
            if alike == _ALIKE_MIN:
                more = _more_alike(chunk, end, length)
                begins += more
                end += len(more) * (end - at)
                alike = 0
        elif length == codec.PADDING and header.pads:
            (length,) = unpack(chunk, at + LENGTH_WORD_SIZE)
            end = at + codec.PREFIX_SIZE + length
            if length < 0 or end > size:
                break
            paddings.append((at, end))
        else:
            break
        at = end
    return Framed(begins, paddings, at)


def _more_alike(chunk: bytes, at: int, length: int) -> range:
    """Where records of that length begin from here on, one behind the other."""
    stride = LENGTH_WORD_SIZE + length
    most = min((len(chunk) - at) // stride, _ALIKE_MAX)
    words = np.ndarray(most, ">i4", cast("Any", chunk), at, (stride,))
    same = words == length
    count = len(words) if same.all() else int(same.argmin())
    return range(at, at + count * stride, stride)


class Entries:
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
    def block(self) -> Block:
        """All of them side by side."""
        begins, ends, data = self._begins, self._ends, self._data
        if not len(begins):
            return Block(_bytes(b""), np.zeros(1, dtype=np.int64))
        if (begins[1:] == ends[:-1]).all():
            return Block(_bytes(data), np.append(begins, ends[-1]))
        places = zip(begins.tolist(), ends.tolist(), strict=True)
        joined = b"".join([data[begin:end] for begin, end in places])
        return Block(_bytes(joined), np.append(0, self.sizes.cumsum()))

    def words(self) -> Fingerprints:
        """The four bytes behind each head, where all have them."""
        items = _items(self._data, np.dtype("V4"))[self._begins + _PLAIN_MIN]
        words: Fingerprints = items.view(">u4").astype(np.uint64)
        return words

    def columns(self, digests: Fingerprints, chosen: Numbers) -> Columns:
        """Some of them as columns."""
        fronts = self.fronts[chosen]
        columns = Columns(len(fronts))
        columns.count = len(fronts)
        columns.offsets[:], columns.sizes[:] = self.offsets[chosen], self.sizes[chosen]
        columns.ledgers[:], columns.entries[:] = fronts["ledger"], fronts["entry"]
        columns.confirmed[:], columns.lengths[:] = fronts["confirmed"], fronts["length"]
        columns.digests[:] = digests[chosen]
        return columns


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """A part of a journal that is framed."""

    data: bytes
    offset: int
    framed: Framed
    entries: Entries
    numbers: Numbers
    """Of the plain entries: which records of `framed` they are."""
    others: list[int]
    """Of all other records."""

    @property
    def end(self) -> int:
        return self.offset + self.framed.end

    def place(self, number: int) -> tuple[int, int]:
        """Where a record begins and ends in the journal."""
        begin = self.offset + self.framed.begins[number]
        return begin, begin + LENGTH_WORD_SIZE + len(self.body(number))

    def body(self, number: int) -> bytes:
        begin = self.framed.begins[number]
        (length,) = _LENGTH.unpack_from(self.data, begin)
        return self.data[begin + LENGTH_WORD_SIZE : begin + LENGTH_WORD_SIZE + length]


def take_apart(data: bytes, offset: int, header: codec.Header) -> Chunk:
    """What the chunk begins with; it lies at `offset` in the journal."""
    framed = frame(data, header)
    begins = np.array(framed.begins, dtype=np.int64)
    ids = _items(data, _IDS)[begins].view(_IDS) if len(begins) else np.empty(0, dtype=_IDS)
    ends = begins + ids["size"] + LENGTH_WORD_SIZE
    plain = (ids["ledger"] >= 0) & (ids["entry"] >= 0) & (ends - begins >= _PLAIN_MIN)
    entries = Entries(data, begins[plain], ends[plain], offset)
    return Chunk(data, offset, framed, entries, np.flatnonzero(plain), np.flatnonzero(~plain).tolist())


def _bytes(data: bytes) -> Any:
    return np.frombuffer(data, dtype=np.uint8)


def _items(data: bytes, kind: np.dtype[Any]) -> Items:
    """The chunk as overlapping items, one beginning at every byte."""
    size = kind.itemsize
    return np.ndarray(max(0, len(data) - size + 1), f"V{size}", cast("Any", data), 0, (1,))
