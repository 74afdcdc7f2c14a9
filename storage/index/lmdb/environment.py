"""LMDB as the index uses it. No other module imports `lmdb`.

There are three databases: `places` has a key for each ledger, with the locations of its entries as sorted
duplicates; `rows` has a key for each ledger, with its metadata; `state` has one record, and fillers. Every
commit is synced, and the map is read-only memory: LMDB writes pages to the file, syncs them, and then writes
the meta page that commits them. LMDB never syncs a directory and does not remember an error, so the caller
does both.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import lmdb

from storage.disk import filenames
from storage.disk.posix import allocate, is_locked_elsewhere
from storage.entry.read_result import Damaged, Flaw
from storage.errors import AlreadyOpen, InvalidConfig
from storage.index import format as index_format
from storage.index.lmdb.reader_barrier import ReaderBarrier
from storage.runtime.worker import yield_gil

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

_PLACES = b"places"
_ROWS = b"rows"
_STATE = b"state"
_FILLERS = tuple(b"filler %x" % number for number in range(16))
_DATABASES_MAX = 8
_META_PAGES = 2
_READERS_MAX = 1024  # threads that read at the same moment, in all processes
_LOCK_SIZE = 128 + 64 * _READERS_MAX  # a head, and a slot for each reader
_SPARE_READERS = 16
_MAP_UNIT = 1 << 20
_BETWEEN_YIELDS = 64  # entries that are changed one by one before other threads may run
PUT_AGAIN_MAX = 4096
"""If a truncation leaves no more locations than these, they are put again after the removal of all."""

# LMDB's errors for a damaged file. All others come from the system.
_DAMAGE = (
    lmdb.BadValsizeError,
    lmdb.CorruptedError,
    lmdb.IncompatibleError,
    lmdb.InvalidError,
    lmdb.NotFoundError,
    lmdb.PageNotFoundError,
    lmdb.VersionMismatchError,
)
# A version of py-lmdb with two formats is told to use the one that every version reads.
_NEW_FILE: dict[str, Any] = {"lib_version": 0} if hasattr(lmdb.Environment, "lib_version") else {}


class LocationRun(NamedTuple):
    """The locations of ascending entries of one ledger."""

    ledger_id: int
    entry_ids: array[int]
    locations: array[int]


class LocationMove(NamedTuple):
    """New locations of ascending entries of one ledger, each for an entry that still has the old one."""

    ledger_id: int
    entry_ids: array[int]
    before: array[int]
    after: array[int]


T = TypeVar("T")
_Run = TypeVar("_Run", LocationRun, LocationMove)


@dataclass(frozen=True, slots=True)
class IndexBatch:
    """The changes of one commit except the state, in the order in which they are made: keys are removed,
    locations are moved, runs are put, truncated locations are removed, and rows are removed and put."""

    removed: set[bytes] = field(default_factory=set)
    """Encoded ids of ledgers whose locations are all removed."""
    moves: list[LocationMove] = field(default_factory=list)
    runs: list[LocationRun] = field(default_factory=list)
    truncated: dict[bytes, int] = field(default_factory=dict)
    """By encoded id of a ledger: the entry before which its locations are removed."""
    removed_rows: set[bytes] = field(default_factory=set)
    """Encoded ids of ledgers whose rows are removed."""
    rows: dict[bytes, bytes] = field(default_factory=dict)


def make_environment(path: os.PathLike[str], map_size: int) -> LmdbEnvironment:
    """Create an environment in an empty directory. Nothing of it is durable before its first commit."""
    _allocate_readers(path)
    with _system_errors(str(path)):
        environment = _open(path, map_size, **_NEW_FILE)
        environment.open_db(_PLACES, dupsort=True, dupfixed=True)
        environment.open_db(_ROWS)
        environment.open_db(_STATE)
        return LmdbEnvironment(environment, str(path))


def open_environment(path: os.PathLike[str], map_size: int) -> LmdbEnvironment | Damaged:
    """Open the environment in the directory. Verify its pages before, because LMDB does not."""
    _allocate_readers(path)
    return _opened(path, map_size)


def _allocate_readers(path: os.PathLike[str]) -> None:
    """Give the table of readers its blocks.

    LMDB makes a file with holes and writes to it by a map, which kills the process on a full disk.
    """
    allocate(Path(path) / filenames.INDEX_LOCK, _LOCK_SIZE)


def view_environment(path: os.PathLike[str], map_size: int) -> LmdbEnvironment | Damaged:
    """Open the environment for reading only. Changes no file, except that readers beside a writer register in
    its lock file.

    A view without a writer does not register. Each of its reads is so short that a writer that starts later
    cannot have reused the pages by then.
    """
    # First without the lock file. LMDB refuses here an environment that this process has open already.
    # Opening and closing its lock file would release this process's own locks.
    viewed = _opened(path, map_size, readonly=True, lock=False)
    if isinstance(viewed, Damaged) or not is_locked_elsewhere(Path(path) / filenames.INDEX_LOCK):
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
            return Damaged(0, Flaw.BAD_FIELD, "a database with other flags")
        unless_whole.pop_all()
        return opened


def _open(path: os.PathLike[str], map_size: int, **options: Any) -> lmdb.Environment:
    try:
        return lmdb.open(
            str(path),
            map_size=-(-map_size // _MAP_UNIT) * _MAP_UNIT,
            max_dbs=_DATABASES_MAX,
            max_readers=_READERS_MAX,
            max_spare_txns=_SPARE_READERS,
            **options,
        )
    except lmdb.MemoryError as error:
        raise InvalidConfig("index_size_max", _no_address_space(map_size, str(path))) from error
    except lmdb.Error as error:
        # LMDB cannot open a file twice in one process, because closing one descriptor releases all its locks.
        if "already open in this process" in str(error):
            raise AlreadyOpen(str(path), os.getpid()) from error
        raise


def _no_address_space(map_size: int, path: str) -> str:
    return (
        f"the system refuses {map_size} bytes of address space for the index {path}: open the store with "
        "less, for example StoreConfig(index_size_max=1 << 30), which grows by itself, or raise the "
        "limit of the process (ulimit -v)"
    )


@contextmanager
def _system_errors(name: str) -> Iterator[None]:
    try:
        yield
    except lmdb.Error as error:
        raise _system_error(error, name) from error


def _system_error(error: lmdb.Error, name: str) -> OSError:
    number = getattr(error, "code", 0)  # LMDB's own codes are negative, the system's are positive
    return OSError(number if number > 0 else errno.EIO, str(error), name)


class LmdbEnvironment:
    """An open environment. Threads may share it, and a forked child must not use it.

    One thread commits at a time, and any thread reads. The barrier keeps readers out while the map is
    replaced.
    """

    def __init__(self, environment: lmdb.Environment, name: str) -> None:
        self._environment = environment
        self._places = environment.open_db(_PLACES, create=False)
        self._rows = environment.open_db(_ROWS, create=False)
        self._states = environment.open_db(_STATE, create=False)
        self._page_size = environment.stat()["psize"]
        self._name = name
        self._barrier = ReaderBarrier(name)

    @property
    def is_an_index(self) -> bool:
        """Whether the databases have the flags of an index: duplicates of equal size for locations only."""
        flags = self._places.flags()
        plain = not (self._rows.flags()["dupsort"] or self._states.flags()["dupsort"])
        return flags["dupsort"] and flags["dupfixed"] and plain

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────

    def value_from(self, key: bytes, floor: bytes) -> bytes | None:
        """Return the first value of the key that is not less than the floor."""
        return self._value(lambda cursor: cursor.set_range_dup(key, floor))

    def last_value(self, key: bytes) -> bytes | None:
        """Return the largest value of the key."""
        return self._value(lambda cursor: cursor.set_key(key) and cursor.last_dup())

    def _value(self, find: Callable[[lmdb.Cursor[bytes]], bool]) -> bytes | None:
        # No context manager, because most reads of an entry that is not in memory call this.
        self._barrier.enter()
        try:
            return self._found(find)
        except lmdb.Error as error:
            # Without the traceback, because it would keep the cursor and its snapshot alive.
            raise _system_error(error, self._name) from error.with_traceback(None)
        finally:
            self._barrier.leave()

    def _found(self, find: Callable[[lmdb.Cursor[bytes]], bool]) -> bytes | None:
        # No other reference to the cursor exists, so the transaction ends with this call.
        cursor = self._environment.begin(self._places).cursor()
        return cursor.value() if find(cursor) else None

    def read(self, read: Callable[[lmdb.Cursor[bytes]], T]) -> T:
        """Return what `read` finds with a cursor over the present locations, which it must not keep."""
        # No context manager, because a collection looks up the entries of each ledger in each block of a log.
        self._barrier.enter()
        try:
            return read(self._environment.begin(self._places).cursor())
        except lmdb.Error as error:
            raise _system_error(error, self._name) from error.with_traceback(None)
        finally:
            self._barrier.leave()

    def reading(self) -> AbstractContextManager[lmdb.Cursor[bytes]]:
        """Return a cursor over the locations as they are now. Copy what you keep beyond the `with`."""
        return self._reading(self._places)

    def reading_rows(self) -> AbstractContextManager[lmdb.Cursor[bytes]]:
        """Return a cursor over the rows as they are now. Copy what you keep beyond the `with`."""
        return self._reading(self._rows)

    @contextmanager
    def _reading(self, database: lmdb._Database) -> Iterator[lmdb.Cursor[bytes]]:
        with self._inside(), self._environment.begin(database) as transaction:
            yield transaction.cursor()

    def state(self) -> bytes:
        """Return the encoded state; empty bytes if there is none."""
        with self._inside(), self._environment.begin(self._states) as transaction:
            return transaction.get(_STATE, b"")

    def used_bytes(self) -> int:
        """Return the bytes of the pages that hold anything, but for LMDB's own list of free pages."""
        pages = _META_PAGES
        with self._inside(), self._environment.begin() as transaction:
            for figures in (self._environment.stat(), *map(transaction.stat, self._databases())):
                pages += figures["branch_pages"] + figures["leaf_pages"] + figures["overflow_pages"]
        return pages * self._page_size

    def _databases(self) -> tuple[lmdb._Database, ...]:
        return self._places, self._rows, self._states

    @property
    def is_locked(self) -> bool:
        """Whether this environment uses the lock file. A view uses it only if a writer has the index open."""
        return bool(self._environment.flags()["lock"])

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """Keep the map in its place and the environment open during the `with`."""
        self._barrier.enter()
        try:
            with _system_errors(self._name):
                yield
        finally:
            self._barrier.leave()

    # ── changing ─────────────────────────────────────────────────────────────────────────────────────

    def commit(self, batch: IndexBatch, state: bytes | None) -> None:
        """Commit all changes or none, durably. The map grows if it is too small. `None` keeps the state."""
        while (too_large := self._attempt(batch, state)) is not None:
            self._grow(too_large)

    def _attempt(self, batch: IndexBatch, state: bytes | None) -> lmdb.Transaction[bytes] | None:
        """Commit, or return the open transaction if the map is too small for it."""
        with self._inside():
            # Remove the readers of killed processes, because LMDB reuses no page that a reader may need.
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

    def _change(self, transaction: lmdb.Transaction[bytes], batch: IndexBatch) -> None:
        for key in sorted(batch.removed):
            transaction.delete(key)
        replaced = bool(batch.moves)
        for move in _with_pauses(batch.moves):
            _move(transaction, move)
        for run in _with_pauses(batch.runs):
            replaced |= _put(transaction, run)
        for key, entry_id in sorted(batch.truncated.items()):
            _remove_before(transaction, key, entry_id)
        for key in sorted(batch.removed_rows):
            transaction.delete(key, db=self._rows)
        if batch.rows:
            transaction.cursor(self._rows).putmulti(sorted(batch.rows.items()))
        if batch.removed or batch.truncated or batch.removed_rows or replaced:
            self._use_loose_pages(transaction)

    def _use_loose_pages(self, transaction: lmdb.Transaction[bytes]) -> None:
        """Use up the pages that this transaction has allocated and emptied again.

        LMDB does not write such pages. If the last page of the file were one, the file would end before the
        last page that its meta page names, and would look truncated.
        """
        # LMDB takes a new page from these first. Removing a key empties at most one page for each level of
        # the tree, and if keys are removed in their order the next key uses them again. So only the last few
        # are left over; in any other order there could be hundreds. Each filler is larger than half a page,
        # so it takes a page of its own in each commit.
        filler = bytes(self._page_size * 3 // 4)
        for key in _FILLERS:
            transaction.put(key, filler, db=self._states)

    def _grow(self, too_large: lmdb.Transaction[bytes]) -> None:
        try:
            # LMDB unmaps the file before it maps it again: no thread may read meanwhile, nor after a failure.
            with _system_errors(self._name), self._barrier.exclusive():
                # Not earlier, because py-lmdb delays an abort until no thread reads.
                too_large.abort()
                self._environment.set_mapsize(self._environment.info()["map_size"] * 2)
        finally:
            too_large.abort()

    def sync(self) -> None:
        """Make the content of the file durable, but not its name."""
        with self._inside():
            self._environment.sync(force=True)

    def close(self) -> None:
        """Return when no thread is inside. From then on every method raises `OSError`."""
        self._barrier.close()
        self._environment.close()


def _with_pauses(runs: Sequence[_Run]) -> Iterator[_Run]:
    """Yield the runs, and let other threads run in between."""
    for run in runs:
        yield run
        yield_gil()


def _move(transaction: lmdb.Transaction[bytes], move: LocationMove) -> None:
    """Move those entries that still have the location from which they are moved."""
    key = index_format.encode_key(move.ledger_id)
    cursor = transaction.cursor()
    if not cursor.set_key(key):
        return  # the ledger was deleted meanwhile
    exchange = _exchange_of(cursor)
    before = index_format.encode_values(move.entry_ids, move.before)
    after = index_format.encode_values(move.entry_ids, move.after)
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        if cursor.set_key_dup(key, old):
            exchange(transaction, cursor, key, new)
        if number % _BETWEEN_YIELDS == 0:
            yield_gil()


def _put(transaction: lmdb.Transaction[bytes], run: LocationRun) -> bool:
    """Put the locations of these entries; return whether any of them replaces an earlier one.

    Most come after the ledger's last entry and are appended.
    """
    key = index_format.encode_key(run.ledger_id)
    cursor = transaction.cursor()
    known = cursor.set_key(key) and cursor.last_dup()
    last = index_format.split_value(cursor.value())[0] if known else -1
    split = bisect_right(run.entry_ids, last)
    replaced = False
    for value in index_format.encode_values(run.entry_ids[:split], run.locations[:split]):
        replaced |= _replace(transaction, cursor, key, value)
    _append(cursor, key, index_format.encode_values(run.entry_ids[split:], run.locations[split:]))
    return replaced


def _replace(
    transaction: lmdb.Transaction[bytes], cursor: lmdb.Cursor[bytes], key: bytes, value: bytes
) -> bool:
    """Put a value in the place of the entry's earlier one; return whether it had one."""
    entry_id, _ = index_format.split_value(value)
    cursor.set_range_dup(key, index_format.encode_floor(entry_id))
    old = cursor.value()
    if old == value:
        return False
    if index_format.split_value(old)[0] != entry_id:
        transaction.put(key, value)
        return False
    _exchange_of(cursor)(transaction, cursor, key, value)
    return True


def _exchange_of(cursor: lmdb.Cursor[bytes]) -> Callable[..., None]:
    """Return how a value of the cursor's key is exchanged."""
    return _exchange_only_value if cursor.count() == 1 else _exchange_value


def _exchange_value(
    transaction: lmdb.Transaction[bytes], cursor: lmdb.Cursor[bytes], key: bytes, value: bytes
) -> None:
    """Put a value in the place of the one at the cursor. The key has other values."""
    # The old value is deleted first, because a full page would otherwise be split in half, and after a
    # compaction of the whole store the index would be twice as large.
    cursor.delete()
    transaction.put(key, value)


def _exchange_only_value(
    transaction: lmdb.Transaction[bytes], cursor: lmdb.Cursor[bytes], key: bytes, value: bytes
) -> None:
    """Put a value in the place of the only value of its key."""
    # The new value is put first, because a key that loses its only value is removed, and LMDB may not write
    # the page that this empties. Then the file would end before the last page that its meta page names.
    old = cursor.value()
    transaction.put(key, value)
    transaction.delete(key, old)


def _remove_before(transaction: lmdb.Transaction[bytes], key: bytes, entry_id: int) -> None:
    """Remove the locations of the entries before that one, in one step or one by one."""
    cursor = transaction.cursor()
    if not cursor.set_key(key) or index_format.split_value(cursor.value())[0] >= entry_id:
        return
    kept: list[bytes] = []
    if cursor.set_range_dup(key, index_format.encode_floor(entry_id)):
        kept = list(islice(cursor.iternext_dup(), PUT_AGAIN_MAX + 1))
    if len(kept) <= PUT_AGAIN_MAX:
        # All locations of a key are removed at once, in a hundredth of the time that their pages would take
        # one by one. A log of which the newest entries are kept ends here.
        transaction.delete(key)
        _append(transaction.cursor(), key, kept)
        return
    cursor = transaction.cursor()
    cursor.set_key(key)
    removed = 0
    while index_format.split_value(cursor.value())[0] < entry_id:
        cursor.delete()
        removed += 1
        if removed % _BETWEEN_YIELDS == 0:
            yield_gil()


def _append(cursor: lmdb.Cursor[bytes], key: bytes, values: Iterable[bytes]) -> None:
    put, added = cursor.putmulti(zip(repeat(key), values, strict=False), append=True)
    assert put == added, "entries ascend"
