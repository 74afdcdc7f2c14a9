"""The index in LMDB: look-ups, and the order of a commit (`LmdbIndex._commit`)."""

from __future__ import annotations

import errno
import operator
from array import array
from itertools import islice, pairwise, starmap
from typing import TYPE_CHECKING, Any, Self

from storage.entry import ledger_record_format
from storage.entry.ledger_record_table import LedgerRecordTable, table_of
from storage.entry.model import ID_MAX
from storage.entry.read_result import Damaged
from storage.index import format as index_format
from storage.index import log_counts, state_format
from storage.index.lmdb import page_checksums
from storage.index.lmdb.environment import (
    PUT_AGAIN_MAX,
    IndexBatch,
    LmdbEnvironment,
    LocationMove,
    LocationRun,
)
from storage.index.lmdb.reader_barrier import ReaderBarrier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    from storage.disk.files import Directory
    from storage.entry.ledger_record import LedgerRecord
    from storage.index.lmdb.page_checksums import PageChecksums
    from storage.index.state import IndexState

    _Commit = Callable[[IndexBatch, bytes | None], None]

_LEDGERS_AT_ONCE = 1000
_ROWS_AT_ONCE = 1000
_ENCODED_ROWS_AT_ONCE = 16384
_COUNTED_AT_ONCE = 32768

_MANY = 256
_ALL_FACTOR = 4
"""If a ledger has at most so many times the entries that are asked for, all its locations are fetched,
because LMDB returns whole pages of them four times as fast as single values."""

# Estimates on the safe side: a page is at least a quarter full, and a tree has a few levels.
_PAGES_OF_A_COMMIT = 64
_PAGES_OF_A_KEY = 4
_BYTES_OF_A_PAGE = 1024


class LmdbIndex:
    """An open index. Any thread may read; one change at a time, as the port says."""

    def __init__(
        self, environment: LmdbEnvironment, sums: PageChecksums | None, inner: Directory, directory: Directory
    ) -> None:
        self._environment = environment
        self._sums = sums
        self._inner = inner
        self._directory = directory
        self._decoded: tuple[bytes, IndexState | None] = b"", None
        """The state that was decoded last, with its bytes."""
        self._committing = ReaderBarrier(inner.path)
        """Lets `close` wait for a commit."""

    def state(self) -> IndexState:
        encoded = self._environment.state()
        # Any thread may replace it: each pair is right. An opening asks several times.
        known, state = self._decoded
        if state is None or known != encoded:
            found = state_format.decode(encoded)
            if isinstance(found, Damaged):
                raise OSError(errno.EIO, f"the index's state: {found}", self._inner.path)
            state = found
            self._decoded = encoded, state
        return state

    def find(self, ledger_id: int, entry_id: int) -> int | None:
        value = self._environment.value_from(
            index_format.encode_key(ledger_id), index_format.encode_floor(entry_id)
        )
        if value is None:
            return None
        found, location = index_format.split_value(value)
        return location if found == entry_id else None

    def locations(self, ledger_id: int, first: int, count: int) -> list[tuple[int, int]]:
        key = index_format.encode_key(ledger_id)

        def read(cursor: Any) -> list[tuple[int, int]]:
            if count >= _MANY and cursor.set_key(key) and cursor.count() <= _ALL_FACTOR * count:
                size = index_format.VALUE_SIZE
                pairs = cursor.getmulti([key], dupdata=True, dupfixed_bytes=size, keyfixed=True)
                return index_format.split_pairs(pairs, first, count)
            if not cursor.set_range_dup(key, index_format.encode_floor(first)):
                return []
            return list(map(index_format.split_value, islice(cursor.iternext_dup(), count)))

        return self._environment.read(read)

    def last(self, ledger_id: int) -> tuple[int, int] | None:
        value = self._environment.last_value(index_format.encode_key(ledger_id))
        return None if value is None else index_format.split_value(value)

    def count(self, ledger_id: int) -> int:
        with self._environment.reading() as cursor:
            return cursor.count() if cursor.set_key(index_format.encode_key(ledger_id)) else 0

    def ledgers(self) -> Iterator[int]:
        # A part at a time, so that a caller that stops in the middle holds no snapshot of LMDB.
        part = self._ledgers_from(0)
        while part:
            yield from part
            part = self._ledgers_from(part[-1] + 1) if part[-1] < ID_MAX else []

    def _ledgers_from(self, first: int) -> list[int]:
        with self._environment.reading() as cursor:
            if not cursor.set_range(index_format.encode_key(first)):
                return []
            keys = cursor.iternext_nodup(keys=True, values=False)
            return index_format.split_keys(islice(keys, _LEDGERS_AT_ONCE))

    def count_by_log(self) -> Iterator[Mapping[int, int]]:
        # A part at a time, as above. A part has many small ledgers, or some of the entries of a large one.
        ledger_id, first = 0, 0
        while (part := self._counted_part(ledger_id, first)) is not None:
            counts, ledger_id, first = part
            yield counts

    def _counted_part(self, ledger_id: int, first: int) -> tuple[Mapping[int, int], int, int] | None:
        """Count from an entry of a ledger on. Return the counts by log, and where the next part begins.

        That is a ledger and an entry of it. `None` if nothing is left to be counted.
        """
        if ledger_id > ID_MAX:
            return None
        with self._environment.reading() as cursor:
            if not cursor.set_range(index_format.encode_key(ledger_id)):
                return None
            keys, count = [cursor.key()], cursor.count()
            (found,) = index_format.split_keys(keys)
            if count > _COUNTED_AT_ONCE or (first and found == ledger_id):
                # One value after the other, because LMDB returns many only for whole keys.
                floor = index_format.encode_floor(first if found == ledger_id else 0)
                at_start = cursor.set_range_dup(keys[0], floor)
                values = list(islice(cursor.iternext_dup(), _COUNTED_AT_ONCE)) if at_start else []
                counts = log_counts.of_values(b"".join(values))
                last, _ = index_format.split_value(values[-1]) if values else (ID_MAX, 0)
                return (counts, found, last + 1) if last < ID_MAX else (counts, found + 1, 0)
            while cursor.next_nodup() and (count := count + cursor.count()) <= _COUNTED_AT_ONCE:
                keys.append(cursor.key())
            pairs = cursor.getmulti(keys, dupdata=True, dupfixed_bytes=index_format.VALUE_SIZE, keyfixed=True)
        return log_counts.of_pairs(pairs), index_format.split_keys(keys[-1:])[0] + 1, 0

    def rows(self) -> Iterator[LedgerRecord]:
        part = self._rows_from(0)  # a part at a time, as above
        while part:
            yield from part
            after = part[-1].ledger_id + 1
            part = self._rows_from(after) if after <= ID_MAX else []

    def all_rows(self, like: Mapping[int, LedgerRecord]) -> Mapping[int, LedgerRecord]:
        items = list(self._encoded_rows())
        values = [value for _, value in items]
        encoded = dict(zip(index_format.split_keys(key for key, _ in items), values, strict=True))
        table = LedgerRecordTable()
        others = table.take_like(
            encoded, like if isinstance(like, LedgerRecordTable) else LedgerRecordTable()
        )
        values = list(others.values())
        are_rows = ledger_record_format.have_right_checksums(values) and table.take(values) is None
        if are_rows and table.living.keys() | table.tombstones.keys() == encoded.keys():
            return table
        return table_of(self.rows())  # raises the error of the damaged row

    def _encoded_rows(self) -> Iterator[tuple[bytes, bytes]]:
        first = b""
        while True:
            with self._environment.reading_rows() as cursor:
                if not cursor.set_range(first):
                    return
                part = list(islice(cursor.iternext(), _ENCODED_ROWS_AT_ONCE))
            yield from part
            first = part[-1][0] + b"\0"

    def _rows_from(self, first: int) -> list[LedgerRecord]:
        with self._environment.reading_rows() as cursor:
            if not cursor.set_range(index_format.encode_key(first)):
                return []
            items = list(islice(cursor.iternext(), _ROWS_AT_ONCE))
        return list(starmap(self._row, items))

    def _row(self, key: bytes, value: bytes) -> LedgerRecord:
        row = ledger_record_format.decode(value)
        if isinstance(row, Damaged):
            raise OSError(errno.EIO, f"the index's row {key.hex()}: {row}", self._inner.path)
        if index_format.encode_key(row.ledger_id) != key:
            raise OSError(
                errno.EIO, f"the index's row {key.hex()} belongs to ledger {row.ledger_id}", self._inner.path
            )
        return row

    def used_bytes(self) -> int:
        return self._environment.used_bytes()

    def change(self) -> LmdbChange:
        return LmdbChange(self._commit)

    def _commit(self, batch: IndexBatch, state: bytes | None) -> None:
        """Commit to LMDB and record the checksums of the written pages, in an order that survives a crash."""
        self._committing.enter()
        try:
            if self._sums is None:
                self._environment.commit(batch, state)  # LMDB refuses, because it was opened for reading
                return
            # 1. Room for the record of checksums. Before LMDB's commit, because a full disk must not be met
            #    when LMDB has committed. Now nothing has changed yet.
            self._sums.prepare(_record_size(batch, state, self._sums.count))
            # 2. LMDB writes and syncs the pages, and then the meta page. A crash here leaves pages without
            #    checksums. The next opening checks them against LMDB's allocation of pages.
            self._environment.commit(batch, state)
            # 3. The checksums. Durable before the commit is answered, so that damage to an answered commit is
            #    always recognized.
            self._sums.record_commit()
        finally:
            self._committing.leave()

    @property
    def is_beside_a_writer(self) -> bool:
        """Whether another process has the index open for writing; meaningful for a view only."""
        return self._environment.is_locked

    def sync(self) -> None:
        self._environment.sync()
        self._inner.sync()
        self._directory.sync()

    def close(self) -> None:
        self._committing.close()
        self._environment.close()
        if self._sums is not None:
            self._sums.close()


def _record_size(batch: IndexBatch, state: bytes | None, pages: int) -> int:
    """Return an upper estimate of the size of the record of the pages that a commit will write."""
    keys = len(batch.runs) + len(batch.moves) + len(batch.removed) + len(batch.truncated) + len(batch.rows)
    keys += len(batch.removed_rows)
    entries = sum(len(run.entry_ids) for run in batch.runs) + sum(len(run.after) for run in batch.moves)
    size = entries * index_format.VALUE_SIZE
    size += sum(map(len, batch.rows.values())) + len(state or b"")
    size += len(batch.truncated) * PUT_AGAIN_MAX * index_format.VALUE_SIZE
    written = _PAGES_OF_A_COMMIT + _PAGES_OF_A_KEY * keys + size // _BYTES_OF_A_PAGE
    frees_pages = batch.removed or batch.truncated or batch.removed_rows
    gone = written + (pages if frees_pages else 0)
    return page_checksums.record_size(written, gone)


class LmdbChange:
    """One change, in memory until its commit, because LMDB has to start again if its map is too small.

    Takes 16 bytes for each entry that is put, and 24 for each that is moved.
    """

    def __init__(self, commit: _Commit) -> None:
        self._commit = commit
        self._batch: IndexBatch | None = IndexBatch()

    def put(self, ledger_id: int, entry_ids: Sequence[int], locations: Sequence[int]) -> None:
        _check(ledger_id, entry_ids, locations)
        self._open_batch().runs.append(LocationRun(ledger_id, array("q", entry_ids), array("q", locations)))

    def put_rows(self, rows: Iterable[LedgerRecord]) -> None:
        encoded = self._open_batch().rows
        for row in rows:
            encoded[_key(row.ledger_id)] = ledger_record_format.encode(row)

    def remove(self, ledger_ids: Iterable[int]) -> None:
        self._open_batch().removed.update(map(_key, ledger_ids))

    def remove_before(self, ledger_id: int, entry_id: int) -> None:
        truncated, key = self._open_batch().truncated, _key(ledger_id)
        truncated[key] = max(entry_id, truncated.get(key, 0))

    def move(
        self, ledger_id: int, entry_ids: Sequence[int], before: Sequence[int], after: Sequence[int]
    ) -> None:
        _check(ledger_id, entry_ids, after)
        assert len(before) == len(entry_ids), "a location for each entry"
        run = LocationMove(ledger_id, array("q", entry_ids), array("q", before), array("q", after))
        self._open_batch().moves.append(run)

    def remove_rows(self, ledger_ids: Iterable[int]) -> None:
        self._open_batch().removed_rows.update(map(_key, ledger_ids))

    def commit(self, state: IndexState | None) -> None:
        batch, self._batch = self._open_batch(), None
        self._commit(batch, None if state is None else state_format.encode(state))

    def _open_batch(self) -> IndexBatch:
        assert self._batch is not None, "the change is over"
        return self._batch

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._batch = None


def _key(ledger_id: int) -> bytes:
    assert ledger_id >= 0, "ids are not negative"
    return index_format.encode_key(ledger_id)


def _check(ledger_id: int, entry_ids: Sequence[int], locations: Sequence[int]) -> None:
    """Check the ids, because LMDB would keep an entry twice as two values, and sort negative ids last."""
    assert len(entry_ids) == len(locations), "a location for each entry"
    assert min((ledger_id, *entry_ids[:1])) >= 0, "ids are not negative"
    assert min(locations, default=1) > 0, "0 is no location"
    if (
        not isinstance(entry_ids, range) or entry_ids.step < 1
    ):  # the check takes a sixth of a commit, and most ids are a range
        assert all(starmap(operator.lt, pairwise(entry_ids))), "entries ascend"
