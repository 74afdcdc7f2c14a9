"""The inside of an open store, for tests: the only module of the tests that knows how the engine is built.

Most tests need no more than the public face. Where a test has to stop between two steps of a commit or of a
checkpoint, or look at a table, it uses the verbs of `StoreInternals`. When the engine's parts change, this
module changes with them and the tests stay as they are. `pyproject.toml` lets this file alone touch private
names.
"""

from __future__ import annotations

import gc
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from storage.aio.thread_calls import ThreadCalls
from storage.commit import portions
from storage.commit.committer import Committer
from storage.commit.pending import (
    DONE,
    ERASED,
    HAND_BACK,
    INSERT,
    OVER,
    SYNC,
    WRITE,
    WRITE_TOMBSTONES,
    PendingEntries,
)
from storage.entry import format as entry_format
from storage.entry.position import JournalPosition
from storage.entrylog import format as entrylog_format
from storage.entrylog.log_set import age_of
from storage.errors import DiskFull, ForkedStore
from storage.gc.collector import Collector
from storage.gc.compactor import run
from storage.gc.exact import examine
from storage.gc.usage import ContentCache, UsageSurvey
from storage.journal import seal as journal_seal
from storage.journal.writer import JournalWriter
from storage.ledgers import metadata_log_format as rows_codec

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
    from datetime import datetime
    from threading import Event, Lock

    from recovery.crashlab import SimulatedDisk
    from recovery.replay.journal_backed_table import JournalBackedTable
    from storage.aio import AsyncStore
    from storage.capacity.guard import SpaceGuard
    from storage.commit.pending import Pending, PendingGroup
    from storage.commit.pending_deletes import DeleteGroup, PendingDelete
    from storage.config import StoreConfig
    from storage.disk.files import ReadFile
    from storage.entry.batch import EntryBatch
    from storage.entry.credentials import Access
    from storage.entry.ledger_record import LedgerRecord
    from storage.entrylog.open_logs import OpenEntryLogs
    from storage.entrylog.writer import EntryLogWriter
    from storage.gc.collector import Room
    from storage.gc.compactor import Compactor, Moved, Purged, Removed
    from storage.gc.policy import Problem
    from storage.index.lmdb.checksum_format import ChecksumRecord
    from storage.index.lmdb.index import LmdbIndex
    from storage.index.lmdb.page_checksums import PageChecksums
    from storage.index.port import Index
    from storage.index.state import IndexState
    from storage.ledger import Ledger
    from storage.ledgers.metadata import LedgerMetadata, Revision
    from storage.ledgers.state import LedgerState
    from storage.ledgers.waiters import Waiter
    from storage.memtable.table import Memtable
    from storage.runtime.worker import Pause, ThreadPool, ThreadWorker
    from storage.store import Store


T = TypeVar("T")

PLAYER = -1
"""Leads what a test plays step by step, in the place of a thread."""


class LockIsHeld(Exception):
    """Raised where a thread would wait for ever."""


class HeldLock:
    """A lock that another thread holds for ever."""

    def __enter__(self) -> None:
        raise LockIsHeld

    def __exit__(self, *_: object) -> None: ...


class WatchedLock:
    """A lock that calls a function before a thread waits for it."""

    def __init__(self, lock: Lock, hear: Callable[[], None]) -> None:
        self._lock = lock
        self._hear = hear
        self.locked = lock.locked

    def __enter__(self) -> None:
        self._hear()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class EngineCall(Enum):
    """A call inside of the engine that a test may watch, hold up or replace: see `StoreInternals.at`."""

    FREEZE = "_committer.freeze"
    """The request to freeze the active table between two turns."""
    FLUSH = "_committer.flush"
    END = "_committer.queue.end"
    """The end of an add that was made without a turn."""
    ROLL_JOURNAL = "_engine.journals.roll"
    SYNC_JOURNAL = "_engine.journals.active._file.sync"
    SYNC_JOURNALS = "_engine.journals.sync"
    """The sync of the group that was written last, which counts as durable from then on."""
    APPEND_TO_LOG = "_engine.logs.append"
    SEAL_LOG = "_engine.logs.seal"
    APPLY_JOURNALED = "_engine.metadata.apply_journaled"
    PERSIST_ROWS = "_engine.metadata.persist_now"
    HIDE_DELETED = "_engine.metadata.hide_deleted"
    TAKE_DELETES = "_committer.deletes.take"
    """The decision of a commit up to where ledgers are dead."""
    PERSIST_TRUNCATION = "_engine.metadata.persist_truncation"
    BATCHES = "_engine.range_reader.batches"
    """The reading of a range of a ledger."""
    DELETES = "_committer.deletes.proceed"
    """The stages of a turn of deletes."""
    CHECK_WRITES = "_store_state.check_writes"
    NOTE_SYNC = "_store_state.events.synced"
    """The report of how long a sync took, which is logged if it was slow."""
    WAKE = "_committer.waiters.wake"
    """Waking of the threads and loops that wait for a ledger, for room or for a checkpoint."""
    FIND_END = "_engine.states._find_end"
    """The look-up of a ledger's end at the first add to it."""
    LAST_ID = "_engine.reader.last_id"
    FIRST_MISSING = "_engine.reader._first_missing"
    INDEXED_COUNT = "_engine.reader._index.count"
    INDEXED_LAST = "_engine.reader._index.last"
    CACHED_PLACE = "_engine.reader._cache.known"
    CACHED_PLACES = "_engine.reader._cache.locations"
    FORGET_PLACES = "_engine.reader._cache.forget"
    DROP_PLACES = "_engine.reader._cache.drop"
    READ_LOG = "_engine.reader._logs.read"
    READ_LOG_INTO = "_engine.reader._logs.read_into"
    FIND_LOG = "_engine.reader._logs.find"


def confirm(ledger: Ledger, last_add_confirmed: int) -> None:
    """Store an explicit last add confirmed, which may be higher than the last entry id, by `Store.bookie`."""
    packet = entry_format.encode_lac(ledger.id, last_add_confirmed, ledger._digester())
    ledger._engine.control.set_explicit_lac(ledger.id, ledger._access, packet)


class StoreInternals:
    """The inside of one store. Creating one is cheap, so make one wherever a verb is needed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._engine = store._engine
        self._committer = store._committer

    @property
    def config(self) -> StoreConfig:
        return self._engine.config

    # ── calls that a test watches or replaces ────────────────────────────────────────────────────────

    def at(self, call: EngineCall) -> tuple[object, str]:
        """Return the called object and the name of its method: the first two arguments of `setattr`."""
        path, _, name = call.value.rpartition(".")
        return attrgetter(path)(self._store), name

    def call(self, call: EngineCall) -> Any:
        """Return the method as it is now."""
        return attrgetter(call.value)(self._store)

    # ── the commit of a group ────────────────────────────────────────────────────────────────────────

    def flush(self) -> None:
        """Commit the waiting adds in the calling thread."""
        self._committer.flush()

    def flush_if_free(self) -> bool:
        """Commit the waiting adds, unless another thread commits."""
        return self._committer.flush_if_free()

    def freeze(self) -> None:
        """Freezes the active table, unless it is empty or there is a frozen one."""
        self._committer.freeze()

    def seal(self) -> None:
        """Write an empty group, whose seal proves the last group durable."""
        self._committer.seal()

    def begin_turn(self) -> PendingGroup | None:
        """Takes the lead of the open group, so that the test plays its steps; `None` if a thread leads."""
        queue = self._committer.queue
        with queue.lock:
            group = queue.open
            return group if queue.take(group, PLAYER, PLAYER) else None

    def stages(self, group: PendingGroup) -> Iterator[None]:
        """The steps of a commit, with a stop wherever another thread could run in between."""
        # The test plays all threads in one, and no signal handler runs.
        self._committer.needs_thread = lambda: False
        while group.step < OVER:
            step = group.step
            self._committer.proceed(group, step)
            if step in (WRITE, SYNC) or (step == INSERT and group.step == WRITE):
                yield

    def end_turn(self, group: PendingGroup, error: BaseException | None = None) -> None:
        """Ends a commit that was begun with `begin_turn`, and answers its callers."""
        if error is not None:
            self._committer._fail(group, error)
        group.step = max(group.step, OVER)
        self._committer.proceed(group)

    def refuse_for_space(self, before: Callable[[], None]) -> Callable[[], None]:
        """Let each group fail for lack of space, after a call of `before`, until the result is called."""
        proceed = self._committer.proceed

        def refuse(group: PendingGroup, through: int = DONE) -> None:
            if group.step < OVER:
                before()
                raise DiskFull("full")
            proceed(group, through)

        def end() -> None:
            self._committer.proceed = proceed  # type: ignore[method-assign]

        self._committer.proceed = refuse  # type: ignore[method-assign]
        return end

    @contextmanager
    def joins_watched(self, see: Callable[[Pending], None]) -> Iterator[None]:
        """Call `see` with each piece of work when it is about to join the open group, or must wait."""
        admit = self._committer._admit

        def noted(work: Pending) -> bool:
            see(work)
            return admit(work)

        self._committer._admit = noted  # type: ignore[method-assign]
        try:
            yield
        finally:
            self._committer._admit = admit  # type: ignore[method-assign]

    def hear_of_lock(self, hear: Callable[[], None]) -> None:
        """Call `hear` in each thread that is about to take the lock of the commit queue."""
        queue = self._committer.queue
        queue.lock = WatchedLock(queue.lock, hear)  # type: ignore[assignment]

    def hear_of_deletes_lock(self, hear: Callable[[], None]) -> None:
        """Call `hear` in each thread that is about to take the lock of the queue of deletes."""
        queue = self._committer.deletes.queue
        queue.lock = WatchedLock(queue.lock, hear)  # type: ignore[assignment]

    @property
    def is_queue_locked(self) -> bool:
        """Whether a thread holds the lock of the commit queue."""
        return self._committer.queue.lock.locked()

    def watch_inserts(self, see: Callable[[int, int, int], None]) -> None:
        """Calls `see` with the ledger, the first and the last id of entries that go into the active table."""
        active = self._engine.slot.tables.active
        insert_parts = active.insert_parts

        def noted(
            ledger_id: int, first_id: int, headers: bytes, payloads: Sequence[bytes], size: int
        ) -> None:
            see(ledger_id, first_id, first_id + len(payloads) - 1)
            insert_parts(ledger_id, first_id, headers, payloads, size)

        active.insert_parts = noted  # type: ignore[method-assign, assignment]

    def between_tombstone_and_answer(self, act: Callable[[], None]) -> Callable[[], None]:
        """Calls `act` in each delete when its tombstone is durable and readers find the ledger still.

        Until the result is called.
        """
        deletes = self._committer.deletes
        proceed = deletes.proceed

        def watched(group: DeleteGroup, through: int = ERASED) -> None:
            proceed(group, min(through, WRITE_TOMBSTONES))
            if group.step == HAND_BACK:
                act()
                proceed(group, through)

        def end() -> None:
            deletes.proceed = proceed  # type: ignore[method-assign]

        deletes.proceed = watched  # type: ignore[method-assign, assignment]
        return end

    @contextmanager
    def commit_held(self) -> Iterator[None]:
        """Keeps every other thread from committing meanwhile: all that is added waits for the next commit."""
        group = self.begin_turn()
        assert group is not None, "a thread leads"
        try:
            yield
        finally:
            self.end_turn(group)

    def go_through(self, work: Pending) -> None:
        """Waits for the end of the group that the work has joined, and leads it if no thread does."""
        self._committer.commit(work)

    def answer(self, group: PendingGroup) -> None:
        """Answers the callers of a group that is durable."""
        self._committer._answer(group)

    def join(self, work: Pending) -> PendingGroup | None:
        """Puts work into the open group, and does not wait for it; `None` if it cannot join now."""
        return work.group if self._committer.enqueue(work) else None

    def join_all(self, works: Sequence[PendingEntries]) -> PendingGroup | None:
        """Put adds of several coroutines into the open group; return it if any has joined."""
        return self._committer.enqueue_all(works, lambda _: None)

    def wait_for_room(self, work: Pending, give_up_at: float | None = None) -> float:
        """Waits until the work may try to join again; returns when it gives up."""
        return self._committer._wait_for_room(work, give_up_at)

    def promise(self, work: PendingEntries) -> Future[int] | None:
        """Puts an add into the open group whose caller has a future."""
        work.future = future = Future[int]()
        future.set_running_or_notify_cancel()
        return future if self._committer.enqueue(work) else None

    def notice_submitted(self) -> None:
        """Tells the worker that commits what was submitted that there is something."""
        self._store._background.flushing.notice()

    def append(self, ledger: Ledger, payloads: Sequence[bytes]) -> None:
        """Adds as `Ledger.append_many`."""
        self._committer.commit(PendingEntries(ledger._found_state(), ledger._access, payloads))

    # ── deletes ──────────────────────────────────────────────────────────────────────────────────────

    @property
    def waiting_deletes(self) -> Sequence[PendingDelete]:
        """The deletes that a commit has decided, and whose tombstones no thread writes yet."""
        return self._committer.deletes.queue.open.deletes

    @contextmanager
    def deletes_lock_held(self) -> Iterator[None]:
        """Have the lock of the queue of deletes behave as if another thread held it for ever."""
        queue = self._committer.deletes.queue
        lock, queue.lock = queue.lock, HeldLock()  # type: ignore[assignment]
        try:
            yield
        finally:
            queue.lock = lock

    def finish_deletes(self) -> None:
        """Return when every delete that was requested before is done."""
        self._committer.finish_deletes()

    def begin_deletes(self) -> DeleteGroup | None:
        """Takes the lead of the deletes that wait, so that the test plays their steps."""
        queue = self._committer.deletes.queue
        with queue.lock:
            group = queue.open
            return group if queue.take(group, PLAYER, PLAYER) else None

    def delete_stages(self, group: DeleteGroup) -> Iterator[PendingGroup | None]:
        """The steps of deletes; where it yields a group of the commits, it waits until that is over."""
        self._committer.needs_thread = lambda: False
        while group.step < ERASED:
            step = group.step
            self._committer.deletes.proceed(group, step)
            if step == WRITE_TOMBSTONES and group.step == HAND_BACK:
                yield None
            elif step == HAND_BACK:
                assert group.erasure is not None
                yield group.erasure.group

    def write_tombstones(self, group: DeleteGroup) -> None:
        """Make the tombstones durable, and let the next commit hide the ledgers."""
        self._committer.deletes.proceed(group, WRITE_TOMBSTONES)
        self._committer.deletes.proceed(group, HAND_BACK)

    def end_deletes(self, group: DeleteGroup, error: BaseException | None = None) -> None:
        """Ends deletes that were begun with `begin_deletes`, and answers their callers."""
        if error is not None:
            self._committer.deletes.fail(group, error)
        self._committer.deletes.end(group)

    # ── what waits ───────────────────────────────────────────────────────────────────────────────────

    @property
    def open_group(self) -> PendingGroup:
        """The group that work joins now."""
        return self._committer.queue.open

    @property
    def waiting_size(self) -> int:
        """Bytes of the adds in the open group."""
        return self._committer.waiting_size

    def overstate_waiting_size(self, size: int) -> None:
        """Leaves the open group as an add that was interrupted on its way in leaves it."""
        self._committer.queue.open.size += size

    @property
    def waiting_threads(self) -> int:
        """How many threads wait for the open group."""
        return len(self._committer.queue.open.waiting)

    @contextmanager
    def looks_watched(self, look: Callable[[], None]) -> Iterator[None]:
        """Call `look` each time a waiting thread has checked its condition, for waits that begin inside the
        `with`.

        After this check only a wake-up can tell the thread about a change.
        """
        waiters = self._committer.waiters
        wait_for = waiters.wait_for

        def watched(
            ledger_id: int,
            is_there: Callable[[], bool],
            timeout_s: float | None = None,
            waiter: Waiter | None = None,
        ) -> bool:
            def looked() -> bool:
                found = is_there()
                look()
                return found

            return wait_for(ledger_id, looked, timeout_s, waiter)

        waiters.wait_for = watched  # type: ignore[method-assign]
        try:
            yield
        finally:
            waiters.wait_for = wait_for  # type: ignore[method-assign]

    def on_change(self, ledger_id: int, hear: Callable[[], None]) -> None:
        """Call `hear` after each change of the ledger, in the thread that has made the change."""
        self._committer.waiters.register(ledger_id, hear)

    @property
    def registered(self) -> int:
        """Return the number of registered waiters. An event loop counts once for each ledger."""
        return sum(map(len, self._committer.waiters.waiting.values()))

    # ── tables ───────────────────────────────────────────────────────────────────────────────────────

    @property
    def active_table(self) -> Memtable:
        return self._engine.slot.tables.active

    @property
    def frozen_table(self) -> Memtable | None:
        return self._engine.slot.tables.frozen

    @property
    def covered_until(self) -> JournalPosition:
        """Return the journal position up to which entries are in the active table."""
        return self._engine.slot.tables.active.covers_until

    @property
    def table_sizes(self) -> tuple[int, int]:
        """Bytes of the active and the frozen table."""
        tables = self._engine.slot.tables
        return tables.active.size, 0 if tables.frozen is None else tables.frozen.size

    def put_frozen(self, table: Memtable) -> None:
        """Makes this the frozen table, and wakes the checkpoint."""
        slot = self._engine.slot
        slot.tables = type(slot.tables)(slot.tables.active, table)
        self._store._background.checkpoints.wake()

    # ── checkpoints ──────────────────────────────────────────────────────────────────────────────────

    def request_checkpoint(self) -> None:
        """Asks for a checkpoint, and wakes the worker that makes it."""
        self._store._background.request_checkpoint()

    def number_checkpoint(self) -> int:
        """Asks for a checkpoint, wakes no worker, and returns the number for `has_checkpointed`."""
        return self._engine.checkpointer.request()

    def finish_checkpoint(self) -> None:
        """Checkpoint everything in the calling thread, as an opening and a close do."""
        self._engine.checkpointer.finish()

    def wait_for_checkpoint(self, number: int) -> None:
        """Return when the checkpoint of that number is done, or cannot be done now."""
        self._engine.checkpointer.wait_for(number)

    def step_checkpoint(self) -> Pause:
        """Do the next step of the checkpoint in progress, in the calling thread."""
        return self._engine.checkpointer.step()

    def has_checkpointed(self, number: int) -> bool:
        return self._engine.checkpointer._finished >= number

    @property
    def checkpoint_needs_turn(self) -> bool:
        """Return whether the next step would wait for the turn in progress."""
        checkpointer = self._engine.checkpointer
        is_requested = checkpointer._requested > checkpointer._finished
        return checkpointer._running is None and self._engine.slot.tables.frozen is None and is_requested

    @property
    def disk_full_error(self) -> OSError | None:
        """Return why the checkpoint in progress cannot continue now."""
        return self._engine.checkpointer.disk_full_error

    @property
    def index_state(self) -> IndexState:
        """Return the index state that the last checkpoint has committed."""
        return self._engine.checkpointer.state

    # ── space that is reclaimed ──────────────────────────────────────────────────────────────────────

    def space_of(self, directory: Any) -> SpaceGuard:
        """Let the owner of the decisions about space read it from this directory, and return it."""
        self._engine.space._directory = directory
        return self._engine.space

    def move(self, log_id: int) -> Moved:
        """Move the live records of a log, with all steps in the calling thread."""
        return run(self._engine.compactor.move(log_id), self._engine.checkpointer)

    def run(self, verb: Generator[Pause, None, T]) -> T:
        """Take the remaining steps of a verb of space reclamation, in the calling thread."""
        return run(verb, self._engine.checkpointer)

    def remove(self, *log_ids: int) -> Removed:
        """Remove those of the logs that hold nothing live."""
        return run(self._engine.compactor.remove(log_ids), self._engine.checkpointer)

    def purge_tombstones(self) -> Purged:
        """Purge the tombstones that kill nothing."""
        return run(self._engine.compactor.purge_tombstones(), self._engine.checkpointer)

    @property
    def compactor(self) -> Compactor:
        """The verbs of space reclamation, for tests that stop between two steps."""
        return self._engine.compactor

    def move_chunk_by_chunk(self) -> None:
        """Let a slice have one step for each chunk."""
        self._engine.checkpointer.reclaimer.step_size = 0

    def make_each_chunk_a_slice(self) -> None:
        """Let a move have many slices, so that one is read while the one before is written."""
        self._engine.compactor.slice_size = 1

    @property
    def log_ids(self) -> list[int]:
        """The committed logs, in the order in which they were written."""
        state = self.index_state
        return [] if state.last_log is None else sorted(state.log_ends, key=age_of(state.last_log))

    def new_collector(
        self, config: StoreConfig, room: Room, clock: Callable[[], float], now: Callable[[], datetime]
    ) -> Collector:
        """Return a collector of this store with other settings and clocks, which the test steps by hand."""
        engine = self._engine
        collector = Collector(
            config,
            engine.compactor,
            engine.usage_survey,
            lambda: engine.logs.in_use,
            engine.checkpointer,
            room,
            engine.committer.waiters,
            engine.store_state,
            clock,
            now,
        )
        self._store._background._collector = collector
        self._store._engine = self._engine = replace(self._engine, collector=collector)
        return collector

    def lose_location(self, ledger_id: int, entry_id: int) -> None:
        """Remove the location of an entry from the index, as no part of the engine does."""
        index = self._engine.index
        kept = [pair for pair in index.locations(ledger_id, 0, 1 << 30) if pair[0] != entry_id]
        with index.change() as change:
            change.remove([ledger_id])
            change.commit(None)
        with index.change() as change:
            change.put(ledger_id, [one for one, _ in kept], [place for _, place in kept])
            change.commit(None)

    def usage_survey(self, cache: ContentCache | None = None) -> UsageSurvey:
        """Return a survey of the logs that are committed now."""
        state, engine = self.index_state, self._engine
        return UsageSurvey(
            engine.ledgers,
            engine.index,
            engine.reader._index,
            engine.metadata,
            state.log_ends,
            state.last_log,
            cache or ContentCache(),
        )

    def examine(self, log_id: int) -> Generator[Pause, None, tuple[int, Problem | None]]:
        """Return the steps that find the live bytes of a log by reading all of it."""
        engine = self._engine
        metadata = engine.metadata
        return examine(
            engine.ledgers, engine.reader._index, self.index_state, metadata.of, metadata.digester, log_id
        )

    # ── journals ─────────────────────────────────────────────────────────────────────────────────────

    @property
    def journal(self) -> JournalWriter | None:
        """The journal that is written now."""
        return self._engine.journals.active

    @property
    def journal_groups(self) -> int:
        """How many groups were written."""
        return self._engine.journals.groups

    @property
    def seals(self) -> int:
        """How many empty groups were written."""
        return self._engine.journals.seals

    @property
    def durable_up_to(self) -> JournalPosition:
        return self._engine.journals.durable_up_to

    # ── ledgers ──────────────────────────────────────────────────────────────────────────────────────

    def tail(self, ledger_id: int) -> LedgerState:
        """The end of the ledger, as threads that add to it see it."""
        return self._engine.states.of(ledger_id)

    def knows_tail(self, ledger_id: int) -> bool:
        """Return whether the end of the ledger has been looked up."""
        return self._engine.states.known(ledger_id) is not None

    @property
    def tails_in_memory(self) -> int:
        """How many ledgers have their end in memory."""
        gc.collect()
        return len(self._engine.states._shared)

    @property
    def metadata(self) -> LedgerMetadata:
        return self._engine.metadata

    @contextmanager
    def metadata_lock_held(self, name: str) -> Iterator[None]:
        """Have one of the locks of the metadata behave as if another thread held it for ever."""
        metadata = self._engine.metadata
        lock = getattr(metadata, f"_{name}")
        setattr(metadata, f"_{name}", HeldLock())
        try:
            yield
        finally:
            setattr(metadata, f"_{name}", lock)

    def row(self, ledger_id: int) -> LedgerRecord:
        """The metadata of the ledger."""
        return self._engine.metadata.of(ledger_id)

    def declare_rows(self, revisions: Mapping[int, Revision]) -> None:
        """Changes the metadata of ledgers, durably."""
        self._engine.metadata.persist_now(revisions)

    def may_lack_entries(self, ledger_id: int) -> bool:
        """Return whether the ledger is in limbo."""
        return self._engine.metadata.may_have_lost_entries(ledger_id)

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────

    @property
    def index(self) -> Index:
        """The index, in which deleted ledgers have places until the next checkpoint."""
        return self._engine.checkpointer._index

    def use_index(self, index: Any) -> None:
        """Makes every reader use this index."""
        self._engine.reader._index = self._engine.reader._cache._index = index

    @property
    def open_logs(self) -> OpenEntryLogs:
        """The entry logs that readers have open."""
        return self._engine.reader._logs

    def open_log(self, log_id: int) -> ReadFile | None:
        """The file of a log that readers have open; `None` if they have not."""
        log = self.open_logs.find(log_id)
        return None if log is None else log.file

    def use_logs(self, logs: OpenEntryLogs) -> None:
        """Makes every reader open its logs from there."""
        self._engine.reader._logs = self._engine.range_reader._logs = logs

    def forget_places(self, ledger_id: int) -> None:
        """Drop the cached places of the ledger's entries."""
        self._engine.reader._cache.forget({ledger_id})

    @property
    def spare_blocks(self) -> list[bytearray]:
        """The blocks that a sequential reader can use again."""
        return self._engine.range_reader._spares

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────

    def fail(self, error: BaseException) -> None:
        """Stops the store as a failed write does."""
        self._store._store_state.fail(error)

    def fail_background(self, error: BaseException) -> None:
        """Stops the store as a dying worker does, and wakes all waiters."""
        self._store._background.fail(error)

    @property
    def failure(self) -> BaseException | None:
        return self._store._store_state.failure

    @property
    def is_closed(self) -> bool:
        return self._store._store_state.is_closed

    @contextmanager
    def as_forked(self) -> Iterator[None]:
        """The store as a fork of its process sees it."""
        store_state = self._store._store_state
        gone, store_state.gone = store_state.gone, ForkedStore
        try:
            yield
        finally:
            store_state.gone = gone

    def fork(self) -> None:
        """Do to the store what a fork does to the copy in the child process."""
        self._store._forked()


class AsyncEngine(StoreInternals):
    """The inside of one store for coroutines; and of the store for threads that is in it."""

    def __init__(self, store: AsyncStore) -> None:
        super().__init__(store.blocking)
        self._context = store._context

    @property
    def waiting_coroutines(self) -> int:
        """How many coroutines wait for a change: followers, and adds that have no room."""
        return sum(map(len, self._context.changes._waiting.values()))

    def believe_slow(self) -> None:
        """Make a thread lead the next turns, as if the disk had been slow."""
        self._context.commits._policy.led_on_loop(1.0)
        assert not self._context.commits._policy.is_quick

    @property
    def leader_is_stopped(self) -> bool:
        """Return whether the thread that leads turns was asked to stop."""
        return self._context.commits._leader._stopped  # type: ignore[attr-defined, no-any-return]

    def forbid_calls(self) -> None:
        """Make every later call in a thread for a coroutine fail."""
        self._context.call = None  # type: ignore[assignment, method-assign]

    def use_loop(self, loop: object) -> object:
        """Use this loop for turns, and return the previous one."""
        before, self._context.commits._loop = self._context.commits._loop, loop  # type: ignore[assignment]
        return before

    def begin_batch(self, ledger_id: int, payload: bytes) -> None:
        """Add an entry to the current pass of the loop, as `AsyncLedger.append` does."""
        access = self._store.ledger(ledger_id)._access
        self._context.commits.begin(self.tail(ledger_id), access, payload)

    @property
    def is_empty(self) -> bool:
        """Return whether no data of earlier adds is kept."""
        return not self._context.commits.batches and not self._context.commits._pending

    def stop_threads(self) -> None:
        """Ends the threads of a store that was killed: it is not closed."""
        self._context.commits.stop()
        self._context._threads.stop()


# ── ledgers, caches, disks ────────────────────────────────────────────────────────────────────────────────


def access_of(ledger: Ledger) -> Access:
    """Return the credentials that the ledger object adds with."""
    return ledger._access


def batches(ledger: Ledger, first: int = 0) -> list[EntryBatch]:
    """Return the pieces in which a reader gets the ledger's entries from `first` on."""
    return list(ledger._batches(first, None))


def used_bytes(disk: SimulatedDisk) -> int:
    """How much space is used on the disk."""
    return disk._machine.platter.used()


def store_of(contender: Any) -> Store:
    """The store that a contender of the bench measures."""
    store: Store = contender._store
    return store


# ── single parts ──────────────────────────────────────────────────────────────────────────────────────────


ADMIT = (Committer, "_admit")
"""The only way of work into a group: the first arguments of `setattr`."""

SPLIT_WORK = (portions, "_part")
"""The division of work that is too large for one group of the journal: the first arguments of `setattr`."""

WRITE_PIECE = (JournalWriter, "_write_piece")
"""The write of a piece of a group: the first arguments of `setattr`."""

ANSWER_COROUTINE = (ThreadCalls, "_deliver")
"""The place at which a thread passes its result to the waiting coroutine."""


def without_a_sync(writer: JournalWriter) -> JournalPosition:
    """Replace `JournalWriter.sync`: report the group as durable without a sync."""
    writer.end, writer.sequence = writer._written_until, writer._written_sequence
    return JournalPosition(writer.journal_id, writer.end)


def answer_late(calls: ThreadCalls, future: Any, answer: object, discarded: Any) -> None:
    """Pass on a result that a thread has found in the meantime."""
    calls._deliver(future, answer, discarded)


def wake_with(worker: ThreadWorker, woken: Event) -> Event:
    """Let the worker wait for this event."""
    worker._woken = woken
    return woken


def is_told_to_stop(worker: ThreadWorker) -> bool:
    return worker._stopped


def idle_threads(threads: ThreadPool) -> int:
    """How many threads wait for a call that was not handed over yet."""
    return threads._idle


def journals_of(backlog: JournalBackedTable) -> Any:
    """The finalizer that closes a backlog's journals: `alive` while they are open."""
    return backlog._close


def file_of(writer: EntryLogWriter) -> Any:
    """The file that the writer writes."""
    return writer._file


def known_pages(index: LmdbIndex) -> ChecksumRecord:
    """The pages of the index whose checksums are known."""
    assert index._sums is not None
    return index._sums._snapshot.record()


def page_sums_of(index: LmdbIndex) -> PageChecksums | None:
    return index._sums


def log_header_checksum(header: bytes) -> int:
    """The checksum that an entry log's header should have."""
    return entrylog_format._header_checksum(header)


def encoded_seal(seal: Any) -> bytes:
    return bytes(journal_seal._encode(seal))


def rows_head(*fields: object) -> bytes:
    """The start of a group of rows, its fields as given."""
    return rows_codec._HEAD.pack(*fields)


def kernel_of(module: Any) -> object:
    """The implementation that a module of the codec has chosen: with numpy or without."""
    return module._kernel()


def leave_links(links: Any) -> None:
    """Leave an audit's links as a killed process does: only its lock is released."""
    links._lock.close()


def checkpoint_of(module: Any) -> Any:
    """The function with which a module of `recovery` makes its last checkpoint."""
    return module._checkpoint


def runs_of(table: Memtable, ledger_id: int) -> Iterator[tuple[Sequence[int], list[bytes]]]:
    """Return the ids and records of a ledger, as the checkpoint writes them."""
    return ((chunk.ids, chunk.records()) for chunk in table.chunks(ledger_id))
