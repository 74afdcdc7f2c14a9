"""The checkpoint: a frozen table moves to entry logs and index, and then the mark advances.

`Checkpointer._checkpoint` is the order. Each of its steps is durable before the next begins. Until the mark
is stored, the journals have everything and readers find the table, so an attempt that fails is repeated with
the same table and new files. A file that has met an error is never written again.
"""

from __future__ import annotations

from dataclasses import dataclass
from sys import getrefcount
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from storage.capacity.guard import Need
from storage.checkpoint.reclaimer import SYNC_STEP
from storage.entry import record_chunk
from storage.errors import NO_SPACE
from storage.index.state import IndexState
from storage.journal import journal_set
from storage.ledgers.waiters import CHECKPOINT
from storage.runtime.events import LOG, BlockedWork
from storage.runtime.worker import AT_ONCE

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Generator, Iterator, Sequence

    from storage.capacity.guard import SpaceGuard
    from storage.checkpoint.mark import LastMark
    from storage.checkpoint.reclaimer import Reclaimer, Reclamation
    from storage.commit.committer import Committer
    from storage.disk.files import Directory
    from storage.entry.ledger_record import LedgerRecord
    from storage.entry.record_chunk import RecordChunk
    from storage.entrylog.log_set import EntryLogs
    from storage.index.port import Index
    from storage.ledgers.metadata import LedgerMetadata
    from storage.memtable.table import Memtable, Slot
    from storage.runtime.store_state import StoreState
    from storage.runtime.worker import Pause

T = TypeVar("T")

_SYNC_STEP_WITHOUT_ADDS = 64 << 20
"""The same at opening and closing, when no add waits."""

_WEIGHT_MAX = 1024  # entries in a step, during which other threads wait for the interpreter
_WEIGHT_OF_A_RUN = 32  # the cost of the entries of one ledger beside their number, in entries
_UNSHARED = 2  # references to an object that only a local variable and the call of `getrefcount` hold
_ATTEMPTS = 3
_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class EntryLocations:
    """The locations of some entries of one ledger."""

    ledger_id: int
    entry_ids: Sequence[int]
    locations: array[int]


class Checkpointer:
    """Makes one checkpoint at a time, in steps. Adds go on between two steps.

    Only the worker of checkpoints calls `step`, except when the store is opened or closed.
    """

    def __init__(
        self,
        committer: Committer,
        slot: Slot,
        logs: EntryLogs,
        index: Index,
        metadata: LedgerMetadata,
        last_mark: LastMark,
        journal_directory: Directory,
        store_state: StoreState,
        journal_backups: int,
        reclaimer: Reclaimer,
        space: SpaceGuard,
    ) -> None:
        # The shared fields; none has a lock:
        #                      written by                    read by
        # state, count,        `step`                        any thread, for statistics
        #   last_seconds
        # disk_full_error      `step`                        adds and waiters
        # _requested           any thread; two requests at   `step`
        #                      once may become one number,
        #                      which one checkpoint answers
        # _finished            `step`                        waiters
        # _submitted           the collector, while no       `step`
        #                      order waits; `step`
        # Everything else belongs to `step`.
        self.state = index.state()
        """The state of the index after the last commit."""
        self.disk_full_error: OSError | None = None
        """The error for which the checkpoint under way waits, because the disk is full."""
        self.count = 0
        """The number of checkpoints that have ended."""
        self.last_seconds: float | None = None
        """The duration of the last checkpoint."""
        self._began = 0.0
        self._requested = 0
        """The number of the last request."""
        self._finished = 0
        """The last request that is answered."""
        self._answers = 0
        """The last request that the checkpoint under way answers."""
        self._attempts = 0
        self._sync_step = SYNC_STEP
        self._committer = committer
        self._waiters = committer.waiters
        self._slot = slot
        self._logs = logs
        self._index = index
        self._metadata = metadata
        self._last_mark = last_mark
        self._journal_directory = journal_directory
        self._store_state = store_state
        self._journal_backups = journal_backups
        self.reclaimer = reclaimer
        self._space = space
        self._trial = space.trial(Need.FINISHING)
        self._running: Iterator[Pause] | None = None
        self._submitted: Reclamation[Any] | None = None
        """The order that waits for the runner."""
        self._reclaiming: Reclamation[Any] | None = None
        """The order that is under way; `None` while a checkpoint is."""
        self._gives_way = False
        """Whether the checkpoint under way has ended for want of space, so that an order comes first."""
        self._is_ending = False
        """Whether no order may begin any more, because the store is being closed."""
        self.wake: Callable[[], None] = _wake_nothing
        """Makes the worker of checkpoints step."""
        self.on_reclaimed: Callable[[], None] = _wake_nothing
        """Called when a submitted order is over, in the thread that steps."""

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────

    def request(self) -> int:
        """Request a checkpoint of everything added so far. Return the number to pass to `wait_for`."""
        self._requested += 1
        return self._requested

    def is_answered(self, number: int) -> bool:
        """Return whether that checkpoint is done."""
        return self._finished >= number

    def wait_for(self, number: int) -> None:
        """Return when that checkpoint is done, or cannot be done now: see `disk_full_error`."""
        self._waiters.wait_for(
            CHECKPOINT,
            lambda: (
                self._finished >= number or self._store_state.has_ended or self.disk_full_error is not None
            ),
        )

    # ── orders that reclaim space ────────────────────────────────────────────────────────────────────

    def submit(self, work: Reclamation[Any]) -> None:
        """Have the runner follow this order when no checkpoint is due. One order at a time."""
        assert self._submitted is self._reclaiming is None, "one order at a time"
        self._submitted = work
        self.wake()

    def must_end(self) -> bool:
        """Return whether an order that can end early has to, because a checkpoint is due."""
        is_due = self._slot.tables.frozen is not None or self._requested > self._finished
        return is_due or self._is_ending

    def _reclaim(self, work: Reclamation[T]) -> Iterator[Pause]:
        self.state, work.result = yield from work.order(self.state)

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────

    def step(self) -> Pause:
        """Do a part of the work. Return the pause until the next step."""
        if self._store_state.failure is not None or (self._running is None and not self._begin()):
            self._waiters.wake(CHECKPOINT)
            return None
        assert self._running is not None
        try:
            return next(self._running)
        except _GivesWay:
            self._running, self._gives_way = None, True
            return AT_ONCE
        except StopIteration:
            if self._reclaiming is None:
                self._end()
            else:
                self._end_reclamation(self._reclaiming)
            return AT_ONCE
        except BaseException as error:
            # The index, a directory or the mark may be half written, so it is unknown what is durable.
            self._store_state.fail(error)
            self._waiters.wake(CHECKPOINT)
            raise

    def _begin(self) -> bool:
        """Begin a checkpoint if there is a frozen table. A request freezes the active one first."""
        gives_way, self._gives_way = self._gives_way, False
        if gives_way and self._begin_reclamation():
            return True
        requested = self._requested
        if self._slot.tables.frozen is None:
            # Read before the freeze, because an add that precedes a later request may not be in the table. If
            # the table was frozen already, it is unknown which requests came before.
            self._answers = requested
            if requested > self._finished:
                self._committer.freeze()
        frozen = self._slot.tables.frozen
        if frozen is None:
            self._finished = self._answers  # nothing was added before the requests
            return self._begin_reclamation()
        self._running, self._began = self._checkpoint(frozen), monotonic()
        self._trial = self._space.trial(Need.FINISHING)
        return True

    def _begin_reclamation(self) -> bool:
        """Begin the order that was submitted, if there is one."""
        if self._submitted is None or self._is_ending:
            return False
        self._waiters.wake(CHECKPOINT)
        self._reclaiming, self._submitted = self._submitted, None
        self._running = self._reclaim(self._reclaiming)
        return True

    def _end(self) -> None:
        self._running = None
        self.count, self.last_seconds = self.count + 1, monotonic() - self._began
        self._attempts = 0
        self.disk_full_error = None
        self._store_state.events.space_is_back(BlockedWork.CHECKPOINT)
        self._finished = self._answers
        self._waiters.wake(CHECKPOINT)

    def _end_reclamation(self, work: Reclamation[Any]) -> None:
        self._running = self._reclaiming = None
        work.is_over = True
        self.on_reclaimed()

    def finish(self) -> None:
        """Checkpoint everything that was added, in the calling thread, unless the disk is full.

        Only for opening and closing, when there are no adds and no worker. An order that is under way ends
        early, and none is begun.
        """
        self._is_ending = True
        self.request()
        self._sync_step = _SYNC_STEP_WITHOUT_ADDS
        while self.step() == AT_ONCE:
            pass
        self._sync_step = SYNC_STEP
        self._is_ending = False

    # ── the order ────────────────────────────────────────────────────────────────────────────────────

    def _checkpoint(self, frozen: Memtable) -> Iterator[Pause]:
        # 1. Entry logs, first the data and then the names. Before the index, because a location in the index
        #    must never point to an entry that a crash can take away.
        locations = yield from self._write_logs(frozen)
        self._logs.sync_names()
        # 2. The metadata of ledgers that has changed. Before the index, because an index that is lost is
        #    rebuilt with it.
        rows = yield from self._write_rows(frozen)
        # 3. The index, in one transaction. Before the mark, because the journals before the mark are not
        #    replayed, so their entries are found only through the index.
        yield from self._commit_index(frozen, locations, rows)
        # 4. The mark. Before the trim, because a power cut may bring the old mark back, and it needs its
        #    journals.
        yield from self._advance_mark()
        # 5. The table. From now on readers use the index, which has all entries of the table.
        self._metadata.forget_locations({one.ledger_id for one in locations})
        self._committer.thaw()
        yield AT_ONCE
        # 6. The journals before the mark, which no opening needs any more.
        self._trim()
        lists = frozen.lists_to_free()
        del frozen
        yield from _free_slowly(lists)

    def _trim(self) -> None:
        self._space.review()
        backups = 0 if self._space.is_low else self._journal_backups
        try:
            journal_set.trim(self._journal_directory, self.state.mark.journal_id, backups)
        except OSError as error:
            # Not an error, because a journal that stays only takes space. The next checkpoint tries again.
            LOG.warning("journals before %s were not removed: %s", self.state.mark, error)

    def _write_logs(self, frozen: Memtable) -> Generator[Pause, None, list[EntryLocations]]:
        while True:
            try:
                return (yield from self._write_sorted(frozen))
            except OSError as error:
                # Write the table to a new log, because a second sync of this one would prove nothing.
                self._logs.abandon()
                if error.errno in NO_SPACE:
                    # Remove what was written, because it takes the space that the next attempt needs.
                    self._logs.discard()
                pause = self._pause_after(error)
                self._give_way(pause, error)
                yield pause

    def _give_way(self, pause: Pause, error: OSError) -> None:
        """End the attempt if it waits for space and an order waits for the runner, because the order may free
        that space.

        Only before the index is committed, while nothing of the attempt counts. The next one begins after the
        order, with the same table.
        """
        # Not while the store is being closed, because no order begins then, and the close would never end.
        if pause and self._submitted is not None and not self._is_ending:
            # A log that holds a part of this attempt is not written any further, as after an error.
            self._logs.discard()
            raise _GivesWay from error

    def _write_sorted(self, frozen: Memtable) -> Generator[Pause, None, list[EntryLocations]]:
        located = []
        self._logs.begin(self.state.generation + 1, self.state.log_end)
        for chunks in _chunks_by_step(frozen):
            for one, locations in zip(chunks, self._logs.append(chunks), strict=True):
                located.append(EntryLocations(one.ledger_id, one.ids, locations))
            if self._logs.unsynced >= self._sync_step:
                self._sync_logs()
            yield AT_ONCE
        self._sync_logs()
        return located

    def _sync_logs(self) -> None:
        started = monotonic()
        self._logs.sync()
        if self._sync_step == SYNC_STEP:  # a larger sync takes long on any disk
            self._store_state.events.synced(monotonic() - started)

    def _write_rows(self, frozen: Memtable) -> Generator[Pause, None, list[LedgerRecord]]:
        while True:
            try:
                return self._metadata.persist_changed(frozen, self.state)
            except OSError as error:
                if self._metadata.is_file_unknown:
                    raise
                pause = self._pause_after(error)
                self._give_way(pause, error)
                yield pause

    def _next_state(self, frozen: Memtable) -> IndexState:
        return IndexState(
            generation=self.state.generation + 1,
            mark=max(self.state.mark, frozen.covers_until),
            last_log=self._logs.newest_log,
            log_ends={**self.state.log_ends, **self._logs.ends},
            rows_sequence=self._metadata.sequence,
            is_whole=self.state.is_whole,
            gone=self.reclaimer.still_gone(self.state),
        )

    def _commit_index(
        self, frozen: Memtable, located: Sequence[EntryLocations], rows: Sequence[LedgerRecord]
    ) -> Iterator[Pause]:
        state = self._next_state(frozen)
        while self.state != state:
            try:
                yield from self._commit_once(frozen, located, rows, state)
            except OSError as error:
                # Try again only if the failed commit has certainly left nothing.
                if error.errno not in NO_SPACE or self._index.state() != self.state:
                    raise
                pause = self._pause_after(error)
                self._give_way(pause, error)
                yield pause

    def _commit_once(
        self,
        frozen: Memtable,
        located: Sequence[EntryLocations],
        rows: Sequence[LedgerRecord],
        state: IndexState,
    ) -> Iterator[Pause]:
        with self._index.change() as change:
            # Remove the locations of ledgers that were deleted before the freeze. Ledgers that are deleted
            # later stay hidden until the next checkpoint, whatever locations are put here for them.
            removed = self._metadata.deletes_before(frozen)
            change.remove(removed)
            for one in located:
                change.put(one.ledger_id, one.entry_ids, one.locations)
                # Also if the truncation came after the freeze, so that its row is in the next table.
                first_id = self._metadata.first_entry_id(one.ledger_id)
                if first_id > one.entry_ids[0]:
                    change.remove_before(one.ledger_id, first_id)
                yield AT_ONCE
            for row in rows:
                if row.truncation is not None:
                    change.remove_before(row.ledger_id, row.first_entry_id)
            change.put_rows(rows)
            change.commit(state)
            self.state = state
        self._metadata.unhide(removed)

    def _advance_mark(self) -> Iterator[Pause]:
        while (error := self._last_mark.advance(self.state)) is not None:
            yield self._pause_after(error)

    def _pause_after(self, error: OSError) -> Pause:
        """Return the pause before the next attempt; raise the error after the last attempt."""
        if self._trial.may_repeat(error):
            return AT_ONCE
        if error.errno in NO_SPACE:
            self.disk_full_error = error
            self._store_state.events.disk_is_full(BlockedWork.CHECKPOINT)
            self._waiters.wake(CHECKPOINT)
            return _RETRY_S
        self._attempts += 1
        if self._attempts >= _ATTEMPTS:
            raise error
        return AT_ONCE


class _GivesWay(Exception):
    """Ends an attempt at a checkpoint, because an order that may free space waits for the runner."""


def _wake_nothing() -> None:
    """Wake nothing: the default while there is no worker."""


def _free_slowly(runs: list[list[bytes]]) -> Iterator[Pause]:
    """Free the entries of a table, some in each step, because freeing all at once takes ten milliseconds."""
    left = _WEIGHT_MAX
    while runs:
        run = runs.pop()
        # If a reader still uses the list, the last reference to it frees it.
        while run and getrefcount(run) == _UNSHARED:
            left -= len(run[-_WEIGHT_MAX:])
            del run[-_WEIGHT_MAX:]
            if left <= 0:
                yield AT_ONCE
                left = _WEIGHT_MAX


def _chunks_by_step(frozen: Memtable) -> Iterator[list[RecordChunk]]:
    """Yield the chunks of the table that one step writes: chunks of several small ledgers together."""
    chunks: list[RecordChunk] = []
    size = weight = 0
    for ledger_id in frozen.ledgers():
        for one in frozen.chunks(ledger_id):
            size, weight = size + one.size, weight + _weight(one.ids)
            if chunks and (size > record_chunk.SIZE_MAX or weight > _WEIGHT_MAX):
                yield chunks
                chunks, size, weight = [], one.size, _weight(one.ids)
            chunks.append(one)
    if chunks:
        yield chunks


def _weight(ids: Sequence[int]) -> int:
    """Return the cost of entries of one ledger in a step, in entries."""
    return _WEIGHT_OF_A_RUN + len(ids)
