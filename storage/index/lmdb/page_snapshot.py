"""The checksums of all pages of LMDB's file after one transaction."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING

from crc32c import crc32c

from storage.entry.read_result import Damaged, Flaw
from storage.index.lmdb import checksum_format
from storage.index.lmdb.checksum_format import ChecksumRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from storage.disk.files import ReadFile

_READ_SIZE = 256 << 10


class PageSnapshot:
    """The pages that are reachable from a transaction, with their checksums.

    Takes 5 bytes of memory for each page of the file.
    """

    def __init__(self, record: ChecksumRecord) -> None:
        """Begin with the first record of a file, which has every page."""
        self.number = record.number
        self.page_size = record.page_size
        self.meta = record.meta
        self.last_gone = frozenset(record.gone)
        """The pages that this transaction has released. Even the next transaction overwrites none of them."""
        self.count = 0
        self.sums = checksum_format.numbers()
        self.is_live = bytearray()
        self._add(record)

    def advance(self, record: ChecksumRecord) -> bool:
        """Apply the changes of the next transaction. Return `False`, and change nothing, if they
        contradict."""
        is_next = record.number == self.number + 1 and record.page_size == self.page_size
        if not is_next or len(self.live_among(record.gone)) < len(record.gone):
            return False
        if self.live_among(record.pages):
            return False
        for page in record.gone:
            self.is_live[page] = 0
        self.count -= len(record.gone)
        self._add(record)
        self.number, self.meta, self.last_gone = record.number, record.meta, frozenset(record.gone)
        return True

    def _add(self, record: ChecksumRecord) -> None:
        short = max(record.pages, default=-1) + 1 - len(self.sums)
        if short > 0:
            self.sums.frombytes(bytes(self.sums.itemsize * short))
            self.is_live += bytes(short)
        for pages, sums in _consecutive_pages(record):
            self.sums[pages] = sums
            self.is_live[pages] = bytes([1]) * len(sums)
        self.count += len(record.pages)

    def live_among(self, pages: Iterable[int]) -> set[int]:
        """Return those of the given pages that are reachable."""
        is_live, end = self.is_live, len(self.is_live)
        return {page for page in pages if page < end and is_live[page]}

    def record(self) -> ChecksumRecord:
        """Return all pages as one record, for a new file."""
        pages = array("I", (page for page, is_live in enumerate(self.is_live) if is_live))
        sums = array("I", map(self.sums.__getitem__, pages))
        return ChecksumRecord(
            self.number, self.page_size, self.meta, pages, sums, array("I", sorted(self.last_gone))
        )

    def damage(self, data: ReadFile) -> Damaged | None:
        """Return the first page whose checksum differs."""
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
        # As little work as possible for each page, because a million entries are thousands of pages.
        found = array("I", map(crc32c, [view[at : at + size] for at in range(0, len(pages) * size, size)]))
        if found == self.sums[first : pages.stop]:
            return None
        for page, checksum in zip(pages, found, strict=True):
            if self.is_live[page] and checksum != self.sums[page]:
                return Damaged(page * size, Flaw.CHECKSUM, f"page {page}")
        return None


def _consecutive_pages(record: ChecksumRecord) -> Iterator[tuple[slice, array[int]]]:
    """Yield slices of consecutive pages with their checksums. Most are consecutive, as LMDB allocates
    them."""
    pages, start, count = record.pages, 0, len(record.pages)
    while start < count:
        # Find the end of the consecutive pages by bisection, because pages ascend.
        first = pages[start]
        end = bisect_right(range(count), 0, start, key=lambda at: pages[at] - first - (at - start))
        yield slice(first, first + end - start), record.sums[start:end]
        start = end
