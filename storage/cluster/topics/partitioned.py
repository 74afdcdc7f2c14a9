"""A topic with partitions, for coroutines: one object for all of them.

Each partition is a topic. A producer chooses one for each message, a reader and a subscription merge what
comes from all. The order of messages is kept within a partition, so among the messages of a key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Self, TypeAlias, TypeVar

from storage.cluster.topics.compression import Compression
from storage.cluster.topics.errors import NoSuchTopic, NotInTopic
from storage.cluster.topics.message_id import EARLIEST, LATEST, MessageId
from storage.cluster.topics.producer import Batching
from storage.cluster.topics.reader import After, AsyncTopicReader, AtTime, Start
from storage.cluster.topics.routing import KeyHash, Router
from storage.cluster.topics.subscription import SubscriptionMode
from storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Iterable, Sequence
    from types import TracebackType
    from typing import Any

    from storage.cluster.topics.managed_ledger import TopicName
    from storage.cluster.topics.message import Message, ReceivedMessage
    from storage.cluster.topics.producer import AsyncProducer
    from storage.cluster.topics.subscription import AsyncSubscription
    from storage.cluster.topics.topic import AsyncTopic, TopicStats

_T = TypeVar("_T")

_PIECE = 10_000
"""Messages of `send_many` that are in memory at once."""

StartOfPartitions: TypeAlias = "Start | Mapping[int, Start]"
"""Where to start: one place for all partitions, or one for each. A partition without one starts with its
oldest message. An id is the place of one partition only.
"""


@dataclass(frozen=True, slots=True)
class PartitionedStats:
    """The figures of all partitions."""

    name: str
    partitions: tuple[TopicStats, ...]

    @property
    def entries(self) -> int:
        return sum(one.entries for one in self.partitions)

    @property
    def size(self) -> int:
        """The bytes of all entries."""
        return sum(one.size for one in self.partitions)

    @property
    def ledgers(self) -> int:
        return sum(len(one.ledgers) for one in self.partitions)

    @property
    def subscriptions(self) -> list[str]:
        """The names of all subscriptions."""
        return sorted({name for one in self.partitions for name in one.cursors})


class AsyncPartitionedTopic:
    """All partitions of a topic. Leaving its block closes them."""

    def __init__(self, name: TopicName, partitions: Sequence[AsyncTopic], key_hash: KeyHash) -> None:
        self.name = name
        self.partitions = tuple(partitions)
        self._key_hash = key_hash
        self._own: AsyncPartitionedProducer | None = None
        """The producer of `send`."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} with {len(self.partitions)} partitions>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if kind is None:
            await self.close()
        else:
            with suppress(StoreError):
                await self.close()  # the error of the block is more useful than one from here

    async def take_over(self) -> None:
        """Become the process that writes the partitions."""
        await all_of(one.take_over() for one in self.partitions)

    async def producer(
        self,
        name: str | None = None,
        batch: Batching | None = None,
        compression: Compression = Compression.NONE,
    ) -> AsyncPartitionedProducer:
        """Return a producer, which writes each message to the partition that its key chooses."""
        made: list[AsyncProducer] = []
        try:
            for one in self.partitions:
                made += [await one.producer(name, batch, compression)]
        except BaseException:
            for producer in made:  # otherwise another attempt would find the name in use
                producer.abandon()
            raise
        return AsyncPartitionedProducer(str(self.name), made, Router(len(made), self._key_hash))

    async def send(self, message: bytes | Message) -> MessageId:
        """Write a message in an entry of its own, and return its id when it is durable."""
        if self._own is None:
            self._own = await self.producer()
        sent = await self._own.send(message)
        assert sent is not None, "a producer without a name has written nothing before"
        return sent

    async def send_many(
        self, messages: Iterable[bytes | Message], batch: Batching | None = None
    ) -> list[MessageId]:
        """Write messages in batches, and return their ids when all are durable."""
        async with await self.producer(batch=batch or Batching()) as producer:
            return await producer.send_many(messages)

    def reader(self, start: StartOfPartitions = EARLIEST) -> AsyncPartitionedReader:
        """Return a reader of all partitions."""
        starts = _starts(str(self.name), start, len(self.partitions))
        return AsyncPartitionedReader(
            [one.reader(begin) for one, begin in zip(self.partitions, starts, strict=True)]
        )

    async def subscription(
        self,
        name: str,
        mode: SubscriptionMode = SubscriptionMode.EXCLUSIVE,
        start: StartOfPartitions = LATEST,
        save_after_s: float = 1.0,
    ) -> AsyncPartitionedSubscription:
        """Open the subscription of all partitions, or make it with `start` as its first messages.

        Raise `SubscriptionBusy` if it is exclusive and another consumer has that of a partition.
        """
        starts, arrived = _starts(str(self.name), start, len(self.partitions)), asyncio.Event()
        opened: list[AsyncSubscription] = []
        try:
            for one, begin in zip(self.partitions, starts, strict=True):
                opened.append(await one.subscription(name, mode, begin, save_after_s, arrived))
        except BaseException:
            for consumer in opened:
                with suppress(StoreError):
                    await consumer.close()
            raise
        return AsyncPartitionedSubscription(str(self.name), opened, arrived)

    async def roll_over(self) -> None:
        """Close the current ledgers and begin the next ones, except where the current one is empty."""
        await all_of(one.roll_over() for one in self.partitions)

    async def trim(self) -> tuple[int, ...]:
        """Delete the ledgers that all subscriptions have passed and `retention` lets go. Return their ids."""
        return tuple(chain.from_iterable([await one.trim() for one in self.partitions]))

    async def stats(self) -> PartitionedStats:
        """Return the figures of all partitions now."""
        return PartitionedStats(str(self.name), tuple([await one.stats() for one in self.partitions]))

    async def close(self) -> None:
        """Close all partitions. Raise the first error, when all are closed."""
        await all_of(one.close() for one in self.partitions)

    def abandon(self) -> None:
        """End at once, because the client is closed."""
        for one in self.partitions:
            one.abandon()


class AsyncPartitionedProducer:
    """Writes each message to one of the partitions. Leaving its block waits for the messages under way."""

    def __init__(self, topic: str, producers: Sequence[AsyncProducer], router: Router) -> None:
        self.name = producers[0].name
        self._topic = topic
        self._producers = producers
        self._router = router

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self._topic}>"

    @property
    def last_sequence_id(self) -> int:
        """The smallest of the partitions' last sequence ids; -1 if a partition has no message.

        Messages after it may be missing in some partition. Those that are not are dropped if they are sent
        again with the same sequence ids.
        """
        return min(one.last_sequence_id for one in self._producers)

    async def send(self, message: bytes | Message, sequence_id: int | None = None) -> MessageId | None:
        """Write a message, and return its id when it is durable; `None` if it was there already."""
        return await (await self.submit(message, sequence_id))

    async def submit(
        self, message: bytes | Message, sequence_id: int | None = None
    ) -> asyncio.Future[MessageId | None]:
        """Write a message, and return a future of its id. Wait only while too much is under way."""
        number = self._router.partition_of(message, sequence_id)
        return await self._producers[number].submit(message, sequence_id)

    async def send_many(self, messages: Iterable[bytes | Message]) -> list[MessageId]:
        """Write messages, and return their ids in the order of the messages when all are durable."""
        ids: list[MessageId] = []
        source = iter(messages)
        while some := [*islice(source, _PIECE)]:
            routes = [self._router.partition_of(one) for one in some]
            pieces: list[list[bytes | Message]] = [[] for _ in self._producers]
            for number, one in zip(routes, some, strict=True):
                pieces[number].append(one)
            pairs = zip(self._producers, pieces, strict=True)
            sent = [iter(one) for one in await all_of(producer.send_many(piece) for producer, piece in pairs)]
            ids += [next(sent[number]) for number in routes]
        return ids

    async def flush(self) -> None:
        """Return when all messages given before are durable. Raise if one of them has failed."""
        await all_of(one.flush() for one in self._producers)

    async def close(self) -> None:
        """Wait for the messages under way. Raise if one of them has failed."""
        await all_of(one.close() for one in self._producers)

    def abandon(self) -> None:
        """Take no more messages."""
        for one in self._producers:
            one.abandon()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if kind is None:
            await self.close()
        else:
            self.abandon()


class _Source:
    """A partition that is read: its messages that were read, and not given yet."""

    def __init__(
        self, reader: AsyncTopicReader, batches: AsyncGenerator[list[ReceivedMessage], None]
    ) -> None:
        self.reader = reader
        self.batches = batches
        self.read: list[ReceivedMessage] = []
        """The last first."""

    async def fill(self) -> bool:
        """Read the next messages if all were given. Return whether there are any."""
        if not self.read:
            with suppress(StopAsyncIteration, NoSuchTopic):  # a partition is made by its first message
                self.read = (await anext(self.batches))[::-1]
        return bool(self.read)

    def age(self) -> int:
        return self.read[-1].message.publish_time_ms

    async def leave(self) -> None:
        await self.batches.aclose()
        if self.read:
            self.reader.go_back_to(self.read[-1])


class AsyncPartitionedReader:
    """Reads all partitions. For one coroutine at a time."""

    def __init__(self, readers: Sequence[AsyncTopicReader]) -> None:
        self.readers = readers
        """By partition."""

    async def messages(self) -> AsyncGenerator[ReceivedMessage, None]:
        """Yield the messages up to the current end of each partition, the oldest first.

        They are merged by the times at which they were published. Called again, it goes on with those that
        came since.
        """
        sources = [_Source(one, one.batches()) for one in self.readers]
        try:
            left = sources
            while left := [one for one in left if await one.fill()]:
                oldest = min(left, key=_Source.age)
                # Up to the next message of another partition no more than this one is looked at.
                limit = min((one.age() for one in left if one is not oldest), default=None)
                while oldest.read and (limit is None or oldest.age() <= limit):
                    yield oldest.read.pop()
        finally:
            for one in sources:
                await one.leave()

    async def follow(self) -> AsyncGenerator[ReceivedMessage, None]:
        """Yield the messages of all partitions as they come, without end."""
        sources = [_Source(one, one.follow_batches()) for one in self.readers]
        filling: dict[asyncio.Task[bool], _Source] = {}
        try:
            waiting: Iterable[_Source] = sources
            while True:
                filling |= {asyncio.ensure_future(one.fill()): one for one in waiting}
                done, _ = await asyncio.wait(filling, return_when=asyncio.FIRST_COMPLETED)
                waiting = [filling.pop(task) for task in done]
                for task in done:
                    task.result()
                for source in waiting:
                    while source.read:
                        yield source.read.pop()
        finally:
            for task in filling:
                task.cancel()
            await asyncio.gather(*filling, return_exceptions=True)
            for one in sources:
                await one.leave()


class AsyncPartitionedSubscription:
    """The consumer of a subscription of all partitions."""

    def __init__(self, topic: str, consumers: Sequence[AsyncSubscription], arrived: asyncio.Event) -> None:
        self.subscription = consumers[0].subscription
        self.consumers = consumers
        """By partition."""
        self._topic = topic
        self._arrived = arrived
        """Set when one of them has a message or an error."""
        self._first = 0
        """The partition that is looked at first, so that none has to wait for ever."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.subscription!r} of {self._topic}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if kind is None:
            await self.close()
        else:
            with suppress(StoreError):
                await self.close()

    async def receive(self) -> ReceivedMessage:
        """Return the next message of any partition that is not acknowledged; wait until there is one."""
        while True:
            self._arrived.clear()
            count = len(self.consumers)
            for step in range(count):
                found = self.consumers[(self._first + step) % count].take()
                if found is not None:
                    self._first = (self._first + step + 1) % count
                    return found
            await self._arrived.wait()

    async def receive_within(self, timeout_s: float) -> ReceivedMessage | None:
        """Return the next message; `None` if none arrives in this time."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self.receive()
        except TimeoutError:
            return None

    async def ack(self, message: ReceivedMessage | MessageId) -> None:
        """Acknowledge one message; with the id of a whole entry all its messages."""
        await self._of(message).ack(message)

    async def ack_through(self, message: ReceivedMessage | MessageId) -> None:
        """Acknowledge a message and all before it in its partition."""
        await self._of(message).ack_through(message)

    async def redeliver(self, message: ReceivedMessage) -> None:
        """Deliver one message again, before those of its partition that wait."""
        await self._of(message).redeliver(message)

    async def redeliver_all(self) -> None:
        """Deliver all messages again that are not acknowledged."""
        await all_of(one.redeliver_all() for one in self.consumers)

    async def seek(self, start: StartOfPartitions) -> None:
        """Make this the next message of each partition; of those that a mapping does not name, no change."""
        if isinstance(start, Mapping):
            await all_of(self.consumers[number].seek(place) for number, place in start.items())
        elif isinstance(start, After) or (isinstance(start, MessageId) and start.partition >= 0):
            await self._of(start.id if isinstance(start, After) else start).seek(start)
        else:
            starts = _starts(self._topic, start, len(self.consumers))
            pairs = zip(self.consumers, starts, strict=True)
            await all_of(consumer.seek(place) for consumer, place in pairs)

    async def save(self) -> None:
        """Make all acknowledgements so far durable."""
        await all_of(one.save() for one in self.consumers)

    async def close(self) -> None:
        """Save the acknowledgements, and let the next consumer in."""
        await all_of(one.close() for one in self.consumers)

    def _of(self, message: ReceivedMessage | MessageId) -> AsyncSubscription:
        """Return the consumer of a message's partition."""
        message_id = message if isinstance(message, MessageId) else message.id
        if not 0 <= message_id.partition < len(self.consumers):
            raise NotInTopic(self._topic, str(message_id), "it names no partition of the topic")
        return self.consumers[message_id.partition]


def _starts(topic: str, start: StartOfPartitions, count: int) -> list[Start]:
    """Return the start of each partition."""
    if isinstance(start, Mapping):
        if any(not 0 <= number < count for number in start):
            raise NotInTopic(topic, str([*start]), f"it has the partitions 0 to {count - 1}")
        return [start.get(number, EARLIEST) for number in range(count)]
    if isinstance(start, AtTime) or start in (EARLIEST, LATEST):
        return [start] * count
    text = str(start.id if isinstance(start, After) else start)
    raise NotInTopic(topic, text, "it is a place in one partition; give a place for each as a mapping")


async def all_of(work: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Run all coroutines and return their results. Raise the first error when all have ended."""
    found: list[_T] = []
    for outcome in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
        found.append(outcome)
    return found
