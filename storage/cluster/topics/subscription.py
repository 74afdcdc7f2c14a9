"""A subscription: messages are delivered until they are acknowledged, also after a crash.

    exclusive   one consumer; a second one is refused while the first has it
    failover    one consumer; others wait, and the next one goes on when it is gone

An ephemeral node says that a consumer has a subscription. It is beside the nodes of the topics and not in
them, because a broker takes each child of a topic's node for a subscription.

Acknowledgements are saved together, `save_after_s` after the first of them at the latest, by `save` and by
`close`. Messages whose acknowledgements a crash loses are delivered once more.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import secrets
from collections import deque
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Self

from storage.cluster.errors import ClientClosed, SessionExpired
from storage.cluster.metadata.znodes import Created, CreateMode, Gone, NoParent
from storage.cluster.topics.cursor import Cursor
from storage.cluster.topics.cursor_store import CursorStore, read_node
from storage.cluster.topics.errors import (
    NoSuchSubscription,
    NotInTopic,
    SubscriptionBusy,
    SubscriptionFenced,
    TopicClosed,
)
from storage.cluster.topics.format import decode_entry
from storage.cluster.topics.managed_ledger import (
    NO_LEDGER,
    ManagedLedgerInfo,
    Position,
    decode_name,
    encode_managed_ledger,
    encode_name,
)
from storage.cluster.topics.message import ReceivedMessage
from storage.cluster.topics.message_id import LATEST, MessageId
from storage.cluster.topics.owner import create_with_parents, managed_name
from storage.cluster.topics.reader import AsyncTopicReader
from storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from storage.cluster.topics.cursor import Extents
    from storage.cluster.topics.ledgers_port import TopicLedgers
    from storage.cluster.topics.managed_ledger import TopicName
    from storage.cluster.topics.reader import Start, TopicEntry

_LOG = logging.getLogger("ledgerstore.topics")

CONSUMERS = "/ledgerstore-consumers"
"""The parent of the nodes of consumers."""

_READ_AHEAD = 1_000
"""Messages that wait for `receive`, at least; a batch is taken as a whole."""


class SubscriptionMode(enum.Enum):
    """What happens when another consumer has the subscription."""

    EXCLUSIVE = enum.auto()
    """`SubscriptionBusy` is raised."""
    FAILOVER = enum.auto()
    """Opening waits until it is gone."""


async def open_subscription(
    ledgers: TopicLedgers,
    name: TopicName,
    subscription: str,
    mode: SubscriptionMode = SubscriptionMode.EXCLUSIVE,
    start: Start = LATEST,
    save_after_s: float = 1.0,
    arrived: asyncio.Event | None = None,
) -> AsyncSubscription:
    """Open a subscription, or make it with `start` as its first message. The topic need not be there yet.

    `arrived` is set when `take` may have a message; several subscriptions may have the same event.
    Raise `SubscriptionBusy` if it is exclusive and another consumer has it.
    """
    if isinstance(await ledgers.nodes.get(name.path), Gone):
        await create_with_parents(ledgers.nodes, name.path, encode_managed_ledger(ManagedLedgerInfo()))
    claim = _Claim(ledgers, name, subscription)
    await claim.make(mode)
    try:
        event = arrived or asyncio.Event()
        opened = AsyncSubscription(ledgers, name, subscription, claim, save_after_s, event)
        await opened.open(start)
    except BaseException:
        await claim.end()
        raise
    return opened


async def sweep_cursors(ledgers: TopicLedgers, name: TopicName, made: Mapping[int, str]) -> list[int]:
    """Delete ledgers of cursors that no cursor names, which a crash has left. Return their ids.

    `made` are the ledgers that were created for the topic, each with its encoded cursor. Those of a cursor
    that has a consumer stay.
    """
    swept: list[int] = []
    nodes = ledgers.nodes
    for cursor in sorted(set(made.values())):
        # The claim is read before the cursor, because a consumer that ends after this has named its ledger.
        if isinstance(await nodes.get(_path_of_consumer(name, cursor)), Gone):
            node = await read_node(ledgers, name, decode_name(cursor))
            named = NO_LEDGER if node is None else node[0].cursors_ledger_id
            leaked = [one for one, its_cursor in made.items() if its_cursor == cursor and one != named]
            for ledger_id in leaked:
                await ledgers.delete(ledger_id)
            swept += leaked
    return swept


def _path_of_consumer(name: TopicName, cursor: str) -> str:
    """Return the node that the consumer of a cursor creates, given the encoded name of the cursor."""
    return f"{CONSUMERS}/{encode_name(f'{managed_name(name)}/{cursor}')}"


async def open_cursor(
    store: CursorStore, reader: AsyncTopicReader, start: Start
) -> tuple[Extents, MessageId | None]:
    """Take a subscription over, or make it with `start` as its first message.

    Return where the ledgers end, and the first message of a new subscription.
    """
    extents, place = await reader.read_extents(), None
    try:
        await store.open(extents)
    except NoSuchSubscription:
        place = await reader.move_to(start)
        extents = await reader.read_extents()
        await store.create(Cursor(str(reader.name), Position(place.ledger_id, place.entry_id - 1)))
    if store.cursor.mark_delete > extents.last:
        # A consumer that was taken for dead may have gone on until the cursor was read.
        extents = await reader.read_extents()
    reason = store.cursor.settle(extents)
    if reason:
        _LOG.warning("subscription %r of %s: %s", store.subscription, reader.name, reason)
        # The cursor is saved at once, because messages that are written later may have the places that were
        # acknowledged wrongly.
        await store.save()
    return extents, place


class _Claim:
    """The node that says which consumer has a subscription."""

    def __init__(self, ledgers: TopicLedgers, name: TopicName, subscription: str) -> None:
        self._nodes = ledgers.nodes
        self._name, self._subscription = name, subscription
        self._path = _path_of_consumer(name, encode_name(subscription))
        self.token = secrets.token_hex(8).encode()
        """Tells the node of this consumer from that of another one of the same session."""

    async def make(self, mode: SubscriptionMode) -> None:
        watch = self._nodes.watch(self._path)
        try:
            while True:
                answer = await self._nodes.create(self._path, self.token, CreateMode.EPHEMERAL)
                if isinstance(answer, Created):
                    return
                if isinstance(answer, NoParent):
                    await self._nodes.create(CONSUMERS)
                    continue
                node = await self._nodes.get(self._path)
                if isinstance(node, Gone):
                    continue
                if node.data == self.token:
                    return  # the answer to its creation was lost
                if mode is SubscriptionMode.EXCLUSIVE:
                    holder = f"another consumer, in the session {node.stat.ephemeral_owner:#x}"
                    raise SubscriptionBusy(str(self._name), self._subscription, holder)
                while not isinstance(await watch.next(), Gone):
                    pass
        finally:
            watch.close()

    async def end(self) -> None:
        # After an expired session the node may be that of the next consumer. An answer may be lost.
        while not isinstance(node := await self._nodes.get(self._path), Gone) and node.data == self.token:
            await self._nodes.delete(self._path)


class AsyncSubscription:
    """The consumer of a subscription. Leaving its block saves the acknowledgements, and ends it."""

    def __init__(
        self,
        ledgers: TopicLedgers,
        name: TopicName,
        subscription: str,
        claim: _Claim,
        save_after_s: float,
        arrived: asyncio.Event,
    ) -> None:
        self.name = name
        self.subscription = subscription
        self._ledgers = ledgers
        self._store = CursorStore(ledgers, name, subscription, claim.token)
        self._claim = claim
        self._save_after_s = save_after_s
        self._reader = AsyncTopicReader(ledgers, name)
        self._ready: deque[ReceivedMessage] = deque()
        """Messages that wait for `receive`."""
        self._delivered: dict[MessageId, tuple[int, int]] = {}
        """The messages without an acknowledgement: the size of the batch, and the count of redeliveries."""
        self._arrived = arrived
        self._has_room = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self._saving: asyncio.Task[None] | None = None
        self._save_lock = asyncio.Lock()
        self._error: StoreError | None = None
        """Why acknowledgements cannot be saved any more."""
        self._read_error: StoreError | None = None
        """Why there are no more messages. `seek` goes on at another place."""
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.subscription!r} of {self.name} at {self.cursor.mark_delete}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if kind is None:
            await self.close()
            return
        with suppress(StoreError):
            await self.close()  # what the block has raised is more useful than an error here

    @property
    def cursor(self) -> Cursor:
        """The acknowledgements, to look at."""
        return self._store.cursor

    # ── receiving ─────────────────────────────────────────────────────────────────────────────────────

    async def receive(self) -> ReceivedMessage:
        """Return the next message that is not acknowledged; wait until there is one."""
        while (message := self.take()) is None:
            self._arrived.clear()
            await self._arrived.wait()
        return message

    def take(self) -> ReceivedMessage | None:
        """Return the next message if there is one already."""
        self._check()
        if not self._ready:
            if self._read_error is not None:
                raise self._read_error
            return None
        message = self._ready.popleft()
        if len(self._ready) < _READ_AHEAD:
            self._has_room.set()
        self._delivered[message.id] = message.batch_size, message.redelivery_count
        return message

    async def receive_within(self, timeout_s: float) -> ReceivedMessage | None:
        """Return the next message; `None` if none arrives in this time."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self.receive()
        except TimeoutError:
            return None

    async def redeliver(self, message: ReceivedMessage) -> None:
        """Deliver one message again, before those that wait. It was not processed.

        Nothing happens if it waits already, or is acknowledged.
        """
        self._check()
        if message.id in self._delivered and all(one.id != message.id for one in self._ready):
            self._ready.appendleft(message._replace(redelivery_count=message.redelivery_count + 1))
            self._arrived.set()

    async def redeliver_all(self) -> None:
        """Deliver all messages again that are not acknowledged, in their order."""
        self._check()
        await self._stop_reading()
        self._restart()

    async def seek(self, start: Start) -> None:
        """Make this the next message. Earlier messages count as acknowledged, and later ones do not."""
        self._check()
        await self._stop_reading()
        place = await self._reader.move_to(start)
        await self._reader.read_extents()
        self.cursor.seek(Position(place.ledger_id, place.entry_id))
        self._delivered.clear()
        await self._pass_before(place)
        self._restart()
        async with self._save_lock:
            await self._store.save_seek()

    async def _pass_before(self, place: MessageId) -> None:
        """Acknowledge the messages of a batch that are before a place in it."""
        if place.batch_index > 0:
            await self.ack_through(place._replace(batch_index=place.batch_index - 1))

    # ── acknowledging ─────────────────────────────────────────────────────────────────────────────────

    async def ack(self, message: ReceivedMessage | MessageId) -> None:
        """Acknowledge one message; with the id of a whole entry all its messages."""
        self._check()
        message_id, size = await self._id_and_batch_size(message)
        self.cursor.acknowledge(message_id, size, self._reader.extents())
        self._delivered.pop(message_id, None)
        self._drop_acknowledged(message_id)
        self._save_soon()

    async def ack_through(self, message: ReceivedMessage | MessageId) -> None:
        """Acknowledge a message and all before it."""
        self._check()
        message_id, size = await self._id_and_batch_size(message)
        self.cursor.acknowledge_through(message_id, size, self._reader.extents())
        place = message_id if message_id.batch_index >= 0 else message_id._replace(batch_index=2**31)
        for one in [one for one in self._delivered if one <= place]:
            del self._delivered[one]
        self._drop_acknowledged(place)
        self._save_soon()

    def _drop_acknowledged(self, place: MessageId) -> None:
        """Drop messages that wait for `receive` if the one at this place may be among them."""
        if place.batch_index < 0:
            place = place._replace(batch_index=2**31)  # the whole entry
        # Ordinarily the message was received, and is before all that wait.
        if not self._ready or self._ready[0].id > place:
            return
        self._ready = deque(one for one in self._ready if self._is_left(one))
        if len(self._ready) < _READ_AHEAD:
            self._has_room.set()

    def _is_left(self, message: ReceivedMessage) -> bool:
        """Return whether a message is not acknowledged."""
        at = message.id
        left = self.cursor.remaining(Position(at.ledger_id, at.entry_id), max(message.batch_size, 1))
        return bool(left >> max(at.batch_index, 0) & 1)

    async def _id_and_batch_size(self, message: ReceivedMessage | MessageId) -> tuple[MessageId, int]:
        if isinstance(message, ReceivedMessage):
            return message.id, message.batch_size
        partition = self.name.partition_index
        if message.partition not in (-1, partition):
            raise NotInTopic(str(self.name), str(message), f"it is in the partition {message.partition}")
        message = message._replace(partition=partition)
        if message.batch_index < 0:
            return message, 0
        if message in self._delivered:
            return message, self._delivered[message][0]
        reader = await self._ledgers.view(message.ledger_id)
        payload = (await reader.read(message.entry_id)).payload
        decoded = decode_entry(payload, str(self.name), message.ledger_id, message.entry_id)
        return message, decoded.batch_size

    async def save(self) -> None:
        """Make all acknowledgements so far durable."""
        async with self._save_lock:
            if not self._store.is_saved:
                await self._store.save()

    def _save_soon(self) -> None:
        if self._saving is None and not self._store.is_saved:
            self._saving = asyncio.get_running_loop().create_task(self._save_later())

    async def _save_later(self) -> None:
        await asyncio.sleep(self._save_after_s)
        self._saving = None
        try:
            await self.save()
        except (SubscriptionFenced, NoSuchSubscription, SessionExpired, ClientClosed) as error:
            self._error = error
            self._arrived.set()
        except StoreError as error:
            _LOG.warning("subscription %r of %s is not saved: %s", self.subscription, self.name, error)
            self._save_soon()

    # ── reading ahead ─────────────────────────────────────────────────────────────────────────────────

    async def open(self, start: Start) -> None:
        """Read the acknowledgements and begin to read messages. `open_subscription` calls it."""
        extents, place = await open_cursor(self._store, self._reader, start)
        if place is not None:
            await self._pass_before(place)
        self._begin(extents)

    def _begin(self, extents: Extents) -> None:
        self._reader.rewind(extents.after(self.cursor.mark_delete))
        self._has_room.set()
        self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        try:
            async with aclosing(self._reader.follow_entries()) as entries:
                async for entry in entries:
                    self._ready.extend(self._to_deliver(entry))
                    if self._ready:
                        self._arrived.set()
                    if len(self._ready) >= _READ_AHEAD:
                        self._has_room.clear()
                    await self._has_room.wait()
        except StoreError as error:
            self._read_error = error
            self._arrived.set()

    def _to_deliver(self, entry: TopicEntry) -> list[ReceivedMessage]:
        """Return the messages of an entry that are not acknowledged."""
        position, decoded = entry.position, entry.decoded
        left = self.cursor.remaining(position, len(decoded.messages))
        if not decoded.messages:
            # A broker's own entry is never delivered, so it is passed as if it were acknowledged.
            self.cursor.acknowledge(MessageId(*position), 0, self._reader.extents())
        found = []
        for message in self._reader.received(entry):
            if left >> message.number & 1:
                before = self._delivered.get(message.id)
                found.append(message if before is None else message._replace(redelivery_count=before[1] + 1))
        return found

    def _restart(self) -> None:
        self._ready.clear()
        self._read_error = None
        self._begin(self._reader.extents())

    async def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            self._reading = None

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────

    def _check(self) -> None:
        if self._is_closed:
            raise TopicClosed(f"subscription {self.subscription!r} of {self.name}")
        if self._error is not None:
            raise self._error

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def abandon(self) -> None:
        """End at once, because the client is closed. What was not saved is delivered once more."""
        self._is_closed = True
        self._arrived.set()
        for task in (self._reading, self._saving):
            if task is not None:
                task.cancel()

    async def close(self) -> None:
        """Save the acknowledgements, and let the next consumer in."""
        if self._is_closed:
            return
        self._is_closed = True
        self._arrived.set()
        await self._stop_reading()
        if self._saving is not None:
            self._saving.cancel()
            await asyncio.gather(self._saving, return_exceptions=True)
        try:
            if self._error is None:
                async with self._save_lock:
                    await self._store.close()
        finally:
            await self._claim.end()
        if self._error is not None:
            raise self._error
