"""The topics of one local store, for the coroutines of its loop or for threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from storage.aio.store import attach, claim_topics, config_of
from storage.cluster.client.loop_thread import LoopThread
from storage.cluster.topics.blocking import Topic
from storage.cluster.topics.embedded_ledgers import EmbeddedLedgers
from storage.cluster.topics.errors import TopicsInUse
from storage.cluster.topics.managed_ledger import TopicName
from storage.cluster.topics.topic import AsyncTopic

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.aio.store import AsyncStore
    from storage.cluster.topics.policies import TopicOptions
    from storage.store import Store


class AsyncEmbeddedTopics:
    """The topics of a store, for the coroutines of its loop."""

    def __init__(self, store: AsyncStore) -> None:
        """Raise `TopicsInUse` if another face of the store has topics already.

        Each face has the lists in its own memory, so that of two one would write over those of the other.
        """
        if not claim_topics(store):
            raise TopicsInUse(store.path)
        self.ledgers = EmbeddedLedgers(store, config_of(store).entry_size_max)
        self._open: list[AsyncTopic] = []

    def topic(self, name: str, **options: Unpack[TopicOptions]) -> AsyncTopic:
        """Return the topic of that name. Nothing is written before the first message."""
        topic = AsyncTopic(self.ledgers, TopicName.parse(name), **options)
        self._open = [one for one in self._open if not one.is_closed]
        self._open.append(topic)
        return topic

    async def close(self) -> None:
        """Close all topics that are open."""
        for topic in self._open:
            await topic.close_quietly()
        await self.ledgers.nodes.close()


class EmbeddedTopics:
    """The topics of a store, for threads: they belong to an event loop in a thread of its own."""

    def __init__(self, store: Store) -> None:
        self._thread = LoopThread()
        try:
            self._topics, self._detach = self._thread.run(_attached(store))
        except BaseException:
            self._thread.stop()
            raise

    def topic(self, name: str, **options: Unpack[TopicOptions]) -> Topic:
        """Return the topic of that name. Nothing is written before the first message."""
        return Topic(self._thread, self._thread.run(self._make(name, options)))

    async def _make(self, name: str, options: TopicOptions) -> AsyncTopic:
        return self._topics.topic(name, **options)

    def close(self) -> None:
        """Close all topics that are open, and end the thread. The store stays open."""
        self._thread.run(self._close())
        self._thread.stop()

    async def _close(self) -> None:
        try:
            await self._topics.close()
        finally:
            self._detach()


async def _attached(store: Store) -> tuple[AsyncEmbeddedTopics, Callable[[], None]]:
    face, detach = attach(store)
    return AsyncEmbeddedTopics(face), detach
