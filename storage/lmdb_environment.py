"""LMDB as the index uses it: the only module that knows it.

Three databases: `places`, one key for each ledger with its entries' places as sorted duplicates; `rows`, one
key for each ledger with its row; and `state`, with one record, and fillers. Every commit is synced, and the
map is read-only memory: LMDB writes pages to the file, syncs them, and then writes a meta page that makes
them count. It never syncs a directory, and does not remember an error: both is up to the caller.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import lmdb

from storage.codec import index as codec
from storage.gate import Gate
from storage.outcome import Damaged, Flaw
from storage.posix_files import is_locked_elsewhere
from storage.worker import breathe

if TYPE_CHECKING:
    import os
    from array import array
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

_PLACES = b"places"
_ROWS = b"rows"
_STATE = b"state"
_FILLERS = tuple(b"filler %x" % number for number in range(16))
_LOCK = "lock.mdb"
_DATABASES_MAX = 8
_READERS_MAX = 1024  # threads that read at the same moment, in all processes
_SPARE_READERS = 16
_MAP_UNIT = 1 << 20
_WEIGHT_MAX = 512  # of what is put between two breaths, in entries
_WEIGHT_OF_A_RUN = 8

# What LMDB says of a file that it would not have written itself; its other errors are the system's.
_DAMAGE = (
    lmdb.BadValsizeError,
    lmdb.CorruptedError,
    lmdb.IncompatibleError,
    lmdb.InvalidError,
    lmdb.NotFoundError,
    lmdb.PageNotFoundError,
    lmdb.VersionMismatchError,
)
# Where py-lmdb brings two formats along, the one that every version of it reads.
_NEW_FILE: dict[str, Any] = {"lib_version": 0} if hasattr(lmdb.Environment, "lib_version") else {}


class Run(NamedTuple):
    """Places of ascending entries of one ledger."""

    ledger_id: int
    entry_ids: array[int]
    locations: array[int]


@dataclass(frozen=True, slots=True)
class Batch:
    """What one commit does beside the state: first keys go, then runs and rows come."""

    removed: set[bytes] = field(default_factory=set)
    """Keys of places, each with all that it has."""
    runs: list[Run] = field(default_factory=list)
    rows: dict[bytes, bytes] = field(default_factory=dict)


def make_environment(path: os.PathLike[str], map_size: int) -> LmdbEnvironment:
    """A new one in an empty directory; nothing of it is durable before its first commit."""
    with _system_errors(str(path)):
        environment = _open(path, map_size, **_NEW_FILE)
        environment.open_db(_PLACES, dupsort=True, dupfixed=True)
        environment.open_db(_ROWS)
        environment.open_db(_STATE)
        return LmdbEnvironment(environment, str(path))


def open_environment(path: os.PathLike[str], map_size: int) -> LmdbEnvironment | Damaged:
    """The one in that directory, whose pages are known to be what LMDB wrote: it verifies none of them."""
    return _opened(path, map_size)


def view_environment(path: os.PathLike[str], map_size: int) -> LmdbEnvironment | Damaged:
    """The same for reading only. Leaves every file as it is; beside a writer it is seen in the lock file.

    Each read lasts so short that a writer which comes later cannot have used its pages again by then.
    """
    # Without the lock file first: what this process has open already LMDB refuses here, and a descriptor of
    # its lock file, closed, would take the process's own locks with it.
    viewed = _opened(path, map_size, readonly=True, lock=False)
    if isinstance(viewed, Damaged) or not is_locked_elsewhere(Path(path) / _LOCK):
        return viewed
    viewed.close()
    return _opened(path, map_size, readonly=True)


def _opened(path: os.PathLike[str], map_size: int, **options: Any) -> LmdbEnvironment | Damaged:
    with _system_errors(str(path)), ExitStack() as unless_whole:
        try:
            environment = _open(path, map_size, create=False, **options)
            unless_whole.callback(environment.close)
            opened = LmdbEnvironment(environment, str(path))
        except _DAMAGE as error:
            return Damaged(0, Flaw.BAD_FIELD, str(error))
        if not opened.is_an_index:
            return Damaged(0, Flaw.BAD_FIELD, "a database of another kind")
        unless_whole.pop_all()
        return opened


def _open(path: os.PathLike[str], map_size: int, **options: Any) -> lmdb.Environment:
    return lmdb.open(
        str(path),
        map_size=-(-map_size // _MAP_UNIT) * _MAP_UNIT,
        max_dbs=_DATABASES_MAX,
        max_readers=_READERS_MAX,
        max_spare_txns=_SPARE_READERS,
        **options,
    )


@contextmanager
def _system_errors(name: str) -> Iterator[None]:
    try:
        yield
    except lmdb.Error as error:
        raise _system_error(error, name) from error


def _system_error(error: lmdb.Error, name: str) -> OSError:
    number = getattr(error, "code", 0)  # LMDB's own are negative, the system's are not
    return OSError(number if number > 0 else errno.EIO, str(error), name)


class LmdbEnvironment:
    """An open environment. Threads may share it; one commit at a time. Not for a forked child."""

    def __init__(self, environment: lmdb.Environment, name: str) -> None:
        self._environment = environment
        self._places = environment.open_db(_PLACES, create=False)
        self._rows = environment.open_db(_ROWS, create=False)
        self._states = environment.open_db(_STATE, create=False)
        self._page_size = environment.stat()["psize"]
        self._name = name
        self._gate = Gate(name)

    @property
    def is_an_index(self) -> bool:
        """Whether the places are sorted duplicates of equal size, and the others have one value a key."""
        flags = self._places.flags()
        plain = not (self._rows.flags()["dupsort"] or self._states.flags()["dupsort"])
        return flags["dupsort"] and flags["dupfixed"] and plain

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────

    def value_from(self, key: bytes, floor: bytes) -> bytes | None:
        """The first value of the key that is not below the floor."""
        return self._value(lambda cursor: cursor.set_range_dup(key, floor))

    def last_value(self, key: bytes) -> bytes | None:
        """The largest value of the key."""
        return self._value(lambda cursor: cursor.set_key(key) and cursor.last_dup())

    def _value(self, find: Callable[[lmdb.Cursor[bytes]], bool]) -> bytes | None:
        # Most reads of an entry that is not in memory come through here: no context manager of ours.
        self._gate.enter()
        try:
            return self._found(find)
        except lmdb.Error as error:
            # Without its traceback, which would keep the cursor, and with it the snapshot.
            raise _system_error(error, self._name) from error.with_traceback(None)
        finally:
            self._gate.leave()

    def _found(self, find: Callable[[lmdb.Cursor[bytes]], bool]) -> bytes | None:
        # Nobody else has the cursor: the transaction ends with this call.
        cursor = self._environment.begin(self._places).cursor()
        return cursor.value() if find(cursor) else None

    def reading(self) -> AbstractContextManager[lmdb.Cursor[bytes]]:
        """A cursor over the places as they are now; no other place to keep what it gives than a copy."""
        return self._reading(self._places)

    def reading_rows(self) -> AbstractContextManager[lmdb.Cursor[bytes]]:
        """The same over the rows."""
        return self._reading(self._rows)

    @contextmanager
    def _reading(self, database: lmdb._Database) -> Iterator[lmdb.Cursor[bytes]]:
        with self._inside(), self._environment.begin(database) as transaction:
            yield transaction.cursor()

    def state(self) -> bytes:
        """The record; empty if there is none."""
        with self._inside(), self._environment.begin(self._states) as transaction:
            return transaction.get(_STATE, b"")

    @property
    def is_locked(self) -> bool:
        """Whether other processes see its readers: of one that is viewed, whether a writer has it open."""
        return bool(self._environment.flags()["lock"])

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """While it lasts the map stays where it is, and the environment open."""
        self._gate.enter()
        try:
            with _system_errors(self._name):
                yield
        finally:
            self._gate.leave()

    # ── changing ─────────────────────────────────────────────────────────────────────────────────────

    def commit(self, batch: Batch, state: bytes | None) -> None:
        """All of it or nothing, durably; in a larger map if it takes one. `None` leaves the state alone."""
        while (too_large := self._attempt(batch, state)) is not None:
            self._grow(too_large)

    def _attempt(self, batch: Batch, state: bytes | None) -> lmdb.Transaction[bytes] | None:
        """Commits, or answers with the open transaction for which the map is too small."""
        with self._inside():
            # A killed process leaves its readers behind, and as long as they stand nothing is reused.
            self._environment.reader_check()
            transaction = self._environment.begin(self._places, write=True)
            try:
                self._change(transaction, batch)
                if state is not None:
                    transaction.put(_STATE, state, db=self._states)
                transaction.commit()
            except lmdb.MapFullError:
                return transaction
            except BaseException:
                transaction.abort()
                raise
        return None

    def _change(self, transaction: lmdb.Transaction[bytes], batch: Batch) -> None:
        for key in sorted(batch.removed):
            transaction.delete(key)
        weight = 0
        for run in batch.runs:
            _put(transaction, run)
            weight += _WEIGHT_OF_A_RUN + len(run.entry_ids)
            if weight > _WEIGHT_MAX:
                breathe()
                weight = 0
        if batch.rows:
            transaction.cursor(self._rows).putmulti(sorted(batch.rows.items()))
        if batch.removed:
            self._use_loose_pages(transaction)

    def _use_loose_pages(self, transaction: lmdb.Transaction[bytes]) -> None:
        """Leaves no page over that this transaction has made and emptied again."""
        # LMDB writes none of them: were one the last page, the file would end before the page that its meta
        # page names, and pass for cut. But who needs a new page gets one of these first. A key that goes
        # empties at most a page for each level of the tree, and when keys go in their order the next one
        # takes those up: only the last few stay (in any other order there may be hundreds). So as many new
        # pages are needed here: a filler that is larger than half a page gets one to itself, each time anew.
        filler = bytes(self._page_size * 3 // 4)
        for key in _FILLERS:
            transaction.put(key, filler, db=self._states)

    def _grow(self, too_large: lmdb.Transaction[bytes]) -> None:
        try:
            # LMDB unmaps before it maps: nobody may read meanwhile, nor ever again if it fails.
            with _system_errors(self._name), self._gate.alone():
                # Here and not earlier: py-lmdb lets an abort wait for a moment in which no thread reads.
                too_large.abort()
                self._environment.set_mapsize(self._environment.info()["map_size"] * 2)
        finally:
            too_large.abort()

    # ── the rest ─────────────────────────────────────────────────────────────────────────────────────

    def sync(self) -> None:
        """When it returns, the file's content is durable; its name is not."""
        with self._inside():
            self._environment.sync(force=True)

    def close(self) -> None:
        """When it returns, no thread is inside, and every verb of every thread raises `OSError`."""
        self._gate.close()
        self._environment.close()


def _put(transaction: lmdb.Transaction[bytes], run: Run) -> None:
    """Replaces what is known of these entries; those behind the ledger's last one, the most, are appended."""
    key = codec.encode_key(run.ledger_id)
    cursor = transaction.cursor()
    known = cursor.set_key(key) and cursor.last_dup()
    last = codec.split_value(cursor.value())[0] if known else -1
    split = bisect_right(run.entry_ids, last)
    for value in codec.encode_values(run.entry_ids[:split], run.locations[:split]):
        _replace(transaction, cursor, key, value)
    _append(cursor, key, codec.encode_values(run.entry_ids[split:], run.locations[split:]))


def _replace(
    transaction: lmdb.Transaction[bytes], cursor: lmdb.Cursor[bytes], key: bytes, value: bytes
) -> None:
    entry_id, _ = codec.split_value(value)
    cursor.set_range_dup(key, codec.encode_floor(entry_id))
    old = cursor.value()
    if old == value:
        return
    # Put before the old one goes: of a page that runs empty LMDB may write nothing, and the file would end
    # before the last page that its meta page names.
    transaction.put(key, value)
    if codec.split_value(old)[0] == entry_id:
        transaction.delete(key, old)


def _append(cursor: lmdb.Cursor[bytes], key: bytes, values: Iterable[bytes]) -> None:
    put, added = cursor.putmulti(zip(repeat(key), values, strict=False), append=True)
    assert put == added, "entries ascend"
