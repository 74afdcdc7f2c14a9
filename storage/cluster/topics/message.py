"""A message, as an application gives it to a producer and as a reader gets it.

Both are named tuples, because readers make two for each message, and frozen dataclasses take three times as
long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

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


class ReceivedMessage(NamedTuple):
    """A message that was read, and where it was."""

    message: Message
    id: MessageId
    topic: str
    batch_size: int = 0
    """Messages in its entry; 0 outside a batch."""
    redelivery_count: int = 0
    """How many times a subscription had delivered it before."""

    @property
    def payload(self) -> bytes:
        return self.message.payload

    @property
    def key(self) -> str | bytes | None:
        return self.message.key

    @property
    def properties(self) -> Mapping[str, str]:
        return self.message.properties
