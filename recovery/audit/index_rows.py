"""The rows of an index as columns, thousands at a time: its pages are read as they lie in the file.

LMDB gives the values of a key out in one piece, however large, or one by one, which is forty times slower.
Which pages belong to which ledger is told by `storage.lmdb_leaves`.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
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
_SPARSE = 8
"""Is no more than one of so many pages wanted, each is read by itself."""

_FEW_AT_ONCE = 1 << 16
_LEAF_OF_VALUES = 0x22
_HEAD = np.dtype([("number", "<u8"), ("width", "<u2"), ("flags", "<u2"), ("lower", "<u2"), ("upper", "<u2")])
_NO_BOUND = b"\xff" * (codec.KEY_SIZE + 1)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Some rows. Those of one page, and of ledgers with few rows, stand here as they do in the index."""

    ledgers: Numbers
    entries: Numbers
    locations: Numbers

    def __len__(self) -> int:
        return len(self.ledgers)

    def those(self, chosen: Any) -> Rows:
        """Some of them, or all in another order."""
        return Rows(self.ledgers[chosen], self.entries[chosen], self.locations[chosen])


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
        bounds = np.flatnonzero(np.diff(numbers // _PAGES_AT_ONCE)) + 1
        for some, of in zip(np.split(numbers, bounds), np.split(ledgers, bounds), strict=True):
            if len(some):
                yield _rows(self._read(data, page_size, some), some, of, data.name)

    def _read(self, data: ReadFile, page_size: int, numbers: Numbers) -> Pages:
        first, last = int(numbers[0]), int(numbers[-1])
        if last - first >= _SPARSE * len(numbers):
            pages = b"".join(data.read(number * page_size, page_size) for number in numbers.tolist())
            first, at = 0, np.arange(len(numbers))
        else:
            pages, at = data.read(first * page_size, (last + 1 - first) * page_size), numbers - first
        self._told(len(pages))
        if len(pages) < (int(at[-1]) + 1) * page_size:
            raise OSError(errno.EIO, f"the index ends before page {last}", data.name)
        every: Pages = np.frombuffer(pages, dtype=np.uint8).reshape(-1, page_size)
        return every if len(every) == len(at) else every[at]


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
        values = np.frombuffer(b"".join(self.packed), dtype=">i8").astype(np.int64)
        ledgers = np.repeat(np.array(self.ledgers, dtype=np.int64), self.counts)
        return Rows(ledgers, values[::2], values[1::2])


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
        return Rows(np.repeat(ledgers, most), entries.ravel(), locations.ravel())
    held = np.arange(most) < counts[:, np.newaxis]
    return Rows(np.repeat(ledgers, counts), entries[held], locations[held])
