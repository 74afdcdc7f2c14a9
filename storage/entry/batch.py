"""Batches of consecutive entries of one ledger, taken out of a block of an entry log or out of a table.

All entries of a batch are verified. It ends before the first entry that is wrong; `storage.entry.format`
finds out what is wrong with that one. With numpy the entries of a block are taken all at once, without it one
by one. The results are the same. numpy is never imported before the first call.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from storage.entry import batch_plain
from storage.entry.model import Entry, UncheckedEntry

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable, Iterator, Sequence

    from storage.entry.digest import Digester

LEAD, SLACK = batch_plain.LEAD, batch_plain.SLACK
"""Bytes of a block before and after what is read into it."""

LogRange = tuple[int, int, int]
"""A part of an entry log: the packed location of its first entry, where it goes in a block, and its size."""


BatchFields = tuple[int, "Iterable[tuple[int, int, int, int]]", "Iterable[Sequence[bytes]]"]
"""The fields of an `EntryBatch`."""


class WantedEntries(NamedTuple):
    """Which entries are wanted, and the digester that verifies them."""

    ledger_id: int
    first_id: int
    digester: Digester


class EntryBatch(NamedTuple):
    """Consecutive entries: how many they are, the four numbers of each head, and the payloads.

    It can be iterated once, and only before the next batch is taken, because the entries are cut out of the
    block as they are needed.
    """

    length: int
    heads: Iterable[tuple[int, int, int, int]]
    payloads: Iterable[Sequence[bytes]]
    """In lists of several payloads."""

    def entries(self) -> Iterator[Entry]:
        for head, payload in zip(self.heads, chain.from_iterable(self.payloads), strict=True):
            entry: Any = UncheckedEntry()
            entry.ledger_id, entry.entry_id, entry.last_add_confirmed, entry.length = head
            entry.payload = payload
            entry.__class__ = Entry
            yield entry


class BlockLayout(NamedTuple):
    """The parts of entry logs that are read into one block."""

    ranges: Sequence[LogRange]
    starts: Sequence[int]
    """Where in the block each entry's record begins."""
    size: int


class BatchKernel(Protocol):
    """One of the two implementations: the modules `batch_plain` and `batch_numpy`."""

    def lay_out(self, locations: array[int], size_max: int) -> tuple[Sequence[LogRange], Sequence[int], int]:
        """As `lay_out` below."""

    def of_block(
        self, block: bytearray, starts: Sequence[int], size: int, wanted: WantedEntries
    ) -> BatchFields:
        """As `of_block` below."""


@cache
def _kernel() -> BatchKernel:
    name = "batch_numpy" if find_spec("numpy") else "batch_plain"
    module: BatchKernel = import_module(f"storage.entry.{name}")
    return module


def lay_out(locations: array[int], size_max: int) -> BlockLayout:
    """Return what to read of entry logs for the entries at these locations.

    Nothing if that is not worthwhile.

    The layout ends before an entry whose location is unknown, or that has no neighbour near it. A record is
    taken to end where the next one begins, and the last record of a range to be no longer than the others.
    """
    return BlockLayout(*_kernel().lay_out(locations, size_max))


def of_block(block: bytearray, layout: BlockLayout, wanted: WantedEntries) -> EntryBatch:
    """Return the entries of a block that was read as it was laid out.

    The block has `LEAD` bytes before what was read and `SLACK` bytes after it. Its content is destroyed.
    """
    return EntryBatch(*_kernel().of_block(block, layout.starts, layout.size, wanted))


def of_entry(entry: Entry) -> EntryBatch:
    """Return a batch of one entry that is verified already."""
    head = (entry.ledger_id, entry.entry_id, entry.last_add_confirmed, entry.length)
    return EntryBatch(1, (head,), ((entry.payload,),))


def of_parts(fronts: bytes, payloads: Sequence[bytes], wanted: WantedEntries) -> EntryBatch:
    """Return the entries with these fronts, which are joined, and these payloads."""
    return EntryBatch(*batch_plain.of_parts(fronts, payloads, wanted))
