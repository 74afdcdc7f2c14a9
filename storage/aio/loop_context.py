"""The objects that a store and its ledgers share on the loop to which they belong."""

from __future__ import annotations

from asyncio import Event, get_running_loop
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from storage.aio.change_feed import ChangeFeed
from storage.aio.loop_commits import LoopCommits
from storage.aio.thread_calls import ThreadCalls
from storage.entry import record_format as record_codec
from storage.errors import OtherLoop, StoreClosed
from storage.runtime.worker import ThreadPool

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable

    from storage.ledgers.state import LedgerState
    from storage.runtime.worker import WorkerFactory
    from storage.store import Store

CALLS_MAX = 16
"""The most reads, fences and other calls that wait for the disk at once. Adds do not count."""

T = TypeVar("T")


@dataclass(slots=True)
class _Search:
    """A look-up of a ledger's end, shared by all coroutines that ask for it meanwhile."""

    is_over: Event
    state: LedgerState | None = None
    """The result; `None` if the coroutine that made the look-up was cancelled, or the disk failed."""


class LoopContext:
    """One store on one loop."""

    def __init__(self, store: Store, new_worker: WorkerFactory) -> None:
        self.store = store
        self.engine = store._engine
        self.loop = get_running_loop()
        self.changes = ChangeFeed(self.engine.committer.waiters, self.loop)
        self.commits = LoopCommits(self.engine, self.changes, self.loop, new_worker, store._background.fail)
        self._threads = ThreadPool("ledgerstore-call", CALLS_MAX)
        self._calls = ThreadCalls(self.loop, self._threads.do)
        self._searches: dict[int, _Search] = {}
        self._has_many = False

    def check(self) -> None:
        """Raise unless the store is open and the caller runs on its loop."""
        self.engine.store_state.check_reads()
        self.check_loop()

    def check_loop(self) -> None:
        """Raise unless the caller runs on the loop of the store."""
        if get_running_loop() is not self.loop:
            raise OtherLoop(self.engine.path)

    async def call(self, act: Callable[[], T]) -> T:
        """Return the result of a call that is made in a thread."""
        self.check()
        # Not in a variable: the future's error refers to this frame, which would refer to the future.
        return await self._started(act)

    def _started(self, act: Callable[[], T]) -> Future[T]:
        answer = self._calls.begin(act)
        if answer is None:
            raise StoreClosed(self.engine.path)
        return answer

    def known_state(self, ledger_id: int) -> LedgerState | None:
        """Return the state of the ledger if it is known and no look-up of it is under way."""
        return None if ledger_id in self._searches else self.engine.states.known(ledger_id)

    async def state_of(self, ledger_id: int) -> LedgerState:
        """Return the state of the ledger, after a look-up on the disk if it is not known.

        Coroutines that ask during a look-up share it, and go on in the order in which they have asked.
        """
        while (state := self.known_state(ledger_id)) is None:
            if (search := self._searches.get(ledger_id)) is not None:
                await search.is_over.wait()
                if search.state is not None:
                    return search.state
                continue
            search = self._searches[ledger_id] = _Search(Event())
            try:
                # The search holds the state, because nothing else may hold the state of an absent ledger.
                search.state = await self.call(partial(self.engine.states.of, ledger_id))
            finally:
                del self._searches[ledger_id]
                search.is_over.set()
            return search.state
        return state

    async def load_many(self) -> None:
        """Import the encoder of many entries in a thread, because the import would hold up the loop."""
        if not self._has_many:
            await self.call(record_codec.many_at_once)
            self._has_many = True

    def __del__(self) -> None:
        # The store warns and closes itself, so only the threads of the loop are to be ended here.
        close_unclosed = self.store._close_unclosed
        if close_unclosed is not None and not self.engine.store_state.is_closed:
            close_unclosed(partial(_end, self.commits, self._threads))

    def close(self) -> None:
        """Close the store. Called in a thread, because it waits for the disk."""
        try:
            # The store commits the remaining work when it closes.
            self.commits.stop()
            self.store.close()
            if self.engine.store_state.failure is not None:
                # After a failure a closing store commits nothing, so waiting coroutines learn of it here.
                self.engine.committer.flush()
        finally:
            self._threads.stop()

    def detach(self) -> None:
        """End what belongs to the loop. The store stays open for threads."""
        self.commits.stop()
        self._threads.stop()


def _end(commits: LoopCommits, threads: ThreadPool) -> None:
    commits.stop()
    threads.stop()
