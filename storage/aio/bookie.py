"""The operations of a bookie for coroutines, which a network server of one event loop needs.

Adds are not awaited one by one: `commit` takes the adds of many clients at once, one piece of work for each
entry, and makes one callback for all of them. A coroutine for each add would cost as much as all the rest.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

from storage.entry.credentials import Purpose
from storage.entry.model import NO_ENTRY
from storage.ledgers.waiters import ROOM
from storage.memtable.ledger_entries import LedgerEntries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from storage.aio.loop_context import LoopContext
    from storage.commit.pending import ClientEntry, ClientRun, PendingEntries
    from storage.latencies import LatencySummary

T = TypeVar("T")


class AsyncBookie:
    """The operations of a bookie for the coroutines of one loop. `blocking` has the same ones for threads."""

    def __init__(self, context: LoopContext) -> None:
        self.blocking = context.store.bookie
        self._context = context
        self._slot = context.engine.slot

    # ── adding ───────────────────────────────────────────────────────────────────────────────────────

    def has_entries(self, ledger_id: int) -> bool:
        """Return whether the ledger has entries, without a look-up on the disk: see `load`."""
        state = self._context.known_state(ledger_id)
        return state is not None and state.end.entry_id != NO_ENTRY

    async def load(self, ledger_id: int) -> object:
        """Look up the end of a ledger. It stays loaded as long as the result is kept, or it has entries."""
        return await self._context.state_of(ledger_id)

    def entry(self, data: bytes, master_key: bytes, purpose: Purpose = Purpose.WRITING) -> ClientEntry:
        """Return an entry as work for `commit`; raises as `Bookie.add` does. The ledger must be loaded."""
        return self.blocking.pending_entry(data, master_key, purpose)

    def entries(
        self, ledger_id: int, first_id: int, entries: Sequence[bytes], master_key: bytes
    ) -> ClientRun | None:
        """Return consecutive entries as one piece of work for `commit`; `None` if they must go one by one."""
        return self.blocking.pending_run(ledger_id, first_id, entries, master_key)

    def commit(self, works: Sequence[PendingEntries], done: Callable[[], None]) -> None:
        """Make the works durable in one commit. `done` is called on the loop, perhaps before this returns.

        By then each work is durable (`is_durable`), was refused (`refusal`), or has failed (`failure_of`), or
        it has no group, because there was no room: try it again after `wait_for_room`.
        """
        self._context.check()
        self._context.commits.commit_all(works, done)

    def failure_of(self, work: PendingEntries) -> BaseException | None:
        """Return why a work that has joined a commit did not become durable."""
        error = None if work.group is None else work.group.error
        return None if error is None else self._context.engine.store_state.as_told(error)

    async def wait_for_room(self, work: PendingEntries, timeout_s: float) -> bool:
        """Wait until the work may join a commit; return False if it could not in that time."""
        state, store_state = work.state, self._context.engine.store_state
        changes, loop = self._context.changes, self._context.loop
        give_up_at = loop.time() + timeout_s
        is_free = await changes.wait_for(
            state.ledger_id, lambda: not state.is_held or store_state.has_ended, timeout_s
        )
        may_have_room = self._context.engine.committer.may_have_room
        return is_free and await changes.wait_for(ROOM, may_have_room, give_up_at - loop.time())

    @property
    def refuses_adds(self) -> bool:
        """Whether adds are refused now, for lack of space. They are accepted again when there is some."""
        return self._context.engine.store_state.refusal is not None

    @property
    def failure(self) -> BaseException | None:
        """The error after which the store writes nothing more; `None` while it works."""
        return self._context.engine.store_state.failure

    @property
    def refusal(self) -> str | None:
        """Why adds are refused now, for lack of space or after a failure; `None` while they are accepted."""
        store_state = self._context.engine.store_state
        if store_state.failure is not None:
            return f"the store has stopped writing after {store_state.failure!r}"
        return None if store_state.refusal is None else store_state.refusal.reason

    def commit_waits(self) -> LatencySummary:
        """Return how long commits of this loop have waited for the disk."""
        return self._context.commits.waits.summary(perf_counter())

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────

    def read_from_memory(self, ledger_id: int, entry_id: int) -> bytes | None:
        """Return the bytes of an entry that is in memory; `None` if the disk has to be asked."""
        is_here = self._is_in_memory(ledger_id, entry_id)
        return self.blocking.read(ledger_id, entry_id) if is_here else None

    def read_run_from_memory(self, ledger_id: int, first_id: int, count: int, size_max: int) -> list[bytes]:
        """Return consecutive entries that are in memory, as `Bookie.read_run` does; none if the disk has to
        be asked."""
        is_here = self._is_in_memory(ledger_id, first_id)
        return self.blocking.read_run(ledger_id, first_id, count, size_max) if is_here else []

    def _is_in_memory(self, ledger_id: int, entry_id: int) -> bool:
        for table in self._slot.tables.both:
            entries = table.find(ledger_id)
            if entries is not None and entries.has(entry_id):
                return type(entries) is LedgerEntries  # entries of other types are still in the journals
        return False

    def last_add_confirmed_from_memory(self, ledger_id: int) -> int | None:
        """Return the last add confirmed; `None` if the disk has to be asked."""
        state = self._context.known_state(ledger_id)
        if state is None:
            return None
        last_id = state.end.entry_id
        if last_id != NO_ENTRY and not self._is_in_memory(ledger_id, last_id):
            return None
        return self.blocking.last_add_confirmed(ledger_id)

    async def ledgers(self) -> list[int]:
        """Return the ids of all ledgers that exist here, ascending."""
        return await self._context.call(self._context.store.ledgers)

    async def call(self, act: Callable[[], T]) -> T:
        """Return the result of a call that may wait for the disk, such as a method of `blocking`."""
        return await self._context.call(act)

    async def wait_for_last_add_confirmed(self, ledger_id: int, beyond: int, timeout_s: float) -> int:
        """Wait until the last add confirmed is larger than `beyond`, and return it. Occupies no thread.

        Returns the present one when the time is over, and at once if it will not grow any more.
        """
        engine, loop = self._context.engine, self._context.loop
        state = await self._context.state_of(ledger_id)
        deleted_at = engine.metadata.deleted_at(ledger_id)
        give_up_at = loop.time() + timeout_s
        while True:
            end, seen, record = state.end, state.lac_seen, engine.metadata.of(ledger_id)
            confirmed = await self.call(partial(self.blocking.last_add_confirmed, ledger_id))
            left_s = give_up_at - loop.time()
            if confirmed > beyond or left_s <= 0 or engine.is_settled(ledger_id, deleted_at):
                return confirmed

            def may_have_grown(end: object = end, seen: int = seen, record: object = record) -> bool:
                has_changed = state.end is not end or state.lac_seen != seen
                is_settled = engine.is_settled(ledger_id, deleted_at)
                return has_changed or is_settled or engine.metadata.of(ledger_id) is not record

            await self._context.changes.wait_for(ledger_id, may_have_grown, left_s)
