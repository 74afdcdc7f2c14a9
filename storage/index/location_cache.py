"""A cache of entry locations, in memory.

The locations of 1024 entries of a ledger make a block of 8 KiB. The first look-ups in a block go to the
index. When they have cost about as much as loading the block, the next look-up loads it; a request for many
locations loads it at once. A block knows locations only. An entry without one in the block is looked up in
the index, so the block never says that an entry is missing.

A look-up marks its block as used. If a block does not fit any more, the oldest block is removed, unless it is
marked: then it loses the mark and becomes the newest.

There is no lock. The blocks are in a dict that readers change in single steps, and that `forget` replaces:

    reader      loads the dict     asks the index           puts the block into the dict that it has loaded
    checkpoint                                  commits     replaces the dict

A reader that has loaded the new dict asks an index that has the commit already, because the commit came
before the dict was replaced. A reader that has loaded the old dict may have asked before the commit, but it
puts its block into a dict that is used no more. So no block of the current dict is older than the last
`forget` of its ledger.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from storage.index.port import IndexReader

BLOCK_ENTRIES = 1024
BLOCK_SIZE = (BLOCK_ENTRIES + 2) * 8 + 512
"""The memory of a block, including its item in the dict and one counter of look-ups."""

LOOK_UPS = 24
"""The number of look-ups in a block before it is loaded. Loading takes as long as fifty look-ups, and in a
store that is far larger than the cache most blocks are not needed again soon."""

_SHIFT = 10
_IN_BLOCK = BLOCK_ENTRIES - 1
_FEW = BLOCK_ENTRIES // 8
_USED = BLOCK_ENTRIES + 1
"""The element of a block that marks its use, after its locations and that of the entry which follows."""

_NONE = array("q", [0])

_Block = tuple[int, int]
"""Ledger id, and entry id without its lowest bits."""


class LocationCache:
    """Finds packed locations. Any thread may call; one thread at a time may `forget`."""

    def __init__(self, index: IndexReader, size_max_bytes: int) -> None:
        self._index = index
        self._blocks_max = size_max_bytes // BLOCK_SIZE
        self._blocks: OrderedDict[_Block, array[int]] = OrderedDict()
        """Replaced by `forget`; its items are changed by any thread, without a lock."""
        self._looked_up: dict[_Block, int] = {}
        """The number of look-ups in blocks that are not loaded. Changed by any thread, without a lock; a lost
        count only delays loading the block."""

    def find(self, ledger_id: int, entry_id: int) -> int | None:
        """Return the packed location of an entry; `None` if it has none."""
        blocks = self._blocks  # once, before the index is asked
        key = (ledger_id, entry_id >> _SHIFT)
        block = blocks.get(key)
        if block is None:
            return self._find_outside(blocks, key, entry_id)
        block[_USED] = True
        return block[entry_id & _IN_BLOCK] or self._index.find(ledger_id, entry_id)

    def known(self, ledger_id: int, entry_id: int) -> tuple[int, int]:
        """Return the packed locations of an entry and of the next one from the cache only; 0 if unknown.

        The second is only a hint, because it may be older than the first.
        """
        block = self._blocks.get((ledger_id, entry_id >> _SHIFT))
        if block is None:
            return 0, 0
        block[_USED] = True
        at = entry_id & _IN_BLOCK
        return block[at], block[at + 1]

    def locations(self, ledger_id: int, first: int, count: int) -> array[int]:
        """Return the packed locations of up to `count` consecutive entries from `first` on; 0 for a missing
        one.

        May return fewer than there are.
        """
        blocks = self._blocks  # once, before the index is asked
        found = array("q")
        while len(found) < count:
            at = first + len(found)
            key = (ledger_id, at >> _SHIFT)
            block = blocks.get(key)
            if block is None and count <= _FEW:
                return found + _dense(self._index.locations(ledger_id, at, count), at, count - len(found))
            if block is None:
                block = self._filled(blocks, key)
            start = at & _IN_BLOCK
            found += block[start : min(BLOCK_ENTRIES, start + count - len(found))]
            if not found[-1]:
                break
        return found

    def forget(self, ledger_ids: Collection[int]) -> None:
        """Forget these ledgers: look-ups that begin after this call see the present index, or a newer one."""
        gone = frozenset(ledger_ids)
        self._blocks = OrderedDict((key, block) for key, block in self._items() if key[0] not in gone)

    def drop(self, ledger_ids: Collection[int]) -> None:
        """Forget ledgers that have no locations in the index from now on, until the next `forget` of them."""
        # In place, because a new dict takes ten times as long. A reader that loads a block meanwhile asks the
        # index once more and then drops the block itself.
        for key in [key for key, _ in self._items() if key[0] in ledger_ids]:
            self._blocks.pop(key, None)

    def truncate(self, ledger_id: int, first_id: int) -> None:
        """Forget the ledger's entries with smaller ids, which have no locations in the index from now on."""
        # In place, and a reader that loads a block meanwhile asks the index once more, as above.
        for key in [key for key, _ in self._items() if key[0] == ledger_id]:
            start = key[1] << _SHIFT
            if start + BLOCK_ENTRIES <= first_id:
                self._blocks.pop(key, None)
            elif start < first_id and (block := self._blocks.get(key)) is not None:
                block[: first_id - start] = _NONE * (first_id - start)

    def _items(self) -> list[tuple[_Block, array[int]]]:
        while True:
            with suppress(RuntimeError):  # a reader has changed the dict meanwhile
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
        pairs = self._index.locations(ledger_id, first, count)
        block = _dense(pairs, first, count + 1)
        self._looked_up.pop(key, None)
        if pairs and self._blocks_max:
            self._make_room(blocks)
            blocks[key] = block
            if self._index.locations(ledger_id, first, 1) != pairs[:1]:
                blocks.pop(key, None)  # the ledger was dropped or truncated since the index was asked
        return block

    def _make_room(self, blocks: OrderedDict[_Block, array[int]]) -> None:
        with suppress(KeyError):  # other readers may have removed the last block
            while len(blocks) >= self._blocks_max:
                key, block = blocks.popitem(last=False)
                if block[_USED]:
                    block[_USED] = False
                    blocks[key] = block


def _dense(pairs: Sequence[tuple[int, int]], first: int, count: int) -> array[int]:
    """Return the locations as an array, indexed by the distance of their entries from the first."""
    locations = _NONE * count
    if pairs and pairs[-1][0] - first == len(pairs) - 1 < count:
        locations[: len(pairs)] = array("q", [location for _, location in pairs])  # no entry is missing
        return locations
    for entry_id, location in pairs:
        if entry_id - first >= count:
            break
        locations[entry_id - first] = location
    return locations
