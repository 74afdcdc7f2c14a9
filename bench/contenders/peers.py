"""The peers, with default settings except for those in `SETTINGS`. Each add is synced before its answer.

Keys have 16 bytes, ledger and entry in big-endian order, like the ids of our entries. Each peer is used in
the fastest way that its binding offers: with batches if it accepts them, and with `map` as the only Python
between entries.
"""

from __future__ import annotations

import sqlite3
import struct
from collections import deque
from functools import partial
from itertools import count, repeat
from threading import Lock
from typing import TYPE_CHECKING

import lmdb

from contenders.adding_contender import AddingContender

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import plyvel
    import rocksdict

SETTINGS = {
    "plyvel": "LevelDB; compression off; put(sync=True), write_batch(sync=True); reads with "
    "verify_checksums, all in order without fill_cache; to be crashed, a write buffer of 1 GiB",
    "rocksdict": "RocksDB, raw mode; compression off; WriteOptions.sync; verifies what it reads by default, "
    "all in order with a readahead_size of 1 MiB; to be crashed, a write buffer of 1 GiB",
    "sqlite3": "journal_mode=WAL, synchronous=FULL; table (k BLOB PRIMARY KEY, v BLOB), faster than "
    "the same WITHOUT ROWID; a transaction for each add or batch; threads share a connection; one "
    "transaction for all reads of a round; to be crashed, also with wal_autocheckpoint=0",
    "lmdb": "sync, no write map; map of 64 GiB; a transaction for each add or batch; putmulti, appending "
    "where there is one ledger and one writer; one transaction for all reads of a round",
}
"""All settings that are not defaults. Our store does not compress, either, and the data is pseudo-random."""

PACKAGES = {"plyvel": "plyvel", "rocksdict": "rocksdict", "sqlite3": "", "lmdb": "lmdb"}
"""Peer -> its distribution, or an empty string if it is part of Python."""

KEY = struct.Struct(">QQ")
_MAP_SIZE = 64 << 30


def open_leveldb(path: Path, write_buffer: int | None = None) -> plyvel.DB:
    import plyvel

    return plyvel.DB(str(path), create_if_missing=True, compression=None, write_buffer_size=write_buffer)


def open_rocksdb(path: Path, write_buffer: int | None = None) -> rocksdict.Rdict:
    import rocksdict

    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)  # noqa: FBT003 - the signature of rocksdict
    options.set_compression_type(rocksdict.DBCompressionType.none())
    if write_buffer is not None:
        options.set_write_buffer_size(write_buffer)
    return rocksdict.Rdict(str(path), options)


def open_sqlite(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS entries (k BLOB PRIMARY KEY, v BLOB)")
    return connection


def open_lmdb(path: Path) -> lmdb.Environment:
    return lmdb.open(str(path), map_size=_MAP_SIZE)


def keys_of(ledger_id: int, entry_ids: Iterable[int]) -> Iterator[bytes]:
    """Return the keys of entries of one ledger."""
    return map(KEY.pack, repeat(ledger_id), entry_ids)


class _OtherStore(AddingContender):
    def writer(self, number: int) -> Callable[[], object]:
        if self.work.batch == 1:
            # `map` avoids a Python function between the clock and the timed call.
            return self.puts(keys_of(number + 1, count()), self.work.each()).__next__
        runs, batches, write = self.work.runs(number), self.work.batches(), self.write
        return lambda: write(keys_of(*next(runs)), next(batches))

    def puts(self, keys: Iterator[bytes], payloads: Iterator[bytes]) -> Iterator[object]:
        """Return an iterator that adds one entry at each step, durable when the step ends."""
        return map(self.put, keys, payloads)

    def put(self, key: bytes, payload: bytes) -> None:
        """Add one entry, durable on return."""
        raise NotImplementedError

    def write(self, keys: Iterable[bytes], payloads: Sequence[bytes]) -> None:
        """Add a batch atomically, durable on return."""
        raise NotImplementedError


class LevelDb(_OtherStore):
    """LevelDB through plyvel."""

    def __init__(self, place: Path, write_buffer: int | None = None, **work: int) -> None:
        super().__init__(**work)
        self._database = open_leveldb(place / "db", write_buffer)

    def puts(self, keys: Iterator[bytes], payloads: Iterator[bytes]) -> Iterator[object]:
        return map(partial(self._database.put, sync=True), keys, payloads)

    def put(self, key: bytes, payload: bytes) -> None:
        self._database.put(key, payload, sync=True)

    def write(self, keys: Iterable[bytes], payloads: Sequence[bytes]) -> None:
        with self._database.write_batch(sync=True) as batch:
            _exhaust(map(batch.put, keys, payloads))

    def shut(self) -> None:
        self._database.close()


class RocksDb(_OtherStore):
    """RocksDB through rocksdict."""

    def __init__(self, place: Path, write_buffer: int | None = None, **work: int) -> None:
        import rocksdict

        super().__init__(**work)
        self._database = open_rocksdb(place / "db", write_buffer)
        self._options = rocksdict.WriteOptions()
        self._options.sync = True
        self._batch = rocksdict.WriteBatch

    def puts(self, keys: Iterator[bytes], payloads: Iterator[bytes]) -> Iterator[object]:
        return map(self._database.put, keys, payloads, repeat(self._options))

    def put(self, key: bytes, payload: bytes) -> None:
        self._database.put(key, payload, self._options)

    def write(self, keys: Iterable[bytes], payloads: Sequence[bytes]) -> None:
        batch = self._batch(raw_mode=True)
        _exhaust(map(batch.put, keys, payloads))
        self._database.write(batch, self._options)

    def shut(self) -> None:
        self._database.close()


class Sqlite(_OtherStore):
    """SQLite through the module of Python's standard library."""

    def __init__(self, place: Path, **work: int) -> None:
        super().__init__(**work)
        self._connection = open_sqlite(place / "db")
        # All writers share a connection, because writers with their own connections poll the lock with
        # sleeps.
        self._lock = Lock()

    def put(self, key: bytes, payload: bytes) -> None:
        with self._lock:
            self._connection.execute("INSERT INTO entries VALUES (?, ?)", (key, payload))

    def write(self, keys: Iterable[bytes], payloads: Sequence[bytes]) -> None:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            rows = zip(keys, payloads, strict=True)
            self._connection.executemany("INSERT INTO entries VALUES (?, ?)", rows)
            self._connection.execute("COMMIT")

    def shut(self) -> None:
        self._connection.close()


class Lmdb(_OtherStore):
    """LMDB through py-lmdb."""

    def __init__(self, place: Path, **work: int) -> None:
        super().__init__(**work)
        self._environment = open_lmdb(place / "db")
        self._appends = self.work.ledgers == self.work.writers == 1

    def put(self, key: bytes, payload: bytes) -> None:
        with self._environment.begin(write=True) as transaction:
            transaction.put(key, payload, append=self._appends)

    def write(self, keys: Iterable[bytes], payloads: Sequence[bytes]) -> None:
        with self._environment.begin(write=True) as transaction:
            transaction.cursor().putmulti(list(zip(keys, payloads, strict=True)), append=self._appends)

    def shut(self) -> None:
        self._environment.close()


def _exhaust(iterator: Iterable[object]) -> None:
    deque(iterator, maxlen=0)
