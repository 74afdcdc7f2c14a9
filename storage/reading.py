"""Reading: active table, frozen table, index, entry log, in the order in which entries move.

The tables are loaded once, before the index is asked: an entry that has left them by then is in the index.
No lock of the write path is taken. What is not there is *missing*; what is there and does not verify, or
cannot be read, is *unreadable*, and never the one for the other.
"""

from __future__ import annotations

import struct
import sys
from heapq import merge
from typing import TYPE_CHECKING

from storage import filenames
from storage.codec import entry as entry_codec
from storage.codec import plain
from storage.codec import record as record_codec
from storage.codec.digest import DigestCheck
from storage.entry import ID_MAX, NO_ENTRY, RECORD_SIZE_MAX, DigestType, Entry
from storage.errors import EntryUnreadable
from storage.log_shelf import OFFSET
from storage.outcome import Damaged, Flaw
from storage.position import LENGTH_WORD_SIZE, EntryLocation
from storage.tail import EMPTY, LedgerEnd

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from storage.codec.digest import Digester
    from storage.codec.entry import Head
    from storage.index import Index
    from storage.location_cache import LocationCache
    from storage.log_shelf import LogShelf
    from storage.memtable import Slot
    from storage.tail import Tail

_LENGTH = struct.Struct(">i")
_ALL = sys.maxsize
_PLACES = 4096
_FIRST_READ = 4 << 10
_NEAR = 8 << 10
"""Is the next entry's place no further away, all between them is read: most likely it is one record."""


class Reading:
    """Finds entries wherever they are. Any thread may call."""

    def __init__(self, slot: Slot, index: Index, cache: LocationCache, logs: LogShelf) -> None:
        self._slot = slot
        self._index = index
        self._cache = cache
        self._logs = logs

    def plain(self, ledger_id: int, entry_id: int) -> Entry | None:
        """The entry, if CRC-32C protects it and nothing is wrong with it; else `entry` says what is."""
        for table in self._slot.tables.both:
            entries = table.find(ledger_id)
            if entries is not None:
                entry = entries.plain(ledger_id, entry_id)
                if entry is not None or entries.has(entry_id):
                    return entry
        return self.logged(ledger_id, entry_id)

    def logged(self, ledger_id: int, entry_id: int) -> Entry | None:
        """The same of an entry that is in no table."""
        place, following = self._cache.known(ledger_id, entry_id)
        log = self._logs.find(place >> 32)
        if log is None or not place:
            return self._looked_up(ledger_id, entry_id)
        size = following - place
        try:
            record = log.read((place & OFFSET) - LENGTH_WORD_SIZE, size if 0 < size <= _NEAR else _FIRST_READ)
        except OSError:
            return None
        return plain.decode(record, ledger_id, entry_id)

    def _looked_up(self, ledger_id: int, entry_id: int) -> Entry | None:
        """The same, its place asked of the index, or its log not open yet."""
        # What no file could hold the index cannot be asked for.
        packed = self._cache.find(ledger_id, entry_id) if 0 <= entry_id <= ID_MAX else None
        if packed is None:
            return None
        return plain.decode(self._record_at(packed, ledger_id, entry_id), ledger_id, entry_id)

    def record(self, ledger_id: int, entry_id: int) -> bytes | None:
        """The record, nothing of it verified yet; `None` if there is no such entry."""
        record = self._slot.tables.get(ledger_id, entry_id)
        if record is not None:
            return record
        packed = self._cache.find(ledger_id, entry_id)
        return None if packed is None else self._record_at(packed, ledger_id, entry_id)

    def entry(self, ledger_id: int, entry_id: int, digester: Digester) -> Entry | None:
        """The entry, ids verified, and the digest if that can be. `None` if there is none.

        `EntryUnreadable` otherwise.
        """
        if digester.digest_type is DigestType.CRC32C:
            entry = self.plain(ledger_id, entry_id)
            if entry is not None:
                return entry
        record = self.record(ledger_id, entry_id)
        return None if record is None else self._decoded(record, ledger_id, entry_id, digester)

    def data(self, ledger_id: int, entry_id: int, digester: Digester | None) -> bytes | None:
        """The entry's bytes as they came; else as `entry`."""
        record = self.record(ledger_id, entry_id)
        if record is None:
            return None
        data = record_codec.entry_bytes(record)
        head = entry_codec.decode_head(data)
        if isinstance(head, Damaged):
            raise self._unreadable_now(ledger_id, entry_id, head.flaw.value)
        self._check_ids(head, ledger_id, entry_id)
        if digester is not None and entry_codec.check_digest(data, digester) is DigestCheck.MISMATCH:
            raise self._unreadable_now(ledger_id, entry_id, Flaw.DIGEST.value)
        return bytes(data)

    def head(self, ledger_id: int, entry_id: int) -> Head | None:
        """What stands in front of the entry's digest, which is not verified; else as `entry`."""
        record = self.record(ledger_id, entry_id)
        if record is None:
            return None
        head = entry_codec.decode_head(record_codec.entry_bytes(record))
        if isinstance(head, Damaged):
            raise self._unreadable_now(ledger_id, entry_id, head.flaw.value)
        self._check_ids(head, ledger_id, entry_id)
        return head

    def _record_at(self, packed: int, ledger_id: int, entry_id: int) -> bytes:
        try:
            record = self._logs.read(packed, _FIRST_READ)
            size = self._size(record)
            if size > len(record):
                record = self._logs.read(packed, size)
        except OSError as error:
            raise _unreadable(ledger_id, entry_id, packed, str(error)) from error
        if not record_codec.LENGTH_SIZE < size <= len(record):
            raise _unreadable(ledger_id, entry_id, packed, "no record stands there")
        return record[:size]

    @staticmethod
    def _size(start: bytes) -> int:
        """What the length word claims, itself included; 0 where it claims nothing sensible."""
        if len(start) < record_codec.LENGTH_SIZE:
            return 0
        (length,) = _LENGTH.unpack_from(start)
        return record_codec.LENGTH_SIZE + length if 0 < length <= RECORD_SIZE_MAX else 0

    def _decoded(self, record: bytes, ledger_id: int, entry_id: int, digester: Digester) -> Entry:
        entry = entry_codec.decode(record_codec.entry_bytes(record), digester)
        if isinstance(entry, Damaged):
            raise self._unreadable_now(ledger_id, entry_id, entry.flaw.value)
        self._check_ids(entry, ledger_id, entry_id)
        return entry

    def _check_ids(self, found: Entry | Head, ledger_id: int, entry_id: int) -> None:
        if found.entry_id != entry_id or found.ledger_id != ledger_id:
            raise self._unreadable_now(ledger_id, entry_id, "another entry stands there")

    def _unreadable_now(self, ledger_id: int, entry_id: int, reason: str) -> EntryUnreadable:
        return _unreadable(ledger_id, entry_id, self._cache.find(ledger_id, entry_id), reason)

    # ── the ends of ledgers ──────────────────────────────────────────────────────────────────────────

    def last_id(self, ledger_id: int) -> int | None:
        """The largest entry id of the ledger; `None` if it has no entry."""
        in_memory = self._slot.tables.last_id(ledger_id)
        indexed = self._index.last(ledger_id)
        ids = [one for one in (in_memory, indexed[0] if indexed else None) if one is not None]
        return max(ids, default=None)

    def end(self, ledger_id: int, digester: Digester | None) -> LedgerEnd:
        """The last entry's id and the ledger's length there. An entry that cannot be read raises."""
        while (last_id := self.last_id(ledger_id)) is not None:
            found = (
                self.head(ledger_id, last_id)
                if digester is None
                else self.entry(ledger_id, last_id, digester)
            )
            # Else the ledger was deleted in between.
            if found is not None:
                return LedgerEnd(last_id, found.length)
        return EMPTY

    def last_add_confirmed(self, tail: Tail, digester: Digester) -> int:
        """The larger of two: up to where no entry is missing, and what the last entry's writer knew of."""
        # Each loaded once: a delete may replace them at any time.
        end, prefix = tail.end, tail.prefix
        if end == EMPTY:
            return NO_ENTRY
        prefix.first_missing = self._first_missing(tail.ledger_id, prefix.first_missing)
        last = self.entry(tail.ledger_id, end.entry_id, digester)
        said = NO_ENTRY if last is None else last.last_add_confirmed
        return max(prefix.first_missing - 1, said)

    def _first_missing(self, ledger_id: int, start: int) -> int:
        # Counted first: a checkpoint that commits in between must not make up for an entry that is missing.
        count = self._index.count(ledger_id) if start == 0 else 0
        indexed = self._index.last(ledger_id)
        if count and indexed is not None and count == indexed[0] + 1:
            start = indexed[0] + 1
        while self.has(ledger_id, start):
            start += 1
        return start

    def has(self, ledger_id: int, entry_id: int) -> bool:
        """Whether there is such an entry; says nothing of its bytes."""
        for table in self._slot.tables.both:
            entries = table.find(ledger_id)
            if entries is not None and entries.has(entry_id):
                return True
        return self._cache.find(ledger_id, entry_id) is not None

    def entry_ids(self, ledger_id: int) -> list[range]:
        """The ids of a ledger's entries in ranges, ascending."""
        # The tables first: what leaves them meanwhile is in the index when that is asked.
        tables = self._slot.tables
        memories = [tables.active] if tables.frozen is None else [tables.active, tables.frozen]
        in_memory = [table.ids_from(ledger_id, 0, _ALL) for table in memories]
        return list(ranges(merge(*in_memory, self._indexed_ids(ledger_id))))

    def _indexed_ids(self, ledger_id: int) -> Iterator[int]:
        first = 0
        while places := self._index.places(ledger_id, first, _PLACES):
            yield from (entry_id for entry_id, _ in places)
            first = places[-1][0] + 1

    def ledgers(self) -> list[int]:
        """Every ledger with an entry, ascending."""
        tables = self._slot.tables
        frozen = tables.frozen.ledgers() if tables.frozen else []
        return sorted({*tables.active.ledgers(), *frozen, *self._index.ledgers()})

    def close(self) -> None:
        self._logs.close()


def ranges(ids: Iterable[int]) -> Iterator[range]:
    """Ascending ids, some of them perhaps twice, as ranges without a gap."""
    first = last = None
    for one in ids:
        if first is None or last is None:
            first = last = one
        elif one > last + 1:
            yield range(first, last + 1)
            first = last = one
        else:
            last = one
    if first is not None and last is not None:
        yield range(first, last + 1)


def _unreadable(ledger_id: int, entry_id: int, packed: int | None, reason: str) -> EntryUnreadable:
    if packed is None:
        return EntryUnreadable(ledger_id, entry_id, reason)
    location = EntryLocation.unpack(packed)
    file = filenames.entry_log(location.log_id)
    return EntryUnreadable(ledger_id, entry_id, reason, file, location.position.offset)
