"""Passages: consecutive entries of one ledger, taken out of a block of an entry log, or out of a table.

All of one are verified, and it ends in front of the first entry that is wrong: what is wrong with that one,
`codec.entry` finds out. With numpy a block's entries are taken all at once, without it one by one. The
answers are the same. numpy is never imported before the first call.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from storage.codec import passage_plain
from storage.entry import Blank, Entry

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable, Iterator, Sequence

    from storage.codec.digest import Digester

LEAD, SLACK = passage_plain.LEAD, passage_plain.SLACK
"""Bytes that a block has in front of what is read into it, and behind."""

Extent = tuple[int, int, int]
"""A part of an entry log: the place of its first entry, where in a block it goes, and its size."""


Taken = tuple[int, "Iterable[tuple[int, int, int, int]]", "Iterable[Sequence[bytes]]"]
"""The fields of a passage."""


class Wanted(NamedTuple):
    """Which entries are to be found, and how they are protected."""

    ledger_id: int
    first_id: int
    digester: Digester


class Passage(NamedTuple):
    """Consecutive entries: how many they are, the numbers of their heads, and their payloads.

    For one who goes through them once, before the next passage is taken: they are cut as they come.
    """

    length: int
    heads: Iterable[tuple[int, int, int, int]]
    payloads: Iterable[Sequence[bytes]]
    """In runs."""

    def entries(self) -> Iterator[Entry]:
        for head, payload in zip(self.heads, chain.from_iterable(self.payloads), strict=True):
            entry: Any = Blank()
            entry.ledger_id, entry.entry_id, entry.last_add_confirmed, entry.length = head
            entry.payload = payload
            entry.__class__ = Entry
            yield entry


class Layout(NamedTuple):
    """A block that is put together from parts of entry logs, one behind the other."""

    extents: Sequence[Extent]
    starts: Sequence[int]
    """For each entry in it where its record begins."""
    size: int


class Kernel(Protocol):
    """The two ways to do it: `passage_plain` and `passage_numpy`."""

    def lay_out(self, places: array[int], size_max: int) -> tuple[Sequence[Extent], Sequence[int], int]:
        """As `lay_out` below."""

    def of_block(self, block: bytearray, starts: Sequence[int], size: int, wanted: Wanted) -> Taken:
        """As `of_block` below."""


@cache
def _kernel() -> Kernel:
    name = "passage_numpy" if find_spec("numpy") else "passage_plain"
    module: Kernel = import_module(f"storage.codec.{name}")
    return module


def lay_out(places: array[int], size_max: int) -> Layout:
    """What is to be read of entry logs for the entries at these places; nothing where that is not worth it.

    Ends in front of an entry whose place is not known, or that has no neighbour near it. A record is taken to
    end where the next one begins, or the last of an extent not to be longer than the others.
    """
    return Layout(*_kernel().lay_out(places, size_max))


def of_block(block: bytearray, layout: Layout, wanted: Wanted) -> Passage:
    """The entries in a block that was read as it was laid out.

    It has `LEAD` bytes in front of what was read and `SLACK` behind it, and is used up: when the passage has
    been gone through, what it holds is of no use.
    """
    return Passage(*_kernel().of_block(block, layout.starts, layout.size, wanted))


def of_entry(entry: Entry) -> Passage:
    """One that is verified already."""
    head = (entry.ledger_id, entry.entry_id, entry.last_add_confirmed, entry.length)
    return Passage(1, (head,), ((entry.payload,),))


def of_parts(fronts: bytes, payloads: Sequence[bytes], wanted: Wanted) -> Passage:
    """The entries of these fronts, one behind the other, and payloads."""
    return Passage(*passage_plain.of_parts(fronts, payloads, wanted))
