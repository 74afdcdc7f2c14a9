"""The rows of an index as columns, thousands at a time: its pages are read as they lie in the file.

LMDB gives the values of a key out in one piece, however large, or one by one, which is forty times slower.
Which pages belong to which ledger is told by `storage.lmdb_leaves`.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from storage.codec import index as codec
from storage.codec.lmdb_page import HEAD_SIZE
from storage.entry import ID_MAX
from storage.lmdb_leaves import DATA, LeafReader
from storage.outcome import Damaged
from storage.posix_files import open_file

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

    from storage.files import ReadFile
    from storage.lmdb_leaves import Leaves

    Numbers = np.ndarray[Any, np.dtype[np.int64]]
    Pages = np.ndarray[Any, Any]

_PAGES_AT_ONCE = 128
_FEW_AT_ONCE = 1 << 16
_LEAF_OF_VALUES = 0x22
_HEAD = np.dtype([("number", "<u8"), ("width", "<u2"), ("flags", "<u2"), ("lower", "<u2"), ("upper", "<u2")])
_NO_BOUND = b"\xff" * (codec.KEY_SIZE + 1)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Some rows in stretches of one ledger each: those of a page, or of a ledger that has few.

    In a stretch they stand as they do in the index.
    """

    of: Numbers
    """The ledger of each stretch, and how many rows it has."""
    counts: Numbers
    entries: Numbers
    locations: Numbers

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def starts(self) -> Numbers:
        """Where the stretches begin."""
        starts: Numbers = self.counts.cumsum() - self.counts
        return starts

    @property
    def ledgers(self) -> Numbers:
        """The ledger of each row."""
        return np.repeat(self.of, self.counts)

    def those(self, chosen: Any) -> Rows:
        """Some of them, or all in another order: each a stretch by itself."""
        ledgers = self.ledgers[chosen]
        return Rows(ledgers, np.ones_like(ledgers), self.entries[chosen], self.locations[chosen])


@dataclass(frozen=True, slots=True)
class Misfit:
    """A key that can have no places, or whose values are none."""

    ledger_id: int
    why: str


class RowReader:
    """An index that lies still: a copy, or that of a store which nobody has open."""

    def __init__(self, path: str, told: Callable[[int], None], ledgers: Container[int] | None = None) -> None:
        """Of these ledgers alone, if they are named; `told` hears of bytes that were read."""
        self.misfits: list[Misfit] = []
        """Known when the rows have ended."""
        self._path = f"{path}/{DATA}"
        self._told = told
        self._wanted = ledgers
        self._few = _Few([], [], [])
        self._pages: list[int] = []
        self._ledgers: list[int] = []

    def rows(self, first_ledger: int, last_ledger: int) -> Iterator[Rows]:
        """Every row of these ledgers. Their pages come in any order."""
        with open_file(self._path) as data:
            reader = LeafReader(data)
            for leaves in reader.leaves(*bounds(first_ledger, last_ledger)):
                self._take(leaves)
                if self._few.size >= _FEW_AT_ONCE:
                    yield self._few.rows()
                    self._few = _Few([], [], [])
            yield self._few.rows()
            yield from self._of_pages(data, reader.page_size)

    def _take(self, leaves: Leaves) -> None:
        ledger_id = codec.decode_key(leaves.key)
        if isinstance(ledger_id, Damaged):
            self.misfits.append(Misfit(_as_it_stands(leaves.key), str(ledger_id)))
        elif self._wanted is not None and ledger_id not in self._wanted:
            return
        elif leaves.width != codec.VALUE_SIZE:
            self.misfits.append(Misfit(ledger_id, f"values of {leaves.width} bytes"))
        elif leaves.pages:
            self._pages += leaves.pages
            self._ledgers += [ledger_id] * len(leaves.pages)
        else:
            self._few.add(ledger_id, leaves.packed)

    def _of_pages(self, data: ReadFile, page_size: int) -> Iterator[Rows]:
        numbers, ledgers = np.array(self._pages, dtype=np.int64), np.array(self._ledgers, dtype=np.int64)
        order = np.argsort(numbers, kind="stable")
        numbers, ledgers = numbers[order], ledgers[order]
        # One for all: a new one each time would cost more in page faults than the reading.
        room = bytearray(min(len(numbers), _PAGES_AT_ONCE) * page_size)
        for at in range(0, len(numbers), _PAGES_AT_ONCE):
            some = slice(at, at + _PAGES_AT_ONCE)
            pages = self._read(data, room, numbers[some], page_size)
            yield _rows(pages, numbers[some], ledgers[some], data.name)

    def _read(self, data: ReadFile, room: bytearray, numbers: Numbers, page_size: int) -> Pages:
        """The pages one behind the other; those that are neighbours in the file in one piece."""
        bounds = [0, *(np.flatnonzero(np.diff(numbers) != 1) + 1).tolist(), len(numbers)]
        with memoryview(room) as view:
            for begin, end in pairwise(bounds):
                piece = view[begin * page_size : end * page_size]
                if data.read_into(int(numbers[begin]) * page_size, piece) < len(piece):
                    raise OSError(errno.EIO, f"the index ends before page {numbers[end - 1]}", data.name)
        self._told(len(numbers) * page_size)
        every: Pages = np.frombuffer(room, dtype=np.uint8, count=len(numbers) * page_size)
        return every.reshape(-1, page_size)


@dataclass(slots=True)
class _Few:
    """Ledgers with few rows, which stand in other pages."""

    ledgers: list[int]
    counts: list[int]
    packed: list[bytes]
    size: int = 0

    def add(self, ledger_id: int, packed: bytes) -> None:
        count = len(packed) // codec.VALUE_SIZE
        self.ledgers.append(ledger_id)
        self.counts.append(count)
        self.packed.append(packed)
        self.size += count

    def rows(self) -> Rows:
        values = np.frombuffer(b"".join(self.packed), dtype=">i8").reshape(-1, 2)
        entries, locations = values.T.astype(np.int64)
        of, counts = np.array(self.ledgers, dtype=np.int64), np.array(self.counts, dtype=np.int64)
        return Rows(of, counts, entries, locations)


def bounds(first_ledger: int, last_ledger: int) -> tuple[bytes, bytes]:
    """The keys from the one ledger to the other; behind the largest id whatever there may be."""
    return codec.encode_key(first_ledger), _NO_BOUND if last_ledger == ID_MAX else codec.encode_key(
        last_ledger
    )


def _as_it_stands(key: bytes) -> int:
    return int.from_bytes(key[: codec.KEY_SIZE], signed=True)


def _rows(pages: Pages, numbers: Numbers, ledgers: Numbers, name: str) -> Rows:
    """What the pages hold, one behind the other."""
    heads = pages[:, :HEAD_SIZE].copy().view(_HEAD)[:, 0]
    counts = (heads["lower"].astype(np.int64) - HEAD_SIZE) // 2
    most = int(counts.max())
    if (
        (heads["number"] != numbers).any()
        or (heads["flags"] != _LEAF_OF_VALUES).any()
        or (heads["width"] != codec.VALUE_SIZE).any()
        or not 0 <= counts.min() <= most <= (pages.shape[1] - HEAD_SIZE) // codec.VALUE_SIZE
    ):
        raise OSError(errno.EIO, f"the index: pages {numbers[0]} to {numbers[-1]} are no values", name)
    values = pages[:, HEAD_SIZE : HEAD_SIZE + most * codec.VALUE_SIZE].view(">i8")
    entries, locations = values[:, ::2].astype(np.int64), values[:, 1::2].astype(np.int64)
    if counts.min() == most:
        return Rows(ledgers, counts, entries.ravel(), locations.ravel())
    held = np.arange(most) < counts[:, np.newaxis]
    return Rows(ledgers, counts, entries[held], locations[held])
