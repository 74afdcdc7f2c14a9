"""Sequential reading: entries in the order of their ids, block by block, each block verified at once."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.codec import entry as entry_codec
from storage.codec import frames
from storage.codec import record as record_codec
from storage.codec.frames import PREFIX, Frames
from storage.entry import Entry
from storage.errors import NoSuchEntry
from storage.position import EntryLocation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.codec.digest import Digester
    from storage.index import Index
    from storage.memtable import Slot, Tables
    from storage.reading import LogShelf, Reading

READ_AHEAD = 256 << 10
_PLACES = 1024
_IN_MEMORY = 64
_LENGTH_SIZE = record_codec.LENGTH_SIZE
_HEAD = struct.Struct(">qqqq")


@dataclass(frozen=True, slots=True)
class Block:
    """Verified entries of one ledger with consecutive ids; `frames` says where each lies in `data`."""

    data: bytes
    frames: Frames
    head_size: int
    """Bytes in front of each payload, the digest included."""

    def entries(self) -> Iterator[Entry]:
        head_size = self.head_size
        for start, end in zip(self.frames.starts, self.frames.ends, strict=True):
            ledger_id, entry_id, confirmed, length = _HEAD.unpack_from(self.data, start)
            yield Entry(ledger_id, entry_id, confirmed, length, self.data[start + head_size : end])

    def payloads(self) -> list[bytes]:
        data, head_size = self.data, self.head_size
        return [
            data[start + head_size : end]
            for start, end in zip(self.frames.starts, self.frames.ends, strict=True)
        ]


class Scanning:
    """Reads ranges of a ledger ahead of who consumes them. Holds one block; any thread may call."""

    def __init__(self, slot: Slot, index: Index, logs: LogShelf, reading: Reading) -> None:
        self._slot = slot
        self._index = index
        self._logs = logs
        self._reading = reading

    def blocks(self, ledger_id: int, first: int, last: int, digester: Digester) -> Iterator[Block]:
        """The entries `first` to `last`, both included, in blocks.

        A missing one raises `NoSuchEntry`, a bad one `EntryUnreadable`, each behind all that precede it.
        """
        at = first
        while at <= last:
            block = self._block(ledger_id, at, last, digester)
            yield block
            at += len(block.frames)

    def _block(self, ledger_id: int, first: int, last: int, digester: Digester) -> Block:
        # Loaded before the index is asked: what has left the tables by then is in the index.
        tables = self._slot.tables
        if tables.get(ledger_id, first) is not None:
            return self._from_tables(tables, ledger_id, first, last, digester)
        places = self._places(tables, ledger_id, first, last)
        if not places:
            raise NoSuchEntry(ledger_id, first)
        found = self._from_log(ledger_id, first, places, digester)
        return found or self._single(ledger_id, first, digester)

    def _from_tables(
        self, tables: Tables, ledger_id: int, first: int, last: int, digester: Digester
    ) -> Block:
        records = []
        for entry_id in range(first, min(last + 1, first + _IN_MEMORY)):
            record = tables.get(ledger_id, entry_id)
            if record is None:
                break
            records.append(record)
        return self._verified(ledger_id, first, digester, b"".join(records), *_laid_out(records))

    def _places(self, tables: Tables, ledger_id: int, first: int, last: int) -> list[int]:
        """The packed locations of consecutive entries that lie close together in one log."""
        found = self._index.places(ledger_id, first, min(_PLACES, last - first + 1))
        if not found or found[0][0] != first:
            return []
        is_in_memory = tables.last_id(ledger_id) is not None
        start = found[0][1]
        packed = [start]
        for entry_id, place in found[1:]:
            in_order = entry_id == first + len(packed) and packed[-1] < place < start + READ_AHEAD
            # A newer copy in a table counts, not the one in the log.
            if not in_order or (is_in_memory and tables.get(ledger_id, entry_id) is not None):
                break
            packed.append(place)
        return packed

    def _from_log(self, ledger_id: int, first: int, places: list[int], digester: Digester) -> Block | None:
        """All but the last of these, whose size only itself could tell; `None` if that leaves nothing."""
        if len(places) < 2:
            return None
        location = EntryLocation.unpack(places[0])
        try:
            data = self._logs.read(location, places[-1] - places[0])
        except OSError:
            return None  # the single read says which entry, and why
        starts = [place - places[0] + _LENGTH_SIZE for place in places[:-1]]
        ends, limits = [], [*starts[1:], len(data) + _LENGTH_SIZE]
        for start, limit in zip(starts, limits, strict=True):
            if start > len(data):
                break
            end = start + int.from_bytes(data[start - _LENGTH_SIZE : start], "big")
            if not start + _head_size(digester) <= end <= min(limit - _LENGTH_SIZE, len(data)):
                break
            ends.append(end)
        if not ends:
            return None
        return self._verified(ledger_id, first, digester, data, starts[: len(ends)], ends)

    def _single(self, ledger_id: int, entry_id: int, digester: Digester) -> Block:
        record = self._reading.record(ledger_id, entry_id)
        if record is None:
            raise NoSuchEntry(ledger_id, entry_id)
        return self._verified(ledger_id, entry_id, digester, record, *_laid_out([record]))

    def _verified(
        self, ledger_id: int, first: int, digester: Digester, data: bytes, starts: list[int], ends: list[int]
    ) -> Block:
        """The block up to the first entry that is wrong; `EntryUnreadable` if that is the very first."""
        sound, head_size = len(starts), _head_size(digester)
        for index, start in enumerate(starts):
            _, found_ledger, found_entry = PREFIX.unpack_from(data, start - _LENGTH_SIZE)
            is_short = ends[index] - start < head_size
            if (found_ledger, found_entry) != (ledger_id, first + index) or is_short:
                sound = index
                break
        if sound and digester.verifies:
            whole = Frames(starts[:sound], ends[:sound], ends[sound - 1])
            sound = min([sound, *frames.mismatches(data, whole, digester)])
        if not sound:
            self._reading.entry(ledger_id, first, digester)  # raises with place and reason
            raise NoSuchEntry(ledger_id, first)
        return Block(data, Frames(starts[:sound], ends[:sound], ends[sound - 1]), head_size)


def _head_size(digester: Digester) -> int:
    return entry_codec.HEAD.size + digester.digest_type.width


def _laid_out(records: list[bytes]) -> tuple[list[int], list[int]]:
    """Where the entries of joined records begin and end."""
    starts, ends, at = [], [], 0
    for record in records:
        starts.append(at + _LENGTH_SIZE)
        at += len(record)
        ends.append(at)
    return starts, ends
