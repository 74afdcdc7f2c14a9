"""Sequential reading: entries in the order of their ids, in batches that are read and verified at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.entry import batch as entry_batch
from storage.entry.batch import LEAD, SLACK, WantedEntries
from storage.entry.read_result import MISSING, Unreadable
from storage.entry.record_format import front_size
from storage.errors import NoSuchEntry
from storage.read.points import unreadable

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator, Sequence

    from storage.entry.batch import EntryBatch, LogRange
    from storage.entry.digest import Digester
    from storage.entrylog.open_logs import OpenEntryLogs
    from storage.index.location_cache import LocationCache
    from storage.memtable.table import Memtable, Slot
    from storage.read.points import PointReader

READ_AHEAD = 2304 << 10
"""Bytes of entry logs that are read at once: 2 MiB of payloads of 1 KB, with their headers.

A block takes a fixed number of calls. They would be half of the cost of a block of a quarter of this size."""

_LOCATIONS_AT_ONCE = 4096
_IN_MEMORY = 1024
_SPARES_MAX = 2


class RangeReader:
    """Reads ranges of a ledger ahead of their consumer. Any thread may call, and no method takes a lock."""

    def __init__(self, slot: Slot, cache: LocationCache, logs: OpenEntryLogs, reader: PointReader) -> None:
        self._slot = slot
        self._cache = cache
        self._logs = logs
        self._reader = reader
        self._spares: list[bytearray] = []
        """Unused blocks, kept because allocating new memory takes longer than reading into it.

        Any thread appends and pops, which the interpreter makes atomic.
        """

    def batches(self, ledger_id: int, first: int, last: int, digester: Digester) -> Iterator[EntryBatch]:
        """Yield the entries `first` to `last`, both included, in batches. Use each batch before the next.

        Keeps one block of the logs in memory. Raises `NoSuchEntry` or `EntryUnreadable` after all entries
        before the missing or unreadable one.
        """
        block, at = _Block(self._logs, self._spares), first
        try:
            while at <= last:
                found = self._next(WantedEntries(ledger_id, at, digester), last - at + 1, block)
                at += found.length
                yield found
        finally:
            block.release()

    def _next(self, wanted: WantedEntries, count: int, block: _Block) -> EntryBatch:
        # Load the tables before asking the cache, because an entry that has left them is in the index.
        for table in self._slot.tables.both:
            in_memory = table.ids_from(wanted.ledger_id, wanted.first_id, 1)
            if in_memory and in_memory[0] == wanted.first_id:
                found = _from_table(table, wanted, min(count, _IN_MEMORY))
                return found if found.length else self._single_entry(wanted)
            if in_memory:
                # Not beyond it, because a copy in a table is newer than one in a log.
                count = min(count, in_memory[0] - wanted.first_id)
        locations = self._cache.locations(wanted.ledger_id, wanted.first_id, min(count, _LOCATIONS_AT_ONCE))
        batch = block.batch(locations, wanted)
        return batch if batch is not None and batch.length else self._single_entry(wanted)

    def _single_entry(self, wanted: WantedEntries) -> EntryBatch:
        """Return the first entry as a batch, or raise the reason why it cannot be read."""
        entry = self._reader.entry(wanted.ledger_id, wanted.first_id, wanted.digester)
        if isinstance(entry, Unreadable):
            raise unreadable(wanted.ledger_id, wanted.first_id, entry)
        if entry is MISSING:
            raise NoSuchEntry(wanted.ledger_id, wanted.first_id)
        return entry_batch.of_entry(entry)


def _from_table(table: Memtable, wanted: WantedEntries, count: int) -> EntryBatch:
    size = front_size(wanted.digester.digest_type)
    return entry_batch.of_parts(*table.parts(wanted.ledger_id, wanted.first_id, count, size), wanted)


class _Block:
    """A block that is read ahead. Its memory is used again by the next batch and by other readers."""

    def __init__(self, logs: OpenEntryLogs, spares: list[bytearray]) -> None:
        self._logs = logs
        self._spares = spares
        self._bytes: bytearray | None = None
        self._size_max = READ_AHEAD

    def batch(self, locations: array[int], wanted: WantedEntries) -> EntryBatch | None:
        """Return a batch of the entries at these locations; `None` if none of them can be read in a block."""
        layout = entry_batch.lay_out(locations, self._size_max)
        if not layout.ranges:
            return None
        if self._bytes is None:
            self._bytes = self._spare()
        try:
            self._read(self._bytes, layout.ranges)
        except FileNotFoundError:
            # The log was removed after its entries had moved. They are looked up again.
            return None
        except OSError:
            # The error may be at a later entry. Smaller reads find the entry that has it.
            self._size_max //= 8
            return None
        return entry_batch.of_block(self._bytes, layout, wanted)

    def _spare(self) -> bytearray:
        try:
            return self._spares.pop()
        except IndexError:
            return bytearray(LEAD + READ_AHEAD + SLACK)

    def _read(self, block: bytearray, extents: Sequence[LogRange]) -> None:
        with memoryview(block) as view:
            for place, offset, size in extents:
                start, end = LEAD + offset, LEAD + offset + size
                done = start + self._logs.read_into(place, view[start:end])
                # Clear the rest, because bytes of an earlier block must not be taken for bytes of this log.
                view[done:end] = bytes(end - done)

    def release(self) -> None:
        """Give the memory back. No batch that was made from the block may be used any more."""
        if self._bytes is not None and len(self._spares) < _SPARES_MAX:
            self._spares.append(self._bytes)
        self._bytes = None
