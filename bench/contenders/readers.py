"""Contenders that read what was added before, one by one or all in order, from a warm cache.

Each is an adding contender that is filled first. An answer of a wrong length fails the turn.
"""

from __future__ import annotations

import random
import time
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

from contest.workload import WrongAnswer

from contenders.adding_contender import AddingContender
from contenders.our_store import Ours
from contenders.peers import KEY, LevelDb, Lmdb, RocksDb, Sqlite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import rocksdict
    from contest.result import Figures

    from storage.entry.model import Entry

    Name = tuple[int, int]
    """Ledger and entry."""
    _Get = Callable[[bytes], bytes]

NEWEST = 16
"""Number of ledgers whose newest entry is read in turn."""
_AMPLE_S = 600.0
_US = 1e6
_AHEAD = 1 << 20
_SELECT_ONE = "SELECT v FROM entries WHERE k = ?"
_SELECT_ALL = "SELECT v FROM entries ORDER BY k"
_clock = time.perf_counter


class ReadingContender(AddingContender):
    """The base of all contenders that read. `entries` is the number of entries in each ledger."""

    _newer = 0
    """Number of entries added since to the ledgers whose newest entry is read."""

    def fill(self, entries: int) -> None:
        """Fill all ledgers, with batches to each in turn."""
        self.add(_AMPLE_S, entries * self.work.ledgers // self.work.batch)

    def one_by_one(self, entries: int, count: int) -> Figures:
        """Read `count` entries in a random order, none twice.

        The order is the same for all and in every round.
        """
        made = random.Random(self.work.seed)  # noqa: S311 - repeatable on purpose
        chosen = made.sample(range(entries * self.work.ledgers), count)
        return self._get([self._name(index) for index in chosen])

    def newest(self, entries: int, count: int) -> Figures:
        """Add an entry to some ledgers, then read these newest entries in turn, repeatedly."""
        first = (entries + self._newer) * self.work.ledgers
        self._newer += 1
        names = [self._name(index) for index in range(first, first + min(NEWEST, self.work.ledgers))]
        for name in names:
            self.append(name, self.work.payloads()[0])
        return self._get(names * -(-count // len(names)))

    def scan(self, entries: int) -> Figures:
        """Read all payloads, ordered by ledger and id."""
        count = entries * self.work.ledgers
        start = _clock()
        size = self.total()
        seconds = _clock() - start
        if size != count * self.work.size:
            raise WrongAnswer(f"{size} bytes instead of {count} times {self.work.size}")
        return _figures(count, seconds)

    def _name(self, index: int) -> Name:
        return index % self.work.ledgers + 1, index // self.work.ledgers

    def _get(self, names: Sequence[Name]) -> Figures:
        requests = self.requests(names)
        start = _clock()
        self.get(requests)
        return _figures(len(names), _clock() - start)

    # ── implemented by each contender ────────────────────────────────────────────────────────────────

    def append(self, name: Name, payload: bytes) -> None:
        """Append an entry to its ledger."""
        raise NotImplementedError

    def requests(self, names: Sequence[Name]) -> Sequence[Any]:
        """Return the arguments for `get`. They are made before the timing begins."""
        raise NotImplementedError

    def get(self, requests: Sequence[Any]) -> None:
        """Read the entries one after the other."""
        raise NotImplementedError

    def total(self) -> int:
        """Read all payloads in order, and return their total length."""
        raise NotImplementedError


class OurReader(ReadingContender, Ours):
    """Our store, which verifies every answer."""

    def append(self, name: Name, payload: bytes) -> None:
        ledger_id, entry_id = name
        if self._store.ledger(ledger_id).append(payload) != entry_id:
            raise WrongAnswer("the id of the newest entry is wrong")

    def requests(self, names: Sequence[Name]) -> Sequence[tuple[Callable[[int], Entry], int]]:
        reads = [self._store.ledger(ledger_id).read for ledger_id in range(self.work.ledgers + 1)]
        return [(reads[ledger_id], entry_id) for ledger_id, entry_id in names]

    def get(self, requests: Sequence[tuple[Callable[[int], Entry], int]]) -> None:
        size = self.work.size
        for read, entry_id in requests:
            if len(read(entry_id).payload) != size:
                raise WrongAnswer(entry_id)

    def total(self) -> int:
        ledgers = map(self._store.ledger, range(1, self.work.ledgers + 1))
        return sum(sum(map(len, ledger.payloads())) for ledger in ledgers)


class _PeerReader(ReadingContender):
    def append(self, name: Name, payload: bytes) -> None:
        self.put(KEY.pack(*name), payload)

    def put(self, key: bytes, payload: bytes) -> None:
        raise NotImplementedError

    def requests(self, names: Sequence[Name]) -> Sequence[bytes]:
        return [KEY.pack(*name) for name in names]


class LevelDbReader(LevelDb, _PeerReader):
    """LevelDB, which verifies each block that it reads from a file if the read requests it."""

    def get(self, requests: Sequence[bytes]) -> None:
        size, get = self.work.size, self._database.get
        for key in requests:
            if len(get(key, verify_checksums=True)) != size:
                raise WrongAnswer(key)

    def total(self) -> int:
        values = self._database.iterator(include_key=False, verify_checksums=True, fill_cache=False)
        return sum(map(len, values))


class RocksDbReader(RocksDb, _PeerReader):
    """RocksDB, which verifies each block that it reads from a file by default."""

    def get(self, requests: Sequence[bytes]) -> None:
        size, get = self.work.size, cast("_Get", self._database.get)
        for key in requests:
            if len(get(key)) != size:
                raise WrongAnswer(key)

    def total(self) -> int:
        values: Iterable[bytes] = self._database.values(read_opt=self._ahead())
        return sum(map(len, values))

    def _ahead(self) -> rocksdict.ReadOptions:
        """Return options with a larger read-ahead, because the default is not the fastest."""
        import rocksdict

        options = rocksdict.ReadOptions()
        options.set_readahead_size(_AHEAD)
        return options


class SqliteReader(Sqlite, _PeerReader):
    """SQLite, with one transaction for all reads. It has no checksums except in its WAL."""

    def get(self, requests: Sequence[bytes]) -> None:
        size, execute = self.work.size, self._connection.execute
        execute("BEGIN")
        for key in requests:
            if len(execute(_SELECT_ONE, (key,)).fetchone()[0]) != size:
                raise WrongAnswer(key)
        execute("COMMIT")

    def total(self) -> int:
        return sum(map(len, map(itemgetter(0), self._connection.execute(_SELECT_ALL))))


class LmdbReader(Lmdb, _PeerReader):
    """LMDB, with one transaction for all reads. It has no checksums."""

    def get(self, requests: Sequence[bytes]) -> None:
        size = self.work.size
        with self._environment.begin() as transaction:
            get = cast("_Get", transaction.get)
            for key in requests:
                if len(get(key)) != size:
                    raise WrongAnswer(key)

    def total(self) -> int:
        with self._environment.begin() as transaction:
            return sum(map(len, transaction.cursor().iternext(keys=False, values=True)))


def _figures(count: int, seconds: float) -> Figures:
    return {"rate": count / seconds, "us": seconds / count * _US, "count": count, "seconds": seconds}
