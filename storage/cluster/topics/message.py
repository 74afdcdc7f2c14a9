"""A message, as an application gives it to a producer and as a reader gets it.

All are named tuples, because readers make them for each message, and frozen dataclasses take three times as
long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.cluster.wire.protobuf import decode_varint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from storage.cluster.topics.message_id import MessageId

NO_PROPERTIES: Mapping[str, str] = {}
"""Shared by all messages without properties."""


class Message(NamedTuple):
    """A payload, and what is written with it."""

    payload: bytes
    key: str | bytes | None = None
    """Chooses the partition. A key of bytes is written in base64, as brokers' clients do."""
    properties: Mapping[str, str] = NO_PROPERTIES
    ordering_key: bytes | None = None
    event_time_ms: int = 0
    """The time that the application gives to the message; 0 for none."""
    publish_time_ms: int = 0
    """The time of the producer when it wrote the entry."""
    producer_name: str = ""
    sequence_id: int = -1
    """Grows with each message of a producer; -1 as long as the producer has given none."""
    is_null: bool = False
    """The message has no value, which is not the same as an empty one: it deletes its key."""


class PlainFields(NamedTuple):
    """What plain messages of an entry have besides their payloads: from it each is made when it is wanted."""

    producer_name: str
    publish_time_ms: int
    numbers: Sequence[bytes]
    """The varints of their sequence ids."""

    def message(self, number: int, payload: bytes) -> Message:
        sequence_id = decode_varint(self.numbers[number])
        name, time_ms, _ = self
        return Message(payload, None, NO_PROPERTIES, None, 0, time_ms, name, sequence_id)


class EntryPlace(NamedTuple):
    """Where an entry was, and the fields of its messages if they are plain ones."""

    id: MessageId
    topic: str
    batch_size: int
    """The number of its messages; 0 if the entry is no batch."""
    fields: PlainFields | None


class ReceivedMessage(NamedTuple):
    """A message that was read, and where it was. It keeps no other message of its entry in memory."""

    payload: bytes
    number: int
    """How many messages are before it in its entry."""
    entry: EntryPlace
    made: Message | None = None
    """The message; `None` for a plain one, which is made when it is wanted."""
    redelivery_count: int = 0
    """How many times a subscription had delivered it before."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.topic}: {self.message}>"

    @property
    def message(self) -> Message:
        if self.made is not None:
            return self.made
        assert self.entry.fields is not None
        return self.entry.fields.message(self.number, self.payload)

    @property
    def id(self) -> MessageId:
        place = self.entry.id
        return place._replace(batch_index=self.number) if self.entry.batch_size else place

    @property
    def topic(self) -> str:
        return self.entry.topic

    @property
    def batch_size(self) -> int:
        """Messages in its entry; 0 outside a batch."""
        return self.entry.batch_size

    @property
    def key(self) -> str | bytes | None:
        return None if self.made is None else self.made.key

    @property
    def properties(self) -> Mapping[str, str]:
        return NO_PROPERTIES if self.made is None else self.made.properties
