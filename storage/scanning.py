"""Sequential reading: entries in the order of their ids, a passage at a time, each verified at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.codec import passage
from storage.codec.passage import LEAD, SLACK, Wanted
from storage.codec.record import front_size
from storage.errors import NoSuchEntry

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator, Sequence

    from storage.codec.digest import Digester
    from storage.codec.passage import Extent, Passage
    from storage.location_cache import LocationCache
    from storage.log_shelf import LogShelf
    from storage.memtable import Memtable, Slot
    from storage.reading import Reading

READ_AHEAD = 2304 << 10
"""Bytes of entry logs that are read at once: 2 MiB of payloads of 1 KB, with what stands in front of them.

The calls that a block takes, whatever its size, would be half of the cost of a quarter of it."""

_PLACES = 4096
_IN_MEMORY = 1024
_SPARES_MAX = 2


class Scanning:
    """Reads ranges of a ledger ahead of who consumes them. Any thread may call."""

    def __init__(self, slot: Slot, cache: LocationCache, logs: LogShelf, reading: Reading) -> None:
        self._slot = slot
        self._cache = cache
        self._logs = logs
        self._reading = reading
        self._spares: list[bytearray] = []
        """Blocks that nobody uses now: the system takes longer to give new memory than to read into it."""

    def passages(self, ledger_id: int, first: int, last: int, digester: Digester) -> Iterator[Passage]:
        """The entries `first` to `last`, both included: each passage to be gone through before the next.

        Holds one block of the logs. A missing entry raises `NoSuchEntry`, a bad one `EntryUnreadable`, each
        behind all that precede it.
        """
        block, at = _Block(self._logs, self._spares), first
        try:
            while at <= last:
                found = self._next(Wanted(ledger_id, at, digester), last - at + 1, block)
                at += found.length
                yield found
        finally:
            block.release()

    def _next(self, wanted: Wanted, count: int, block: _Block) -> Passage:
        # The tables are loaded before the cache is asked: what has left them by then is in the index.
        for table in self._slot.tables.both:
            in_memory = table.ids_from(wanted.ledger_id, wanted.first_id, 1)
            if in_memory and in_memory[0] == wanted.first_id:
                found = _from_table(table, wanted, min(count, _IN_MEMORY))
                return found if found.length else self._alone(wanted)
            if in_memory:
                # Not beyond it: a newer copy in a table counts, and not an older one elsewhere.
                count = min(count, in_memory[0] - wanted.first_id)
        places = self._cache.places(wanted.ledger_id, wanted.first_id, min(count, _PLACES))
        taken = block.passage(places, wanted)
        return taken if taken is not None and taken.length else self._alone(wanted)

    def _alone(self, wanted: Wanted) -> Passage:
        """The first of those that are wanted; if it is not to be had, this says why."""
        entry = self._reading.entry(wanted.ledger_id, wanted.first_id, wanted.digester)
        if entry is None:
            raise NoSuchEntry(wanted.ledger_id, wanted.first_id)
        return passage.of_entry(entry)


def _from_table(table: Memtable, wanted: Wanted, count: int) -> Passage:
    size = front_size(wanted.digester.digest_type)
    return passage.of_parts(*table.parts(wanted.ledger_id, wanted.first_id, count, size), wanted)


class _Block:
    """What a reader has read ahead. Its memory is used again, for the next passage and for other readers."""

    def __init__(self, logs: LogShelf, spares: list[bytearray]) -> None:
        self._logs = logs
        self._spares = spares
        self._bytes: bytearray | None = None
        self._size_max = READ_AHEAD

    def passage(self, places: array[int], wanted: Wanted) -> Passage | None:
        """What can be taken at these places at once; `None` where that is nothing, for whatever reason."""
        layout = passage.lay_out(places, self._size_max)
        if not layout.extents:
            return None
        if self._bytes is None:
            self._bytes = self._taken()
        try:
            self._read(self._bytes, layout.extents)
        except OSError:
            # Somewhere further on, perhaps: whoever comes there alone hears of it.
            self._size_max //= 8
            return None
        return passage.of_block(self._bytes, layout, wanted)

    def _taken(self) -> bytearray:
        try:
            return self._spares.pop()
        except IndexError:
            return bytearray(LEAD + READ_AHEAD + SLACK)

    def _read(self, block: bytearray, extents: Sequence[Extent]) -> None:
        with memoryview(block) as view:
            for place, offset, size in extents:
                start, end = LEAD + offset, LEAD + offset + size
                done = start + self._logs.read_into(place, view[start:end])
                # What is left there of an earlier block must not pass for what the log has no more.
                view[done:end] = bytes(end - done)

    def release(self) -> None:
        """Nothing that was taken from it is gone through any more."""
        if self._bytes is not None and len(self._spares) < _SPARES_MAX:
            self._spares.append(self._bytes)
        self._bytes = None
