"""Readers and subscriptions for threads: the same objects on an event loop in a thread of its own."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from storage.cluster.client.loop_thread import shown_as
from storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Iterator
    from types import TracebackType

    from storage.cluster.client.loop_thread import LoopThread
    from storage.cluster.topics.cursor import Cursor
    from storage.cluster.topics.message import ReceivedMessage
    from storage.cluster.topics.message_id import MessageId
    from storage.cluster.topics.partitioned import (
        AsyncPartitionedReader,
        AsyncPartitionedSubscription,
        StartOfPartitions,
    )
    from storage.cluster.topics.reader import AsyncTopicReader, Start, TopicEntry
    from storage.cluster.topics.subscription import AsyncSubscription

_Subscription = TypeVar("_Subscription", bound="AsyncSubscription | AsyncPartitionedSubscription")

_PIECE = 500
"""Messages that are taken in one call of the other thread. The entry of the last one is taken whole."""


class TopicReader:
    """Reads the messages of a topic. The methods are those of `AsyncTopicReader`."""

    def __init__(self, thread: LoopThread, reader: AsyncTopicReader) -> None:
        self._thread = thread
        self._reader = reader

    def __repr__(self) -> str:
        return shown_as(self, self._reader)

    def messages(self) -> Iterator[ReceivedMessage]:
        """Yield the messages up to the current end. Called again, it goes on with those that came since."""
        return self._messages(self.batches())

    def batches(self) -> Generator[list[ReceivedMessage], None, None]:
        """Yield the same messages, those of an entry together."""
        return self._batches(self._reader.entries(), _PIECE)

    def follow(self) -> Iterator[ReceivedMessage]:
        """Yield the messages without end: wait for those that are still to come."""
        return self._messages(self._batches(self._reader.follow_entries(), 1))

    def _messages(self, batches: Generator[list[ReceivedMessage], None, None]) -> Iterator[ReceivedMessage]:
        left: ReceivedMessage | None = None
        try:
            with closing(batches):
                for batch in batches:
                    for left in batch:
                        yield left
                    left = None
        finally:
            if left is not None:
                self._reader.go_on_after(left)

    def _batches(
        self, entries: AsyncGenerator[TopicEntry, None], count: int
    ) -> Generator[list[ReceivedMessage], None, None]:
        some: list[list[ReceivedMessage]] = []
        used = 0
        try:
            while True:
                some, error = self._thread.run(self._next_of(entries, count))
                used = 0
                for batch in some:
                    used += 1
                    yield batch
                if error is not None:
                    raise error
                if not some:
                    return
        finally:
            # A loop that has ended has closed it already.
            if not self._thread.loop.is_closed():
                self._thread.run(entries.aclose())
            if used < len(some):
                self._reader.go_on_after(some[used - 1][-1])

    async def _next_of(
        self, entries: AsyncGenerator[TopicEntry, None], count: int
    ) -> tuple[list[list[ReceivedMessage]], StoreError | None]:
        """Return the next entries, with at least so many messages, and the error that comes after them.

        There are fewer at the end.
        """
        some: list[list[ReceivedMessage]] = []
        try:
            async for entry in entries:
                received = self._reader.received(entry)
                if received:
                    some.append(received)
                    count -= len(received)
                if count <= 0:
                    break
        except StoreError as error:
            return some, error
        return some, None


class PartitionedReader:
    """Reads all partitions of a topic. The methods are those of `AsyncPartitionedReader`."""

    def __init__(self, thread: LoopThread, reader: AsyncPartitionedReader) -> None:
        self._thread = thread
        self._reader = reader

    def messages(self) -> Iterator[ReceivedMessage]:
        """Yield the messages up to the current end of each partition, the oldest first."""
        return self._pieces(self._reader.messages(), _PIECE)

    def follow(self) -> Iterator[ReceivedMessage]:
        """Yield the messages of all partitions as they come, without end."""
        return self._pieces(self._reader.follow(), 1)

    def _pieces(
        self, messages: AsyncGenerator[ReceivedMessage, None], count: int
    ) -> Iterator[ReceivedMessage]:
        piece: list[ReceivedMessage] = []
        used = 0
        try:
            while True:
                piece, error = self._thread.run(_some(messages, count))
                used = 0
                for one in piece:
                    used += 1
                    yield one
                if error is not None:
                    raise error
                if not piece:
                    return
        finally:
            if not self._thread.loop.is_closed():
                self._thread.run(messages.aclose())
            for one in reversed(piece[used:]):  # the first of each partition counts
                self._reader.readers[one.id.partition].go_back_to(one)


async def _some(
    messages: AsyncGenerator[ReceivedMessage, None], count: int
) -> tuple[list[ReceivedMessage], StoreError | None]:
    """Return the next messages, and the error that comes after them."""
    some: list[ReceivedMessage] = []
    try:
        async for one in messages:
            some.append(one)
            if len(some) == count:
                break
    except StoreError as error:
        return some, error
    return some, None


class _Consumer(Generic[_Subscription]):
    """What the consumers of one topic and of partitions have in common."""

    def __init__(self, thread: LoopThread, subscription: _Subscription) -> None:
        self._thread = thread
        self._subscription = subscription

    def __repr__(self) -> str:
        return shown_as(self, self._subscription)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if kind is None:
            self.close()
        else:
            with suppress(StoreError):
                self.close()  # the error of the block is more useful than one from here

    def receive(self) -> ReceivedMessage:
        """Return the next message that is not acknowledged; wait until there is one."""
        return self._thread.run(self._subscription.receive())

    def receive_within(self, timeout_s: float) -> ReceivedMessage | None:
        """Return the next message; `None` if none arrives in this time."""
        return self._thread.run(self._subscription.receive_within(timeout_s))

    def redeliver(self, message: ReceivedMessage) -> None:
        """Deliver one message again, before those that wait. It was not processed."""
        self._thread.run(self._subscription.redeliver(message))

    def redeliver_all(self) -> None:
        """Deliver all messages again that are not acknowledged, in their order."""
        self._thread.run(self._subscription.redeliver_all())

    def ack(self, message: ReceivedMessage | MessageId) -> None:
        """Acknowledge one message; with the id of a whole entry all its messages."""
        self._thread.run(self._subscription.ack(message))

    def ack_through(self, message: ReceivedMessage | MessageId) -> None:
        """Acknowledge a message and all before it."""
        self._thread.run(self._subscription.ack_through(message))

    def save(self) -> None:
        """Make all acknowledgements so far durable."""
        self._thread.run(self._subscription.save())

    def close(self) -> None:
        """Save the acknowledgements, and let the next consumer in."""
        self._thread.run(self._subscription.close())


class Subscription(_Consumer["AsyncSubscription"]):
    """The consumer of a subscription. The methods are those of `AsyncSubscription`."""

    @property
    def cursor(self) -> Cursor:
        """The acknowledgements, to look at while no other thread uses the subscription."""
        return self._subscription.cursor

    def seek(self, start: Start) -> None:
        """Make this the next message. Earlier messages count as acknowledged, and later ones do not."""
        self._thread.run(self._subscription.seek(start))


class PartitionedSubscription(_Consumer["AsyncPartitionedSubscription"]):
    """The consumer of a subscription of all partitions: `AsyncPartitionedSubscription` for threads."""

    def seek(self, start: StartOfPartitions) -> None:
        """Make this the next message of each partition; of those that a mapping does not name, no change."""
        self._thread.run(self._subscription.seek(start))
