"""The owner of a topic, for coroutines: it drives the series and decides nothing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from storage.cluster.client.driver import mark_retrieved, refuse, settle
from storage.cluster.errors import ClientClosed, ClusterError, MetadataUnavailable
from storage.cluster.metadata.znodes import NoParent, Unknown
from storage.cluster.topics import managed_ledger
from storage.cluster.topics.errors import MessageTooLarge, TopicClosed
from storage.cluster.topics.list_change import ReadList, WriteList
from storage.cluster.topics.managed_ledger import Position
from storage.cluster.topics.policies import MissingLedgers
from storage.cluster.topics.series import SeriesState, TopicSeries
from storage.cluster.topics.series_effects import (
    Acknowledged,
    Append,
    CloseLedger,
    CreateLedger,
    DeleteLedger,
    Ended,
    Failed,
    Opened,
    PendingEntry,
    ReadStates,
    Recover,
    Trimmed,
)
from storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from storage.cluster.topics.ledgers_port import LedgerAppender, TopicLedgers, TopicNodes
    from storage.cluster.topics.list_change import ListRead, ListWritten
    from storage.cluster.topics.managed_ledger import LedgerInfo, TopicName
    from storage.cluster.topics.policies import Retention, RollOver
    from storage.cluster.topics.series_effects import Effect, Work

_LOG = logging.getLogger("ledgerstore.topics")

_ENTRIES_IN_FLIGHT_MAX = 1_000
_BYTES_IN_FLIGHT_MAX = 8 << 20
"""The limits of what one topic has under way, so that memory is bounded.

With five times as many single messages, half of the processor time is that of the garbage collector, which
looks at each object under way again and again.
"""

_METADATA_RETRY_S = 1.0


class SentEntry(PendingEntry):
    """An entry of a producer. `ended` is called with its ledger and id, or with the error of its add."""

    __slots__ = ("ended",)

    def __init__(self, payload: bytes, ended: Callable[[tuple[int, int] | ClusterError], None]) -> None:
        self.payload = payload
        self.ended = ended


class TopicOwner:
    """Writes one topic. Two of them may exist; the one that was opened last fences the other."""

    def __init__(
        self,
        ledgers: TopicLedgers,
        name: TopicName,
        roll_over: RollOver,
        missing: MissingLedgers = MissingLedgers.REFUSE,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self._ledgers = ledgers
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._series = TopicSeries(str(name), roll_over, missing)
        self._appender: LedgerAppender | None = None
        self._new: LedgerAppender | None = None
        """The ledger that was created last; it takes entries when the list names it."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._deletes: set[asyncio.Task[None]] = set()
        """The tasks that delete ledgers."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None
        self._bytes_in_flight = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        """Callers that wait for room, or until nothing is under way."""
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._opened.add_done_callback(mark_retrieved)
        self._ended: asyncio.Future[ClusterError | None] = self._loop.create_future()
        self._trimmed: asyncio.Future[tuple[int, ...]] | None = None
        self._trimming = asyncio.Lock()

    @property
    def series(self) -> TopicSeries:
        """The series, to look at."""
        return self._series

    @property
    def has_ended(self) -> bool:
        return self._series.state is SeriesState.ENDED

    @property
    def entry_size_max(self) -> int:
        """The size of the largest entry."""
        return self._ledgers.entry_size_max

    def ledgers_now(self) -> tuple[LedgerInfo, ...]:
        """Return the ledgers of the topic, the current one with what is acknowledged so far."""
        series = self._series
        return tuple(
            replace(one, entries=series.current_entries, size=series.current_size)
            if one.ledger_id == series.current
            else one
            for one in series.list.ledgers
        )

    @property
    def last(self) -> Position:
        """The last acknowledged entry; where the topic began if there is none since it was opened."""
        series = self._series
        if series.last is not None:
            return Position(*series.last)
        return Position(-1 if series.current is None else series.current, -1)

    async def open(self) -> None:
        """Take the topic over. Raise if that fails; then this owner is of no use."""
        self._perform(self._series.open())
        await asyncio.shield(self._opened)

    # ── adding ────────────────────────────────────────────────────────────────────────────────────────

    def has_room(self) -> bool:
        """Return whether entries should be added now."""
        return (
            len(self._series.pending) < _ENTRIES_IN_FLIGHT_MAX
            and self._bytes_in_flight < _BYTES_IN_FLIGHT_MAX
        )

    async def wait_for_room(self) -> None:
        """Wait while too much is under way."""
        while not self.has_room() and not self.has_ended:
            await self._wait()

    def add(self, payload: bytes, ended: Callable[[tuple[int, int] | ClusterError], None]) -> None:
        """Add an entry. Raise if it is too large, or the topic takes no more here.

        `ended` is called once, with its ledger and id or with the error. It must not call the owner.
        """
        if len(payload) > self.entry_size_max:
            raise MessageTooLarge(len(payload), self.entry_size_max, str(self.name))
        effects = self._series.add(SentEntry(payload, ended), self._now_ms())
        self._bytes_in_flight += len(payload)
        self._perform(effects)

    async def drain(self) -> None:
        """Wait until no entry is under way."""
        while self._series.pending:
            await self._wait()

    # ── roll-over, trim, close ────────────────────────────────────────────────────────────────────────

    async def roll_over(self) -> None:
        """Close the current ledger and begin the next, unless the current one is empty."""
        self._perform(self._series.start_roll_over())
        while self._series.state not in (SeriesState.OPEN, SeriesState.ENDED):
            await self._wait()
        self.check()

    async def trim(self, cursors: Iterable[Position], retention: Retention) -> tuple[int, ...]:
        """Delete the ledgers that all cursors have passed and retention lets go. Return their ids."""
        gone = await self._when_listed(lambda: self._series.trim(cursors, retention, self._now_ms()))
        while self._deletes:
            await asyncio.wait(set(self._deletes))
        return gone

    async def _when_listed(self, begin: Callable[[], list[Effect]]) -> tuple[int, ...]:
        """Begin a change of the list, and return what it deletes when it is written.

        It goes on if the caller is cancelled, because the next change would take its end for its own.
        """
        change = self._loop.create_task(self._change_list(begin))
        change.add_done_callback(mark_retrieved)
        return await asyncio.shield(change)

    async def _change_list(self, begin: Callable[[], list[Effect]]) -> tuple[int, ...]:
        async with self._trimming:
            self.check()
            trimmed: asyncio.Future[tuple[int, ...]] = self._loop.create_future()
            self._trimmed = trimmed
            self._perform(begin())
            return await trimmed

    async def sweep(self, found: Iterable[int]) -> list[int]:
        """Delete those of the topic's ledgers that are in no list, which a crash has left. Return their ids.

        `found` are the ledgers that were created for its messages. It is safe because the list is written
        between the search and the deletes: another owner that has created one of these ledgers has read the
        list before, so that it can no longer name the ledger.
        """
        await self._when_listed(lambda: self._series.touch(self._now_ms()))
        listed = {one.ledger_id for one in self._series.list.ledgers}
        leaked = [ledger_id for ledger_id in found if ledger_id not in listed]
        for ledger_id in leaked:
            await self._ledgers.delete(ledger_id)
        return leaked

    async def close(self) -> None:
        """Wait for the entries under way, then close the current ledger. Raise if that is not certain."""
        await self.drain()
        self._perform(self._series.close(self._now_ms()))
        error = await asyncio.shield(self._ended)
        while self._tasks:
            await asyncio.wait(set(self._tasks))
        if error is not None:
            raise error

    def abandon(self) -> None:
        """Fail all calls, because the client is closed."""
        self._perform(self._series.abandon())

    def check(self) -> None:
        """Raise if the topic is not written here any more."""
        if self.has_ended:
            error = self._series.error or TopicClosed(str(self.name))
            raise type(error)(*error.args)

    # ── performing ────────────────────────────────────────────────────────────────────────────────────

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Append(_, payload):
                    self._append(payload)
                case Acknowledged(entry, ledger_id, entry_id):
                    assert isinstance(entry, SentEntry)
                    self._bytes_in_flight -= len(entry.payload)
                    entry.ended((ledger_id, entry_id))
                case Failed(entry, error):
                    assert isinstance(entry, SentEntry)
                    self._bytes_in_flight -= len(entry.payload)
                    entry.ended(error)
                case Opened() | Trimmed() | Ended():
                    self._report(effect)
                case work:
                    task = self._run(self._done(work))
                    if isinstance(work, DeleteLedger):
                        self._deletes.add(task)
                        task.add_done_callback(self._deletes.discard)
        self._set_timer()
        if self._waiting and (self.has_room() or self.has_ended):
            self._wake()

    def _done(self, work: Work) -> Coroutine[object, object, None]:
        """Return the coroutine that does what the series has asked for."""
        match work:
            case ReadList():
                return self._read_list()
            case WriteList(data, version):
                return self._write_list(data, version)
            case ReadStates(ledger_ids):
                return self._read_states(ledger_ids)
            case Recover(ledger_id):
                return self._recover(ledger_id)
            case CreateLedger():
                return self._create()
            case CloseLedger(ledger_id):
                assert self._appender is not None
                return self._close(ledger_id, self._appender)
            case DeleteLedger(ledger_id):
                return self._delete(ledger_id)

    def _report(self, report: Opened | Trimmed | Ended) -> None:
        match report:
            case Opened():
                self._appender, self._new = self._new, None
                settle(self._opened, None)
                self._wake()
            case Trimmed(ledger_ids):
                if self._trimmed is not None:
                    settle(self._trimmed, ledger_ids)
            case Ended(error):
                reason = error or TopicClosed(str(self.name))
                refuse(self._opened, reason)
                if self._trimmed is not None:
                    refuse(self._trimmed, type(reason)(*reason.args))
                    mark_retrieved(self._trimmed)
                settle(self._ended, error)
                if error is not None and not isinstance(error, ClientClosed) and self._appender is not None:
                    # Nothing is added any more, and the next owner recovers the ledger.
                    self._run(self._close(self._appender.id, self._appender))
                self._appender = None
                self._wake()

    def _append(self, payload: bytes) -> None:
        assert self._appender is not None
        ledger_id = self._appender.id
        try:
            added = self._appender.submit(payload)
        except StoreError as error:
            # In the next pass of the loop, because the effects after this one come first.
            self._loop.call_soon(self._append_failed, ledger_id, error)
        else:
            added.add_done_callback(partial(self._appended, ledger_id))

    def _appended(self, ledger_id: int, added: asyncio.Future[int]) -> None:
        error = added.exception()
        if error is None:
            self._perform(self._series.appended(ledger_id, added.result()))
        else:
            self._append_failed(ledger_id, error)

    def _append_failed(self, ledger_id: int, error: BaseException) -> None:
        known = error if isinstance(error, StoreError) else MetadataUnavailable(repr(error))
        self._perform(self._series.append_failed(ledger_id, known))

    def _run(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _read_list(self) -> None:
        nodes, path = self._ledgers.nodes, self.name.path
        answer: ListRead
        try:
            await nodes.sync(path)
            answer = await nodes.get(path)
        except MetadataUnavailable as error:
            await asyncio.sleep(_METADATA_RETRY_S)
            answer = Unknown(error.reason)
        self._perform(self._series.list_read(answer, self._now_ms()))

    async def _write_list(self, data: bytes, version: int | None) -> None:
        nodes, path = self._ledgers.nodes, self.name.path
        answer: ListWritten
        try:
            if version is None:
                answer = await create_with_parents(nodes, path, data)
            else:
                answer = await nodes.set(path, data, version)
        except MetadataUnavailable as error:
            answer = Unknown(error.reason)
        self._perform(self._series.list_written(answer, self._now_ms()))

    async def _read_states(self, ledger_ids: tuple[int, ...]) -> None:
        try:
            effects = self._series.states_read(await self._ledgers.states(ledger_ids))
        except StoreError as error:
            effects = self._series.states_not_read(error)
        self._perform(effects)

    async def _recover(self, ledger_id: int) -> None:
        try:
            end = await self._ledgers.take_over(ledger_id)
        except StoreError as error:
            self._perform(self._series.recovered(ledger_id, error, self._now_ms()))
        else:
            self._perform(self._series.recovered(ledger_id, end, self._now_ms()))

    async def _create(self) -> None:
        try:
            self._new = await self._ledgers.create(managed_name(self.name))
        except StoreError as error:
            self._perform(self._series.created(error, self._now_ms()))
        else:
            self._perform(self._series.created(self._new.id, self._now_ms()))

    async def _close(self, ledger_id: int, appender: LedgerAppender) -> None:
        try:
            end = await appender.close()
        except StoreError as error:
            self._perform(self._series.closed(ledger_id, error, self._now_ms()))
        else:
            self._perform(self._series.closed(ledger_id, end, self._now_ms()))

    async def _delete(self, ledger_id: int) -> None:
        try:
            await self._ledgers.delete(ledger_id)
        except StoreError as error:
            _LOG.warning("%s: ledger %d is not deleted: %s (a sweep finds it)", self.name, ledger_id, error)

    def _set_timer(self) -> None:
        """Look at the time when the series has something to do."""
        due_ms = self._series.due_ms
        if due_ms == self._timer_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_ms = None, due_ms
        if due_ms is not None:
            delay_s = max(0.0, due_ms / 1000 - self._clock())
            self._timer = self._loop.call_later(delay_s, self._check_time)

    def _check_time(self) -> None:
        self._timer = self._timer_ms = None
        self._perform(self._series.check_time(self._now_ms()))

    async def _wait(self) -> None:
        waiting = self._loop.create_future()
        self._waiting.append(waiting)
        await waiting

    def _wake(self) -> None:
        while self._waiting:
            settle(self._waiting.popleft(), None)


async def create_with_parents(nodes: TopicNodes, path: str, data: bytes) -> ListWritten:
    """Create a node, and before it those of its parents that are missing."""
    answer = await nodes.create(path, data)
    while isinstance(answer, NoParent):
        parent = path.rpartition("/")[0]
        assert parent, path
        await create_with_parents(nodes, parent, b"")
        answer = await nodes.create(path, data)
    return answer


def managed_name(name: TopicName) -> str:
    """Return the name that a broker gives to the series of ledgers."""
    return name.path.removeprefix(f"{managed_ledger.ROOT}/")
