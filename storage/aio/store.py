"""The store for coroutines. `recovery.open_async_store` opens it."""

from __future__ import annotations

from asyncio import Event
from functools import partial
from typing import TYPE_CHECKING, Self, Unpack

from storage.aio.bookie import AsyncBookie
from storage.aio.ledger import AsyncLedger
from storage.aio.loop_context import LoopContext
from storage.aio.thread_calls import ThreadCalls
from storage.commit.pending import ReplicaEntry
from storage.errors import ForkedStore
from storage.runtime.worker import ThreadWorker, begin_thread
from storage.store import checked_entry
from storage.validation import access_of

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from storage.cluster.topics.embedded import AsyncEmbeddedTopics
    from storage.cluster.topics.policies import TopicOptions
    from storage.cluster.topics.topic import AsyncTopic
    from storage.config import StoreConfig
    from storage.entry.model import DigestType, Entry
    from storage.gc.report import CollectionReport
    from storage.open_report import OpenReport
    from storage.runtime.worker import WorkerFactory
    from storage.space import StoreSpace
    from storage.stats import StoreStats
    from storage.store import Store


class AsyncStore:
    """A directory of ledgers, open for the coroutines of one event loop.

    `ledgerstore.open_async` makes it. Its methods raise `OtherLoop` on another loop. Threads use `blocking`.
    A child process after a fork must use neither.
    """

    def __init__(self, store: Store, new_worker: WorkerFactory = ThreadWorker) -> None:
        """Attach the store to the running loop."""
        self.blocking = store
        """The same store for threads, with blocking methods."""
        self._context = LoopContext(store, new_worker)
        self._topics: AsyncEmbeddedTopics | None = None
        self._closing: Future[None] | None = None
        self._closed = Event()

    @property
    def opened(self) -> OpenReport:
        """The report of the opening; print it, or read its fields."""
        return self.blocking.opened

    @property
    def path(self) -> str:
        """The directory of the store, as an absolute path."""
        return self.blocking.path

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncStore {self.path}>"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a store belongs to the process that opened it, and cannot be pickled")

    def ledger(self, ledger_id: int, digest: DigestType | None = None, password: bytes = b"") -> AsyncLedger:
        """Return the ledger of that id. Its first append creates it; the call itself writes nothing.

        The first append fixes the password of the ledger and the digest type of its entries, which is CRC-32C
        unless `digest` names another. Appending with another password raises `Unauthorized`. Reading needs
        the password only for `DigestType.MAC`.
        """
        self._context.check()
        return AsyncLedger(self.blocking.ledger(ledger_id, digest, password), self._context)

    def topic(self, name: str, **options: Unpack[TopicOptions]) -> AsyncTopic:
        """Return the topic of that name in this store: see `storage.cluster.topics`.

        Nothing is written before its first message. Raise `TopicsInUse` if threads have topics of it.
        """
        self._context.check()
        if self._topics is None:
            from storage.cluster.topics.embedded import AsyncEmbeddedTopics

            self._topics = AsyncEmbeddedTopics(self)
        return self._topics.topic(name, **options)

    @property
    def bookie(self) -> AsyncBookie:
        """The same store with the operations of a bookie, for a network server on this loop."""
        self._context.check()
        return AsyncBookie(self._context)

    async def ledgers(self) -> list[int]:
        """Return the ids of all ledgers that exist, ascending. `AsyncLedger.exists` says when one exists."""
        return await self._context.call(self.blocking.ledgers)

    async def add(self, entry: Entry, digest: DigestType | None = None, password: bytes = b"") -> None:
        """Add an entry whose id, last add confirmed and length the caller has chosen, as a replica does.

        Returns when a crash can no longer lose the entry. Ids may come in any order and leave gaps. If an id
        is added twice, the later entry counts.
        """
        self._context.check()
        access, checked = access_of(password, digest), checked_entry(entry, digest, self._context.engine)
        state = await self._context.state_of(entry.ledger_id)
        await self._context.commits.commit(ReplicaEntry(state, access, checked))

    async def delete(self, ledger_ids: Iterable[int], password: bytes = b"") -> None:
        """Delete many ledgers at once, in about the time of one; return when no crash can bring any back.

        If one does not exist, nothing is deleted, and `NoSuchLedger` names the first. If one was made with
        another password, nothing is deleted either, and it is `Unauthorized`.
        """
        await self._context.call(partial(self.blocking.delete, list(ledger_ids), password))

    async def stats(self) -> StoreStats:
        """Return the figures of the store now. Adds do not wait for it; it takes longer with more ledgers.

        It also answers after a failure has stopped the store from writing: `StoreStats.failed` states the
        reason.
        """
        return await self._context.call(self.blocking.stats)

    async def checkpoint(self) -> None:
        """Move everything added so far to the entry logs and the index; return when that is durable.

        A store does this by itself; call it to keep the next replay short. `DiskFull` if there is no space:
        nothing is lost, and the checkpoint goes on by itself when there is space again.
        """
        await self._context.call(self.blocking.checkpoint)

    async def collect(self) -> CollectionReport:
        """Give the space of dead entries back now. Return when that is done, with what was done.

        A store does this by itself, after `StoreConfig.collection_interval_s`; this call does not wait for
        `compaction_window`. A damaged log is passed over, and is in the report.
        """
        return await self._context.call(self.blocking.collect)

    def pause_collection(self) -> None:
        """Let no collection begin until `resume_collection`; one under way ends after a few megabytes."""
        self._context.check()
        self.blocking.pause_collection()

    def resume_collection(self) -> None:
        """Let collections begin again."""
        self._context.check()
        self.blocking.resume_collection()

    async def space(self) -> StoreSpace:
        """Return what takes the space of the store now. It takes longer with more logs and ledgers."""
        return await self._context.call(self.blocking.space)

    def stop_followers(self) -> None:
        """End every `AsyncLedger.follow`, also those begun later; for a program that is about to shut down.

        A server that first waits for its streams and then closes the store would wait for ever without this
        call, because a stream that follows a ledger ends only when the store is closed. Readers that wait for
        a last add confirmed are answered, too. Everything else goes on. Any thread and any signal handler may
        call it.
        """
        self.blocking.stop_followers()

    async def close(self) -> None:
        """Move everything to the entry logs and release the directory; after a failed write only release it.

        Adds under way are answered first. If the task that waits here is cancelled, the closing goes on.
        """
        if self._context.engine.store_state.gone is ForkedStore:
            return
        self._context.check_loop()
        if self._topics is not None:
            topics, self._topics = self._topics, None
            await topics.close()
        if self._closing is None:
            # A thread of its own: calls that wait for the disk may have taken all the others.
            calls = ThreadCalls(self._context.loop, partial(begin_thread, "ledgerstore-close"))
            self._closing = calls.begin(self._context.close)
            assert self._closing is not None
            self._closing.add_done_callback(lambda _: self._closed.set())
        await self._closed.wait()
        if (error := self._closing.exception()) is not None:
            raise error


def attach(store: Store) -> tuple[AsyncStore, Callable[[], None]]:
    """Return a face of an open store for the running loop, and a call that ends this face only."""
    face = AsyncStore(store)
    return face, face._context.detach


def claim_topics(store: AsyncStore) -> bool:
    """Return whether this is the first face of its store with topics, and so the only one."""
    return store.blocking._topics_claim.acquire(blocking=False)


def config_of(store: AsyncStore) -> StoreConfig:
    """Return the settings with which a store was opened."""
    return store._context.engine.config
