"""What a long replay has proved and left where it is: a frozen table whose entries are in the journals.

After a crash the journals may hold more than fits into the tables. Nothing of it has to come into memory to
be read, or to be written down by the next checkpoint: until that has ended the journals stay. What is kept
are stretches, some forty bytes for what may be hundreds of entries. Each is held against its checksum once
more when it is written down, and each record against its ids when it is read.

The rows are in memory, as those of any table.
"""

from __future__ import annotations

import errno
import struct
from bisect import bisect_right
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from weakref import finalize

from storage.codec import piece, plain, stretch
from storage.codec.piece import Piece
from storage.codec.record import FRONT_SIZE
from storage.entries import Entries
from storage.errors import EntryUnreadable
from storage.memtable import LEDGER_OVERHEAD, Memtable
from storage.position import LENGTH_WORD_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import ExitStack

    from storage.codec.stretch import Stretch
    from storage.entry import Entry
    from storage.files import ReadFile
    from storage.position import JournalPosition
    from storage.row import LedgerRow

_PREFIX = struct.Struct(">iqq")


class Part(NamedTuple):
    """The stretches of a ledger in one journal, in the order of their ids."""

    file: ReadFile
    packed: bytes


class _Waiting(Entries):
    """The entries of one ledger, part by part, each behind the one before it."""

    __slots__ = ("_last_id", "_ledger_id", "_parts")

    def __init__(self, ledger_id: int, parts: Sequence[Part]) -> None:
        super().__init__(stretch.first_id(parts[0].packed, 0), FRONT_SIZE)
        self._ledger_id = ledger_id
        self._parts = parts
        last = parts[-1].packed
        self._last_id = stretch.nth(last, stretch.count(last) - 1).end_id - 1

    @property
    def last_id(self) -> int:
        return self._last_id

    @property
    def size(self) -> int:
        return sum(len(part.packed) for part in self._parts)

    def __len__(self) -> int:
        return sum(stretch.totals(part.packed)[0] for part in self._parts)

    def has(self, entry_id: int) -> bool:
        return self._found(entry_id) is not None

    def get(self, entry_id: int) -> bytes | None:
        found = self._found(entry_id)
        if found is None:
            return None
        file, one = found
        try:
            record = _record(file, one, entry_id)
        except OSError as error:
            raise self._unreadable(entry_id, file, one, str(error)) from error
        if record[: _PREFIX.size] != _PREFIX.pack(len(record) - LENGTH_WORD_SIZE, self._ledger_id, entry_id):
            raise self._unreadable(entry_id, file, one, "no record stands there")
        return record

    def _unreadable(self, entry_id: int, file: ReadFile, one: Stretch, reason: str) -> EntryUnreadable:
        return EntryUnreadable(self._ledger_id, entry_id, reason, file.name, one.offset)

    def plain(self, ledger_id: int, entry_id: int) -> Entry | None:
        record = self.get(entry_id)
        return None if record is None else plain.decode(record, ledger_id, entry_id)

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
        for _, one in self._stretches(first):
            if len(ids) >= count:
                break
            ids += range(max(first, one.first_id), one.end_id)
        return ids[:count]

    def pieces(self, ledger_id: int) -> Iterator[Piece]:
        ids, sizes, buffers, size = range(0), list[int](), list[bytes](), 0
        for file, one in self._stretches(self.first):
            # Where ledgers take turns each stretch may be one entry: of those that follow on, a piece.
            is_larger = size + one.size > piece.SIZE_MAX or len(ids) + one.number > piece.COUNT_MAX
            if ids and (is_larger or one.first_id != ids.stop):
                yield Piece(ledger_id, ids, sizes, size, buffers)
                ids, sizes, buffers, size = range(0), [], [], 0
            data = _bytes_of(file, one)
            ids = range(ids.start if ids else one.first_id, one.end_id)
            sizes += stretch.sizes(one, data)
            buffers.append(data)
            size += one.size
        if ids:
            yield Piece(ledger_id, ids, sizes, size, buffers)

    def _found(self, entry_id: int) -> tuple[ReadFile, Stretch] | None:
        found = next(self._stretches(entry_id), None)
        return None if found is None or entry_id < found[1].first_id else found

    def _stretches(self, entry_id: int) -> Iterator[tuple[ReadFile, Stretch]]:
        """From the one on that holds the entry, or else the next one."""
        for part in self._parts_from(entry_id):
            for one in stretch.unpack(memoryview(part.packed)[_place_in(part.packed, entry_id) :]):
                if one.end_id > entry_id:
                    yield part.file, one

    def _parts_from(self, entry_id: int) -> Sequence[Part]:
        if len(self._parts) == 1:
            return self._parts
        number = bisect_right(self._parts, entry_id, key=lambda part: stretch.first_id(part.packed, 0))
        return self._parts[max(0, number - 1) :]


def _place_in(packed: bytes, entry_id: int) -> int:
    numbers = range(stretch.count(packed))
    behind = bisect_right(numbers, entry_id, key=partial(stretch.first_id, packed))
    return max(0, behind - 1) * stretch.PACKED_SIZE


def _bytes_of(file: ReadFile, one: Stretch) -> bytes:
    data = file.read(one.offset, one.size)
    # The group was verified when it was replayed. What has changed since must not reach a log.
    if not stretch.is_same(one, data):
        raise OSError(errno.EIO, f"damaged since it was replayed, at {one.offset}", file.name)
    return data


def _record(file: ReadFile, one: Stretch, entry_id: int) -> bytes:
    place = stretch.place(one, entry_id)
    if place is not None:
        start, end = place
        return file.read(one.offset + start, end - start)
    data = file.read(one.offset, one.size)
    # Where each record begins only those in front of it tell.
    return stretch.records(one, data)[entry_id - one.first_id] if stretch.is_same(one, data) else b""


class Backlog(Memtable):
    """Entries that wait in the journals to be written down: frozen from the beginning.

    Holds the journals open as long as anybody holds it. An entry that cannot be read is `EntryUnreadable`.
    """

    def __init__(
        self,
        covers_until: JournalPosition,
        parts: Mapping[int, Sequence[Part]],
        rows: Iterable[LedgerRow],
        files: ExitStack,
    ) -> None:
        """Takes over the files of the parts."""
        super().__init__(covers_until)
        for row in rows:
            self.put_row(row)
        self.freeze()
        for ledger_id, of_ledger in parts.items():
            entries = self._ledgers[ledger_id] = _Waiting(ledger_id, of_ledger)
            self.size += entries.size + LEDGER_OVERHEAD
        # Not when it is written down: a reader that has found it before goes on with it.
        self._close = finalize(self, files.close)

    def close(self) -> None:
        self._close()
