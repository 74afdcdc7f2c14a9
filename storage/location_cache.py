"""Places of entries, kept in memory in front of the index.

The places of 1024 entries of a ledger make a block of 8 KiB. The first look-ups in a block go to the index;
when they have cost about what the block does, the next one brings all of it, and so does who asks for many.
A block says where entries are and never that there is none: what it does not know, the index is asked.

A look-up only leaves a note in its block that it was used. When one more does not fit, the oldest goes,
unless it was used: then it loses the note, and is the newest again.

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
    from collections.abc import Collection, Sequence

    from storage.index import Index

BLOCK_ENTRIES = 1024
BLOCK_SIZE = (BLOCK_ENTRIES + 2) * 8 + 512
"""What a block takes in memory, with its place in the dict and the memory of a first look-up elsewhere."""

LOOK_UPS = 24
"""In a block, before it is brought: that takes as long as fifty of them, and of a store that is far larger
than the cache most blocks are not asked again so soon."""

_SHIFT = 10
_IN_BLOCK = BLOCK_ENTRIES - 1
_FEW = BLOCK_ENTRIES // 8
_USED = BLOCK_ENTRIES + 1
"""Where in a block, behind its places and that of the entry which follows, the note of its use stands."""

_NONE = array("q", [0])

_Block = tuple[int, int]
"""Ledger id, and entry id without its lowest bits."""


class LocationCache:
    """Finds packed locations. Any thread may call; one at a time may `forget`."""

    def __init__(self, index: Index, size_max_bytes: int) -> None:
        self._index = index
        self._blocks_max = size_max_bytes // BLOCK_SIZE
        self._blocks: OrderedDict[_Block, array[int]] = OrderedDict()
        self._looked_up: dict[_Block, int] = {}
        """How often, in blocks that are not here."""

    def find(self, ledger_id: int, entry_id: int) -> int | None:
        """The packed location of an entry; `None` if it has none."""
        blocks = self._blocks  # once, before the index is asked
        key = (ledger_id, entry_id >> _SHIFT)
        places = blocks.get(key)
        if places is None:
            return self._find_outside(blocks, key, entry_id)
        places[_USED] = True
        return places[entry_id & _IN_BLOCK] or self._index.find(ledger_id, entry_id)

    def known(self, ledger_id: int, entry_id: int) -> tuple[int, int]:
        """The packed locations of an entry and of the next one, without the index; 0 where it would be asked.

        The second may be older than the first: no more than a hint.
        """
        places = self._blocks.get((ledger_id, entry_id >> _SHIFT))
        if places is None:
            return 0, 0
        places[_USED] = True
        at = entry_id & _IN_BLOCK
        return places[at], places[at + 1]

    def places(self, ledger_id: int, first: int, count: int) -> array[int]:
        """The packed locations of consecutive entries from `first` on; 0 for one that has none.

        Up to `count`, and perhaps of fewer.
        """
        blocks = self._blocks  # once, before the index is asked
        found = array("q")
        while len(found) < count:
            at = first + len(found)
            key = (ledger_id, at >> _SHIFT)
            block = blocks.get(key)
            if block is None and count <= _FEW:
                return found + _dense(self._index.places(ledger_id, at, count), at, count - len(found))
            if block is None:
                block = self._filled(blocks, key)
            start = at & _IN_BLOCK
            found += block[start : min(BLOCK_ENTRIES, start + count - len(found))]
            if not found[-1]:
                break
        return found

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
        count = self._looked_up.get(key, 0) + 1
        if count >= LOOK_UPS:
            self._filled(blocks, key)
        else:
            self._remember(key, count)
        return location

    def _remember(self, key: _Block, count: int) -> None:
        if len(self._looked_up) >= self._blocks_max and key not in self._looked_up:
            self._looked_up.clear()
        self._looked_up[key] = count

    def _filled(self, blocks: OrderedDict[_Block, array[int]], key: _Block) -> array[int]:
        ledger_id, number = key
        first, count = number << _SHIFT, BLOCK_ENTRIES + 1
        pairs = self._index.places(ledger_id, first, count)
        places = _dense(pairs, first, count + 1)
        self._looked_up.pop(key, None)
        if pairs and self._blocks_max:
            self._make_room(blocks)
            blocks[key] = places
        return places

    def _make_room(self, blocks: OrderedDict[_Block, array[int]]) -> None:
        with suppress(KeyError):  # others may have pushed out all there was
            while len(blocks) >= self._blocks_max:
                key, places = blocks.popitem(last=False)
                if places[_USED]:
                    places[_USED] = False
                    blocks[key] = places


def _dense(pairs: Sequence[tuple[int, int]], first: int, count: int) -> array[int]:
    """The places by their entries' distance from the first."""
    places = _NONE * count
    if pairs and pairs[-1][0] - first == len(pairs) - 1 < count:
        places[: len(pairs)] = array("q", [place for _, place in pairs])  # none is missing
        return places
    for entry_id, place in pairs:
        if entry_id - first >= count:
            break
        places[entry_id - first] = place
    return places
