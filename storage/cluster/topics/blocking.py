"""Topics for threads: the same objects on an event loop in a thread of its own.

Any thread may use them, and several at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Self

from storage.cluster.client.loop_thread import pass_on, shown_as
from storage.cluster.topics.blocking_readers import (
    PartitionedReader,
    PartitionedSubscription,
    Subscription,
    TopicReader,
)
from storage.cluster.topics.compression import Compression
from storage.cluster.topics.message_id import EARLIEST, LATEST
from storage.cluster.topics.routing import KeyHash
from storage.cluster.topics.subscription import SubscriptionMode
from storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from storage.cluster.client.loop_thread import LoopThread
    from storage.cluster.topics.managed_ledger import LedgerInfo, TopicName
    from storage.cluster.topics.message import Message
    from storage.cluster.topics.message_id import MessageId
    from storage.cluster.topics.partitioned import (
        AsyncPartitionedProducer,
        AsyncPartitionedTopic,
        PartitionedStats,
        StartOfPartitions,
    )
    from storage.cluster.topics.producer import AsyncProducer, Batching
    from storage.cluster.topics.reader import Start
    from storage.cluster.topics.topic import AsyncTopic, TopicStats

_WAITING_MAX = 10_000
"""Messages that threads have submitted and the loop has not taken; then `submit` waits."""


class Topic:
    """A topic. The methods are those of `AsyncTopic`."""

    def __init__(self, thread: LoopThread, topic: AsyncTopic) -> None:
        self._thread = thread
        self._topic = topic

    @property
    def name(self) -> TopicName:
        return self._topic.name

    def __repr__(self) -> str:
        return shown_as(self, self._topic)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if kind is None:
            self.close()
        else:
            with suppress(StoreError):
                self.close()  # what the block has raised is more useful than an error here

    def take_over(self) -> None:
        """Become the process that writes the topic: its ledgers are recovered, and another one is fenced."""
        self._thread.run(self._topic.take_over())

    def producer(
        self,
        name: str | None = None,
        batch: Batching | None = None,
        compression: Compression = Compression.NONE,
    ) -> Producer:
        """Return a producer. Without `batch` each message has an entry of its own."""
        return Producer(self._thread, self._thread.run(self._topic.producer(name, batch, compression)))

    def send(self, message: bytes | Message) -> MessageId:
        """Write a message in an entry of its own, and return its id when it is durable."""
        return self._thread.run(self._topic.send(message))

    def send_many(
        self, messages: Iterable[bytes | Message], batch: Batching | None = None
    ) -> list[MessageId]:
        """Write messages in full batches, and return their ids when all are durable."""
        return self._thread.run(self._topic.send_many(messages, batch))

    def roll_over(self) -> None:
        """Close the current ledger and begin the next, unless the current one is empty."""
        self._thread.run(self._topic.roll_over())

    def trim(self) -> tuple[int, ...]:
        """Delete the ledgers that all subscriptions have passed and retention lets go. Return their ids."""
        return self._thread.run(self._topic.trim())

    def sweep(self) -> list[int]:
        """Delete ledgers of this topic that a crash has left, and that no list names. Return their ids."""
        return self._thread.run(self._topic.sweep())

    def reader(self, start: Start = EARLIEST) -> TopicReader:
        """Return a reader from one message on: an id, `EARLIEST`, `LATEST`, `After(id)` or `AtTime(ms)`."""
        return TopicReader(self._thread, self._topic.reader(start))

    def subscription(
        self,
        name: str,
        mode: SubscriptionMode = SubscriptionMode.EXCLUSIVE,
        start: Start = LATEST,
        save_after_s: float = 1.0,
    ) -> Subscription:
        """Open a subscription, or make it with `start` as its first message."""
        opened = self._topic.subscription(name, mode, start, save_after_s)
        return Subscription(self._thread, self._thread.run(opened))

    def partitioned(
        self, count: int | None = None, key_hash: KeyHash = KeyHash.JAVA_STRING
    ) -> PartitionedTopic:
        """Return the partitions of this topic as one object; with `count` make so many if there are none.

        Raise `NoSuchTopic` if it has no partitions, and `TopicExists` if it has others than `count`, or
        messages of its own.
        """
        return PartitionedTopic(self._thread, self._thread.run(self._topic.partitioned(count, key_hash)))

    def subscriptions(self) -> list[str]:
        """Return the names of all subscriptions. Raise `NoSuchTopic`."""
        return self._thread.run(self._topic.subscriptions())

    def delete_subscription(self, name: str) -> None:
        """Delete a subscription. A consumer that still runs fails when it saves."""
        self._thread.run(self._topic.delete_subscription(name))

    def ledgers(self) -> tuple[LedgerInfo, ...]:
        """Return the ledgers of the topic as the metadata has them, the oldest first."""
        return self._thread.run(self._topic.ledgers())

    def stats(self) -> TopicStats:
        """Return the figures of the topic now."""
        return self._thread.run(self._topic.stats())

    def close(self) -> None:
        """Wait for the messages under way, close the current ledger, and write its end into the list."""
        self._thread.run(self._topic.close())


class PartitionedTopic:
    """All partitions of a topic. The methods are those of `AsyncPartitionedTopic`."""

    def __init__(self, thread: LoopThread, topic: AsyncPartitionedTopic) -> None:
        self._thread = thread
        self._topic = topic
        self.partitions = tuple(Topic(thread, one) for one in topic.partitions)

    @property
    def name(self) -> TopicName:
        return self._topic.name

    def __repr__(self) -> str:
        return shown_as(self, self._topic)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if kind is None:
            self.close()
        else:
            with suppress(StoreError):
                self.close()

    def take_over(self) -> None:
        """Become the process that writes the partitions."""
        self._thread.run(self._topic.take_over())

    def producer(
        self,
        name: str | None = None,
        batch: Batching | None = None,
        compression: Compression = Compression.NONE,
    ) -> Producer:
        """Return a producer, which writes each message to the partition that its key chooses."""
        return Producer(self._thread, self._thread.run(self._topic.producer(name, batch, compression)))

    def send(self, message: bytes | Message) -> MessageId:
        """Write a message in an entry of its own, and return its id when it is durable."""
        return self._thread.run(self._topic.send(message))

    def send_many(
        self, messages: Iterable[bytes | Message], batch: Batching | None = None
    ) -> list[MessageId]:
        """Write messages in batches, and return their ids when all are durable."""
        return self._thread.run(self._topic.send_many(messages, batch))

    def reader(self, start: StartOfPartitions = EARLIEST) -> PartitionedReader:
        """Return a reader of all partitions."""
        return PartitionedReader(self._thread, self._topic.reader(start))

    def subscription(
        self,
        name: str,
        mode: SubscriptionMode = SubscriptionMode.EXCLUSIVE,
        start: StartOfPartitions = LATEST,
        save_after_s: float = 1.0,
    ) -> PartitionedSubscription:
        """Open the subscription of all partitions, or make it with `start` as its first messages."""
        opened = self._topic.subscription(name, mode, start, save_after_s)
        return PartitionedSubscription(self._thread, self._thread.run(opened))

    def roll_over(self) -> None:
        """Close the current ledgers and begin the next ones, except where the current one is empty."""
        self._thread.run(self._topic.roll_over())

    def trim(self) -> tuple[int, ...]:
        """Delete the ledgers that all subscriptions have passed and retention lets go. Return their ids."""
        return self._thread.run(self._topic.trim())

    def stats(self) -> PartitionedStats:
        """Return the figures of all partitions now."""
        return self._thread.run(self._topic.stats())

    def close(self) -> None:
        """Close all partitions. Raise the first error, when all are closed."""
        self._thread.run(self._topic.close())


class Producer:
    """Writes messages to a topic. The methods are those of `AsyncProducer`."""

    def __init__(self, thread: LoopThread, producer: AsyncProducer | AsyncPartitionedProducer) -> None:
        self._thread = thread
        self._producer = producer
        self._waiting: deque[tuple[bytes | Message, int | None, Future[MessageId | None]]] = deque()
        """Written by: threads at the end, the loop at the front. Both are atomic."""
        self._is_taking = False
        """Whether the loop will look at `_waiting` again. Written by: threads and the loop."""
        self._one_at_a_time = asyncio.Lock()
        self._taking: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return shown_as(self, self._producer)

    @property
    def name(self) -> str:
        return self._producer.name

    @property
    def last_sequence_id(self) -> int:
        """The sequence id of the last message that was given to this producer; -1 without any."""
        return self._producer.last_sequence_id

    def send(self, message: bytes | Message, sequence_id: int | None = None) -> MessageId | None:
        """Write a message, and return its id when it is durable; `None` if it was there already."""
        return self.submit(message, sequence_id).result()

    def submit(self, message: bytes | Message, sequence_id: int | None = None) -> Future[MessageId | None]:
        """Write a message, and return a future of its id. Wait only while too much is under way."""
        result: Future[MessageId | None] = Future()
        self._waiting.append((message, sequence_id, result))
        if not self._is_taking:
            self._is_taking = True
            self._thread.call_soon(self._start)
        if len(self._waiting) > _WAITING_MAX:
            self._thread.run(self._take())
        return result

    def send_many(self, messages: Iterable[bytes | Message]) -> list[MessageId]:
        """Write messages in full batches, and return their ids when all are durable."""
        return self._thread.run(self._send_many(list(messages)))

    async def _send_many(self, messages: list[bytes | Message]) -> list[MessageId]:
        await self._take()
        return await self._producer.send_many(messages)

    def flush(self) -> None:
        """Return when all messages given before are durable. Raise if one of them has failed."""
        self._thread.run(self._flush())

    async def _flush(self) -> None:
        await self._take()
        await self._producer.flush()

    def close(self) -> None:
        """Wait for the messages under way. Raise if one of them has failed."""
        self._thread.run(self._close())

    async def _close(self) -> None:
        await self._take()
        await self._producer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if kind is None:
            self.close()
        else:
            with suppress(StoreError):
                self.close()

    def _start(self) -> None:
        self._taking = self._thread.loop.create_task(self._take_all())

    async def _take_all(self) -> None:
        # The mark is removed first, so that a message that comes after the last look begins another task.
        self._is_taking = False
        await self._take()

    async def _take(self) -> None:
        """Give the messages that wait to the producer, in their order."""
        async with self._one_at_a_time:
            while self._waiting:
                message, sequence_id, result = self._waiting.popleft()
                try:
                    sent = await self._producer.submit(message, sequence_id)
                except Exception as error:
                    # The caller that waits for the message gets it.
                    result.set_exception(error)
                else:
                    sent.add_done_callback(partial(pass_on, result))
