"""Following a ledger for coroutines: like `storage.follower`, but no follower occupies a thread."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Self

from storage.aio.change_feed import give_up
from storage.aio.loop_commits import next_pass
from storage.entry.model import ID_MAX
from storage.errors import EntryTruncated, ForkedStore, StoreClosed, StoreError

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Iterator
    from types import TracebackType

    from storage.aio.ledger import AsyncLedger
    from storage.aio.loop_context import LoopContext
    from storage.entry.batch import EntryBatch
    from storage.entry.model import Entry
    from storage.ledgers.state import LedgerState
    from storage.memtable.table import Tables


class AsyncFollower:
    """An asynchronous iterator over the entries of one ledger that waits for the next one.

    `AsyncLedger.follow` makes it. One task iterates; any task or thread may `stop` it. It belongs to the
    ledger that had the id when it was made, or to the first one that gets the id. When that ledger is deleted
    the follower ends, because a new ledger counts from 0. After a wait was cancelled it can be asked again.
    """

    __slots__ = (
        "_batches",
        "_came",
        "_context",
        "_deleted_at",
        "_engine",
        "_first_id",
        "_found",
        "_from_entry",
        "_give_up_at",
        "_idle_timeout_s",
        "_is_iterated",
        "_is_stopped",
        "_last",
        "_ledger",
        "_tables_read",
        "_waiters",
    )

    def __init__(
        self,
        ledger: AsyncLedger,
        context: LoopContext,
        from_entry: int | None,
        idle_timeout_s: float | None,
    ) -> None:
        self._ledger = ledger
        self._context = context
        self._engine = context.engine
        self._waiters = context.engine.committer.waiters
        self._from_entry = from_entry
        first_entry_id = context.engine.metadata.first_entry_id(ledger.id)
        self._first_id = first_entry_id if from_entry is None else from_entry
        self._last: Entry | None = None
        """The entry that was handed out last."""
        self._idle_timeout_s = idle_timeout_s
        self._give_up_at: float | None = None
        """When it has been idle for too long; counted from the first wait after an entry."""
        self._deleted_at = context.engine.metadata.deleted_at(ledger.id)
        self._found: Iterator[Entry] = iter(())
        """Entries that were read and not handed out yet."""
        self._batches: Iterator[EntryBatch] | None = None
        """The reading that goes on in a thread, until all of it was taken."""
        self._tables_read: Tables | None = None
        """The tables when the reading began."""
        self._came: Future[bool] | None = None
        """Set while the follower waits for the next entry."""
        self._is_iterated = False
        self._is_stopped = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Entry:
        while not self._waiters.is_stopped:
            for entry in self._found:
                self._last = entry
                return entry
            if self._is_stopped:
                break
            if self._is_iterated:
                raise RuntimeError("another task waits for the next entry of this follower")
            self._is_iterated = True
            try:
                await self._read_on()
            finally:
                self._is_iterated = False
        self.stop()
        raise StopAsyncIteration

    @property
    def _next_id(self) -> int:
        return self._first_id if self._last is None else self._last.entry_id + 1

    def stop(self) -> None:
        """End the iteration now; a task that waits for the next entry returns at once."""
        self._is_stopped = True
        self._found = iter(())
        if (came := self._came) is not None:
            with suppress(RuntimeError):  # the loop is closed, so that nothing waits there any more
                self._context.loop.call_soon_threadsafe(give_up, came)

    async def aclose(self) -> None:
        """As `stop`: for `contextlib.aclosing`."""
        self.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.stop()

    async def _read_on(self) -> None:
        """Read the next entries, and wait for them if there are none; stop where none will come."""
        found: Iterator[Entry] | None = None
        try:
            self._context.check()
            found = await self._read(await self._ledger._find_state())
        except (StoreClosed, ForkedStore):
            self.stop()
            return
        except EntryTruncated as error:
            if self._from_entry is not None or self._last is not None:
                raise
            self._first_id = error.first_entry_id  # it was truncated since the follower was made
            return
        except StoreError:
            # The error may be about a new ledger of this id, which may have another digest type or password.
            if not self._is_deleted:
                raise
        # Checked after the reading, because entries read before the delete are the followed ledger's.
        if self._is_deleted:
            self.stop()
        elif found is not None:
            self._found, self._give_up_at = found, None
            if self._is_stopped:  # while it read, so that `stop` found nothing to drop
                self.stop()

    async def _read(self, state: LedgerState) -> Iterator[Entry] | None:
        """Return the next entries; `None` if there were none yet, after waiting for one."""
        batches, self._batches = self._batches, None
        if batches is None:
            await next_pass()  # so that other coroutines run, however fast a thread adds
            self._tables_read = self._engine.slot.tables
            if newest := self._ledger._newest(self._next_id, state.end.entry_id):
                return iter(newest)
            batches = self._ledger._ledger._available(self._next_id)
        if self._next_id <= state.end.entry_id:
            # `_batches` is set only afterwards: a cancelled read begins anew, because a thread may still be
            # reading from these batches.
            batch = await self._ledger._next(batches)
            if batch is not None:
                self._batches = batches
                return batch.entries()
        await self._wait(state)
        return None

    async def _wait(self, state: LedgerState) -> None:
        """Wait until there may be a next entry; stop where there will be none."""
        loop, timeout_s = self._context.loop, self._idle_timeout_s
        if timeout_s is not None:
            self._give_up_at = self._give_up_at or loop.time() + timeout_s
            timeout_s = self._give_up_at - loop.time()
        self._came = loop.create_future()
        try:
            came = self._next_id <= ID_MAX and await self._context.changes.wait_for(
                self._ledger.id, lambda: self._may_go_on(state), timeout_s, self._came
            )
        finally:
            self._came = None
        if not came or self._is_over:
            self.stop()

    def _may_go_on(self, state: LedgerState) -> bool:
        """Whether the next entry may be there by now, though it was not in `_tables_read`."""
        if self._is_over:
            return True
        if state.end.entry_id < self._next_id:
            return False
        if self._engine.metadata.first_entry_id(self._ledger.id) > self._next_id:
            return True  # to raise
        # A durable entry was in a table first, but a checkpoint may have replaced the tables since.
        tables = self._engine.slot.tables
        return tables is not self._tables_read or tables.has(self._ledger.id, self._next_id)

    @property
    def _is_over(self) -> bool:
        is_stopped = self._is_stopped or self._waiters.is_stopped
        return is_stopped or self._engine.store_state.is_closed or self._is_deleted

    @property
    def _is_deleted(self) -> bool:
        return self._engine.metadata.was_deleted(self._ledger.id, self._deleted_at)
