"""Chunks of a journal, taken apart: its plain entries as columns, and whatever else one by one."""

from __future__ import annotations

import struct
from dataclasses import dataclass
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
_PLAIN_MIN = LENGTH_WORD_SIZE + HEAD.size


class Framed(NamedTuple):
    """Where the records of a chunk lie; everything before `end` is one of them, or padding."""

    begins: list[int]
    ends: list[int]
    end: int


def frame(chunk: bytes, header: codec.Header) -> Framed:
    """The records from the chunk's first byte on, as far as they are framed and whole in it."""
    begins: list[int] = []
    ends: list[int] = []
    unpack, size, at = _LENGTH.unpack_from, len(chunk), 0
    begin, finish = begins.append, ends.append
    last = size - codec.PREFIX_SIZE
    while at <= last:
        (length,) = unpack(chunk, at)
        end = at + LENGTH_WORD_SIZE + length
        if codec.BODY_SIZE_MIN <= length <= RECORD_SIZE_MAX and end <= size:
            begin(at)
            finish(end)
        elif length == codec.PADDING and header.pads:
            (length,) = unpack(chunk, at + LENGTH_WORD_SIZE)
            end = at + codec.PREFIX_SIZE + length
            if length < 0 or end > size:
                break
        else:
            break
        at = end
    return Framed(begins, ends, at)


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Plain entries of a chunk, side by side: `offsets` are those of their length words in the journal."""

    block: Block
    offsets: Numbers
    fronts: Items

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def ledgers(self) -> Numbers:
        found: Numbers = self.fronts["ledger"].astype(np.int64)
        return found

    def columns(self, digests: Fingerprints, chosen: Numbers) -> Columns:
        """Some of them as columns."""
        fronts, sizes = self.fronts[chosen], np.diff(self.block.bounds)[chosen]
        columns = Columns(len(fronts))
        columns.count = len(fronts)
        columns.offsets[:] = self.offsets[chosen]
        columns.sizes[:] = sizes
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
        return self.offset + self.framed.begins[number], self.offset + self.framed.ends[number]

    def body(self, number: int) -> bytes:
        return self.data[self.framed.begins[number] + LENGTH_WORD_SIZE : self.framed.ends[number]]


def take_apart(data: bytes, offset: int, header: codec.Header) -> Chunk:
    """What the chunk begins with; it lies at `offset` in the journal."""
    framed = frame(data, header)
    begins = np.array(framed.begins, dtype=np.int64)
    ends = np.array(framed.ends, dtype=np.int64)
    ids = _items(data, _IDS)[begins].view(_IDS) if len(begins) else np.empty(0, dtype=_IDS)
    plain = (ids["ledger"] >= 0) & (ids["entry"] >= 0) & (ends - begins >= _PLAIN_MIN)
    entries = _entries(data, begins[plain], ends[plain], offset)
    return Chunk(data, offset, framed, entries, np.flatnonzero(plain), np.flatnonzero(~plain).tolist())


def _entries(data: bytes, begins: Numbers, ends: Numbers, offset: int) -> Entries:
    if not len(begins):
        return Entries(Block(_bytes(b""), np.zeros(1, dtype=np.int64)), begins, np.empty(0, dtype=_FRONT))
    fronts = _items(data, _FRONT)[begins].view(_FRONT)
    bounds = np.append(begins, ends[-1])
    if (begins[1:] != ends[:-1]).any():
        places = zip(begins.tolist(), ends.tolist(), strict=True)
        data = b"".join([data[begin:end] for begin, end in places])
        bounds = np.append(0, (ends - begins).cumsum())
    return Entries(Block(_bytes(data), bounds), begins + offset, fronts)


def _bytes(data: bytes) -> Any:
    return np.frombuffer(data, dtype=np.uint8)


def _items(data: bytes, kind: np.dtype[Any]) -> Items:
    """The chunk as overlapping items, one beginning at every byte."""
    size = kind.itemsize
    return np.ndarray(max(0, len(data) - size + 1), f"V{size}", cast("Any", data), 0, (1,))
