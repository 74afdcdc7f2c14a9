"""A ledger of a store, as coroutines see it."""

from __future__ import annotations

from asyncio import _get_running_loop
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from storage.aio.pace import INLINE_SIZE_MAX
from storage.aio.turns import next_pass
from storage.codec import record as record_codec
from storage.entries import Entries
from storage.entry import ID_MAX
from storage.errors import ForkedStore, NoSuchEntry, NoSuchLedger, StoreClosed
from storage.request import check_id
from storage.warden import confirmed_by

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Iterator

    from storage.aio.home import Home
    from storage.codec.passage import Passage
    from storage.entry import DigestType, Entry
    from storage.ledger import Ledger
    from storage.memtable import Tables
    from storage.request import Payload
    from storage.row import LedgerRow
    from storage.tail import LedgerEnd, Tail

INLINE_COUNT_MAX = 1024
"""So many payloads of one call are framed on the loop; more take so long that a thread does it."""

_FEW = 16
"""So many new entries are read on the loop: of more a call to a thread for all of them costs less."""


class AsyncLedger:
    """One ledger of an `AsyncStore`: append to it, read it, follow it. Cheap to make.

    For the coroutines of the store's loop. The words are those of `Ledger`; what may wait for the disk is
    awaited. Who is cancelled while adding does not know whether the entry will be there: it is on its way.
    """

    __slots__ = (
        "_access",
        "_check_payload",
        "_home",
        "_latch",
        "_ledger",
        "_loop",
        "_small",
        "_tail",
        "_turns",
        "id",
    )

    def __init__(self, ledger: Ledger, home: Home) -> None:
        self.id = ledger.id
        self._ledger = ledger
        self._access = ledger._access
        self._check_payload = ledger._checked
        self._small = ledger._small
        self._home = home
        self._latch = home.parts.latch
        self._loop = home.loop
        self._turns = home.turns
        self._tail = home.known_tail(ledger.id)
        """Its end, as soon as anybody has asked the disk for it."""

    def __repr__(self) -> str:
        return f"<AsyncLedger {self.id} of {self._home.parts.path}>"

    # ── adding ───────────────────────────────────────────────────────────────────────────────────────

    async def append(self, payload: Payload) -> int:
        """The id of the new entry, when a crash can no longer lose it.

        Shares its sync with what other coroutines add in the same pass of the loop.
        """
        # The one that does not raise: in a fork no loop is said to run, and `check` knows why.
        if _get_running_loop() is not self._loop:
            self._home.check()
        if type(payload) is not bytes or len(payload) > self._small:
            payload = self._check_payload(payload)
        tail = self._tail or await self._find_tail()
        turns, access = self._turns, self._access
        batch = turns.batches.get(tail)
        if (
            batch is None
            or batch.room < len(payload)
            or (batch.access is not access and batch.access != access)
        ):
            at, batch = 0, turns.begin(tail, access, payload)
        else:
            at = batch.take(payload)
        await next_pass()
        run = batch.run
        if run is not None and run.is_durable:
            return run.first_id + at
        return await turns.outcome(batch, at)

    async def append_many(self, payloads: Iterable[Payload]) -> range:
        """The ids of the new entries, consecutive, when a crash can no longer lose any of them.

        One sync for all. If together they are no more than `group_size_max`, a crash before the answer
        leaves all of them or none; of more than that it, or a full disk, may leave the first ones.
        """
        self._check()
        checked = self._ledger._checked_all(list(payloads))
        if not checked:
            return range(0)
        if len(checked) > INLINE_COUNT_MAX or sum(map(len, checked)) > INLINE_SIZE_MAX:
            return await self._home.call(partial(self._ledger.append_many, checked))
        if len(checked) >= record_codec.MANY:
            await self._home.load_many()
        access, tail = self._access, self._tail or await self._find_tail()
        run = await self._turns.through(tail, access, lambda tail: tail.append(checked, access))
        return range(run.first_id, run.last_id + 1)

    def _check(self) -> None:
        if self._latch.gone is not None or _get_running_loop() is not self._loop:
            self._home.check()

    async def _find_tail(self) -> Tail:
        if self._tail is None:
            self._tail = await self._home.tail_of(self.id)
        return self._tail

    # ── taking it over, and giving it up ─────────────────────────────────────────────────────────────

    async def fence(self) -> int | None:
        """Closes the ledger to its writer for ever; the id of the last entry then, `None` if it has none.

        Returns when no crash can open it again. What was added before can be read by then; adds that come
        later are refused with `LedgerFenced`.
        """
        return await self._home.call(self._ledger.fence)

    async def set_explicit_lac(self, last_add_confirmed: int) -> None:
        """Says up to where the writer knows the ledger to be complete; returns when that is durable.

        One that is not larger than what was said before changes nothing.
        """
        await self._home.call(partial(self._ledger.set_explicit_lac, last_add_confirmed))

    async def delete(self) -> None:
        """Deletes the ledger; returns when no crash can bring it back. `NoSuchLedger` if there is none.

        Its id is free then: the next add makes another ledger.
        """
        await self._home.call(self._ledger.delete)

    @property
    def is_fenced(self) -> bool:
        """Whether the ledger is closed to its writer. `AnswerUnknown` if that cannot be told."""
        return self._ledger.is_fenced

    @property
    def explicit_lac(self) -> int:
        """What was set explicitly; -1 while nothing was."""
        return self._ledger.explicit_lac

    @property
    def digest_type(self) -> DigestType | None:
        """How its entries are protected; `None` where nothing tells."""
        return self._ledger.digest_type

    async def exists(self) -> bool:
        """Whether there is one: it has an entry, is fenced, or has an explicit last add confirmed."""
        self._check()
        await self._find_tail()
        return self._ledger.exists

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────

    async def read(self, entry_id: int) -> Entry:
        """The entry, its digest verified. `NoSuchEntry` if there is none, `EntryUnreadable` if damaged."""
        self._check()
        if self._is_at_hand(entry_id):
            return self._ledger.read(entry_id)
        return await self._home.call(partial(self._ledger.read, entry_id))

    def _is_at_hand(self, entry_id: int) -> bool:
        """Whether the entry is in memory, and the ledger known."""
        if self._tail is None:
            return False
        for table in self._home.parts.slot.tables.both:
            entries = table.find(self.id)
            if entries is not None and entries.has(entry_id):
                return type(entries) is Entries  # others wait in the journals
        return False

    async def entry_ids(self) -> list[range]:
        """The ids of its entries, ascending, in ranges without a gap."""
        return await self._home.call(self._ledger.entry_ids)

    async def entries(self, first: int = 0, last: int | None = None) -> AsyncGenerator[Entry, None]:
        """The entries from `first` to `last`, both included, or to the end; read ahead and verified.

        Lazy, in bounded memory. One that is missing raises `NoSuchEntry` when its turn comes.
        """
        passages = self._ledger._passages(first, last)
        while (found := await self._next(passages)) is not None:
            for entry in found.entries():
                yield entry

    async def payloads(self, first: int = 0, last: int | None = None) -> AsyncGenerator[bytes, None]:
        """The payloads alone: the fastest way to read many."""
        passages = self._ledger._passages(first, last)
        while (found := await self._next(passages)) is not None:
            for run in found.payloads:
                for payload in run:
                    yield payload

    async def _next(self, passages: Iterator[Passage]) -> Passage | None:
        return await self._home.call(partial(next, passages, None))

    async def follow(
        self, from_entry: int = 0, *, idle_timeout_s: float | None = None
    ) -> AsyncGenerator[Entry, None]:
        """The entries from there on, and then each new one as it becomes durable.

        Waits where an id is missing: nothing is passed over. Ends when the store is closed, or when nothing
        has come for `idle_timeout_s`. However many follow, none of them keeps a thread.
        """
        check_id("entry", from_entry)
        at = from_entry
        with suppress(StoreClosed, ForkedStore):
            self._home.check()
            tail = await self._find_tail()
            while at <= ID_MAX:
                await next_pass()  # however fast a thread adds, others run as well
                looked_in = self._home.parts.slot.tables
                for entry in self._newest(at, tail.end.entry_id):
                    yield entry
                    at = entry.entry_id + 1
                passages = self._ledger._available(at)
                while at <= tail.end.entry_id and (found := await self._next(passages)) is not None:
                    for entry in found.entries():
                        yield entry
                        at = entry.entry_id + 1
                if at <= ID_MAX and not await self._wait_for(at, tail, looked_in, idle_timeout_s):
                    return

    def _newest(self, first: int, last: int) -> Iterator[Entry]:
        """The entries from the first on, as long as they are in memory; none if they are many."""
        with suppress(NoSuchEntry, NoSuchLedger):  # another thread has just deleted it
            for entry_id in range(first, last + 1) if last - first < _FEW else ():
                if not self._is_at_hand(entry_id):
                    return
                yield self._ledger.read(entry_id)

    async def _wait_for(self, entry_id: int, tail: Tail, looked_in: Tables, timeout_s: float | None) -> bool:
        """Whether there may be such an entry, which was not there when these were the tables."""
        latch, slot = self._latch, self._home.parts.slot

        def may_be_there() -> bool:
            if latch.is_closed:
                return True
            if tail.end.entry_id < entry_id:
                return False
            # What is durable was in a table first; those that were looked in may be written down by now.
            return slot.tables is not looked_in or _has(slot.tables, self.id, entry_id)

        return await self._home.news.wait_for(may_be_there, timeout_s) and not latch.is_closed

    # ── where it ends ────────────────────────────────────────────────────────────────────────────────

    async def last_entry_id(self) -> int | None:
        """The largest id of a durable entry; `None` while there is none."""
        self._check()
        await self._find_tail()
        return self._ledger.last_entry_id

    async def last_add_confirmed(self) -> int:
        """Up to here every entry is durable, or its writer has said so; -1 while there is none.

        Never goes back, not over a reopening either.
        """
        return await self._home.call(lambda: self._ledger.last_add_confirmed)

    async def wait_for_last_add_confirmed(self, beyond: int, timeout_s: float | None = None) -> int:
        """The last add confirmed when it has passed `beyond`, or in the end when that takes too long.

        Comes back at once where it cannot pass any more: the ledger is fenced, or the store closed or failed.
        """
        tail = await self._find_tail()
        give_up_at = None if timeout_s is None else self._loop.time() + timeout_s
        while True:
            looked = tail.end, self._home.parts.slot.tables
            confirmed = await self.last_add_confirmed()
            if confirmed > beyond or self._is_settled:
                return confirmed
            left_s = None if give_up_at is None else give_up_at - self._loop.time()
            if not await self._home.news.wait_for(partial(self._may_confirm, beyond, tail, *looked), left_s):
                return await self.last_add_confirmed()

    @property
    def _is_settled(self) -> bool:
        return self._latch.has_ended or self._row().fenced

    def _may_confirm(self, beyond: int, tail: Tail, end: LedgerEnd, looked_in: Tables) -> bool:
        """Whether more may be confirmed than when the ledger ended there, and these were the tables."""
        if self._is_settled or confirmed_by(self._row()) > beyond or tail.end is not end:
            return True
        tables = self._home.parts.slot.tables
        return tables is not looked_in or _has(tables, self.id, tail.prefix.first_missing)

    def _row(self) -> LedgerRow:
        return self._home.parts.registry.of(self.id)


def _has(tables: Tables, ledger_id: int, entry_id: int) -> bool:
    """Whether the entry is in one of the tables. Reads no disk, wherever these have their entries."""
    found = [table.find(ledger_id) for table in tables.both]
    return any(entries is not None and entries.has(entry_id) for entries in found)
