"""The loop's part in the turns of the committer: what coroutines add, and who leads it.

What coroutines ask for in one pass of the loop, the loop puts into the open turn in its next pass, what goes
to one ledger as one run, and leads that turn. Each of them lets the loop go round once, and finds itself
answered: there is no future for an add, see docs/adr/0019. Where the turn is not over by then, because a
thread leads it, each waits by itself, so that cancelling one ends the waiting of that one, at once.

What was asked for is on its way, whatever becomes of the coroutine: an id that was handed out and is not
written would be a gap.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from types import coroutine
from typing import TYPE_CHECKING

from storage.aio.batch import FRONT_SIZE_MAX, Batch, Group
from storage.aio.pace import INLINE_SIZE_MAX, Pace, waited_s
from storage.errors import Overloaded

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Generator

    from storage.access import Access
    from storage.aio.news import News
    from storage.entrance import Entrance
    from storage.grouping import Load
    from storage.parts import Parts
    from storage.tail import Run, Tail
    from storage.worker import Hire, Pause


_JOURNAL_MARGIN = 16 << 10
"""What a group takes in a journal beside its records, keys included, unless it is of very many ledgers."""


@coroutine
def next_pass() -> Generator[None, None, None]:
    """Lets the loop go round once."""
    yield


class Turns:
    """Puts what coroutines add into turns. For the loop's own thread."""

    def __init__(
        self,
        parts: Parts,
        news: News,
        loop: AbstractEventLoop,
        hire: Hire,
        fail: Callable[[BaseException], None],
    ) -> None:
        self.batches: dict[Tail, Batch] = {}
        """Where more can be put in for a ledger, until the loop goes round."""
        self._asked: list[Batch] = []
        """All that was asked for in this pass, in that order."""
        self._group = Group()
        self._batch_size_max = parts.config.group_size_max - 2 * FRONT_SIZE_MAX
        self._journals = parts.journals
        self._entrance: Entrance = parts.committer.entrance
        self._turnstile = parts.committer.turnstile
        self._latch = parts.latch
        self._throttle_timeout_s = parts.config.throttle_timeout_s
        self._news = news
        self._loop = loop
        self._pace = Pace()
        self._leader = hire("ledgerstore-lead", self._lead_in_thread, fail)
        self.stop = self._leader.stop

    # ── who adds ─────────────────────────────────────────────────────────────────────────────────────

    def begin(self, tail: Tail, access: Access, payload: bytes) -> Batch:
        """A batch of that one, behind all that was asked for before."""
        group = self._group if self._asked else self._begun_group()
        room = self._batch_size_max - len(payload)
        batch = self.batches[tail] = Batch(tail, access, group, [payload], room)
        self._asked.append(batch)
        return batch

    def _begin_whole(self, tail: Tail, access: Access, make: Callable[[Tail], Run]) -> Batch:
        # What comes behind it must not go with what came before it.
        self.batches.pop(tail, None)
        group = self._group if self._asked else self._begun_group()
        batch = Batch(tail, access, group, [], 0, make)
        self._asked.append(batch)
        return batch

    def _begun_group(self) -> Group:
        self._group = Group()
        self._loop.call_soon(self._lead)
        return self._group

    async def through(self, tail: Tail, access: Access, make: Callable[[Tail], Run]) -> Run:
        """The run, as a batch of its own, when a crash can no longer lose it."""
        while True:
            batch = self._begin_whole(tail, access, make)
            await next_pass()
            self._see_to(batch)
            if batch.error is not None:
                raise batch.error
            if batch.run is not None:
                return await self._durable(batch.run, batch.group)
            await self._wait_for_room(tail)

    async def outcome(self, batch: Batch, at: int) -> int:
        """The id of one of the batch's payloads, when a crash can no longer lose it."""
        self._see_to(batch)
        if batch.run is None:
            # No room, or it was refused: each asks by itself, and hears of it by an error of its own.
            payloads, access = (batch.payloads[at],), batch.access
            run = await self.through(batch.tail, access, lambda tail: tail.append(payloads, access))
            return run.first_id
        run = await self._durable(batch.run, batch.group)
        return run.first_id + at

    def _see_to(self, batch: Batch) -> None:
        # By now the loop has put it in, unless a Ctrl-C has struck between its taking the call and doing so.
        if batch in self._asked:
            self._lead()

    async def _durable(self, run: Run, group: Group) -> Run:
        if not run.is_durable and not group.is_over:
            # A thread leads, or nobody because of a Ctrl-C.
            self._hand_over(group)
            await group.wait()
        if not run.is_durable:
            assert group.error is not None, "what is over is durable, or has failed"
            raise self._latch.as_told(group.error)
        return run

    async def _wait_for_room(self, tail: Tail) -> None:
        entrance, latch = self._entrance, self._latch
        if tail.is_held:
            # Who has asked for the delete may have been interrupted before anybody led its turn.
            self._leader.wake()
            await self._news.wait_for(lambda: not tail.is_held or latch.has_ended)
        timeout_s = self._throttle_timeout_s
        if not await self._news.wait_for(lambda: not entrance.is_full or latch.has_ended, timeout_s):
            raise Overloaded(timeout_s)

    # ── who leads ────────────────────────────────────────────────────────────────────────────────────

    def _lead(self) -> None:
        """Puts what was asked for into the open turn, and does that or has it done."""
        if not self._asked:
            return
        # No call in between: what a Ctrl-C loses is asked for again, by each for itself.
        asked, group, self._asked, self.batches = self._asked, self._group, [], {}
        load = self._entrance.join(asked, partial(self._hear, group))
        if load is None:
            return
        if not self._is_quick(load):
            self._hand_over(group)
            return
        started = waited_s()
        if self._turnstile.lead_if_free():
            self._pace.led_on_loop(waited_s() - started)
        else:
            # A thread of ours waits where the loop must not, and leads if that falls to it.
            self._hand_over(group)

    def _is_quick(self, load: Load) -> bool:
        """Whether the loop may lead such a turn: it is small, and the disk quick."""
        journal = self._journals.active
        # A new journal takes some syncs, and perhaps has to be filled; a delete commits to the index.
        has_journal = journal is not None and journal.room > load.size + _JOURNAL_MARGIN
        return self._pace.is_quick and load.size <= INLINE_SIZE_MAX and has_journal and not load.deletions

    def _hand_over(self, group: Group) -> None:
        if not group.is_handed_over:
            self._leader.wake()
            group.is_handed_over = True

    def _lead_in_thread(self) -> Pause:
        started = waited_s()
        self._turnstile.flush()
        self._pace.led_in_thread(waited_s() - started)
        return None

    def _hear(self, group: Group, error: BaseException | None) -> None:
        """The turn is over; in the thread of whoever has led it."""
        group.error = error
        group.is_over = True
        if group.is_awaited:
            with suppress(RuntimeError):  # the loop is closed, and nobody waits there any more
                self._loop.call_soon_threadsafe(group.release)
