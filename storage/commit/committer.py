"""The order in which work becomes durable, for one add as for a group, for threads as for coroutines.

    write the group → sync → insert in the active table → covers_until → visible → answer

`Committer.proceed` takes these steps, and nothing else does. No group is written before the one before it is
durable. After an error of a write or a sync the outcome is unknown, so the store stops: nothing more is
answered. A table is frozen only between two groups, because its `covers_until` is then exact.

Signals: an exception of a signal handler never ends a commit. Before work has joined a group nothing was
changed, and the exception is raised at once. After that a thread, in which no handler runs, does the rest
beginning with the step under way, and the exception is raised when the group is over (docs/adr/0038).
"""

from __future__ import annotations

from _thread import start_new_thread
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from storage.capacity.guard import Need
from storage.commit.deletes import Deletes
from storage.commit.interruption import NeedsThread, is_interruption
from storage.commit.pending import (
    ANSWER,
    BEGIN,
    DONE,
    FINISH,
    INSERT,
    NO_ENTRIES,
    OVER,
    SYNC,
    WRITE,
    Flush,
    FlushIfFree,
    Freeze,
    PendingEntries,
    PendingGroup,
    PendingSeal,
)
from storage.commit.portions import (
    JOINED_MIN,
    SEAL,
    Portion,
    joined,
    journal_group_of,
    key_records_size,
    portions_of,
    size_of,
    with_keys,
)
from storage.commit.queue import CommitQueue, this_thread
from storage.entry import record_format
from storage.entry.model import NO_ENTRY
from storage.errors import DiskFull, Overloaded, ReentrantCall
from storage.journal.writer import NOTHING, SMALL
from storage.journal.writer import Group as JournalGroup
from storage.ledgers.metadata import as_claimed
from storage.ledgers.state import LedgerEnd
from storage.ledgers.waiters import ROOM, LedgerWaiters, Waiter
from storage.runtime.events import BlockedWork
from storage.runtime.worker import runs_signal_handlers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from storage.capacity.guard import SpaceGuard
    from storage.commit.pending import ControlRecord, Pending, Watcher
    from storage.commit.pending_deletes import Erasure, PendingDelete
    from storage.journal.journal_set import Journals
    from storage.journal.writer import JournalWriter
    from storage.ledgers.metadata import LedgerMetadata
    from storage.ledgers.state import LedgerState, LedgerStates
    from storage.memtable.table import Memtable, Slot
    from storage.runtime.store_state import StoreState

_new_tuple = tuple.__new__


class CommitLimits:
    """The limits of a portion of a group, of a table, and of the time that an add waits for room."""

    def __init__(self, group_size_max: int, memtable_size_max: int, throttle_timeout_s: float) -> None:
        self.group_size_max = group_size_max
        self.memtable_size_max = memtable_size_max
        self.throttle_timeout_s = throttle_timeout_s


class Committer:
    """Makes work durable. Any thread may call; one at a time leads."""

    def __init__(
        self,
        journals: Journals,
        slot: Slot,
        states: LedgerStates,
        metadata: LedgerMetadata,
        store_state: StoreState,
        limits: CommitLimits,
        space: SpaceGuard,
    ) -> None:
        self.queue: CommitQueue[PendingGroup] = CommitQueue(PendingGroup)
        self.waiters = LedgerWaiters()
        """Readers that wait for a ledger, and adds that wait for room."""
        self.deletes = Deletes(self, metadata, store_state, space)
        self.after_commit: Callable[[], None] = _do_nothing
        """Called after each commit by the thread that led it."""
        self.needs_thread: Callable[[], bool] = runs_signal_handlers
        """Whether a step that cannot be repeated from its middle is taken in another thread. A simulation
        that plays all threads in one replaces it."""
        self._answering: set[int] = set()
        """The threads that answer futures now. Each adds and removes itself."""
        self._refused_at = -1
        """How many groups were durable when an add was last refused because the disk was full."""
        self._journals = journals
        self._slot = slot
        self._states = states
        self._metadata = metadata
        self._store_state = store_state
        self._limits = limits
        self._space = space

    @property
    def is_refused_for_space(self) -> bool:
        """Whether an add was refused because the disk was full, and none has become durable since."""
        return self._refused_at == self._journals.groups

    @property
    def waiting_size(self) -> int:
        """Bytes of the entries that wait for the next commit."""
        return self.queue.open.size

    # ── work comes in ────────────────────────────────────────────────────────────────────────────────

    def commit(self, work: Pending) -> bool:  # noqa: C901 - one sequence, see the module
        """Return when the work is durable, or raise; False if it must not wait and another thread commits.

        The caller leads its group if no other thread leads. An exception of a signal handler is raised at
        once if the work has not joined a group, and otherwise when its group is over.
        """
        queue, me = self.queue, this_thread()
        if queue.leader == me or (queue.admitting == me and queue.lock.locked()):
            raise ReentrantCall(self._store_state.path)
        group, leads, give_up_at = work.group, False, None
        try:
            while group is None:
                with queue.lock:
                    queue.admitting = me
                    if queue.is_led and not work.waits:
                        return False
                    if self._admit(work):
                        group = queue.open
                        if not queue.is_led:
                            following = PendingGroup()
                            # No call in between, so that no signal handler runs in between either.
                            queue.open, queue.is_led, queue.leading = following, True, group
                            queue.leader, group.leader = me, work
                            leads = True
                if group is None:
                    give_up_at = self._wait_for_room(work, give_up_at)
            if leads or queue.follow(group, me, work):
                self.proceed(group)
        except BaseException as error:
            if work.group is None:
                raise  # nothing was handed out: the work never began
            if queue.leader == me:
                queue.leader = 0  # another thread takes over what this one leads
            while not work.is_finished:
                try:
                    # The first call here, and no Python function, so that no signal handler runs before it.
                    if not work.is_resumed:
                        start_new_thread(self._resume, (work, me, error))
                    self._wait_for_resumed(work)
                except RuntimeError:
                    self._resume(work, me, error)  # the interpreter ends, and starts no thread any more
                except BaseException:  # noqa: S112 - the first one is raised
                    continue
            if work.is_interrupted or not isinstance(error, Exception):
                raise
            if work.failure is not None and not isinstance(work.failure, Exception):
                raise work.failure from None  # the exception that ended the leader is for its caller
        if not work.is_durable:
            self._raise_error_of(work)
        return True

    def check_not_inside(self) -> None:
        """Raise if this thread leads a commit, or was interrupted while it put work into a group."""
        queue, me = self.queue, this_thread()
        if queue.leader == me or (queue.admitting == me and queue.lock.locked()):
            raise ReentrantCall(self._store_state.path)

    def enqueue(self, work: Pending) -> bool:
        """Put work into the open group, and wait for nothing. False while it must wait, as in `commit`."""
        queue, me = self.queue, this_thread()
        if queue.admitting == me and queue.lock.locked():
            raise ReentrantCall(self._store_state.path)
        with queue.lock:
            queue.admitting = me
            return self._admit(work)

    def enqueue_all(self, works: Iterable[PendingEntries], told: Watcher) -> PendingGroup | None:
        """Put work of several callers into the open group, and return the group if any has joined.

        Work that has not joined has its error, or must wait. `told` is called when the group is over.
        """
        queue, me = self.queue, this_thread()
        if queue.admitting == me and queue.lock.locked():
            raise ReentrantCall(self._store_state.path)
        with queue.lock:
            queue.admitting = me
            group = queue.open
            count = len(group.entries)
            # First, so that callers on their way are told of the end even after an interruption.
            group.watchers = (*group.watchers, told)
            for work in works:
                try:
                    self._admit(work)
                except Exception as error:
                    work.refusal = error
            return group if len(group.entries) > count else None

    def _admit(self, work: Pending) -> bool:
        """Have the work join the open group, unless it must wait for room or for a delete of its ledger.

        This is the only way into a group. Needs the queue's lock.
        """
        state = work.state
        if state is not None:
            group = self.queue.open
            if not self._store_state.is_open or group.refused is not None:
                self._check_open(work, group)
            if state.is_held:
                return False
            if work.needs_room:
                tables, size_max = self._slot.tables, self._limits.memtable_size_max
                if (tables.frozen is not None or group.size >= size_max) and self.is_full:
                    return False
        work.join(self.queue.open)
        return True

    def _check_open(self, work: Pending, group: PendingGroup) -> None:
        self._store_state.check_writes()
        if isinstance(work, PendingEntries):
            self._store_state.check_space(work.access.purpose)
        if group.refused is not None:
            raise self._store_state.as_told(group.refused)

    def _raise_error_of(self, work: Pending) -> None:
        assert work.group is not None, "the work has joined a group"
        if work.group.error is not None:
            raise self._store_state.as_told(work.group.error)

    def flush(self) -> None:
        """Return when everything that was put in before is durable, or has failed."""
        self.commit(Flush())

    def flush_if_free(self) -> bool:
        """Commit what was put in before, unless another thread commits; return whether it did."""
        return self.commit(FlushIfFree())

    def seal(self) -> None:
        """Prove the last group to be durable by an empty one after it, unless there is nothing to prove."""
        self.commit(PendingSeal())

    def freeze(self) -> None:
        """Freeze the active table, unless it is empty or one is frozen already."""
        self.commit(Freeze())

    def finish_deletes(self) -> None:
        """Return when every delete that was requested before is done, or has failed."""
        self.flush()
        self.deletes.flush()

    # ── room ─────────────────────────────────────────────────────────────────────────────────────────

    @property
    def is_full(self) -> bool:
        """Whether what waits already is all that the tables can take."""
        waiting, tables = self.queue.open.size, self._slot.tables
        if tables.frozen is None:
            return waiting >= self._limits.memtable_size_max
        return tables.active.size + waiting >= self._limits.memtable_size_max

    def may_have_room(self) -> bool:
        """Return whether an add may try again: there is room, or the store has ended."""
        return not self.is_full or self._store_state.has_ended

    def enqueue_when_admitted(self, work: Pending) -> None:
        """Put work into the open group; wait until it may join, but not for its commit."""
        give_up_at = None
        while not self.enqueue(work):
            give_up_at = self._wait_for_room(work, give_up_at)

    def _wait_for_room(self, work: Pending, give_up_at: float | None) -> float:
        """Wait until the work may try again. Return when it gives up, as `give_up_at` for the next call.

        `Overloaded` if `throttle_timeout_s` has passed since the first call, even if there was room in
        between that other adds have taken: otherwise an add could wait for ever.
        """
        state = work.state
        assert state is not None, "only work on a ledger waits"
        if state.is_held and this_thread() in self._answering:
            # The callback of a future adds to a ledger whose delete goes on only after the callback.
            self.deletes.flush()
        self.waiters.wait_for(state.ledger_id, lambda: not state.is_held or self._store_state.has_ended)
        timeout_s, now = self._limits.throttle_timeout_s, monotonic()
        if give_up_at is None:
            give_up_at = now + timeout_s
        elif not work.needs_room:
            return give_up_at
        elif now > give_up_at:
            raise Overloaded(timeout_s)
        if work.needs_room and not self.waiters.wait_for(ROOM, self.may_have_room, give_up_at - now):
            raise Overloaded(timeout_s)
        return give_up_at

    # ── the order ────────────────────────────────────────────────────────────────────────────────────

    def proceed(  # noqa: C901 - the order stands in one function
        self, group: PendingGroup, through: int = ANSWER
    ) -> None:
        """Take the steps of a commit in their order, from the group's on. For the thread that leads it.

        Each step can be repeated until the group's number says that it is done. With `through` it returns
        after a step of that number, so that a simulation can stop between two steps.
        """
        journals, store_state = self._journals, self._store_state
        if group.step == BEGIN:
            if store_state.failure is not None:
                self._fail(group, store_state.failure)
            elif (
                group.controls
                or group.claims
                or group.erasures
                or group.deletes
                or group.wants_seal
                or group.refused is not None
                or group.size > self._limits.group_size_max
            ):
                self._prepare(group)
            else:
                group.step = WRITE if group.entries else FINISH
            if through == BEGIN:
                return
        while group.step < FINISH:
            portions, journal = group.portions, journals.active
            entries = group.entries if portions is None else portions[group.at].entries
            if group.step == WRITE:
                # 1. Write. The entries of one caller, whose key is in the journal, need no more than this.
                one = entries[0] if portions is None and len(entries) == 1 else None
                if (
                    one is not None
                    and journal is not None
                    and journal.end + one.size <= journal.ample_until
                    and journal.keyed.get(one.state.ledger_id) == one.state.facts.master_key
                ):
                    if one.size <= SMALL and one.first_id == one.last_id:
                        journal.write_one(one.headers, one.payloads[0], one.size, journals.durable_up_to)
                    else:
                        journal.write(journal_group_of(entries), journals.durable_up_to)
                    group.step = SYNC
                else:
                    self._write(group)
                if through == WRITE:
                    return
                continue
            assert journal is not None, "a group was written"
            if group.step == SYNC:
                # 2. Sync. Never again after an error: a second sync may report success for lost bytes.
                journals.durable_up_to = journal.sync()
                journals.groups += 1
                group.step = INSERT
                if through == SYNC:
                    return
            # 3. Insert in the active table, and only then let the table's mark cover the group.
            active = self._slot.tables.active
            runs = entries if len(entries) < JOINED_MIN else joined(entries)
            for run in runs:
                if not (group.is_repeated and _has(active, run)):
                    active.insert_parts(
                        run.state.ledger_id, run.first_id, run.headers, run.payloads, run.size
                    )
            active.covers_until = journals.durable_up_to
            # 4. Show it: readers see an entry when the end of its ledger includes it.
            for run in runs:
                state, last_id = run.state, run.last_id
                end_id = state.end.entry_id
                if end_id == NO_ENTRY:
                    self._settle_first(state, active)
                if last_id > end_id or (last_id == end_id and state.is_left(last_id)):
                    state.end = _new_tuple(LedgerEnd, (last_id, run.length))
                if run.confirmed > state.lac_seen:
                    state.lac_seen = run.confirmed
            for run in entries:
                run.is_durable = True
                if run.whole is not None:
                    run.whole.is_durable = run.last_id == run.whole.last_id
            is_last = True
            if portions is not None:
                self._settle_portion(group)
                is_last = group.at + 1 == len(portions)
            # Two assignments without a call in between, or an interruption would leave only one of them.
            group.at, group.step = group.at + 1, FINISH if is_last else WRITE
            if through == INSERT:
                return
        if group.step == FINISH:
            # Between two groups: a full table is frozen, and deletes are decided by what is durable.
            if group.wants_freeze or self._slot.tables.active.size >= self._limits.memtable_size_max:
                self._slot.freeze()
            if group.full is not None:
                self._fail(group, group.full)
            else:
                if group.deletes:
                    self._decide(group.deletes)
                group.step = OVER
            if through == FINISH:
                return
        if group.step == OVER:
            # 5. Answer: the callers go, and one of those that have come meanwhile leads the next group.
            self.queue.end(group)
            group.step = ANSWER
            if through == OVER:
                return
        if group.step == ANSWER:
            if self.waiters.waiting or group.has_futures or group.watchers or group.deletes or group.erasures:
                if group.has_futures and not group.is_repeated and self.needs_thread():
                    raise NeedsThread  # a future whose answer is interrupted may be locked for ever
                self._answer(group)
            if store_state.failure is None:
                self.after_commit()
            # A group and its work refer to each other, and would wait for the garbage collector.
            group.entries, group.portions, group.leader = NO_ENTRIES, None, None
            group.step = DONE

    def _prepare(self, group: PendingGroup) -> None:
        """Do what comes before the first write, and divide the group into portions."""
        if (group.erasures or group.deletes) and not group.is_repeated and self.needs_thread():
            raise NeedsThread
        # Also if the adds are refused, because the tombstones of these deletes are durable.
        for erasure in group.erasures:
            self._erase(erasure)
        if group.erasures:
            self._journals.state_metadata_sequence(self._metadata.sequence)
        group.full = group.refused
        portions = []
        if group.refused is None:
            try:
                if group.claims:
                    self._declare(group)
                if group.entries or group.controls:
                    portions = portions_of(group, self._limits.group_size_max)
            except DiskFull as error:
                group.full = error
        # On a full disk too, because what the checkpoint trims may be the very space that is missing.
        if group.wants_seal:
            portions.append(SEAL)
        group.portions = portions
        group.step = WRITE if portions else FINISH

    def _declare(self, group: PendingGroup) -> None:
        """Make rows durable before the first entry, so that a reader after a crash knows its digest type."""
        revisions = {
            state.ledger_id: partial(as_claimed, claim=state.facts)
            for state in group.claims
            if self._metadata.contradicts(state.facts)
        }
        if revisions:
            if not group.is_repeated and self.needs_thread():
                raise NeedsThread
            self._metadata.persist_now(revisions)

    def _write(self, group: PendingGroup) -> None:
        """Write the portion under way, to the next journal if this one has no room."""
        if group.portions is None:
            portion = Portion(journal_group_of(group.entries), group.entries)
            group.portions = [portion]
        else:
            portion = group.portions[group.at]
        if self._store_state.failure is not None:
            # Another thread has met an error of the disk since this commit began.
            self._fail(group, self._store_state.failure)
            return
        journals, journal = self._journals, self._journals.active
        if portion.is_seal and not (
            journal is not None and journal.needs_vouching and journal.has_room(NOTHING)
        ):
            group.step = FINISH  # there is nothing to prove, or no room to prove it
            return
        journal_group = portion.journal_group
        missing = portion.keys({} if journal is None else journal.keyed)
        if journal is None or not journal.has_room(journal_group, key_records_size(missing)):
            if not group.is_repeated and self.needs_thread():
                raise NeedsThread
            # A new journal needs the keys of all its ledgers.
            missing = portion.keys({})
            found = self._rolled(journal_group, key_records_size(missing))
            if isinstance(found, DiskFull):
                group.full = found
                group.portions, group.at = [SEAL], 0
                group.step = WRITE if group.wants_seal else FINISH
                return
            journal = found
            missing = portion.keys(journal.keyed)
        if missing:
            journal_group = with_keys(journal_group, missing)
        journal.write(journal_group, journals.durable_up_to)
        group.keys, group.step = missing, SYNC

    def _rolled(self, group: JournalGroup, more: int) -> JournalWriter | DiskFull:
        """Return the next journal, or the error if there is no space for one and adds can make none.

        Work that may use the reserve comes again after it has made room: see `storage.commit.ledger_control`.
        """
        trial = self._space.trial(Need.ADDS)
        while True:
            try:
                journal = self._journals.with_room(group, more)
            except DiskFull as error:
                if not trial.may_repeat(error):
                    return error
                continue
            self._store_state.events.space_is_back(BlockedWork.ADDS)
            self._space.check()
            return journal

    def _settle_first(self, state: LedgerState, active: Memtable) -> None:
        """Keep what the first entry of a ledger has claimed, because its journal will be removed."""
        self._metadata.apply_journaled(state.ledger_id, lambda row: as_claimed(row, state.facts), active)
        self._states.keep(state)

    def _settle_portion(self, group: PendingGroup) -> None:
        """Settle what a portion holds beside entries."""
        assert group.portions is not None
        portion, active = group.portions[group.at], self._slot.tables.active
        if group.keys and self._journals.active is not None:
            self._journals.active.keyed.update(group.keys)
        # After the entries, because a reader that sees a fence must see all that it has let pass.
        for record in portion.controls:
            self._metadata.apply_journaled(record.state.ledger_id, record.revised, active)
            record.is_durable = True
        if portion.is_seal:
            self._journals.seals += 1

    def _decide(self, deletes: Sequence[PendingDelete]) -> None:
        """Decide up to where ledgers are dead: all adds before the deletes are durable, and others wait."""
        if self._journals.active is not None:
            for one in deletes:
                # The key that is logged here is the deleted ledger's, and a replay passes over it.
                self._journals.active.keyed.pop(one.state.ledger_id, None)
        for one in deletes:
            # All groups that were written are synced, so this is the end of the last group. Records that only
            # an opening has read are before it too, because the next opening may read them again.
            one.upto = max(self._journals.durable_up_to, self._journals.read_up_to)
            one.is_durable = True
            if one.whole is not None:
                one.whole.is_durable = True
        self.deletes.take(deletes)

    def _erase(self, erasure: Erasure) -> None:
        """Hide from readers what is durably gone, and forget deleted ledgers."""
        for ledger_id in erasure.truncated:
            truncation, state = self._metadata.hide_truncated(ledger_id), self._states.known(ledger_id)
            if truncation is not None and state is not None:
                with self.queue.lock:
                    state.truncate(truncation)
        erasure.is_durable = True
        if erasure.rows:
            self._metadata.hide_deleted(erasure.rows)
        for one in erasure.deletes:
            assert one.row is not None, "its tombstone is durable"
            one.state.restart(self._metadata.find(one.state.ledger_id) or one.row)
            self._states.release(one.state)
            one.is_done = True

    def _answer(self, group: PendingGroup) -> None:
        # Before any future, because its caller may add at once to the very ledger that was deleted.
        for one in group.deletes:
            if one.delete_group is None:
                one.release()
        for erasure in group.erasures:
            for one in erasure.deletes:
                one.release()
        if self.waiters.waiting:
            self._wake_waiters(group)
        if group.has_futures:
            self._answer_futures(group)
        for told in group.watchers:
            told(group.error)

    def _answer_futures(self, group: PendingGroup) -> None:
        me = this_thread()
        self._answering.add(me)
        for work in group.entries:
            future = work.future
            if future is not None and not future.done():
                if group.error is None or work.is_durable:
                    future.set_result(work.first_id)
                else:
                    future.set_exception(self._store_state.as_told(group.error))
        self._answering.discard(me)

    def _wake_waiters(self, group: PendingGroup) -> None:
        if self._store_state.failure is not None:
            self.waiters.wake_all()
            return
        self.waiters.wake(ROOM)
        erased = [one for erasure in group.erasures for one in erasure.deletes]
        works: list[PendingEntries | ControlRecord | PendingDelete] = [*group.entries, *group.controls]
        works += [*group.deletes, *erased]
        truncated = [one for erasure in group.erasures for one in erasure.truncated]
        for ledger_id in {*(work.state.ledger_id for work in works), *truncated}:
            self.waiters.wake(ledger_id)

    # ── when something stops a commit ────────────────────────────────────────────────────────────────

    def _resume(self, work: Pending, caller: int, error: BaseException) -> None:
        """Play the caller's part to its end, after an exception has stopped it there.

        In a thread where no signal handler runs. An interrupted step is repeated once; any other exception
        makes the group fail.
        """
        queue, group = self.queue, work.group
        assert group is not None, "the work has joined a group"
        with queue.lock:
            if work.is_resumed:
                return
            work.is_resumed = True
        is_asked, is_signal = isinstance(error, NeedsThread), is_interruption(error)
        work.is_interrupted = is_signal and not is_asked
        try:
            if group.leader is work or queue.follow(group, caller, work):
                with queue.lock:
                    if queue.leading is group and not group.is_over:
                        queue.leader = this_thread()
                group.is_repeated = True
                if group.step < OVER:
                    if not is_asked and not is_signal:
                        self._fail(group, error)
                    elif group.step == WRITE and self._journals.active is not None:
                        self._journals.active.forget_unsynced()
                work.failure = self._proceed_to_end(group)
        finally:
            work.is_finished = True
            if work.wake is not None:
                work.wake()

    def _proceed_to_end(self, group: PendingGroup) -> BaseException | None:
        """Take all steps that are left, and return the exception that has made the group fail in them."""
        failure = None
        while group.step != DONE:
            try:
                self.proceed(group)
            except BaseException as error:
                failure = error
                if group.step < OVER:
                    self._fail(group, error)
                else:
                    # The entries are durable, but what waits for the answer might wait for ever.
                    self.fail(error)
                    group.step = DONE
        return failure

    def _wait_for_resumed(self, work: Pending) -> None:
        waiter = Waiter()
        work.wake = waiter.wake
        if not work.is_finished:
            waiter.block(None)

    def _fail(self, group: PendingGroup, error: BaseException) -> None:
        """Have the group fail. Only a full disk, which nothing was written to, does not stop the store."""
        group.error = error
        if isinstance(error, DiskFull):
            self._refused_at = self._journals.groups
            self._store_state.events.disk_is_full(BlockedWork.ADDS)
            for work in group.entries:
                if work.is_deferred and not work.is_durable:
                    # Before the group is over, because `force` may return before the answers are given.
                    work.state.lost = error
                    self._states.keep(work.state)  # because only the state knows of the loss
            if group.refused is None:
                self._refuse_open(error)
        else:
            self._store_state.fail(error)
        group.step = OVER

    def _refuse_open(self, error: DiskFull) -> None:
        """Refuse the work that waits for the next commit: its ids follow those that are handed back."""
        with self.queue.lock:
            group = self.queue.open
            if group.has_content:
                group.refused = error
            self._states.hand_back()

    def fail(self, error: BaseException) -> BaseException:
        """Stop writing after an error outside of a commit, and return the error for its caller."""
        self._store_state.fail(error)
        self.waiters.wake_all()
        return self._store_state.as_told(error)

    # ── beside the commits ───────────────────────────────────────────────────────────────────────────

    def thaw(self) -> None:
        """Let readers look into entry logs and index for what was in the frozen table."""
        self._slot.thaw()
        self.waiters.wake(ROOM)

    def carry_over(self, records: Sequence[bytes]) -> None:
        """Make durable what an opening has read and cannot prove; it is in the active table already."""
        ledger_ids = {record_format.ledger_id(record) for record in records}
        # Not from the states, because they look up the end of a ledger, which may be unreadable.
        known = {ledger_id: self._metadata.of(ledger_id).master_key for ledger_id in ledger_ids}
        keys = {ledger_id: key for ledger_id, key in known.items() if key is not None}
        group = JournalGroup(records, len(records), size_of(records))
        journal: JournalWriter = self._journals.carry_over(with_keys(group, keys))
        journal.keyed.update(keys)
        self._slot.tables.active.covers_until = self._journals.durable_up_to


def _has(active: Memtable, run: PendingEntries) -> bool:
    """Return whether the table has these entries, because an interrupted insert has put them there.

    All of them, because a client may send entries again, so that only some were there before.
    """
    ledger_id = run.state.ledger_id
    return all(
        active.get(ledger_id, entry_id) == record for entry_id, record in enumerate(run.records, run.first_id)
    )


def _do_nothing() -> None:
    """Do nothing: as long as nothing is to be called after a commit."""
