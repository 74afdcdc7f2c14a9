"""LMDB as the index uses it: the only module that knows it.

Two databases: `places`, one key for each ledger with its entries' places as sorted duplicates, and `state`,
with one record. Every commit is synced, and the map is read-only memory: LMDB writes pages to the file, syncs
them, and then writes a meta page that makes them count. It never syncs a directory, and does not remember an
error: both is up to the caller.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from contextlib import ExitStack, contextmanager
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import lmdb

from storage.codec import index as codec
from storage.gate import Gate
from storage.outcome import Damaged, Flaw

if TYPE_CHECKING:
    import os
    from array import array
    from collections.abc import Iterable, Iterator, Sequence

_PLACES = b"places"
_STATE = b"state"
_DATABASES_MAX = 8
_READERS_MAX = 1024  # threads that read at the same moment, in all processes
_SPARE_READERS = 16
_MAP_UNIT = 1 << 20

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


def make_environment(path: os.PathLike[str], map_size: int) -> LmdbEnvironment:
    """A new one in an empty directory; nothing of it is durable before its first commit."""
    with _system_errors(str(path)):
        environment = _open(path, map_size, **_NEW_FILE)
        environment.open_db(_PLACES, dupsort=True, dupfixed=True)
        environment.open_db(_STATE)
        return LmdbEnvironment(environment, str(path))


def open_environment(path: os.PathLike[str], map_size: int) -> LmdbEnvironment | Damaged:
    """The one in that directory, whose file is known to be as long as it says."""
    with _system_errors(str(path)), ExitStack() as unless_whole:
        try:
            environment = _open(path, map_size, create=False)
            unless_whole.callback(environment.close)
            opened = LmdbEnvironment(environment, str(path))
        except _DAMAGE as error:
            return Damaged(0, Flaw.BAD_FIELD, str(error))
        if not opened.holds_places:
            return Damaged(0, Flaw.BAD_FIELD, "the places are of another kind")
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
        self._states = environment.open_db(_STATE, create=False)
        self._name = name
        self._gate = Gate(name)

    @property
    def holds_places(self) -> bool:
        """Whether the database of that name is one of sorted duplicates of equal size."""
        flags = self._places.flags()
        return flags["dupsort"] and flags["dupfixed"]

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────

    def value_from(self, key: bytes, floor: bytes) -> bytes | None:
        """The first value of the key that is not below the floor."""
        # Every read of an entry that is not in memory comes through here: no context manager of ours.
        self._gate.enter()
        try:
            return self._value_from(key, floor)
        except lmdb.Error as error:
            # Without its traceback, which would keep the cursor, and with it the snapshot.
            raise _system_error(error, self._name) from error.with_traceback(None)
        finally:
            self._gate.leave()

    def _value_from(self, key: bytes, floor: bytes) -> bytes | None:
        # Nobody else has the cursor: the transaction ends with this call.
        cursor = self._environment.begin(self._places).cursor()
        return cursor.value() if cursor.set_range_dup(key, floor) else None

    @contextmanager
    def reading(self) -> Iterator[lmdb.Cursor[bytes]]:
        """A cursor over the places as they are now; no other place to keep what it gives than a copy."""
        with self._inside(), self._environment.begin(self._places) as transaction:
            yield transaction.cursor()

    def state(self) -> bytes:
        """The record; empty if there is none."""
        with self._inside(), self._environment.begin(self._states) as transaction:
            return transaction.get(_STATE, b"")

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

    def commit(self, runs: Sequence[Run], state: bytes) -> None:
        """All of it or nothing, durably; in a larger map if it takes one."""
        while (too_large := self._attempt(runs, state)) is not None:
            self._grow(too_large)

    def _attempt(self, runs: Sequence[Run], state: bytes) -> lmdb.Transaction[bytes] | None:
        """Commits, or answers with the open transaction for which the map is too small."""
        with self._inside():
            # A killed process leaves its readers behind, and as long as they stand nothing is reused.
            self._environment.reader_check()
            transaction = self._environment.begin(self._places, write=True)
            try:
                for run in runs:
                    _put(transaction, run)
                transaction.put(_STATE, state, db=self._states)
                transaction.commit()
            except lmdb.MapFullError:
                return transaction
            except BaseException:
                transaction.abort()
                raise
        return None

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
