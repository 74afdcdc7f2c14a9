"""A frozen table whose entries stay in the journals after a long replay.

After a crash the journals may hold more than fits into the tables. Entries that are proven durable need not
be read into memory: readers and the next checkpoint read them from the journals, which stay until that
checkpoint has ended. The table keeps extents, some forty bytes for what may be hundreds of entries. An extent
is verified against its checksum again when it is checkpointed, and a record against its ids when it is read.

The ledger metadata is in memory, as in any table.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from weakref import finalize

from storage.entry import record_chunk
from storage.entry.position import LENGTH_WORD_SIZE
from storage.entry.record_chunk import RecordChunk
from storage.entry.record_format import FRONT_SIZE, PREFIX
from storage.errors import EntryUnreadable
from storage.journal import extents
from storage.memtable.ledger_entries import LedgerEntries
from storage.memtable.table import LEDGER_OVERHEAD, Memtable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import ExitStack

    from storage.disk.files import ReadFile
    from storage.entry.ledger_record import LedgerRecord
    from storage.entry.model import Entry
    from storage.entry.position import JournalPosition
    from storage.journal.extents import JournalExtent


class ExtentsInJournal(NamedTuple):
    """The extents of a ledger in one journal, in the order of their ids."""

    file: ReadFile
    packed: bytes


class _JournaledEntries(LedgerEntries):
    """The entries of one ledger, in one part for each journal."""

    __slots__ = ("_last_id", "_ledger_id", "_parts")

    def __init__(self, ledger_id: int, parts: Sequence[ExtentsInJournal]) -> None:
        super().__init__(extents.first_id(parts[0].packed, 0), FRONT_SIZE)
        self._ledger_id = ledger_id
        self._parts = parts
        last = parts[-1].packed
        self._last_id = extents.nth(last, extents.count(last) - 1).end_id - 1

    @property
    def last_id(self) -> int:
        return self._last_id

    @property
    def size(self) -> int:
        return sum(len(part.packed) for part in self._parts)

    def __len__(self) -> int:
        return sum(extents.totals(part.packed)[0] for part in self._parts)

    def has(self, entry_id: int) -> bool:
        return entry_id >= self.floor and self._find(entry_id) is not None

    def end_of_stretch(self, entry_id: int) -> int:
        found = self._find(entry_id)
        return entry_id + 1 if found is None else found[1].end_id

    def get(self, entry_id: int) -> bytes | None:
        found = self._find(entry_id) if entry_id >= self.floor else None
        if found is None:
            return None
        file, one = found
        try:
            record = _record(file, one, entry_id)
        except OSError as error:
            raise self._unreadable(entry_id, file, one, str(error)) from error
        if record[: PREFIX.size] != PREFIX.pack(len(record) - LENGTH_WORD_SIZE, self._ledger_id, entry_id):
            raise self._unreadable(entry_id, file, one, "no record stands there")
        return record

    def _unreadable(self, entry_id: int, file: ReadFile, one: JournalExtent, reason: str) -> EntryUnreadable:
        return EntryUnreadable(self._ledger_id, entry_id, reason, file.name, one.offset)

    def plain(self, ledger_id: int, entry_id: int) -> Entry | None:  # noqa: ARG002 - the base's signature
        return None  # because `get` reads each entry from its file

    def parts(self, first: int, count: int, front_size: int) -> tuple[bytes, list[bytes]]:
        fronts, payloads = [], []
        for entry_id in range(first, first + count):
            record = self.get(entry_id)
            if record is None or len(record) < front_size:
                break
            fronts.append(record[:front_size])
            payloads.append(record[front_size:])
        return b"".join(fronts), payloads

    def ids_from(self, first: int, count: int) -> list[int]:
        ids: list[int] = []
        first = max(first, self.floor)
        for _, one in self._extents(first):
            if len(ids) >= count:
                break
            ids += range(max(first, one.first_id), one.end_id)
        return ids[:count]

    def chunks(self, ledger_id: int) -> Iterator[RecordChunk]:
        ids, sizes, buffers, size = range(0), list[int](), list[bytes](), 0
        # An extent with truncated entries is written as a whole, and they get no location.
        for file, one in self._extents(max(self.first, self.floor)):
            # If writers of many ledgers alternate, an extent may be one entry, so successive ones are joined.
            is_larger = (
                size + one.size > record_chunk.SIZE_MAX or len(ids) + one.number > record_chunk.COUNT_MAX
            )
            if ids and (is_larger or one.first_id != ids.stop):
                yield RecordChunk(ledger_id, ids, sizes, size, buffers)
                ids, sizes, buffers, size = range(0), [], [], 0
            data = _verified_bytes(file, one)
            ids = range(ids.start if ids else one.first_id, one.end_id)
            sizes += extents.sizes(one, data)
            buffers.append(data)
            size += one.size
        if ids:
            yield RecordChunk(ledger_id, ids, sizes, size, buffers)

    def _find(self, entry_id: int) -> tuple[ReadFile, JournalExtent] | None:
        found = next(self._extents(entry_id), None)
        return None if found is None or entry_id < found[1].first_id else found

    def _extents(self, entry_id: int) -> Iterator[tuple[ReadFile, JournalExtent]]:
        """Yield the extents from the one that holds the entry on, or from the next one."""
        for part in self._parts_from(entry_id):
            for one in extents.unpack(memoryview(part.packed)[_position_in(part.packed, entry_id) :]):
                if one.end_id > entry_id:
                    yield part.file, one

    def _parts_from(self, entry_id: int) -> Sequence[ExtentsInJournal]:
        if len(self._parts) == 1:
            return self._parts
        number = bisect_right(self._parts, entry_id, key=lambda part: extents.first_id(part.packed, 0))
        return self._parts[max(0, number - 1) :]


def _position_in(packed: bytes, entry_id: int) -> int:
    numbers = range(extents.count(packed))
    behind = bisect_right(numbers, entry_id, key=partial(extents.first_id, packed))
    return max(0, behind - 1) * extents.PACKED_SIZE


def _verified_bytes(file: ReadFile, one: JournalExtent) -> bytes:
    data = file.read(one.offset, one.size)
    # The group was verified when it was replayed. Damage since then must not reach an entry log.
    if not extents.is_same(one, data):
        raise OSError(errno.EIO, f"damaged since it was replayed, at {one.offset}", file.name)
    return data


def _record(file: ReadFile, one: JournalExtent, entry_id: int) -> bytes:
    place = extents.place(one, entry_id)
    if place is not None:
        start, end = place
        return file.read(one.offset + start, end - start)
    data = file.read(one.offset, one.size)
    # Only the records before it tell where a record begins.
    return extents.records(one, data)[entry_id - one.first_id] if extents.is_same(one, data) else b""


class JournalBackedTable(Memtable):
    """A frozen table whose entries are read from the journals.

    It keeps the journals open as long as it is referenced. An entry that cannot be read is `EntryUnreadable`.
    """

    def __init__(
        self,
        covers_until: JournalPosition,
        parts: Mapping[int, Sequence[ExtentsInJournal]],
        rows: Iterable[LedgerRecord],
        files: ExitStack,
    ) -> None:
        """Take over the files of the parts, and close them at the end."""
        super().__init__(covers_until)
        for row in rows:
            self.put_row(row)
        self.freeze()
        for ledger_id, of_ledger in parts.items():
            entries = self._ledgers[ledger_id] = _JournaledEntries(ledger_id, of_ledger)
            self.size += entries.size + LEDGER_OVERHEAD
        # Not closed by the checkpoint, because a reader that found the table before goes on with it.
        self._close = finalize(self, files.close)

    @property
    def added(self) -> int:
        """Return 0, because none of its entries was added since the store was opened."""
        return 0

    def close(self) -> None:
        self._close()
