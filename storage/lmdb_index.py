"""The index in LMDB, open: what it answers, and how it changes.

A commit is LMDB's first, and is answered when the checksums of its pages are durable too.
"""

from __future__ import annotations

import errno
import operator
from array import array
from itertools import islice, pairwise, starmap
from typing import TYPE_CHECKING, Self

from storage import page_sums
from storage.codec import index as codec
from storage.codec import index_state as state_codec
from storage.codec import row as row_codec
from storage.entry import ID_MAX
from storage.gate import Gate
from storage.lmdb_environment import Batch, LmdbEnvironment, Run
from storage.outcome import Damaged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import TracebackType

    from storage.files import Directory
    from storage.index_state import IndexState
    from storage.page_sums import PageSums
    from storage.row import LedgerRow

    _Commit = Callable[[Batch, bytes | None], None]

_LEDGERS_AT_ONCE = 1000
_ROWS_AT_ONCE = 1000

_MANY = 256
_ALL_FACTOR = 4
"""Is a ledger no larger than so many times what is asked of it, all its places are fetched: LMDB gives out
whole pages of them in a fourth of the time that it takes one by one."""

# Guessed generously: a page is at least a quarter full, and a tree has a few levels.
_PAGES_OF_A_COMMIT = 64
_PAGES_OF_A_KEY = 4
_BYTES_OF_A_PAGE = 1024


class LmdbIndex:
    """An open index."""

    def __init__(
        self, environment: LmdbEnvironment, sums: PageSums | None, inner: Directory, directory: Directory
    ) -> None:
        self._environment = environment
        self._sums = sums
        self._inner = inner
        self._directory = directory
        self._committing = Gate(inner.path)

    def state(self) -> IndexState:
        state = state_codec.decode(self._environment.state())
        if isinstance(state, Damaged):
            raise OSError(errno.EIO, f"the index's state: {state}", self._inner.path)
        return state

    def find(self, ledger_id: int, entry_id: int) -> int | None:
        value = self._environment.value_from(codec.encode_key(ledger_id), codec.encode_floor(entry_id))
        if value is None:
            return None
        found, location = codec.split_value(value)
        return location if found == entry_id else None

    def places(self, ledger_id: int, first: int, count: int) -> list[tuple[int, int]]:
        key = codec.encode_key(ledger_id)
        with self._environment.reading() as cursor:
            if count >= _MANY and cursor.set_key(key) and cursor.count() <= _ALL_FACTOR * count:
                size = codec.VALUE_SIZE
                pairs = cursor.getmulti([key], dupdata=True, dupfixed_bytes=size, keyfixed=True)
                return codec.split_pairs(pairs, first, count)
            if not cursor.set_range_dup(key, codec.encode_floor(first)):
                return []
            return list(map(codec.split_value, islice(cursor.iternext_dup(), count)))

    def last(self, ledger_id: int) -> tuple[int, int] | None:
        value = self._environment.last_value(codec.encode_key(ledger_id))
        return None if value is None else codec.split_value(value)

    def count(self, ledger_id: int) -> int:
        with self._environment.reading() as cursor:
            return cursor.count() if cursor.set_key(codec.encode_key(ledger_id)) else 0

    def ledgers(self) -> Iterator[int]:
        # A part at a time: who stops in the middle must hold no snapshot.
        part = self._ledgers_from(0)
        while part:
            yield from part
            part = self._ledgers_from(part[-1] + 1) if part[-1] < ID_MAX else []

    def _ledgers_from(self, first: int) -> list[int]:
        with self._environment.reading() as cursor:
            if not cursor.set_range(codec.encode_key(first)):
                return []
            keys = cursor.iternext_nodup(keys=True, values=False)
            return codec.split_keys(islice(keys, _LEDGERS_AT_ONCE))

    def rows(self) -> Iterator[LedgerRow]:
        part = self._rows_from(0)  # a part at a time, as above
        while part:
            yield from part
            after = part[-1].ledger_id + 1
            part = self._rows_from(after) if after <= ID_MAX else []

    def _rows_from(self, first: int) -> list[LedgerRow]:
        with self._environment.reading_rows() as cursor:
            if not cursor.set_range(codec.encode_key(first)):
                return []
            items = list(islice(cursor.iternext(), _ROWS_AT_ONCE))
        return list(starmap(self._row, items))

    def _row(self, key: bytes, value: bytes) -> LedgerRow:
        row = row_codec.decode(value)
        if isinstance(row, Damaged):
            raise OSError(errno.EIO, f"the index's row {key.hex()}: {row}", self._inner.path)
        if codec.encode_key(row.ledger_id) != key:
            raise OSError(
                errno.EIO, f"the index's row {key.hex()} is ledger {row.ledger_id}'s", self._inner.path
            )
        return row

    def change(self) -> LmdbChange:
        return LmdbChange(self._commit)

    def _commit(self, batch: Batch, state: bytes | None) -> None:
        self._committing.enter()
        try:
            if self._sums is None:
                self._environment.commit(batch, state)  # LMDB refuses: opened for reading
                return
            self._sums.prepare(_record_size(batch, state, self._sums.count))
            self._environment.commit(batch, state)
            self._sums.note()
        finally:
            self._committing.leave()

    @property
    def is_beside_a_writer(self) -> bool:
        """Of one that is viewed: whether another process has it open for writing."""
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


def _record_size(batch: Batch, state: bytes | None, pages: int) -> int:
    """About what the checksums of the pages take that a commit will write, rather more than less."""
    keys = len(batch.runs) + len(batch.removed) + len(batch.rows)
    size = sum(len(run.entry_ids) for run in batch.runs) * codec.VALUE_SIZE
    size += sum(map(len, batch.rows.values())) + len(state or b"")
    written = _PAGES_OF_A_COMMIT + _PAGES_OF_A_KEY * keys + size // _BYTES_OF_A_PAGE
    gone = written + (pages if batch.removed else 0)
    return page_sums.record_size(written, gone)


class LmdbChange:
    """In memory until the commit, 16 bytes an entry: in a map that is too small LMDB has to start again."""

    def __init__(self, commit: _Commit) -> None:
        self._commit = commit
        self._batch: Batch | None = Batch()

    def put(self, ledger_id: int, entry_ids: Sequence[int], locations: Sequence[int]) -> None:
        _check(ledger_id, entry_ids, locations)
        self._open_batch().runs.append(Run(ledger_id, array("q", entry_ids), array("q", locations)))

    def put_rows(self, rows: Iterable[LedgerRow]) -> None:
        encoded = self._open_batch().rows
        for row in rows:
            encoded[_key(row.ledger_id)] = row_codec.encode(row)

    def remove(self, ledger_ids: Iterable[int]) -> None:
        self._open_batch().removed.update(map(_key, ledger_ids))

    def commit(self, state: IndexState | None) -> None:
        batch, self._batch = self._open_batch(), None
        self._commit(batch, None if state is None else state_codec.encode(state))

    def _open_batch(self) -> Batch:
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
    return codec.encode_key(ledger_id)


def _check(ledger_id: int, entry_ids: Sequence[int], locations: Sequence[int]) -> None:
    """LMDB would keep two places of one entry as two values, and sort a negative id behind all others."""
    assert len(entry_ids) == len(locations), "a place for each entry"
    assert min((ledger_id, *entry_ids[:1])) >= 0, "ids are not negative"
    assert min(locations, default=1) > 0, "0 is no place"
    if not isinstance(entry_ids, range) or entry_ids.step < 1:  # most are: a sixth of what a commit costs
        assert all(starmap(operator.lt, pairwise(entry_ids))), "entries ascend"
