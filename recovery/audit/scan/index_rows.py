"""Read the rows of an index as columns, thousands at a time, directly from the pages of its file.

LMDB returns the values of a key either all at once, however many there are, or one by one, which is forty
times slower. `storage.index.lmdb.leaves` lists the pages of each ledger.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from storage.disk.posix import open_file
from storage.entry.model import ID_MAX
from storage.entry.read_result import Damaged
from storage.index import format as index_format
from storage.index.lmdb.leaves import DATA, LeafReader
from storage.index.lmdb.page_format import HEAD_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

    from storage.disk.files import ReadFile
    from storage.index.lmdb.leaves import KeyLeaves

    Numbers = np.ndarray[Any, np.dtype[np.int64]]
    Pages = np.ndarray[Any, Any]

_PAGES_AT_ONCE = 128
_FEW_AT_ONCE = 1 << 16
_LEAF_OF_VALUES = 0x22
_HEAD = np.dtype([("number", "<u8"), ("width", "<u2"), ("flags", "<u2"), ("lower", "<u2"), ("upper", "<u2")])
_NO_BOUND = b"\xff" * (index_format.KEY_SIZE + 1)


@dataclass(frozen=True, slots=True, eq=False)
class IndexRows:
    """Rows in stretches of one ledger each: the rows of a page, or of a ledger that has few.

    Within a stretch they have the order of the index.
    """

    of: Numbers
    """The ledger of each stretch. `counts` is its number of rows."""
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

    def select(self, chosen: Any) -> IndexRows:
        """Return some of the rows, or all in another order. Each becomes a stretch of its own."""
        ledgers = self.ledgers[chosen]
        return IndexRows(ledgers, np.ones_like(ledgers), self.entries[chosen], self.locations[chosen])


@dataclass(frozen=True, slots=True)
class InvalidKey:
    """A key that is not a ledger id, or whose values are not places."""

    ledger_id: int
    why: str


class RowReader:
    """Reads an index that does not change: a copy, or that of a store which no process has open."""

    def __init__(
        self, path: str, report_read: Callable[[int], None], ledgers: Container[int] | None = None
    ) -> None:
        """`ledgers` restricts the rows to these ledgers. `report_read` is called with the number of bytes
        read.
        """
        self.invalid_keys: list[InvalidKey] = []
        """Complete when all rows were read."""
        self._path = f"{path}/{DATA}"
        self._report_read = report_read
        self._wanted = ledgers
        self._small = _SmallLedgers([], [], [])
        self._pages: list[int] = []
        self._ledgers: list[int] = []

    def rows(self, first_ledger: int, last_ledger: int) -> Iterator[IndexRows]:
        """Yield every row of these ledgers. Pages come in any order."""
        with open_file(self._path) as data:
            reader = LeafReader(data)
            for leaves in reader.leaves(*bounds(first_ledger, last_ledger)):
                self._take(leaves)
                if self._small.size >= _FEW_AT_ONCE:
                    yield self._small.rows()
                    self._small = _SmallLedgers([], [], [])
            yield self._small.rows()
            yield from self._rows_of_pages(data, reader.page_size)

    def _take(self, leaves: KeyLeaves) -> None:
        ledger_id = index_format.decode_key(leaves.key)
        if isinstance(ledger_id, Damaged):
            self.invalid_keys.append(InvalidKey(_as_it_stands(leaves.key), str(ledger_id)))
        elif self._wanted is not None and ledger_id not in self._wanted:
            return
        elif leaves.width != index_format.VALUE_SIZE:
            self.invalid_keys.append(InvalidKey(ledger_id, f"values of {leaves.width} bytes"))
        elif leaves.pages:
            self._pages += leaves.pages
            self._ledgers += [ledger_id] * len(leaves.pages)
        else:
            self._small.add(ledger_id, leaves.packed)

    def _rows_of_pages(self, data: ReadFile, page_size: int) -> Iterator[IndexRows]:
        numbers, ledgers = np.array(self._pages, dtype=np.int64), np.array(self._ledgers, dtype=np.int64)
        order = np.argsort(numbers, kind="stable")
        numbers, ledgers = numbers[order], ledgers[order]
        # One buffer for all reads, because a new one each time costs more in page faults than the reading.
        room = bytearray(min(len(numbers), _PAGES_AT_ONCE) * page_size)
        for at in range(0, len(numbers), _PAGES_AT_ONCE):
            some = slice(at, at + _PAGES_AT_ONCE)
            pages = self._read(data, room, numbers[some], page_size)
            yield _rows(pages, numbers[some], ledgers[some], data.name)

    def _read(self, data: ReadFile, room: bytearray, numbers: Numbers, page_size: int) -> Pages:
        """Read the pages into one buffer; those that are neighbours in the file with one call."""
        bounds = [0, *(np.flatnonzero(np.diff(numbers) != 1) + 1).tolist(), len(numbers)]
        with memoryview(room) as view:
            for begin, end in pairwise(bounds):
                piece = view[begin * page_size : end * page_size]
                if data.read_into(int(numbers[begin]) * page_size, piece) < len(piece):
                    raise OSError(errno.EIO, f"the index ends before page {numbers[end - 1]}", data.name)
        self._report_read(len(numbers) * page_size)
        every: Pages = np.frombuffer(room, dtype=np.uint8, count=len(numbers) * page_size)
        return every.reshape(-1, page_size)


@dataclass(slots=True)
class _SmallLedgers:
    """Ledgers with few rows, which LMDB stores in other pages."""

    ledgers: list[int]
    counts: list[int]
    packed: list[bytes]
    size: int = 0

    def add(self, ledger_id: int, packed: bytes) -> None:
        count = len(packed) // index_format.VALUE_SIZE
        self.ledgers.append(ledger_id)
        self.counts.append(count)
        self.packed.append(packed)
        self.size += count

    def rows(self) -> IndexRows:
        values = np.frombuffer(b"".join(self.packed), dtype=">i8").reshape(-1, 2)
        entries, locations = values.T.astype(np.int64)
        of, counts = np.array(self.ledgers, dtype=np.int64), np.array(self.counts, dtype=np.int64)
        return IndexRows(of, counts, entries, locations)


def bounds(first_ledger: int, last_ledger: int) -> tuple[bytes, bytes]:
    """Return the keys of the first and last ledger. The largest id includes any key after it."""
    return index_format.encode_key(
        first_ledger
    ), _NO_BOUND if last_ledger == ID_MAX else index_format.encode_key(last_ledger)


def _as_it_stands(key: bytes) -> int:
    return int.from_bytes(key[: index_format.KEY_SIZE], signed=True)


def _rows(pages: Pages, numbers: Numbers, ledgers: Numbers, name: str) -> IndexRows:
    """Return the rows of the pages, one page after the other."""
    heads = pages[:, :HEAD_SIZE].copy().view(_HEAD)[:, 0]
    counts = (heads["lower"].astype(np.int64) - HEAD_SIZE) // 2
    most = int(counts.max())
    if (
        (heads["number"] != numbers).any()
        or (heads["flags"] != _LEAF_OF_VALUES).any()
        or (heads["width"] != index_format.VALUE_SIZE).any()
        or not 0 <= counts.min() <= most <= (pages.shape[1] - HEAD_SIZE) // index_format.VALUE_SIZE
    ):
        raise OSError(errno.EIO, f"the index: pages {numbers[0]} to {numbers[-1]} hold no values", name)
    values = pages[:, HEAD_SIZE : HEAD_SIZE + most * index_format.VALUE_SIZE].view(">i8")
    entries, locations = values[:, ::2].astype(np.int64), values[:, 1::2].astype(np.int64)
    if counts.min() == most:
        return IndexRows(ledgers, counts, entries.ravel(), locations.ravel())
    present = np.arange(most) < counts[:, np.newaxis]
    return IndexRows(ledgers, counts, entries[present], locations[present])
