"""The contenders that read: one by one or all in order, from a warm cache, what they were given before.

Each is an adder that is filled first. Every answer has the length that was added, or the turn has failed.
"""

from __future__ import annotations

import random
import time
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

from adder import Adder
from our_store import Ours
from peers import KEY, LevelDb, Lmdb, RocksDb, Sqlite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import rocksdict
    from result import Figures

    from storage.entry import Entry

    Name = tuple[int, int]
    """Ledger and entry."""
    _Get = Callable[[bytes], bytes]

NEWEST = 16
"""Of so many ledgers the newest entry is read, in turn."""
_AMPLE_S = 600.0
_US = 1e6
_AHEAD = 1 << 20
_SELECT_ONE = "SELECT v FROM entries WHERE k = ?"
_SELECT_ALL = "SELECT v FROM entries ORDER BY k"
_clock = time.perf_counter


class WrongAnswer(Exception):
    """What was read is not as long as what was added."""


class Reader(Adder):
    """What reading in turns has in common. `entries`: how many each ledger was filled with."""

    _newer = 0
    """How many those ledgers of which the newest is read have been given since."""

    def fill(self, entries: int) -> None:
        """In batches that go to each ledger in turn."""
        self.add(_AMPLE_S, entries * self.work.ledgers // self.work.batch)

    def one_by_one(self, entries: int, count: int) -> Figures:
        """So many in a random order, none twice: the same for everybody, and the same in every round."""
        made = random.Random(self.work.seed)  # noqa: S311 - repeatable on purpose
        chosen = made.sample(range(entries * self.work.ledgers), count)
        return self._get([self._name(index) for index in chosen])

    def newest(self, entries: int, count: int) -> Figures:
        """The newest entries of some ledgers, added just now: one after the other, again and again."""
        first = (entries + self._newer) * self.work.ledgers
        self._newer += 1
        names = [self._name(index) for index in range(first, first + min(NEWEST, self.work.ledgers))]
        for name in names:
            self.append(name, self.work.payloads()[0])
        return self._get(names * -(-count // len(names)))

    def scan(self, entries: int) -> Figures:
        """All payloads by ledger and id."""
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

    # ── what each does in its own way ────────────────────────────────────────────────────────────────

    def append(self, name: Name, payload: bytes) -> None:
        """Adds an entry behind the others of its ledger."""
        raise NotImplementedError

    def requests(self, names: Sequence[Name]) -> Sequence[Any]:
        """What asks for those entries: made before it is timed."""
        raise NotImplementedError

    def get(self, requests: Sequence[Any]) -> None:
        """One after the other."""
        raise NotImplementedError

    def total(self) -> int:
        """How long all payloads are together, each of which is read, in order."""
        raise NotImplementedError


class OurReader(Reader, Ours):
    """Our store, which verifies every answer."""

    def append(self, name: Name, payload: bytes) -> None:
        ledger_id, entry_id = name
        if self._store.ledger(ledger_id).append(payload) != entry_id:
            raise WrongAnswer("the newest entry is not the one that was added just now")

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


class _PeerReader(Reader):
    def append(self, name: Name, payload: bytes) -> None:
        self.put(KEY.pack(*name), payload)

    def put(self, key: bytes, payload: bytes) -> None:
        raise NotImplementedError

    def requests(self, names: Sequence[Name]) -> Sequence[bytes]:
        return [KEY.pack(*name) for name in names]


class LevelDbReader(LevelDb, _PeerReader):
    """LevelDB verifies if it is asked to: for each block that it takes from a file."""

    def get(self, requests: Sequence[bytes]) -> None:
        size, get = self.work.size, self._database.get
        for key in requests:
            if len(get(key, verify_checksums=True)) != size:
                raise WrongAnswer(key)

    def total(self) -> int:
        values = self._database.iterator(include_key=False, verify_checksums=True, fill_cache=False)
        return sum(map(len, values))


class RocksDbReader(RocksDb, _PeerReader):
    """RocksDB verifies by default: each block that it takes from a file."""

    def get(self, requests: Sequence[bytes]) -> None:
        size, get = self.work.size, cast("_Get", self._database.get)
        for key in requests:
            if len(get(key)) != size:
                raise WrongAnswer(key)

    def total(self) -> int:
        values: Iterable[bytes] = self._database.values(read_opt=self._ahead())
        return sum(map(len, values))

    def _ahead(self) -> rocksdict.ReadOptions:
        """It reads ahead by itself, but less than is quickest."""
        import rocksdict

        options = rocksdict.ReadOptions()
        options.set_readahead_size(_AHEAD)
        return options


class SqliteReader(Sqlite, _PeerReader):
    """SQLite reads within one transaction for all; it has no checksums but those of its WAL."""

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
    """LMDB reads within one transaction for all; it has no checksums."""

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
