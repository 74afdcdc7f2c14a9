"""A topic, for coroutines: the object that a program uses."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Self, Unpack

from storage.cluster.metadata.znodes import Gone
from storage.cluster.topics import managed_ledger
from storage.cluster.topics.administration import create_partitions, read_partitions
from storage.cluster.topics.compression import Compression
from storage.cluster.topics.cursor import Extents
from storage.cluster.topics.cursor_store import delete_subscription, read_cursor, subscriptions_of
from storage.cluster.topics.errors import NoSuchTopic, ProducerExists, TopicClosed
from storage.cluster.topics.managed_ledger import ManagedLedgerInfo, Position
from storage.cluster.topics.message_id import EARLIEST, LATEST
from storage.cluster.topics.owner import TopicOwner, managed_name
from storage.cluster.topics.partitioned import AsyncPartitionedTopic, all_of
from storage.cluster.topics.policies import (
    DEFAULT_ROLL_OVER,
    KEEP_ALL,
    MissingLedgers,
    Retention,
    RollOver,
)
from storage.cluster.topics.producer import NO_BATCHES, AsyncProducer, Batching
from storage.cluster.topics.reader import AsyncTopicReader
from storage.cluster.topics.routing import KeyHash
from storage.cluster.topics.sequences import CURSOR as DEDUPLICATION_CURSOR
from storage.cluster.topics.sequences import MESSAGES_MAX, ProducerSequences
from storage.cluster.topics.subscription import (
    AsyncSubscription,
    SubscriptionMode,
    open_subscription,
    sweep_cursors,
)
from storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from storage.cluster.topics.ledgers_port import TopicLedgers
    from storage.cluster.topics.managed_ledger import LedgerInfo, ManagedCursorInfo, TopicName
    from storage.cluster.topics.message import Message
    from storage.cluster.topics.message_id import MessageId
    from storage.cluster.topics.policies import TopicOptions
    from storage.cluster.topics.reader import Start


@dataclass(frozen=True, slots=True)
class TopicStats:
    """The ledgers of a topic and its subscriptions."""

    name: str
    ledgers: tuple[LedgerInfo, ...]
    """The oldest first. Of a ledger that is written, entries and size are those acknowledged so far."""
    current: int | None
    """The ledger that is written here; `None` if this process does not write the topic."""
    cursors: Mapping[str, Position]
    """By subscription: the entry up to which everything is acknowledged."""

    @property
    def entries(self) -> int:
        return sum(one.entries or 0 for one in self.ledgers)

    @property
    def size(self) -> int:
        """The bytes of all entries."""
        return sum(one.size or 0 for one in self.ledgers)


class AsyncTopic:
    """A topic. Opening it changes nothing: the first call that writes takes it over from another process.

    Leaving its block closes it.
    """

    def __init__(
        self,
        ledgers: TopicLedgers,
        name: TopicName,
        roll_over: RollOver = DEFAULT_ROLL_OVER,
        retention: Retention = KEEP_ALL,
        missing: MissingLedgers = MissingLedgers.REFUSE,
    ) -> None:
        self.name = name
        self.retention = retention
        self._ledgers = ledgers
        self._roll_over = roll_over
        self._missing = missing
        self._owner: TopicOwner | None = None
        self._opening = asyncio.Lock()
        self._producers: dict[str, AsyncProducer] = {}
        self._abandoned: dict[str, AsyncProducer] = {}
        """By name: producers that were closed with messages under way."""
        self._subscriptions: list[AsyncSubscription] = []
        self._partitions: list[AsyncTopic] = []
        """The topics that `partitioned` has made."""
        self._own: AsyncProducer | None = None
        """The producer of `send`."""
        self._sequences: ProducerSequences | None = None
        """The sequence ids of named producers, once there is one."""
        self._saving: asyncio.Task[None] | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        state = "not written here"
        if self._owner is not None:
            state = f"written here, {self._owner.series.state.name.lower()}"
        return f"<{type(self).__name__} {self.name}: {state}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if kind is None:
            await self.close()
        else:
            # What the block has raised is more useful than an error here.
            await self.close_quietly()

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────

    async def take_over(self) -> None:
        """Become the process that writes the topic: its ledgers are recovered, and another one is fenced."""
        await self._owned()

    async def producer(
        self,
        name: str | None = None,
        batch: Batching | None = None,
        compression: Compression = Compression.NONE,
    ) -> AsyncProducer:
        """Return a producer. Without `batch` each message has an entry of its own.

        A producer with a name numbers its messages from where it ended before, also after a crash and in
        another process, so that a message which is sent again with the same sequence id is written once.
        """
        owner = await self._owned()
        if name is None:
            made = AsyncProducer(owner, None, batch or NO_BATCHES, compression, closed=self._forget)
        else:
            sequences = await self._known_sequences(owner)
            while (former := self._abandoned.get(name)) is not None:
                await former.settle()  # its messages count, too
                if self._abandoned.get(name) is former:
                    del self._abandoned[name]
            if name in self._producers:
                raise ProducerExists(str(self.name), name)
            last = sequences.last_of(name)
            stored = partial(self._note, owner, sequences, name)
            made = AsyncProducer(
                owner, name, batch or NO_BATCHES, compression, last, self._forget_named, stored
            )
        self._producers[made.name] = made
        return made

    async def _known_sequences(self, owner: TopicOwner) -> ProducerSequences:
        """Return the sequence ids of the named producers, which are read when they are first needed."""
        async with self._opening:
            if self._sequences is None:
                sequences = ProducerSequences(self._ledgers, self.name)
                current = owner.series.current
                await sequences.open(
                    owner.series.list.ledgers, -1 if current is None else current, owner.last
                )
                self._sequences = sequences
        return self._sequences

    def _note(self, owner: TopicOwner, sequences: ProducerSequences, producer: str, sequence_id: int) -> None:
        """Note an entry of a named producer that is durable, and write the cursor now and then."""
        sequences.note(producer, sequence_id)
        if sequences.unsaved >= MESSAGES_MAX and (self._saving is None or self._saving.done()):
            self._saving = asyncio.get_running_loop().create_task(sequences.save(owner.last))

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
        """Write messages in full batches, and return their ids when all are durable."""
        async with await self.producer(batch=batch or Batching()) as producer:
            return await producer.send_many(messages)

    async def roll_over(self) -> None:
        """Close the current ledger and begin the next, unless the current one is empty."""
        await (await self._owned()).roll_over()

    async def trim(self) -> tuple[int, ...]:
        """Delete the ledgers that all subscriptions have passed and `retention` lets go. Return their ids."""
        owner = await self._owned()
        if DEDUPLICATION_CURSOR in await self._cursors():
            # The cursor of deduplication is moved first, because it would otherwise hold up the trim for as
            # long as no named producer writes.
            await (await self._known_sequences(owner)).save(owner.last)
        cursors = [await self._position(name) for name in await self._cursors()]
        return await owner.trim(cursors, self.retention)

    async def sweep(self) -> list[int]:
        """Delete ledgers of this topic that a crash has left, and that nothing names. Return their ids.

        Those of a subscription that has a consumer are left to a later sweep, because it may just make one.
        Takes long in a cluster with many ledgers, because all are looked at.
        """
        owner = await self._owned()
        made = await self._ledgers.ledgers_of(managed_name(self.name))
        swept = await owner.sweep([ledger_id for ledger_id, cursor in made.items() if cursor is None])
        of_cursors = {ledger_id: cursor for ledger_id, cursor in made.items() if cursor is not None}
        return swept + await sweep_cursors(self._ledgers, self.name, of_cursors)

    async def close(self) -> None:
        """Wait for the messages under way, close the current ledger, and write its end into the list.

        The next process that writes the topic has nothing to recover then. Raise if another process has taken
        it over meanwhile.
        """
        if self._is_closed:
            return
        self._is_closed = True
        for producer in list(self._producers.values()):
            producer.abandon()
        for subscription in self._subscriptions:
            with suppress(StoreError):
                await subscription.close()  # messages without a saved acknowledgement are delivered once more
        if self._owner is not None:
            await self._owner.drain()
            if self._saving is not None:
                await asyncio.wait([self._saving])
            if self._sequences is not None and self._sequences.unsaved and not self._owner.has_ended:
                await self._sequences.save(self._owner.last)
            await self._owner.close()
        await all_of(partition.close() for partition in self._partitions)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def abandon(self) -> None:
        """End at once, because the client is closed. The next process that writes the topic recovers it."""
        self._is_closed = True
        for subscription in self._subscriptions:
            subscription.abandon()
        if self._owner is not None:
            self._owner.abandon()
        for partition in self._partitions:
            partition.abandon()

    async def close_quietly(self) -> None:
        """Close, and leave what goes wrong to the next process that writes the topic."""
        with suppress(StoreError):
            await self.close()

    async def partitioned(
        self, count: int | None = None, key_hash: KeyHash = KeyHash.JAVA_STRING
    ) -> AsyncPartitionedTopic:
        """Return the partitions of this topic as one object; with `count` make so many if there are none.

        Closing this topic closes them too. Raise `NoSuchTopic` if it has no partitions, and `TopicExists` if
        it has others than `count`, or messages of its own.
        """
        if count is not None:
            await create_partitions(self._ledgers, self.name, count)
        found = await read_partitions(self._ledgers, self.name)
        if not found:
            raise NoSuchTopic(f"{self.name} with partitions")
        partitions = [
            AsyncTopic(
                self._ledgers, self.name.partition(number), self._roll_over, self.retention, self._missing
            )
            for number in range(found)
        ]
        self._partitions += partitions
        return AsyncPartitionedTopic(self.name, partitions, key_hash)

    # ── looking ───────────────────────────────────────────────────────────────────────────────────────

    def reader(self, start: Start = EARLIEST) -> AsyncTopicReader:
        """Return a reader from one message on: an id, `EARLIEST`, `LATEST`, `After(id)` or `AtTime(ms)`."""
        return AsyncTopicReader(self._ledgers, self.name, start, self._missing, self._last_written)

    def _last_written(self) -> Position | None:
        last = None if self._owner is None else self._owner.last
        return None if last is None else Position(*last)

    async def subscription(
        self,
        name: str,
        mode: SubscriptionMode = SubscriptionMode.EXCLUSIVE,
        start: Start = LATEST,
        save_after_s: float = 1.0,
        arrived: asyncio.Event | None = None,
    ) -> AsyncSubscription:
        """Open a subscription, or make it with `start` as its first message.

        Raise `SubscriptionBusy` if it is exclusive and another consumer has it. `arrived` is set when it may
        have a message.
        """
        opened = await open_subscription(self._ledgers, self.name, name, mode, start, save_after_s, arrived)
        self._subscriptions = [one for one in self._subscriptions if not one.is_closed] + [opened]
        return opened

    async def subscriptions(self) -> list[str]:
        """Return the names of all subscriptions. Raise `NoSuchTopic`."""
        return await subscriptions_of(self._ledgers, self.name)

    async def delete_subscription(self, name: str) -> None:
        """Delete a subscription. A consumer that still runs fails when it saves."""
        await delete_subscription(self._ledgers, self.name, name)

    async def ledgers(self) -> tuple[LedgerInfo, ...]:
        """Return the ledgers of the topic as the metadata has them, the oldest first."""
        return (await self._list()).ledgers

    async def stats(self) -> TopicStats:
        """Return the figures of the topic now."""
        owner = self._owner
        cursors = {name: await self._position(name) for name in await self._cursors()}
        if owner is not None and not owner.has_ended:
            return TopicStats(str(self.name), owner.ledgers_now(), owner.series.current, cursors)
        known = await self.ledgers()
        ledgers = [one if one.timestamp_ms else await self._as_it_is(one) for one in known]
        return TopicStats(str(self.name), tuple(ledgers), None, cursors)

    async def _as_it_is(self, ledger: LedgerInfo) -> LedgerInfo:
        """Return a ledger that is not closed with what is confirmed of it now."""
        reader = await self._ledgers.view(ledger.ledger_id)
        last = await reader.read_last_add_confirmed()
        size = (await reader.read(last)).length if last >= 0 else 0
        return type(ledger)(ledger.ledger_id, last + 1, size, ledger.timestamp_ms, ledger.unknown)

    async def _list(self) -> ManagedLedgerInfo:
        nodes, path = self._ledgers.nodes, self.name.path
        await nodes.sync(path)
        node = await nodes.get(path)
        if isinstance(node, Gone):
            return ManagedLedgerInfo()
        return managed_ledger.decode_managed_ledger(path, node.data)

    async def _cursors(self) -> dict[str, ManagedCursorInfo]:
        """Return the nodes of all subscriptions by name."""
        nodes, path = self._ledgers.nodes, self.name.path
        await nodes.sync(path)
        children = await nodes.children(path)
        if isinstance(children, Gone):
            return {}
        paths = [f"{path}/{name}" for name in children.names]
        found = zip(children.names, paths, await nodes.get_all(paths), strict=True)
        return {
            managed_ledger.decode_name(name): managed_ledger.decode_cursor(cursor_path, node.data)
            for name, cursor_path, node in found
            if not isinstance(node, Gone)
        }

    async def _position(self, subscription: str) -> Position:
        """Return up to where a subscription has acknowledged everything; never more than it has."""
        return (await read_cursor(self._ledgers, self.name, subscription, Extents())).mark_delete

    async def _owned(self) -> TopicOwner:
        """Return the owner of the topic, and make it when it is first needed."""
        async with self._opening:
            if self._is_closed:
                raise TopicClosed(str(self.name))
            if self._owner is None:
                owner = TopicOwner(self._ledgers, self.name, self._roll_over, self._missing)
                await owner.open()
                self._owner = owner
        return self._owner

    def _forget(self, producer: AsyncProducer) -> None:
        self._producers.pop(producer.name, None)

    def _forget_named(self, producer: AsyncProducer) -> None:
        self._forget(producer)
        if producer.has_messages_under_way:
            self._abandoned[producer.name] = producer


async def open_topic(
    ledgers: TopicLedgers,
    name: TopicName,
    key_hash: KeyHash = KeyHash.JAVA_STRING,
    **options: Unpack[TopicOptions],
) -> AsyncTopic | AsyncPartitionedTopic:
    """Return the topic of that name, or if it has partitions all of them as one object."""
    topic = AsyncTopic(ledgers, name, **options)
    has_partitions = await read_partitions(ledgers, name)
    return await topic.partitioned(key_hash=key_hash) if has_partitions else topic
