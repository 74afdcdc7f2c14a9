"""Commits for coroutines: how their adds join a group, and which thread leads that group.

The adds of one pass of the loop join the open group in the next pass, as one batch for each ledger, and the
loop leads that group. Each coroutine suspends itself for one pass and then finds its entry durable; an add
needs no future (docs/adr/0019). If the group is not over by then, because a thread leads it, each coroutine
waits by itself, so that the cancellation of one coroutine ends only its own wait, and at once.

An add that was accepted is committed even if its coroutine is cancelled, because an id that was given out and
is not written would be a gap.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from time import perf_counter
from types import coroutine
from typing import TYPE_CHECKING

from storage.aio.batch import FRONT_SIZE_MAX, LoopGroup, PayloadBatch
from storage.aio.inline_policy import INLINE_SIZE_MAX, InlinePolicy, waited_s
from storage.commit.pending import PendingEntries
from storage.errors import Overloaded
from storage.latencies import Latencies
from storage.ledgers.waiters import ROOM
from storage.runtime.events import SLOW_SYNC_S

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Generator, Sequence

    from storage.aio.change_feed import ChangeFeed
    from storage.commit.pending import PendingGroup
    from storage.engine import Engine
    from storage.entry.credentials import Access
    from storage.ledgers.state import LedgerState
    from storage.runtime.worker import Pause, WorkerFactory


_JOURNAL_MARGIN = 16 << 10
"""The most bytes that a group takes in a journal besides its records, unless it has very many ledgers."""


@coroutine
def next_pass() -> Generator[None, None, None]:
    """Suspend the coroutine until the next pass of the loop."""
    yield


class LoopCommits:
    """Joins the adds of coroutines to commits. For the thread of the loop."""

    def __init__(
        self,
        engine: Engine,
        changes: ChangeFeed,
        loop: AbstractEventLoop,
        new_worker: WorkerFactory,
        fail: Callable[[BaseException], None],
    ) -> None:
        self.batches: dict[LedgerState, PayloadBatch] = {}
        """The batches that still take payloads in this pass of the loop, by ledger."""
        self._pending: list[PendingEntries] = []
        """All work of this pass, in the order of the calls."""
        self._group = LoopGroup()
        self._batch_size_max = engine.config.group_size_max - 2 * FRONT_SIZE_MAX
        self._journals = engine.journals
        self._committer = engine.committer
        self._store_state = engine.store_state
        self._throttle_timeout_s = engine.config.throttle_timeout_s
        self._changes = changes
        self._loop = loop
        self._policy = InlinePolicy()
        self.waits = Latencies()
        """How long commits have waited for the disk. The loop and the leading thread may count at the same
        moment; then one of the two may be missing."""
        self._leader = new_worker("ledgerstore-lead", self._lead_in_thread, fail)
        self.stop = self._leader.stop

    # ── adds ─────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, state: LedgerState, access: Access, payload: bytes) -> PayloadBatch:
        """Return a new batch with that payload. It comes after everything that was added before."""
        group = self._group if self._pending else self._new_group()
        batch = PayloadBatch(state, access, payload, group, self._batch_size_max - len(payload))
        self.batches[state] = batch
        self._pending.append(batch)
        return batch

    def _new_group(self) -> LoopGroup:
        self._group = LoopGroup()
        self._loop.call_soon(self._lead)
        return self._group

    async def commit(self, work: PendingEntries) -> None:
        """Return when a crash can no longer lose the work."""
        give_up_at = None
        while True:
            # Later payloads must not join an earlier batch, because entries keep the order of the calls.
            self.batches.pop(work.state, None)
            group = self._group if self._pending else self._new_group()
            self._pending.append(work)
            await next_pass()
            self._ensure_joined(work)
            if work.refusal is not None:
                raise work.refusal
            if work.group is not None:
                return await self._durable(work, group)
            give_up_at = await self._wait_for_room(work.state, give_up_at)

    async def outcome(self, batch: PayloadBatch, at: int) -> int:
        """Return the id of one of the batch's payloads, when a crash can no longer lose it."""
        self._ensure_joined(batch)
        if batch.group is None:
            # There was no room, or the batch was refused: each caller tries alone, and gets its own error.
            work = PendingEntries(batch.state, batch.access, (batch.payloads[at],))
            await self.commit(work)
            return work.first_id
        await self._durable(batch, batch.loop_group)
        return batch.first_id + at

    def _ensure_joined(self, work: PendingEntries) -> None:
        # The loop has called `_lead` by now, unless a signal handler has raised just before.
        if work in self._pending:
            self._lead()

    async def _durable(self, work: PendingEntries, group: LoopGroup) -> None:
        if not work.is_durable and not group.is_over:
            # A thread leads, or none does because a signal handler has raised.
            self._hand_over(group)
            await group.wait()
        if not work.is_durable:
            assert group.error is not None, "a group that is over is durable, or has failed"
            raise self._store_state.as_told(group.error)

    async def _wait_for_room(self, state: LedgerState, give_up_at: float | None) -> float:
        """Wait for room, as `Committer` does for threads. Return when the work gives up."""
        store_state, loop = self._store_state, self._loop
        await self._changes.wait_for(state.ledger_id, lambda: not state.is_held or store_state.has_ended)
        timeout_s, now = self._throttle_timeout_s, loop.time()
        if give_up_at is None:
            give_up_at = now + timeout_s
        elif now > give_up_at:
            raise Overloaded(timeout_s)
        if not await self._changes.wait_for(ROOM, self._committer.may_have_room, give_up_at - now):
            raise Overloaded(timeout_s)
        return give_up_at

    # ── which thread leads ───────────────────────────────────────────────────────────────────────────

    def _lead(self) -> None:
        """Have the adds of this pass join the open group, and commit the group or have a thread commit it."""
        if not self._pending:
            return
        # No call in between, so that no signal handler runs in between. If one has raised before, each
        # coroutine calls this method itself.
        works, group, self._pending, self.batches = self._pending, self._group, [], {}
        self._commit_all(works, group)

    def commit_all(self, works: Sequence[PendingEntries], done: Callable[[], None]) -> None:
        """Have the works join the open group, and commit it or have a thread commit it.

        `done` is called on the loop, perhaps before this returns. By then each work is durable
        (`is_durable`), was refused (`refusal`), has failed with its group, or has no group, because it has to
        wait for room.
        """
        self._commit_all(works, LoopGroup(done))

    def _commit_all(self, works: Sequence[PendingEntries], group: LoopGroup) -> None:
        joined = self._committer.enqueue_all(works, partial(self._note_end, group))
        if joined is None:
            group.release()
            return
        if not self._is_quick(joined):
            self._hand_over(group)
            return
        started = waited_s()
        group.is_led_here = True
        try:
            is_led = self._committer.flush_if_free()
            took_s = waited_s() - started
        finally:
            # In this order: if another thread ends the group meanwhile, it then calls, or it is over here.
            group.is_led_here = False
            if group.is_over:
                group.release()
        if is_led:
            self._policy.led_on_loop(took_s)
            self.waits.note(took_s, perf_counter())
            if took_s >= SLOW_SYNC_S:
                self._store_state.events.synced(took_s)
        else:
            # Another thread leads. A thread of this store waits for it, because the loop must not.
            self._hand_over(group)

    def _is_quick(self, group: PendingGroup) -> bool:
        """Return whether the loop may commit the group: it is small, and the disk is quick."""
        journal = self._journals.active
        # A new journal takes some syncs, and perhaps has to be filled.
        has_journal = journal is not None and journal.room > group.size + _JOURNAL_MARGIN
        return self._policy.is_quick and group.size <= INLINE_SIZE_MAX and has_journal

    def _hand_over(self, group: LoopGroup) -> None:
        if not group.is_handed_over:
            self._leader.wake()
            group.is_handed_over = True

    def _lead_in_thread(self) -> Pause:
        started = waited_s()
        self._committer.flush()
        took_s = waited_s() - started
        self._policy.led_in_thread(took_s)
        self.waits.note(took_s, perf_counter())
        self._store_state.events.synced(took_s)
        return None

    def _note_end(self, group: LoopGroup, error: BaseException | None) -> None:
        """Note that the group is over. Called in the thread that has led it."""
        group.error = error
        group.is_over = True
        # If the loop leads, it releases the group itself. A call from a thread would be one more pass of it.
        if group.is_awaited and not group.is_led_here:
            with suppress(RuntimeError):  # the loop is closed, so that nothing waits there any more
                self._loop.call_soon_threadsafe(group.release)
