"""Reading one entry: from the active table, the frozen table, or an entry log, in this order.

Entries move in this order too. The tables are loaded once, before the index is asked, so an entry that has
left them is in the index. Readers take no lock of the write path. An entry that does not exist is *missing*.
An entry that exists but does not verify or cannot be read is *unreadable*, and never reported as missing.
"""

from __future__ import annotations

import struct
import sys
from heapq import merge
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from storage.disk import filenames
from storage.entry import format as entry_format
from storage.entry import record_format
from storage.entry.digest import DigestCheck, Digester
from storage.entry.model import ID_MAX, NO_ENTRY, RECORD_SIZE_MAX, DigestType, Entry
from storage.entry.position import LENGTH_WORD_SIZE, EntryLocation
from storage.entry.read_result import MISSING, Damaged, Flaw, Missing, Unreadable
from storage.entry.record_format import CRC32C_OVERHEAD, FRONT_SIZE, PREFIX, decode_crc32c
from storage.entrylog.open_logs import OFFSET
from storage.errors import EntryUnreadable
from storage.ledgers.state import EMPTY, LedgerEnd
from storage.read.runs import FRONT, run_of_block, run_of_parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from storage.entry.format import Head
    from storage.entrylog.open_logs import OpenEntryLogs
    from storage.index.location_cache import LocationCache
    from storage.index.port import IndexReader
    from storage.ledgers.state import LedgerState
    from storage.memtable.ledger_entries import LedgerEntries
    from storage.memtable.table import Slot

_LENGTH = struct.Struct(">i")
_CRC32C = DigestType.CRC32C
_PLAIN = Digester(_CRC32C)
_ANOTHER = "another entry is at its location"
_ALL = sys.maxsize
_LOCATIONS_AT_ONCE = 4096
_FIRST_READ = 4 << 10
_RUN_GAP_MAX = 128 << 10
"""The largest distance of two entries that are read together."""
_RUN_MIN = 4
"""With fewer entries it does not pay to read them together."""
_NEAR = 8 << 10
"""If the next entry is at most so many bytes away, everything up to it is read, because it is most likely the
one record."""


class PointReader:
    """Finds entries wherever they are. Any thread may call, and no method takes a lock."""

    def __init__(self, slot: Slot, index: IndexReader, cache: LocationCache, logs: OpenEntryLogs) -> None:
        self._slot = slot
        self._index = index
        self._cache = cache
        self._logs = logs

    def entry(self, ledger_id: int, entry_id: int, digester: Digester) -> Entry | Missing | Unreadable:
        """Return the entry, its ids verified, and its digest if `digester` can verify it."""
        if digester.digest_type is not _CRC32C:
            return _decoded(self._stored(ledger_id, entry_id), ledger_id, entry_id, digester)
        for table in self._slot.tables.both:
            entries = table.find(ledger_id)
            if entries is not None:
                entry = entries.plain(ledger_id, entry_id)
                if entry is not None:
                    return entry
                stored = _in_table(entries, entry_id)
                if stored is not MISSING:
                    return _decoded(stored, ledger_id, entry_id, digester)
        return self.logged(ledger_id, entry_id)

    def logged(self, ledger_id: int, entry_id: int) -> Entry | Missing | Unreadable:
        """Return an entry that is in no table, of a ledger with CRC-32C."""
        place, following = self._cache.known(ledger_id, entry_id)
        if not place:
            # Do not ask the index for an id that its keys cannot hold.
            found = self._cache.find(ledger_id, entry_id) if 0 <= entry_id <= ID_MAX else None
            if found is None:
                return MISSING
            place, following = found, 0
        log = self._logs.find(place >> 32)
        size = following - place if 0 < following - place <= _NEAR else _FIRST_READ
        try:
            if log is None:
                record = self._logs.read(place, size)
            else:
                log.is_used = True
                record = log.read((place & OFFSET) - LENGTH_WORD_SIZE, size)
        except OSError as error:
            found_there: _LocatedRecord | Unreadable = _unreadable(place, str(error), error)
        else:
            entry = decode_crc32c(record, ledger_id, entry_id)
            if entry is not None:
                return entry
            found_there = self._whole(place, record)
        stored = self._settled(ledger_id, entry_id, place, found_there)
        return _decoded(stored, ledger_id, entry_id, _PLAIN)

    def crc32c_data(self, ledger_id: int, entry_id: int) -> bytes | Missing | Unreadable:
        """Do what `data` does for a ledger with CRC-32C, in fewer calls for nearly every entry."""
        place = None
        for table in self._slot.tables.both:
            entries = table.find(ledger_id)
            if entries is not None:
                try:
                    record = entries.get(entry_id)
                except EntryUnreadable:
                    record = None  # `data` returns the reason
                if record is not None:
                    break
        else:
            place, following = self._cache.known(ledger_id, entry_id)
            log = self._logs.find(place >> 32) if place else None
            if log is None:
                return self.data(ledger_id, entry_id, _PLAIN)
            log.is_used = True
            size = following - place if 0 < following - place <= _NEAR else _FIRST_READ
            try:
                record = log.read((place & OFFSET) - LENGTH_WORD_SIZE, size)
            except OSError as error:
                found = self._settled(ledger_id, entry_id, place, _unreadable(place, str(error), error))
                return _verified_data(found, ledger_id, entry_id, _PLAIN)
        if len(record) >= FRONT_SIZE:
            length, *ids, confirmed, ledger_length, checksum = FRONT.unpack_from(record)
            data = record[LENGTH_WORD_SIZE : LENGTH_WORD_SIZE + length]
            if (
                len(data) == length
                and ids == [ledger_id, entry_id]
                and confirmed >= NO_ENTRY
                and ledger_length >= 0
                and checksum == crc32c(data[CRC32C_OVERHEAD:], crc32c(data[: entry_format.HEAD.size]))
            ):
                return data
        stored: _LocatedRecord | Missing | Unreadable = _LocatedRecord(record, None)
        if place is not None:
            stored = self._settled(ledger_id, entry_id, place, self._whole(place, record))
        return _verified_data(stored, ledger_id, entry_id, _PLAIN)

    def crc32c_run(self, ledger_id: int, first_id: int, count: int, size_max: int) -> list[bytes]:
        """Return consecutive entries of a ledger with CRC-32C as they were added, verified.

        As many as lie together from the first on, at most `count`, and no more when they have `size_max`
        bytes. None if nothing is won by that, or if anything is wrong with the first one: `data` finds out.
        """
        for table in self._slot.tables.both:
            in_memory = table.ids_from(ledger_id, first_id, 1)
            if in_memory and in_memory[0] == first_id:
                fronts, payloads = table.parts(ledger_id, first_id, count, FRONT_SIZE)
                return run_of_parts((ledger_id, first_id), fronts, payloads, size_max)
            if in_memory:
                # Not beyond it, because a copy in a table is newer than one in a log.
                count = min(count, in_memory[0] - first_id)
        if not 0 <= first_id <= ID_MAX - count:
            return []
        locations = self._cache.locations(ledger_id, first_id, count)
        start = end = locations[0] if locations else 0
        stop, stride = 0, _FIRST_READ
        for place in locations:
            if not 0 <= place - end <= _RUN_GAP_MAX or place - start >= size_max:
                break
            stride, end, stop = max(stride, place - end), place, stop + 1
        if not start or stop < _RUN_MIN:
            return []
        try:
            block = self._logs.read(start, end - start + stride)
        except OSError:
            return []
        return run_of_block((ledger_id, first_id), block, [place - start for place in locations[:stop]])

    def data(self, ledger_id: int, entry_id: int, digester: Digester | None) -> bytes | Missing | Unreadable:
        """Return the entry's bytes as they were added. Verifies the ids, and the digest if there is a
        digester."""
        return _verified_data(self._stored(ledger_id, entry_id), ledger_id, entry_id, digester)

    def head(self, ledger_id: int, entry_id: int) -> Head | Missing | Unreadable:
        """Return the entry's fields before the digest, which is not verified."""
        return _head(self._stored(ledger_id, entry_id), ledger_id, entry_id)

    def _stored(self, ledger_id: int, entry_id: int) -> _LocatedRecord | Missing | Unreadable:
        """Return the entry's record, unverified."""
        for table in self._slot.tables.both:
            entries = table.find(ledger_id)
            if entries is not None and (stored := _in_table(entries, entry_id)) is not MISSING:
                return stored
        return self._placed(ledger_id, entry_id)

    def _placed(self, ledger_id: int, entry_id: int) -> _LocatedRecord | Missing | Unreadable:
        """Return the record of an entry that is in no table, unverified."""
        # Do not ask the index for an id that its keys cannot hold.
        place = self._cache.find(ledger_id, entry_id) if 0 <= entry_id <= ID_MAX else None
        if place is None:
            return MISSING
        return self._settled(ledger_id, entry_id, place, self._at(place))

    def _settled(
        self, ledger_id: int, entry_id: int, place: int, found: _LocatedRecord | Unreadable
    ) -> _LocatedRecord | Missing | Unreadable:
        """Return what was found at a location, or at a later location of the entry if it has moved.

        A log may be removed between the look-up of a location and the read. So if the entry is not there, the
        index is asked again, until two look-ups return the same location.
        """
        while not (isinstance(found, _LocatedRecord) and _is_of(found.record, ledger_id, entry_id)):
            # The index and not the cache, because the cache may still have the location that was just read.
            present = self._index.find(ledger_id, entry_id)
            if present == place:
                return found
            if present is None:
                return MISSING  # the ledger was deleted meanwhile
            place, found = present, self._at(present)
        return found

    def _at(self, place: int) -> _LocatedRecord | Unreadable:
        """Return the record at a location, unverified."""
        try:
            record = self._logs.read(place, _FIRST_READ)
        except OSError as error:
            return _unreadable(place, str(error), error)
        return self._whole(place, record)

    def _whole(self, place: int, record: bytes) -> _LocatedRecord | Unreadable:
        """Return the record that begins with these bytes, cut where it ends or read again if it is longer."""
        size = _size(record)
        if size > len(record):
            try:
                record = self._logs.read(place, size)
            except OSError as error:
                return _unreadable(place, str(error), error)
        if not LENGTH_WORD_SIZE < size <= len(record):
            return _unreadable(place, "there is no record at its location")
        return _LocatedRecord(record[:size], place)

    # ── the ends of ledgers ──────────────────────────────────────────────────────────────────────────

    def last_id(self, ledger_id: int) -> int | None:
        """Return the largest entry id of the ledger; `None` if it has no entry."""
        in_memory = self._slot.tables.last_id(ledger_id)
        indexed = self._index.last(ledger_id)
        ids = [one for one in (in_memory, indexed[0] if indexed else None) if one is not None]
        return max(ids, default=None)

    def end(self, ledger_id: int, digester: Digester | None) -> LedgerEnd:
        """Return the last entry's id and the ledger's length up to it. Raises if that entry is unreadable."""
        while (last_id := self.last_id(ledger_id)) is not None:
            found = (
                self.head(ledger_id, last_id)
                if digester is None
                else self.entry(ledger_id, last_id, digester)
            )
            if isinstance(found, Unreadable):
                raise unreadable(ledger_id, last_id, found)
            # It can be missing only if the ledger was deleted meanwhile.
            if found is not MISSING:
                return LedgerEnd(last_id, found.length)
        return EMPTY

    def last_add_confirmed(self, state: LedgerState, first_id: int, digester: Digester) -> int:
        """Return the last add confirmed: the larger of the end of the entries without a gap, and the value
        that the last entry carries.

        Entries before `first_id` were truncated, so that none of them is missing.
        """
        # Load each once, because a delete may replace them at any time.
        end, prefix = state.end, state.prefix
        if end == EMPTY:
            return NO_ENTRY
        start = max(prefix.first_missing, first_id)
        prefix.first_missing = self._first_missing(state.ledger_id, first_id, start, end.entry_id)
        last = self.entry(state.ledger_id, end.entry_id, digester)
        if isinstance(last, Unreadable):
            raise unreadable(state.ledger_id, end.entry_id, last)
        return max(prefix.first_missing - 1, NO_ENTRY if last is MISSING else last.last_add_confirmed)

    def _first_missing(self, ledger_id: int, first_id: int, start: int, last_id: int) -> int:
        """Return the first missing id from `start` on; the id after the last one if none is missing."""
        while start <= last_id:
            end = self._end_without_gap(ledger_id, first_id, start)
            if end == start:
                break
            start = end
        return start

    def _end_without_gap(self, ledger_id: int, first_id: int, start: int) -> int:
        """Return an id before which no entry from `start` on is missing: `start` only if that is missing."""
        for table in self._slot.tables.both:
            entries = table.find(ledger_id)
            if entries is not None and entries.has(start):
                return entries.end_of_stretch(start)
        # Counted first, so that entries that are committed in between cannot make up for a missing one.
        count, indexed = self._index.count(ledger_id), self._index.last(ledger_id)
        if indexed is None or indexed[0] < start:
            return start
        if count == indexed[0] + 1 - first_id:
            # Because no id has two locations, each id from the first to the last one has one.
            return indexed[0] + 1
        locations = self._index.locations(ledger_id, start, _LOCATIONS_AT_ONCE)
        return next(
            (id_ for id_, (found, _) in enumerate(locations, start) if found != id_), start + len(locations)
        )

    def has(self, ledger_id: int, entry_id: int) -> bool:
        """Return whether there is such an entry, without reading its bytes."""
        for table in self._slot.tables.both:
            entries = table.find(ledger_id)
            if entries is not None and entries.has(entry_id):
                return True
        return self._cache.find(ledger_id, entry_id) is not None

    def entry_ids(self, ledger_id: int) -> list[range]:
        """Return the ids of a ledger's entries as ascending ranges."""
        # The tables first, because entries that leave them meanwhile are then found in the index.
        tables = self._slot.tables
        memories = [tables.active] if tables.frozen is None else [tables.active, tables.frozen]
        in_memory = [table.ids_from(ledger_id, 0, _ALL) for table in memories]
        return list(ranges(merge(*in_memory, self._indexed_ids(ledger_id))))

    def _indexed_ids(self, ledger_id: int) -> Iterator[int]:
        first = 0
        while locations := self._index.locations(ledger_id, first, _LOCATIONS_AT_ONCE):
            yield from (entry_id for entry_id, _ in locations)
            first = locations[-1][0] + 1

    def ledgers(self) -> list[int]:
        """Return every ledger with an entry, ascending."""
        tables = self._slot.tables
        frozen = tables.frozen.ledgers() if tables.frozen else []
        return sorted({*tables.active.ledgers(), *frozen, *self._index.ledgers()})

    def close(self) -> None:
        self._logs.close()


def ranges(ids: Iterable[int]) -> Iterator[range]:
    """Convert ascending ids, which may be repeated, to ranges without a gap."""
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


class _LocatedRecord(NamedTuple):
    """A record as it was found, with its packed location; `None` if it was in memory."""

    record: bytes
    place: int | None


def _is_of(record: bytes, ledger_id: int, entry_id: int) -> bool:
    """Return whether the record has the ids of this entry."""
    return len(record) >= PREFIX.size and PREFIX.unpack_from(record)[1:] == (ledger_id, entry_id)


def _in_table(entries: LedgerEntries, entry_id: int) -> _LocatedRecord | Missing | Unreadable:
    try:
        record = entries.get(entry_id)
    except EntryUnreadable as error:  # because the entries after an opening may be in journals
        return Unreadable(error.reason, error.file, error.offset, error.__cause__)
    return MISSING if record is None else _LocatedRecord(record, None)


def _head(
    stored: _LocatedRecord | Missing | Unreadable, ledger_id: int, entry_id: int
) -> Head | Missing | Unreadable:
    if not isinstance(stored, _LocatedRecord):
        return stored
    head = entry_format.decode_head(record_format.entry_bytes(stored.record))
    if isinstance(head, Damaged):
        return _unreadable(stored.place, head.flaw.value)
    if (head.ledger_id, head.entry_id) != (ledger_id, entry_id):
        return _unreadable(stored.place, _ANOTHER)
    return head


def _verified_data(
    stored: _LocatedRecord | Missing | Unreadable, ledger_id: int, entry_id: int, digester: Digester | None
) -> bytes | Missing | Unreadable:
    head = _head(stored, ledger_id, entry_id)
    if not isinstance(head, entry_format.Head):
        return head
    assert isinstance(stored, _LocatedRecord), "it has a head"
    data = record_format.entry_bytes(stored.record)
    if digester is not None and entry_format.check_digest(data, digester) is DigestCheck.MISMATCH:
        return _unreadable(stored.place, Flaw.DIGEST.value)
    return bytes(data)


def _decoded(
    stored: _LocatedRecord | Missing | Unreadable, ledger_id: int, entry_id: int, digester: Digester
) -> Entry | Missing | Unreadable:
    if not isinstance(stored, _LocatedRecord):
        return stored
    if digester.digest_type is _CRC32C:
        # The common case. Otherwise the code below finds out what is wrong.
        entry = decode_crc32c(stored.record, ledger_id, entry_id)
        if entry is not None:
            return entry
    decoded = entry_format.decode(record_format.entry_bytes(stored.record), digester)
    if isinstance(decoded, Damaged):
        return _unreadable(stored.place, decoded.flaw.value)
    if (decoded.ledger_id, decoded.entry_id) != (ledger_id, entry_id):
        return _unreadable(stored.place, _ANOTHER)
    return decoded


def _size(start: bytes) -> int:
    """Return the size of the record, its length word included; 0 if the length word is invalid."""
    if len(start) < LENGTH_WORD_SIZE:
        return 0
    (length,) = _LENGTH.unpack_from(start)
    return LENGTH_WORD_SIZE + length if 0 < length <= RECORD_SIZE_MAX else 0


def _unreadable(place: int | None, reason: str, cause: OSError | None = None) -> Unreadable:
    if place is None:
        return Unreadable(reason)
    location = EntryLocation.unpack(place)
    return Unreadable(reason, filenames.entry_log(location.log_id), location.position.offset, cause)


def unreadable(ledger_id: int, entry_id: int, found: Unreadable) -> EntryUnreadable:
    """Return the error that reports an unreadable entry to a caller."""
    error = EntryUnreadable(ledger_id, entry_id, found.reason, found.file, found.offset)
    error.__cause__ = found.cause
    return error
