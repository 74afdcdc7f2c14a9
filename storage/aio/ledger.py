"""A ledger of a store, for coroutines."""

from __future__ import annotations

from asyncio import _get_running_loop
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from storage.aio.follower import AsyncFollower
from storage.aio.inline_policy import INLINE_SIZE_MAX
from storage.aio.loop_commits import next_pass
from storage.commit.pending import PendingEntries, confirmed_by
from storage.entry import record_format as record_codec
from storage.errors import NoSuchEntry, NoSuchLedger
from storage.memtable.ledger_entries import LedgerEntries
from storage.validation import check_id

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Iterator

    from storage.aio.loop_context import LoopContext
    from storage.entry.batch import EntryBatch
    from storage.entry.model import DigestType, Entry
    from storage.ledger import Ledger
    from storage.ledgers.state import LedgerEnd, LedgerState
    from storage.memtable.table import Tables
    from storage.validation import Payload

INLINE_COUNT_MAX = 1024
"""The most payloads of one call that are framed on the loop; more would hold up the loop for too long."""

_FEW = 16
"""The most new entries that are read on the loop; for more, one call to a thread costs less."""


class AsyncLedger:
    """One ledger of an `AsyncStore`: append to it, read it, follow it. Cheap to make.

    For the coroutines of the store's loop. The methods are those of `Ledger`; those that may wait for the
    disk are awaited. If a task is cancelled while it appends, the entry may be written all the same.
    """

    __slots__ = (
        "_access",
        "_check_payload",
        "_commits",
        "_context",
        "_ledger",
        "_loop",
        "_small",
        "_state",
        "_store_state",
        "id",
    )

    def __init__(self, ledger: Ledger, context: LoopContext) -> None:
        self.id = ledger.id
        self._ledger = ledger
        self._access = ledger._access
        self._check_payload = ledger._checked
        self._small = ledger._small
        self._context = context
        self._store_state = context.engine.store_state
        self._loop = context.loop
        self._commits = context.commits
        self._state = context.known_state(ledger.id)
        """The state of the ledger; `None` until its end has been read from the disk."""

    def __repr__(self) -> str:
        return f"<AsyncLedger {self.id} of {self._context.engine.path}>"

    # ── adding ───────────────────────────────────────────────────────────────────────────────────────

    async def append(self, payload: Payload) -> int:
        """Append the payload; return the id of the new entry when a crash can no longer lose it.

        All appends of one pass of the loop share one sync.
        """
        # This function does not raise. In a fork it returns `None`, and `check` raises the right error.
        if _get_running_loop() is not self._loop:
            self._context.check()
        if type(payload) is not bytes or len(payload) > self._small:
            payload = self._check_payload(payload)
        state = self._state or await self._find_state()
        commits, access = self._commits, self._access
        batch = commits.batches.get(state)
        if (
            batch is None
            or batch.room < len(payload)
            or (batch.access is not access and batch.access != access)
        ):
            at, batch = 0, commits.begin(state, access, payload)
        else:
            at = batch.take(payload)
        await next_pass()
        if batch.is_durable:
            return batch.first_id + at
        return await commits.outcome(batch, at)

    async def append_many(self, payloads: Iterable[Payload]) -> range:
        """Append the payloads; return their consecutive ids when a crash can no longer lose any of them.

        All share one sync. If their sizes add up to `group_size_max` or less, a crash before the answer
        leaves all of them or none. A crash or a full disk may leave only the first ones of a larger batch.
        """
        self._check()
        checked = self._ledger._checked_all(list(payloads))
        if not checked:
            return range(0)
        if len(checked) > INLINE_COUNT_MAX or sum(map(len, checked)) > INLINE_SIZE_MAX:
            return await self._context.call(partial(self._ledger.append_many, checked))
        if len(checked) >= record_codec.MANY:
            await self._context.load_many()
        access, state = self._access, self._state or await self._find_state()
        work = PendingEntries(state, access, checked)
        await self._commits.commit(work)
        return range(work.first_id, work.last_id + 1)

    def _check(self) -> None:
        if self._store_state.gone is not None or _get_running_loop() is not self._loop:
            self._context.check()

    async def _find_state(self) -> LedgerState:
        if self._state is None:
            self._state = await self._context.state_of(self.id)
        return self._state

    # ── fence, explicit last add confirmed, delete ──────────────────────────────────────────────────────

    async def fence(self) -> int | None:
        """Close the ledger to appends for ever; return the id of its last entry, `None` if it has none.

        Returns when no crash can undo it. Everything appended before can be read by then. Later appends raise
        `LedgerFenced`.
        """
        return await self._context.call(self._ledger.fence)

    async def set_explicit_lac(self, last_add_confirmed: int) -> None:
        """Say up to which entry the writer knows the ledger to be complete; return when that is durable.

        A number that is not larger than the one before changes nothing. `LacBeyondEnd` if it is larger
        than the id of the last entry.
        """
        await self._context.call(partial(self._ledger.set_explicit_lac, last_add_confirmed))

    async def truncate(self, before: int) -> None:
        """Give up the entries before that one; return when no crash can bring them back. The ids go on.

        `before` may be any id up to the one after the last durable entry, which leaves no entry; a larger one
        is `InvalidEntry`. One that does not go beyond the last truncation has no effect. See
        `Ledger.truncate` for what stays.
        """
        await self._context.call(partial(self._ledger.truncate, before))

    @property
    def first_entry_id(self) -> int:
        """The first id that was not truncated: 0 if none was. There need not be an entry with it yet."""
        return self._ledger.first_entry_id

    async def delete(self) -> None:
        """Delete the ledger; return when no crash can bring it back. `NoSuchLedger` if there is none.

        Its id is then free: the next append with it creates another ledger.
        """
        await self._context.call(self._ledger.delete)

    @property
    def is_fenced(self) -> bool:
        """Whether the ledger is closed to its writer. `AnswerUnknown` if that cannot be told."""
        return self._ledger.is_fenced

    @property
    def explicit_lac(self) -> int:
        """The last add confirmed that was set explicitly; -1 if none was."""
        return self._ledger.explicit_lac

    @property
    def digest_type(self) -> DigestType | None:
        """The digest type of its entries; `None` if it is not known yet."""
        return self._ledger.digest_type

    async def exists(self) -> bool:
        """Return whether the ledger exists: it has an entry, a fence, or an explicit last add confirmed."""
        self._check()
        await self._find_state()
        return self._ledger.exists

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────

    async def read(self, entry_id: int) -> Entry:
        """Return the entry, digest verified. `NoSuchEntry` if none exists, `EntryUnreadable` if damaged."""
        self._check()
        if self._is_at_hand(entry_id):
            return self._ledger.read(entry_id)
        return await self._context.call(partial(self._ledger.read, entry_id))

    def _is_at_hand(self, entry_id: int) -> bool:
        """Return whether the entry is in memory and the state of the ledger is known."""
        if self._state is None:
            return False
        for table in self._context.engine.slot.tables.both:
            entries = table.find(self.id)
            if entries is not None and entries.has(entry_id):
                return type(entries) is LedgerEntries  # entries of other types are still in the journals
        return False

    async def entry_ids(self) -> list[range]:
        """Return the ids of its entries, ascending, as ranges without gaps."""
        return await self._context.call(self._ledger.entry_ids)

    async def entries(self, first: int | None = None, last: int | None = None) -> AsyncGenerator[Entry, None]:
        """Return the entries from `first` to `last`, both included, or to the end; read ahead and verified.

        Without `first` they begin at `first_entry_id`. Lazy, in bounded memory. A missing entry raises
        `NoSuchEntry` when the iteration reaches it. A `first` that was truncated raises `EntryTruncated`, and
        so does a truncation that overtakes the iteration.
        """
        batches = self._ledger._batches(first, last)
        while (found := await self._next(batches)) is not None:
            for entry in found.entries():
                yield entry

    async def payloads(
        self, first: int | None = None, last: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Return only the payloads, which is the fastest way to read many; otherwise like `entries`."""
        batches = self._ledger._batches(first, last)
        while (found := await self._next(batches)) is not None:
            for run in found.payloads:
                for payload in run:
                    yield payload

    async def _next(self, batches: Iterator[EntryBatch]) -> EntryBatch | None:
        return await self._context.call(partial(next, batches, None))

    def follow(self, from_entry: int | None = None, *, idle_timeout_s: float | None = None) -> AsyncFollower:
        """Return an iterator over the entries from that id on, and over each new one as it becomes durable.

        Without an id it begins at the first entry that was not truncated. It skips no id: where one is
        missing, it waits, and where the next one was truncated, it raises `EntryTruncated`. It ends when
        `AsyncFollower.stop` or `AsyncStore.stop_followers` is called, when the ledger is deleted or the store
        closed, and when no entry has come for `idle_timeout_s`. No follower occupies a thread.
        """
        if from_entry is not None:
            check_id("entry", from_entry)
        return AsyncFollower(self, self._context, from_entry, idle_timeout_s)

    def _newest(self, first: int, last: int) -> list[Entry]:
        """Return the entries from the first on as far as they are in memory; none if there are many."""
        found: list[Entry] = []
        with suppress(NoSuchEntry, NoSuchLedger):  # another thread has just deleted it
            for entry_id in range(first, last + 1) if last - first < _FEW else ():
                if not self._is_at_hand(entry_id):
                    break
                found.append(self._ledger.read(entry_id))
        return found

    # ── the end of the ledger ───────────────────────────────────────────────────────────────────────────

    async def last_entry_id(self) -> int | None:
        """Return the id of the last durable entry, also of a truncated one; `None` if there never was one."""
        self._check()
        await self._find_state()
        return self._ledger.last_entry_id

    async def last_add_confirmed(self) -> int:
        """Return the id up to which every entry is durable or confirmed by its writer; -1 if there is none.

        It never decreases, not even when the store is opened again.
        """
        return await self._context.call(lambda: self._ledger.last_add_confirmed)

    async def wait_for_last_add_confirmed(self, beyond: int, timeout_s: float | None = None) -> int:
        """Wait until the last add confirmed is larger than `beyond`, and return it.

        Returns the present one when `timeout_s` is over, and at once if it will not grow any more: when the
        ledger is fenced or was deleted, the store closed or failed, or `AsyncStore.stop_followers` was
        called.
        """
        state, engine = await self._find_state(), self._context.engine
        is_settled = partial(engine.is_settled, self.id, engine.metadata.deleted_at(self.id))
        give_up_at = None if timeout_s is None else self._loop.time() + timeout_s
        while True:
            end, tables_read = state.end, engine.slot.tables
            confirmed = await self.last_add_confirmed()
            if confirmed > beyond or is_settled():
                return confirmed
            may_answer = partial(self._may_answer, is_settled, beyond, state, end, tables_read)
            left_s = None if give_up_at is None else give_up_at - self._loop.time()
            if not await self._context.changes.wait_for(self.id, may_answer, left_s):
                return await self.last_add_confirmed()

    def _may_answer(
        self,
        is_settled: Callable[[], bool],
        beyond: int,
        state: LedgerState,
        end: LedgerEnd,
        tables_read: Tables,
    ) -> bool:
        """Return whether more may be confirmed than when the ledger had that end and these tables."""
        row, tables = self._context.engine.metadata.of(self.id), self._context.engine.slot.tables
        if is_settled() or confirmed_by(row) > beyond or state.end is not end:
            return True
        return tables is not tables_read or tables.has(self.id, state.prefix.first_missing)
