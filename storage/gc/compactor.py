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
between, and an opening has nothing to finish. `run` drives a verb to its end where there are no workers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from storage.capacity.guard import Need
from storage.checkpoint.reclaimer import Reclamation
from storage.entry.read_result import Damaged
from storage.gc.proof import Kept, KeptBecause, account_for_records, count_live, kept_damaged
from storage.gc.tombstones import LedgersInLogs, purgeable
from storage.gc.victim import SLICE_COUNT_MAX, SLICE_SIZE_MAX, Victim
from storage.journal.journal_set import journal_ids
from storage.runtime.worker import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from storage.capacity.guard import SpaceGuard
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
        self._ledgers_in_logs = LedgersInLogs(directory)
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
        victim = Victim(self._directory, self._visible, self._metadata.digester, log_id, end)
        entries = size = 0
        chunks: list[SliceChunk] = []
        waiting = _Amount(0, 0)
        try:
            for found in victim.chunks():
                if isinstance(found, Damaged):
                    kept = kept_damaged(log_id, found)
                    return Moved(log_id, entries, size, victim.bytes_read, kept)
                chunks += found
                waiting += _amount_of(found)
                yield AT_ONCE
                while waiting.is_slice:
                    done = yield from self._move_slice(chunks)
                    waiting = _amount_of(chunks)
                    entries, size = entries + done.entries, size + done.size
                    if done.error is not None:
                        return _failed_move(log_id, entries, size, victim, done.error)
            while chunks:
                done = yield from self._move_slice(chunks)
                entries, size = entries + done.entries, size + done.size
                if done.error is not None:
                    return _failed_move(log_id, entries, size, victim, done.error)
        except OSError as error:
            return _failed_move(log_id, entries, size, victim, error)
        return Moved(log_id, entries, size, victim.bytes_read)

    def _move_slice(self, chunks: list[SliceChunk]) -> Generator[Pause, None, SliceResult]:
        """Move the first chunks, and take from the list what need not be moved any more."""
        some = _first_slice(chunks)
        # In the order of ledgers, so that a range of a ledger is read from one place.
        some.sort(key=lambda one: (one.records.ledger_id, one.records.ids[0]))
        checkpointer = self._checkpointer
        result = yield from self._run(
            lambda state: checkpointer.reclaimer.move(state, some, checkpointer.must_end)
        )
        if result.error is None and not result.handled and checkpointer.disk_full_error is not None:
            # A checkpoint waits for space, and comes before every slice: nothing can be moved now.
            result = replace(result, error=checkpointer.disk_full_error)
        chunks[:0] = some[result.handled :] if result.error is None else some
        return result

    def remove(self, log_ids: Iterable[int]) -> Generator[Pause, None, Removed]:
        """Remove those of the logs in which nothing is live. The others are kept, each with its reason.

        Files of logs that were removed earlier and could not be unlinked are tried again. If one stays, the
        logs are removed all the same, because a single file must not keep the space of all others.
        """
        swept = yield from self._run(self._checkpointer.reclaimer.sweep)
        kept: list[Kept] = []
        dead: list[int] = []
        for log_id in sorted(set(log_ids)):
            why_kept = self._why_never_a_victim(log_id)
            if why_kept is None:
                # The present state, because a log that was the last one may have grown before it was rolled.
                why_kept = yield from self._account(self._checkpointer.state, log_id)
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

    def _account(self, state: IndexState, log_id: int) -> Generator[Pause, None, Kept | None]:
        try:
            return (
                yield from account_for_records(self._directory, self._index, state, self._metadata.of, log_id)
            )
        except FileNotFoundError as error:
            return Kept(log_id, KeptBecause.DAMAGED, "ELG-005", detail=str(error))
        except OSError as error:
            return Kept(log_id, KeptBecause.FAILED, detail=str(error))

    def _run(self, order: Order[R]) -> Generator[Pause, None, R]:
        """Have the runner of checkpoints follow the order, and wait for its end.

        On a full disk it is followed again after the reserve was given up, because it has changed nothing.
        """
        trial = self._space.trial(Need.FINISHING)
        while True:
            result = yield from self._run_once(order)
            if result.error is None or not trial.may_repeat(result.error):
                return result

    def _run_once(self, order: Order[R]) -> Generator[Pause, None, R]:
        work = Reclamation(order)
        self._store_state.check_writes()
        self._checkpointer.submit(work)
        while not work.is_over:
            self._store_state.check_writes()
            yield None
        assert work.result is not None, "it is over"
        return work.result


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


@dataclass(frozen=True, slots=True)
class _Amount:
    """How much some chunks are."""

    size: int
    count: int

    def __add__(self, other: _Amount) -> _Amount:
        return _Amount(self.size + other.size, self.count + other.count)

    @property
    def is_slice(self) -> bool:
        """Whether it is enough for a whole slice."""
        return self.size >= SLICE_SIZE_MAX or self.count >= SLICE_COUNT_MAX


def _amount_of(chunks: list[SliceChunk]) -> _Amount:
    return _Amount(sum(one.records.size for one in chunks), sum(len(one.before) for one in chunks))


def _first_slice(chunks: list[SliceChunk]) -> list[SliceChunk]:
    """Take the chunks of one slice from the list."""
    size = count = number = 0
    for one in chunks:
        size, count = size + one.records.size, count + len(one.before)
        if number and (size > SLICE_SIZE_MAX or count > SLICE_COUNT_MAX):
            break
        number += 1
    some = chunks[:number]
    del chunks[:number]
    return some


def _failed_move(log_id: int, entries: int, size: int, victim: Victim, error: OSError) -> Moved:
    kept = Kept(log_id, KeptBecause.FAILED, detail=str(error))
    return Moved(log_id, entries, size, victim.bytes_read, kept, error)
