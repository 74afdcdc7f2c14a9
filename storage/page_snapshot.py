"""What is known of the pages of LMDB's file after one transaction."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING

from crc32c import crc32c

from storage.codec import page_sums as codec
from storage.codec.page_sums import Record
from storage.outcome import Damaged, Flaw

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from storage.files import ReadFile

_READ_SIZE = 256 << 10


class Snapshot:
    """The pages that a transaction leads to, with their checksums; 5 bytes for each page of the file."""

    def __init__(self, record: Record) -> None:
        """As the first record of a file says it: with every page."""
        self.number = record.number
        self.page_size = record.page_size
        self.meta = record.meta
        self.last_gone = frozenset(record.gone)
        """What the transaction before led to, and this one does not: even the next writes over none of it."""
        self.count = 0
        self.sums = codec.numbers()
        self.is_live = bytearray()
        self._add(record)

    def advance(self, record: Record) -> bool:
        """Takes over what the next transaction has done; `False` if that cannot be, and nothing was taken."""
        is_next = record.number == self.number + 1 and record.page_size == self.page_size
        if not is_next or len(self.leading_to(record.gone)) < len(record.gone):
            return False
        if self.leading_to(record.pages):
            return False
        for page in record.gone:
            self.is_live[page] = 0
        self.count -= len(record.gone)
        self._add(record)
        self.number, self.meta, self.last_gone = record.number, record.meta, frozenset(record.gone)
        return True

    def _add(self, record: Record) -> None:
        short = max(record.pages, default=-1) + 1 - len(self.sums)
        if short > 0:
            self.sums.frombytes(bytes(self.sums.itemsize * short))
            self.is_live += bytes(short)
        for pages, sums in _stretches(record):
            self.sums[pages] = sums
            self.is_live[pages] = bytes([1]) * len(sums)
        self.count += len(record.pages)

    def leading_to(self, pages: Iterable[int]) -> set[int]:
        """Those of the pages that it leads to."""
        is_live, end = self.is_live, len(self.is_live)
        return {page for page in pages if page < end and is_live[page]}

    def record(self) -> Record:
        """All of it, for a file of its own."""
        pages = array("I", (page for page, is_live in enumerate(self.is_live) if is_live))
        sums = array("I", map(self.sums.__getitem__, pages))
        return Record(self.number, self.page_size, self.meta, pages, sums, array("I", sorted(self.last_gone)))

    def damage(self, data: ReadFile) -> Damaged | None:
        """The first page that is not what it was."""
        step = max(1, _READ_SIZE // self.page_size)
        for first in range(0, len(self.is_live), step):
            if 1 in self.is_live[first : first + step]:
                damage = self._damage_in(data, first, step)
                if damage:
                    return damage
        return None

    def _damage_in(self, data: ReadFile, first: int, count: int) -> Damaged | None:
        size, pages = self.page_size, range(first, min(first + count, len(self.is_live)))
        view = memoryview(data.read(first * size, len(pages) * size))
        # A million entries are thousands of pages: as little as can be for each.
        found = array("I", map(crc32c, [view[at : at + size] for at in range(0, len(pages) * size, size)]))
        if found == self.sums[first : pages.stop]:
            return None
        for page, checksum in zip(pages, found, strict=True):
            if self.is_live[page] and checksum != self.sums[page]:
                return Damaged(page * size, Flaw.CHECKSUM, f"page {page}")
        return None


def _stretches(record: Record) -> Iterator[tuple[slice, array[int]]]:
    """The record's pages and sums in stretches of pages side by side: most are, as LMDB takes new ones."""
    pages, start, count = record.pages, 0, len(record.pages)
    while start < count:
        # As far as it is one without a gap, found in a few steps: pages ascend.
        first = pages[start]
        end = bisect_right(range(count), 0, start, key=lambda at: pages[at] - first - (at - start))
        yield slice(first, first + end - start), record.sums[start:end]
        start = end
