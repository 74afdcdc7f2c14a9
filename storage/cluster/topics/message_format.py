"""The fields that a message has in the metadata of its entry, and in those of a message in a batch."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from storage.cluster.topics.errors import InvalidMessageEntry
from storage.cluster.topics.message import NO_PROPERTIES, Message
from storage.cluster.wire import protobuf
from storage.cluster.wire.protobuf import FieldKind, Malformed, MessageField, MessageTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from storage.cluster.wire.protobuf import Value

KEY_VALUE = MessageTable(
    "KeyValue",
    MessageField(1, "key", FieldKind.TEXT, is_required=True),
    MessageField(2, "value", FieldKind.TEXT, is_required=True),
)

VARINT = rb"([\x80-\xff]{0,8}[\x00-\x7f])"
"""The pattern of a varint. Those of ten bytes, which may be negative numbers, are left to the tables."""


class MalformedEntry(Exception):
    """Ends a decoding. `decode_entry` adds where the entry was."""

    def __init__(self, reason: str, kind: type[InvalidMessageEntry] = InvalidMessageEntry) -> None:
        super().__init__(reason)
        self.reason, self.kind = reason, kind


class SharedMetadata(NamedTuple):
    """What all messages of an entry have in common."""

    producer_name: str
    sequence_id: int
    publish_time_ms: int


def parsed(table: MessageTable, raw: bytes) -> protobuf.ProtobufMessage:
    """Return the fields in these bytes. Raise `MalformedEntry`."""
    message = protobuf.decode(table, raw)
    if isinstance(message, Malformed):
        raise MalformedEntry(f"it is no entry of a topic: {message.reason}")
    return message


def is_plain(message: Message | bytes) -> bool:
    """Return whether a message has a payload and nothing else, as most have."""
    if not isinstance(message, Message):
        return True
    _, key, properties, ordering_key, event_time_ms, _, _, _, is_null = message
    return key is None and not properties and ordering_key is None and not event_time_ms and not is_null


def payloads_of(messages: Sequence[Message | bytes]) -> Sequence[bytes] | None:
    """Return the payloads if all messages are plain ones; `None` otherwise."""
    if is_bytes(messages):
        return messages
    return [payload_of(one) for one in messages] if all(map(is_plain, messages)) else None


def is_bytes(messages: Sequence[Message | bytes]) -> TypeGuard[Sequence[bytes]]:
    """Return whether all messages are given as bytes, which is known sooner than by asking each."""
    return set(map(type, messages)) == {bytes}


def payload_of(message: Message | bytes) -> bytes:
    return message.payload if isinstance(message, Message) else message


def fields_of(message: Message | bytes) -> dict[str, Value]:
    """Return the fields of a message that are in both kinds of metadata."""
    values: dict[str, Value] = {}
    if not isinstance(message, Message):
        return values
    if message.properties:
        values["properties"] = tuple(
            protobuf.ProtobufMessage({"key": key, "value": value})
            for key, value in message.properties.items()
        )
    if isinstance(message.key, str):
        values["partition_key"] = message.key
    elif message.key is not None:
        values["partition_key"] = base64.b64encode(message.key).decode()
        values["partition_key_b64_encoded"] = 1
    if message.ordering_key is not None:
        values["ordering_key"] = message.ordering_key
    if message.event_time_ms:
        values["event_time"] = message.event_time_ms
    if message.is_null:
        values["null_value"] = 1
    return values


def message_of(payload: bytes, own: protobuf.ProtobufMessage, head: SharedMetadata) -> Message:
    """Return a message. A single one has all its fields in the metadata of its entry."""
    properties: Mapping[str, str] = NO_PROPERTIES
    if "properties" in own:
        properties = {one.text("key"): one.text("value") for one in own.messages("properties")}
    key: str | bytes | None = own.text("partition_key") if "partition_key" in own else None
    if key is not None and own.integer("partition_key_b64_encoded"):
        try:
            key = base64.b64decode(key, validate=True)
        except (binascii.Error, ValueError):
            raise MalformedEntry("a key that is no base64") from None
    return Message(
        payload,
        key,
        properties,
        own.data("ordering_key") if "ordering_key" in own else None,
        own.integer("event_time"),
        head.publish_time_ms,
        head.producer_name,
        own.integer("sequence_id", head.sequence_id),
        bool(own.integer("null_value")),
    )
