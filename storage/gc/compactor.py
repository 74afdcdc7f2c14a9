"""The verbs of space reclamation: move the live records of a log, remove dead logs, purge tombstones.

Each verb is a generator. A step of it reads a little in the thread of its caller, or waits for the runner of
checkpoints, which changes what is durable (`storage.checkpoint.reclaimer`); it yields the pause until its
next step, and `None` to be stepped again when the runner has called `Checkpointer.on_reclaimed`. Its result
is the value of the generator:

    roll()                          ends the log in use, so that it can be moved too
    move(log_id)        → Moved     copies all live records of a log to the log in use, a slice at a time
    remove(log_ids)     → Removed   removes those logs of which both proofs show that they hold nothing live
    purge_tombstones()  → Purged    forgets deleted ledgers of which nothing is left

One verb at a time. Moving never removes a log, and removing moves nothing, so any other work may come in
between, and an opening has nothing to finish. A verb can be given up at any pause; `settle` then waits for
the order that the runner may still follow. `run` drives a verb to its end where there are no workers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from storage.capacity.guard import Need
from storage.checkpoint.reclaimer import Reclamation
from storage.entry.read_result import Damaged
from storage.gc.proof import (
    Kept,
    KeptBecause,
    LedgerLookups,
    account_for_records,
    count_live,
    kept_damaged,
)
from storage.gc.tombstones import LedgersInLogs, purgeable
from storage.gc.victim import SLICE_COUNT_MAX, SLICE_SIZE_MAX, Victim
from storage.journal.journal_set import journal_ids
from storage.runtime.worker import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from storage.capacity.guard import SpaceGuard, Trial
    from storage.checkpoint.checkpointer import Checkpointer
    from storage.checkpoint.reclaimer import SliceChunk, SliceResult
    from storage.disk.files import Directory
    from storage.entrylog.log_set import EntryLogs
    from storage.index.port import Index, IndexReader
    from storage.index.state import IndexState
    from storage.ledgers.metadata import LedgerMetadata
    from storage.runtime.store_state import StoreState
    from storage.runtime.worker import Pause

    Order = Callable[[IndexState], Generator[Pause, None, tuple[IndexState, "R"]]]

T = TypeVar("T")
R = TypeVar("R", bound="OrderResult")


class OrderResult(Protocol):
    """The end of an order of the runner."""

    @property
    def error(self) -> OSError | None:
        """The error because of which it has changed nothing, or could not do all."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The end of a move."""

    log_id: int
    entries_moved: int = 0
    bytes_moved: int = 0
    bytes_read: int = 0
    why_kept: Kept | None = None
    """Why live records may be left in the log; `None` if all were moved that were live at its reading."""
    error: OSError | None = None
    """The error of the disk that ended the move, if one did. Records that were moved before it stay moved."""


@dataclass(frozen=True, slots=True)
class Removed:
    """The end of a removal."""

    logs_removed: tuple[int, ...] = ()
    bytes_removed: int = 0
    """The durable bytes of these logs."""
    why_kept: tuple[Kept, ...] = ()
    """One for each log that was not removed."""
    error: OSError | None = None


@dataclass(frozen=True, slots=True)
class Purged:
    """The end of a purge of tombstones."""

    tombstones_purged: int = 0
    tombstones_left: int = 0
    error: OSError | None = None


class Compactor:
    """Moves, removes and purges. For one thread at a time, which is not that of the runner."""

    def __init__(
        self,
        checkpointer: Checkpointer,
        directory: Directory,
        journals: Directory,
        logs: EntryLogs,
        index: Index,
        visible: IndexReader,
        metadata: LedgerMetadata,
        store_state: StoreState,
        space: SpaceGuard,
    ) -> None:
        """`visible` is the index without the locations of deleted ledgers."""
        self._checkpointer = checkpointer
        self._directory = directory
        self._journals = journals
        self._logs = logs
        self._index = index
        self._visible = visible
        self._metadata = metadata
        self._store_state = store_state
        self._space = space
        self.slice_size = SLICE_SIZE_MAX
        """The most bytes of records of a slice; only a larger record makes a larger one."""
        self._ledgers_in_logs = LedgersInLogs(directory)
        self._last: Reclamation[Any] | None = None
        """The last order that was submitted."""
        self._are_journals_unsure = False
        """Whether a sync of the directory of journals has failed, so that trimmed journals may come back."""

    # ── the verbs ────────────────────────────────────────────────────────────────────────────────────

    def roll(self) -> Generator[Pause, None, None]:
        """End the log in use. The next checkpoint or slice begins another one."""
        yield from self._run(self._checkpointer.reclaimer.roll)

    def move(self, log_id: int) -> Generator[Pause, None, Moved]:
        """Copy the live records of a log to the log in use. The log stays, and is empty afterwards.

        Ends early if the log is damaged, or if the disk refuses a slice.
        """
        why_kept = self._why_not_moved(log_id)
        if why_kept is not None:
            return Moved(log_id, why_kept=why_kept)
        end = self._checkpointer.state.log_ends[log_id]
        checkpointer = self._checkpointer
        victim = Victim(
            self._directory, self._visible, self._metadata.digester, lambda: checkpointer.count, log_id, end
        )
        slices = _Slices()
        try:
            # One slice is read ahead, while the runner appends, syncs and commits the one before.
            for found in victim.chunks():
                if isinstance(found, Damaged):
                    why_kept = kept_damaged(log_id, found)
                    break
                slices.add(found)
                yield AT_ONCE
                while slices.error is None and slices.has_whole(self.slice_size):
                    yield from self._next_slice(slices)
                if slices.error is not None:
                    break
            else:
                while slices.error is None and (slices.ahead or slices.under_way is not None):
                    yield from self._next_slice(slices)
        except OSError as error:
            slices.error = error
        yield from self._end_slice(slices)
        if slices.error is not None and why_kept is None:
            why_kept = Kept(log_id, KeptBecause.FAILED, detail=str(slices.error))
        return Moved(log_id, slices.entries, slices.size, victim.bytes_read, why_kept, slices.error)

    def _next_slice(self, slices: _Slices) -> Generator[Pause, None, None]:
        """Wait for the end of the slice under way. Have the runner move the next one, if there is any."""
        yield from self._end_slice(slices)
        if slices.error is None and slices.ahead:
            some = slices.cut(self.slice_size)
            checkpointer = self._checkpointer
            slices.under_way = (
                some,
                self._begin(
                    lambda state: checkpointer.reclaimer.move(
                        state, some, checkpointer.count, checkpointer.must_end
                    )
                ),
            )

    def _end_slice(self, slices: _Slices) -> Generator[Pause, None, None]:
        """Wait for the end of the slice under way. What it has not handled is moved with the next one."""
        if slices.under_way is None:
            return
        some, begun = slices.under_way
        result = yield from self._end(begun)
        slices.under_way = None
        error = result.error
        if error is None and not result.handled:
            # A checkpoint comes before every slice. If it waits for space, nothing can be moved now.
            error = self._checkpointer.disk_full_error
        slices.put_back(some[result.handled :])
        slices.entries, slices.size = slices.entries + result.entries, slices.size + result.size
        slices.error = slices.error or error

    def remove(self, log_ids: Iterable[int]) -> Generator[Pause, None, Removed]:
        """Remove those of the logs in which nothing is live. The others are kept, each with its reason.

        Files of logs that were removed earlier and could not be unlinked are tried again. If one stays, the
        logs are removed all the same, because a single file must not keep the space of all others.
        """
        swept = yield from self._run(self._checkpointer.reclaimer.sweep)
        kept: list[Kept] = []
        dead: list[int] = []
        lookups = LedgerLookups(self._checkpointer.state, self._index, self._metadata.of)
        for log_id in sorted(set(log_ids)):
            why_kept = self._why_never_a_victim(log_id)
            if why_kept is None:
                # The present state, because a log that was the last one may have grown before it was rolled.
                if lookups.state is not self._checkpointer.state:
                    lookups = LedgerLookups(self._checkpointer.state, self._index, self._metadata.of)
                why_kept = yield from self._account(lookups, log_id)
            if why_kept is None:
                dead.append(log_id)
            else:
                kept.append(why_kept)
        live = (yield from count_live(self._index, dead)) if dead else {}
        for log_id in [one for one in dead if live.get(one)]:
            dead.remove(log_id)
            words = f"the index has {live[log_id]} entries in it, which a walk over the log does not find"
            kept.append(Kept(log_id, KeptBecause.UNACCOUNTED, "IDX-002", None, words))
        if not dead:
            return Removed(why_kept=tuple(kept), error=swept.error)
        ends = self._checkpointer.state.log_ends
        result = yield from self._run(lambda now: self._checkpointer.reclaimer.remove(now, dead))
        size = sum(ends[one] for one in result.removed)
        kept += [
            Kept(one, KeptBecause.FAILED, detail=str(result.error))
            for one in dead
            if one not in result.removed
        ]
        return Removed(result.removed, size, tuple(kept), result.error or swept.error)

    def purge_tombstones(self) -> Generator[Pause, None, Purged]:
        """Purge the tombstones that kill no record of any log or journal that is left."""
        swept = yield from self._run(self._checkpointer.reclaimer.sweep)
        # The tombstones before the state, because a checkpoint in between would bound one by the end of a log
        # that the state does not have yet, and the tombstone would seem to reach no log.
        tombstones = self._metadata.plain_tombstones()
        state = self._checkpointer.state
        if swept.error is not None or state.gone or self._are_journals_unsure:
            return Purged(0, len(tombstones), swept.error)
        try:
            # The names before the sync: a journal that was trimmed before is then gone for certain.
            oldest = min(journal_ids(self._journals), default=None)
            self._sync_journals()
            changes = yield from purgeable(tombstones, state, self._ledgers_in_logs, oldest)
        except OSError as error:
            return Purged(0, len(tombstones), error)
        if not changes:
            return Purged(0, len(tombstones))
        result = yield from self._run(lambda now: self._checkpointer.reclaimer.purge(now, changes))
        return Purged(result.purged, self._metadata.plain_tombstones_count, result.error)

    def _sync_journals(self) -> None:
        try:
            self._journals.sync()
        except OSError:
            # A later sync that succeeds would prove nothing about the journals that were trimmed before. Only
            # an opening sees whether they are there.
            self._are_journals_unsure = True
            raise

    # ── their parts ──────────────────────────────────────────────────────────────────────────────────

    def _why_not_moved(self, log_id: int) -> Kept | None:
        """Return why nothing may be moved out of the log whatever is in it."""
        # The last log may be moved if it is not written any more: its copies begin a later one.
        if log_id == self._logs.in_use:
            return Kept(log_id, KeptBecause.LAST)
        return (
            None if log_id in self._checkpointer.state.log_ends else Kept(log_id, KeptBecause.NOT_COMMITTED)
        )

    def _why_never_a_victim(self, log_id: int) -> Kept | None:
        """Return why the log may not be removed whatever is in it."""
        state = self._checkpointer.state
        if log_id == state.last_log or log_id == self._logs.in_use:
            return Kept(log_id, KeptBecause.LAST)
        return None if log_id in state.log_ends else Kept(log_id, KeptBecause.NOT_COMMITTED)

    def _account(self, lookups: LedgerLookups, log_id: int) -> Generator[Pause, None, Kept | None]:
        try:
            return (yield from account_for_records(self._directory, self._index, lookups, log_id))
        except FileNotFoundError as error:
            return Kept(log_id, KeptBecause.DAMAGED, "ELG-005", detail=str(error))
        except OSError as error:
            return Kept(log_id, KeptBecause.FAILED, detail=str(error))

    def settle(self) -> Generator[Pause, None, None]:
        """Wait until the runner has followed the last order, because it follows one at a time."""
        while self._last is not None and not self._last.is_over:
            self._store_state.check_writes()
            yield None

    def _run(self, order: Order[R]) -> Generator[Pause, None, R]:
        """Have the runner of checkpoints follow the order, and wait for its end."""
        return (yield from self._end(self._begin(order)))

    def _begin(self, order: Order[R]) -> _BegunOrder[R]:
        """Have the runner of checkpoints follow the order."""
        trial = self._space.trial(Need.FINISHING)
        return _BegunOrder(self._submit(order), trial)

    def _end(self, begun: _BegunOrder[R]) -> Generator[Pause, None, R]:
        """Wait for the end of an order.

        On a full disk it is followed again after the reserve was given up, because it has changed nothing.
        """
        while True:
            yield from self.settle()
            result = begun.work.result
            assert result is not None, "it is over"
            if result.error is None or not begun.trial.may_repeat(result.error):
                return result
            begun.work = self._submit(begun.work.order)

    def _submit(self, order: Order[R]) -> Reclamation[R]:
        self._store_state.check_writes()
        self._last = work = Reclamation(order)
        self._checkpointer.submit(work)
        return work


def run(verb: Generator[Pause, None, T], checkpointer: Checkpointer) -> T:
    """Take all steps of a verb, and those of the runner, in the calling thread."""
    while True:
        try:
            pause = next(verb)
        except StopIteration as end:
            result: T = end.value
            return result
        if pause is None:
            checkpointer.step()


@dataclass(slots=True)
class _BegunOrder(Generic[R]):
    """An order that the runner follows, or has followed."""

    work: Reclamation[R]
    trial: Trial
    """Begun before the order, so that room that was made since then is noticed."""


@dataclass(slots=True)
class _Slices:
    """The live records of one log on their way: one slice that is moved, and those that were read ahead."""

    ahead: list[SliceChunk] = field(default_factory=list)
    """What was read and is not in the slice under way."""
    under_way: tuple[list[SliceChunk], _BegunOrder[SliceResult]] | None = None
    entries: int = 0
    """The entries that were moved."""
    size: int = 0
    """The bytes of their records."""
    error: OSError | None = None
    """The error after which no slice is begun any more."""
    _size_ahead: int = 0
    _count_ahead: int = 0

    def add(self, chunks: list[SliceChunk]) -> None:
        """Add records that were read."""
        self.ahead += chunks
        self._count(chunks, 1)

    def put_back(self, chunks: list[SliceChunk]) -> None:
        """Add records that were left in a slice. They come first, because they were read first."""
        self.ahead[:0] = chunks
        self._count(chunks, 1)

    def has_whole(self, size_max: int) -> bool:
        """Return whether enough was read ahead for a whole slice."""
        return self._size_ahead >= size_max or self._count_ahead >= SLICE_COUNT_MAX

    def cut(self, size_max: int) -> list[SliceChunk]:
        """Take the records of the next slice, in the order of ledgers."""
        size = count = number = 0
        for one in self.ahead:
            size, count = size + one.records.size, count + len(one.before)
            if number and (size > size_max or count > SLICE_COUNT_MAX):
                break
            number += 1
        some = self.ahead[:number]
        del self.ahead[:number]
        self._count(some, -1)
        # The records are sorted so that later reads of a range of a ledger need one place only.
        some.sort(key=lambda one: (one.records.ledger_id, one.records.ids[0]))
        return some

    def _count(self, chunks: list[SliceChunk], sign: int) -> None:
        self._size_ahead += sign * sum(one.records.size for one in chunks)
        self._count_ahead += sign * sum(len(one.before) for one in chunks)
