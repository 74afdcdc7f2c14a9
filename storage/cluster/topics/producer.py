"""Producers of a topic, for coroutines: messages become entries, alone or in batches."""

from __future__ import annotations

import asyncio
import secrets
import time
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any, Self

from storage.cluster.client.driver import mark_retrieved, refuse, settle
from storage.cluster.topics.compression import Compression
from storage.cluster.topics.errors import MessageTooLarge, SequenceNotAscending, TopicClosed
from storage.cluster.topics.format import encode_entry
from storage.cluster.topics.message import Message
from storage.cluster.topics.message_format import is_bytes, payload_of
from storage.cluster.topics.message_id import MessageId
from storage.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

    from storage.cluster.topics.owner import TopicOwner

_MESSAGE_OVERHEAD = 64
"""An upper bound for the size and the metadata of a message in a batch without key and properties. Larger
metadata can only make an entry above the limit, which is refused.
"""

_PASS_COUNT = 1000
_PASS_SIZE = 1 << 20
"""Messages, or bytes of payloads, that `send_many` takes in one pass of the loop. So entries are sent while
the next ones are encoded, and other tasks are not held up."""


@dataclass(frozen=True, slots=True)
class Batching:
    """How many messages share an entry. A batch is written when it is full, or after the delay."""

    count: int = 1000
    size: int = 128 << 10
    """Bytes of payloads."""
    delay_s: float = 0.001
    """How long the first message of a batch waits for others."""

    def __post_init__(self) -> None:
        if self.count < 1 or self.size < 1 or self.delay_s < 0:
            raise InvalidConfig("batch", "count and size have to be at least 1, and the delay at least 0")


NO_BATCHES = Batching(1, 1, 0.0)
"""Each message has an entry of its own."""


class _Batch:
    """Messages that become one entry."""

    __slots__ = ("ended", "messages", "sent", "sequence_ids", "size")

    def __init__(self) -> None:
        self.messages: list[Message | bytes] = []
        self.sequence_ids: list[int] | range = []
        self.size = 0
        self.sent: list[asyncio.Future[MessageId | None]] = []
        """One for each message, or none if its caller waits for the entry."""
        self.ended: list[asyncio.Future[tuple[int, int]]] = []
        """Callers that wait for the place of the entry."""

    def take(self, message: Message | bytes, sequence_id: int) -> None:
        assert isinstance(self.sequence_ids, list), "a range is of a batch that is full"
        self.messages.append(message)
        self.sequence_ids.append(sequence_id)
        self.size += len(payload_of(message))

    def is_full(self, batching: Batching) -> bool:
        return len(self.messages) >= batching.count or self.size >= batching.size

    def has_room(self, message: Message | bytes, limit: int) -> bool:
        """Return whether the entry stays below the limit with this message. A batch takes at least one."""
        size = self.size + len(payload_of(message)) + (len(self.messages) + 1) * _MESSAGE_OVERHEAD
        return not self.messages or size <= limit


class AsyncProducer:
    """Writes messages to a topic. Leaving its block waits for the messages under way."""

    def __init__(
        self,
        owner: TopicOwner,
        name: str | None,
        batch: Batching,
        compression: Compression = Compression.NONE,
        last_sequence_id: int = -1,
        closed: Callable[[AsyncProducer], None] | None = None,
        stored: Callable[[int], None] | None = None,
    ) -> None:
        """A producer without a name gets one that no other has, and numbers its messages from 0.

        `stored` is called with the last sequence id of each entry that is durable.
        """
        self.name = name or secrets.token_hex(8)
        self._has_sequence = name is not None
        self._owner = owner
        self._partition = owner.name.partition_index
        self._batching = batch
        self._compression = compression
        self._stored = last_sequence_id
        """Messages up to this sequence id are in the topic since before this producer was opened."""
        self._last = last_sequence_id
        self._loop = asyncio.get_running_loop()
        self._batch = _Batch()
        self._timer: asyncio.TimerHandle | None = None
        self._under_way: set[_Batch] = set()
        self._on_closed = closed
        self._on_stored = stored
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self._owner.name}>"

    @property
    def last_sequence_id(self) -> int:
        """The sequence id of the last message that was given to this producer; -1 without any.

        Of a producer with a name it is at first that of its last message in the topic.
        """
        return self._last

    @property
    def has_messages_under_way(self) -> bool:
        """Whether it is not known of each message what became of it."""
        return bool(self._under_way)

    async def send(self, message: bytes | Message, sequence_id: int | None = None) -> MessageId | None:
        """Write a message, and return its id when it is durable.

        Return `None` if the producer has a name and a message with this sequence id, or a larger one, was in
        the topic before it was opened: the message is not written again.
        """
        return await (await self.submit(message, sequence_id))

    async def submit(
        self, message: bytes | Message, sequence_id: int | None = None
    ) -> asyncio.Future[MessageId | None]:
        """Write a message, and return a future of its id. Wait only while too much is under way."""
        if not self._owner.has_room():
            await self._owner.wait_for_room()
        self._check()
        one = self._message_of(message)
        number = self._next_sequence_id(sequence_id)
        sent: asyncio.Future[MessageId | None] = self._loop.create_future()
        if number <= self._stored:
            sent.set_result(None)
            return sent
        batch = self._batch
        if not batch.has_room(one, self._owner.entry_size_max):
            self._write()
            batch = self._batch
        batch.take(one, number)
        batch.sent.append(sent)
        if batch.is_full(self._batching):
            self._write()
        elif self._timer is None:
            self._timer = self._loop.call_later(self._batching.delay_s, self._write)
        return sent

    async def send_many(self, messages: Iterable[bytes | Message]) -> list[MessageId]:
        """Write messages in full batches, and return their ids when all are durable.

        Their sequence ids follow the last one.
        """
        self._write()
        self._check()
        places: deque[tuple[asyncio.Future[tuple[int, int]], int]] = deque()
        ids: list[MessageId] = []
        source, waiting = iter(messages), list[Message | bytes]()
        count = size = 0
        while True:
            waiting += self._messages_of([*islice(source, self._batching.count - len(waiting))])
            if not waiting:
                break
            if not self._owner.has_room() or count >= _PASS_COUNT or size >= _PASS_SIZE:
                await asyncio.sleep(0)
                await self._owner.wait_for_room()
                self._check()
                while places and places[0][0].done():  # what is kept costs the garbage collector time
                    place, used = places.popleft()
                    ids += self._ids(place.result(), used)
                self._write()  # other tasks may have submitted messages, whose numbers come first
                count = size = 0
            batch = _Batch()
            used, batch.size = self._fitting(waiting)
            batch.messages, waiting = waiting[:used], waiting[used:]
            batch.sequence_ids = range(self._last + 1, self._last + 1 + used)
            self._last += used
            places.append((self._place_of(batch), used))
            self._add(batch)
            count, size = count + used, size + batch.size
        for place, used in places:
            ids += self._ids(await place, used)
        return ids

    def _messages_of(self, given: list[bytes | Message]) -> Sequence[Message | bytes]:
        """Return the messages in the form in which they are encoded. Raise if one is too large."""
        if is_bytes(given) and max(map(len, given)) <= self._owner.entry_size_max:
            return given
        return [self._message_of(one) for one in given]

    def _fitting(self, messages: Sequence[Message | bytes]) -> tuple[int, int]:
        """Return how many of these messages are the next batch, and the size of their payloads."""
        if len(messages) == 1:
            return 1, len(payload_of(messages[0]))
        sizes = [*accumulate(map(len, messages if is_bytes(messages) else map(payload_of, messages)))]
        count = min(bisect_left(sizes, self._batching.size) + 1, len(sizes))
        limit = self._owner.entry_size_max
        while count > 1 and sizes[count - 1] + count * _MESSAGE_OVERHEAD > limit:
            count -= 1
        return count, sizes[count - 1]

    async def flush(self) -> None:
        """Write the messages that wait for others, and return when all messages given before are durable.

        Raise if one of them has failed.
        """
        self._write()
        for place in [self._place_of(batch) for batch in self._under_way]:
            await place

    async def close(self) -> None:
        """Wait for the messages under way. Raise if one of them has failed."""
        if self._is_closed:
            return
        try:
            await self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Take no more messages. Those that wait for others to share an entry are written."""
        self._write()
        self._is_closed = True
        if self._on_closed is not None:
            self._on_closed(self)

    async def settle(self) -> None:
        """Wait until it is known what became of each message. The callers of `send` get the errors."""
        places = [self._place_of(batch) for batch in self._under_way]
        await asyncio.gather(*places, return_exceptions=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        if kind is None:
            await self.close()
        else:
            self.abandon()

    # ── messages to entries ───────────────────────────────────────────────────────────────────────────

    def _check(self) -> None:
        """Raise if no message can be written any more."""
        if self._is_closed:
            raise TopicClosed(f"producer {self.name!r} of {self._owner.name}")
        self._owner.check()

    def _message_of(self, message: bytes | Message) -> Message | bytes:
        """Return the message; a buffer as bytes, because it may be reused. Raise if it is too large."""
        if type(message) is not bytes and not isinstance(message, Message):
            message = bytes(memoryview(message))
        size, limit = len(payload_of(message)), self._owner.entry_size_max
        if size > limit and self._compression is Compression.NONE:
            raise MessageTooLarge(size, limit, str(self._owner.name))
        return message

    def _next_sequence_id(self, given: int | None) -> int:
        number = self._last + 1 if given is None else given
        # A message from before may be sent again, and is then dropped.
        if number <= self._last and not (self._has_sequence and number <= self._stored):
            raise SequenceNotAscending(str(self._owner.name), self.name, number, self._last)
        self._last = max(self._last, number)
        return number

    def _write(self) -> None:
        """Write the batch, and tell the callers of its messages."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch, self._batch = self._batch, _Batch()
        if not batch.messages:
            return
        self._add(batch)

    def _add(self, batch: _Batch) -> None:
        """Encode a batch and add it to the topic."""
        self._under_way.add(batch)
        try:
            entry = encode_entry(
                batch.messages,
                producer_name=self.name,
                sequence_ids=batch.sequence_ids,
                publish_time_ms=int(time.time() * 1000),
                compression=self._compression,
            )
            self._owner.add(entry, partial(self._ended, batch))
        except Exception as error:
            # The callers of the messages get it.
            self._ended(batch, error)

    def _ended(self, batch: _Batch, outcome: tuple[int, int] | Exception) -> None:
        """Tell the callers of a batch what became of it."""
        self._under_way.discard(batch)
        if isinstance(outcome, Exception):
            waiting: list[asyncio.Future[Any]] = [*batch.sent, *batch.ended]
            for one in waiting:
                # Each caller gets an error of its own, because a raised error keeps its traceback.
                refuse(one, type(outcome)(*outcome.args))
                mark_retrieved(one)
            return
        if self._on_stored is not None:
            self._on_stored(batch.sequence_ids[-1])
        for place in batch.ended:
            settle(place, outcome)
        if batch.sent:
            ids = self._ids(outcome, len(batch.messages))
            for sent, message_id in zip(batch.sent, ids, strict=True):
                settle(sent, message_id)

    def _place_of(self, batch: _Batch) -> asyncio.Future[tuple[int, int]]:
        """Return a future of the place of a batch."""
        place: asyncio.Future[tuple[int, int]] = self._loop.create_future()
        batch.ended.append(place)
        return place

    def _ids(self, place: tuple[int, int], count: int) -> list[MessageId]:
        ledger_id, entry_id = place
        partition = self._partition
        if count == 1:
            return [MessageId(ledger_id, entry_id, partition)]
        return MessageId(ledger_id, entry_id, partition).of_batch(count)
