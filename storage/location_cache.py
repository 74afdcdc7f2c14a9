"""Places of entries, kept in memory in front of the index.

The places of 1024 entries of a ledger make a block of 8 KiB. The first look-up in a block goes to the index,
the second brings the whole block. A block says where entries are and never that there is none: what it does
not know, the index is asked.

Nothing here takes a lock. The blocks stand in a dict that readers and fillers change in single steps, and
that `forget` replaces whole:

    filler      loads the dict     asks the index           writes the block into the dict it has loaded
    checkpoint                                  commits     replaces the dict

A filler that has loaded the new dict asks an index that holds the commit already, for the commit was before
the dict was replaced. One that has loaded the old dict may have asked too early, and writes where nobody
looks any more. So no block of the dict that counts is older than the last `forget` of its ledger.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from storage.index import Index

BLOCK_ENTRIES = 1024
BLOCK_SIZE = BLOCK_ENTRIES * 8 + 512
"""What a block takes in memory, with its place in the dict and the memory of a first look-up elsewhere."""

_SHIFT = 10
_IN_BLOCK = BLOCK_ENTRIES - 1
_NOTHING_KNOWN = array("q", [0]) * BLOCK_ENTRIES

_Block = tuple[int, int]
"""Ledger id, and entry id without its lowest bits."""


class LocationCache:
    """Finds packed locations. Any thread may call; one at a time may `forget`."""

    def __init__(self, index: Index, size_max_bytes: int) -> None:
        self._index = index
        self._blocks_max = size_max_bytes // BLOCK_SIZE
        self._blocks: OrderedDict[_Block, array[int]] = OrderedDict()
        self._looked_up: set[_Block] = set()

    def find(self, ledger_id: int, entry_id: int) -> int | None:
        """The packed location of an entry; `None` if it has none."""
        blocks = self._blocks  # once, before the index is asked
        key = (ledger_id, entry_id >> _SHIFT)
        places = blocks.get(key)
        if places is None:
            return self._find_outside(blocks, key, entry_id)
        try:
            blocks.move_to_end(key)
        except KeyError:  # another thread has just pushed it out
            return self._index.find(ledger_id, entry_id)
        return places[entry_id & _IN_BLOCK] or self._index.find(ledger_id, entry_id)

    def forget(self, ledger_ids: Collection[int]) -> None:
        """Whoever asks for these ledgers from here on gets what the index held before this call, or newer."""
        gone = frozenset(ledger_ids)
        self._blocks = OrderedDict((key, places) for key, places in self._items() if key[0] not in gone)

    def _items(self) -> list[tuple[_Block, array[int]]]:
        while True:
            with suppress(RuntimeError):  # a reader has changed the order in between
                return list(self._blocks.items())

    def _find_outside(
        self, blocks: OrderedDict[_Block, array[int]], key: _Block, entry_id: int
    ) -> int | None:
        location = self._index.find(key[0], entry_id)
        if location is None or not self._blocks_max:
            return location
        if key in self._looked_up:
            self._fill(blocks, key)
        else:
            self._remember(key)
        return location

    def _remember(self, key: _Block) -> None:
        if len(self._looked_up) >= self._blocks_max:
            self._looked_up.clear()
        self._looked_up.add(key)

    def _fill(self, blocks: OrderedDict[_Block, array[int]], key: _Block) -> None:
        ledger_id, number = key
        first = number << _SHIFT
        places = _NOTHING_KNOWN[:]
        for entry_id, location in self._index.places(ledger_id, first, BLOCK_ENTRIES):
            if entry_id - first >= BLOCK_ENTRIES:
                break
            places[entry_id - first] = location
        self._looked_up.discard(key)
        blocks[key] = places
        if len(blocks) > self._blocks_max:
            with suppress(KeyError):  # others may have pushed out all there was
                blocks.popitem(last=False)
