"""The bytes of an entry of a topic: those that a broker writes for its clients.

    entry    = [broker entry] [checksum] u32 size, message metadata, payload         (numbers are big-endian)
    broker   = 0x0e02, u32 size, BrokerEntryMetadata        only if a broker is configured to add it
    checksum = 0x0e01, u32 CRC-32C of everything after it

    payload  of a single message: its bytes
             of a batch: for each message   u32 size, SingleMessageMetadata, its bytes
             compressed as a whole, if the metadata says so

`num_messages_in_batch` in the metadata marks a batch. A batch of one message is still a batch: its message
has the index 0 and not -1. Fields that this module does not name are not kept.
"""

from __future__ import annotations

import base64
import binascii
import enum
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from storage.cluster.topics.compression import Compression, NotDecompressed, compress, decompress
from storage.cluster.topics.errors import (
    BatchCountWrong,
    EntryChecksumWrong,
    InvalidMessageEntry,
    UnknownCompression,
    UnsupportedMessage,
)
from storage.cluster.topics.message import NO_PROPERTIES, Message
from storage.cluster.wire import protobuf
from storage.cluster.wire.protobuf import FieldKind, Malformed, MessageField, MessageTable, encode_varint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from storage.cluster.topics.message_id import MessageId
    from storage.cluster.wire.protobuf import Value

__all__ = [
    "UNCOMPRESSED_SIZE_MAX",
    "BrokerEntry",
    "Compression",
    "DecodedEntry",
    "Framing",
    "decode_entry",
    "encode_entry",
]

UNCOMPRESSED_SIZE_MAX = 1 << 27
"""Bytes of a payload before its compression, so that a damaged size does not take all memory."""

_MAGIC_BROKER = b"\x0e\x02"
_MAGIC_CHECKSUM = b"\x0e\x01"

_INTEGER, _TEXT, _BYTES, _MESSAGE = FieldKind.INTEGER, FieldKind.TEXT, FieldKind.BYTES, FieldKind.MESSAGE

KEY_VALUE = MessageTable(
    "KeyValue",
    MessageField(1, "key", _TEXT, is_required=True),
    MessageField(2, "value", _TEXT, is_required=True),
)
_METADATA = MessageTable(
    "MessageMetadata",
    MessageField(1, "producer_name", _TEXT, is_required=True),
    MessageField(2, "sequence_id", _INTEGER, is_required=True),
    MessageField(3, "publish_time", _INTEGER, is_required=True),
    MessageField(4, "properties", _MESSAGE, KEY_VALUE, is_repeated=True),
    MessageField(6, "partition_key", _TEXT),
    MessageField(8, "compression", _INTEGER),
    MessageField(9, "uncompressed_size", _INTEGER),
    MessageField(11, "num_messages_in_batch", _INTEGER),
    MessageField(12, "event_time", _INTEGER),
    MessageField(13, "encryption_keys", _BYTES, is_repeated=True),
    MessageField(17, "partition_key_b64_encoded", _INTEGER),
    MessageField(18, "ordering_key", _BYTES),
    MessageField(20, "marker_type", _INTEGER),
    MessageField(22, "txnid_least_bits", _INTEGER),
    MessageField(23, "txnid_most_bits", _INTEGER),
    MessageField(24, "highest_sequence_id", _INTEGER),
    MessageField(25, "null_value", _INTEGER),
    MessageField(27, "num_chunks_from_msg", _INTEGER),
    MessageField(31, "compacted_batch_indexes", _INTEGER, is_repeated=True),
)
_SINGLE = MessageTable(
    "SingleMessageMetadata",
    MessageField(1, "properties", _MESSAGE, KEY_VALUE, is_repeated=True),
    MessageField(2, "partition_key", _TEXT),
    MessageField(3, "payload_size", _INTEGER, is_required=True),
    MessageField(4, "compacted_out", _INTEGER),
    MessageField(5, "event_time", _INTEGER),
    MessageField(6, "partition_key_b64_encoded", _INTEGER),
    MessageField(7, "ordering_key", _BYTES),
    MessageField(8, "sequence_id", _INTEGER),
    MessageField(9, "null_value", _INTEGER),
)
_BROKER = MessageTable(
    "BrokerEntryMetadata",
    MessageField(1, "timestamp", _INTEGER),
    MessageField(2, "index", _INTEGER),
)


class Framing(enum.Enum):
    """How messages are put into an entry."""

    BY_COUNT = enum.auto()
    """One message alone, several as a batch: as brokers' clients do."""
    BATCH = enum.auto()
    """Always as a batch, so that each message has an index."""


@dataclass(frozen=True, slots=True)
class BrokerEntry:
    """What a broker adds to an entry if it is configured to."""

    timestamp_ms: int | None = None
    index: int | None = None
    """The number of the entry's last message in its topic."""


class DecodedEntry(NamedTuple):
    """The messages of an entry. A named tuple, because a frozen dataclass takes three times as long."""

    messages: tuple[Message, ...]
    """None if the entry is a marker."""
    is_batch: bool
    compression: Compression
    producer_name: str
    publish_time_ms: int
    sequence_id: int
    """That of the first message."""
    highest_sequence_id: int
    """That of the last message."""
    broker: BrokerEntry | None = None
    marker_type: int | None = None
    """Set in an entry that a broker wrote for itself, and that readers pass over."""

    @property
    def batch_size(self) -> int:
        """The number of messages of a batch; 0 if it is none."""
        return len(self.messages) if self.is_batch else 0

    def ids(self, entry: MessageId) -> list[MessageId]:
        """Return the ids of the messages, given that of the entry."""
        if not self.is_batch:
            return [entry] * len(self.messages)
        return entry.of_batch(len(self.messages))


# ── encoding ─────────────────────────────────────────────────────────────────────────────────────────────


def encode_entry(
    messages: Sequence[Message],
    *,
    producer_name: str,
    sequence_ids: Sequence[int],
    publish_time_ms: int,
    compression: Compression = Compression.NONE,
    framing: Framing = Framing.BY_COUNT,
    broker: BrokerEntry | None = None,
) -> bytes:
    """Return the entry of these messages, each with its sequence id.

    Name, time and sequence ids are the producer's, and those in the messages are not looked at. The sequence
    ids of a batch have to grow.
    """
    assert messages, "an entry has at least one message"
    assert len(messages) == len(sequence_ids), "each message has a sequence id"
    first = messages[0]
    if (
        len(messages) == 1
        and framing is Framing.BY_COUNT
        and compression is Compression.NONE
        and broker is None
        and _is_plain(first)
    ):
        return _plain_entry(first.payload, producer_name, sequence_ids[0], publish_time_ms)
    values: dict[str, Value] = {
        "producer_name": producer_name,
        "sequence_id": sequence_ids[0],
        "publish_time": publish_time_ms,
    }
    if len(messages) == 1 and framing is Framing.BY_COUNT:
        values |= _of_message(first)
        payload = first.payload
        values["uncompressed_size"] = len(payload)
    else:
        assert all(one < other for one, other in pairwise(sequence_ids)), "sequence ids grow"
        # The keys of the first message, because a broker chooses a consumer by them.
        values |= {name: value for name, value in _of_message(first).items() if name in _KEYS}
        values["num_messages_in_batch"] = len(messages)
        values["highest_sequence_id"] = sequence_ids[-1]
        payload = _batch(messages, sequence_ids)
    if compression is not Compression.NONE:
        values["compression"] = compression.value
        values["uncompressed_size"] = len(payload)
        payload = compress(compression, payload)
    metadata = protobuf.encode(_METADATA, protobuf.ProtobufMessage(values))
    size = len(metadata).to_bytes(4, "big")
    checksum = crc32c(payload, crc32c(metadata, crc32c(size))).to_bytes(4, "big")
    return b"".join((_broker_bytes(broker), _MAGIC_CHECKSUM, checksum, size, metadata, payload))


_KEYS = {"partition_key", "partition_key_b64_encoded", "ordering_key"}


def _is_plain(message: Message) -> bool:
    """Return whether a message has a payload and nothing else, as most have."""
    _, key, properties, ordering_key, event_time_ms, _, _, _, is_null = message
    return key is None and not properties and ordering_key is None and not event_time_ms and not is_null


def _plain_entry(payload: bytes, producer_name: str, sequence_id: int, publish_time_ms: int) -> bytes:
    """Return the entry of a plain message. The table takes five times as long."""
    name = producer_name.encode()
    metadata = b"\x0a%b%b\x10%b\x18%b\x48%b" % (
        encode_varint(len(name)),
        name,
        encode_varint(sequence_id),
        encode_varint(publish_time_ms),
        encode_varint(len(payload)),
    )
    size = len(metadata).to_bytes(4, "big")
    checksum = crc32c(payload, crc32c(metadata, crc32c(size))).to_bytes(4, "big")
    return b"".join((_MAGIC_CHECKSUM, checksum, size, metadata, payload))


def _of_message(message: Message) -> dict[str, Value]:
    """Return the fields that the metadata of an entry and of a message in a batch have in common."""
    values: dict[str, Value] = {}
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


def _batch(messages: Sequence[Message], sequence_ids: Sequence[int]) -> bytes:
    """Return the messages of a batch, each after its size and metadata."""
    parts: list[bytes] = []
    size, size_field = -1, b""
    for message, sequence_id in zip(messages, sequence_ids, strict=True):
        payload, key, properties, ordering_key, event_time_ms, _, _, _, is_null = message
        if key is None and not properties and ordering_key is None and not event_time_ms and not is_null:
            # Most messages have nothing else, and the table takes five times as long.
            if len(payload) != size:
                size = len(payload)
                size_field = b"\x18%b\x40" % encode_varint(size)
            metadata = size_field + encode_varint(sequence_id)
            parts += (_PLAIN_SIZES[len(metadata)], metadata, payload)
        else:
            own = {"payload_size": len(payload), "sequence_id": sequence_id, **_of_message(message)}
            metadata = protobuf.encode(_SINGLE, protobuf.ProtobufMessage(own))
            parts += (len(metadata).to_bytes(4, "big"), metadata, payload)
    return b"".join(parts)


_PLAIN_SIZES = [size.to_bytes(4, "big") for size in range(23)]
"""The sizes that metadata of two keys and two varints can have."""


def _broker_bytes(broker: BrokerEntry | None) -> bytes:
    if broker is None:
        return b""
    pairs = {"timestamp": broker.timestamp_ms, "index": broker.index}
    values: dict[str, Value] = {name: value for name, value in pairs.items() if value is not None}
    metadata = protobuf.encode(_BROKER, protobuf.ProtobufMessage(values))
    return _MAGIC_BROKER + len(metadata).to_bytes(4, "big") + metadata


# ── decoding ─────────────────────────────────────────────────────────────────────────────────────────────


class _MalformedEntry(Exception):
    """Ends a decoding. `decode_entry` adds where the entry was."""

    def __init__(self, reason: str, kind: type[InvalidMessageEntry] = InvalidMessageEntry) -> None:
        super().__init__(reason)
        self.reason, self.kind = reason, kind


def decode_entry(data: bytes, topic: str = "", ledger_id: int = -1, entry_id: int = -1) -> DecodedEntry:
    """Return the messages of an entry.

    Raise `InvalidMessageEntry` or one of its kinds, which name topic, ledger and entry;
    `CompressionUnavailable` if only the package of the compression is missing.
    """
    try:
        return _decode(data)
    except _MalformedEntry as flaw:
        raise flaw.kind(topic, ledger_id, entry_id, flaw.reason) from None


def _decode(data: bytes) -> DecodedEntry:
    at, broker = 0, None
    if data.startswith(_MAGIC_BROKER):
        raw, at = _sized(data, 2, "broker entry metadata")
        values = _table(_BROKER, raw)
        present = [values.integer(name) if name in values else None for name in ("timestamp", "index")]
        broker = BrokerEntry(*present)
    if data.startswith(_MAGIC_CHECKSUM, at):
        if len(data) < at + 6:
            raise _MalformedEntry("it ends in its checksum")
        written = int.from_bytes(data[at + 2 : at + 6], "big")
        at += 6
        computed = crc32c(memoryview(data)[at:])
        if written != computed:
            raise _MalformedEntry(f"checksum {computed:08x} instead of {written:08x}", EntryChecksumWrong)
    raw, at = _sized(data, at, "message metadata")
    head = _plain_head(raw)
    if head is not None:
        name, sequence_id, publish_time_ms, count, highest = head
        if count is None:
            payload = data[at:]
            messages: tuple[Message, ...] = (
                Message(payload, None, NO_PROPERTIES, None, 0, publish_time_ms, name, sequence_id),
            )
        else:
            messages = _messages(data[at:], count, head)
        return DecodedEntry(
            messages,
            count is not None,
            Compression.NONE,
            name,
            publish_time_ms,
            sequence_id,
            max(sequence_id, highest),
            broker,
        )
    metadata = _table(_METADATA, raw)
    _refuse_unsupported(metadata)
    sequence_id = metadata.integer("sequence_id")
    count = metadata.integer("num_messages_in_batch") if "num_messages_in_batch" in metadata else None
    head = _SharedMetadata(
        metadata.text("producer_name"), sequence_id, metadata.integer("publish_time"), count
    )
    compression = Compression.NONE
    messages = ()
    if "marker_type" not in metadata:
        try:
            compression = Compression(metadata.integer("compression"))
        except ValueError:
            number = metadata.integer("compression")
            raise _MalformedEntry(f"compression {number} is not known", UnknownCompression) from None
        payload = _payload(compression, data, at, metadata.integer("uncompressed_size"))
        messages = (_message(payload, metadata, head),) if count is None else _messages(payload, count, head)
    return DecodedEntry(
        messages,
        count is not None,
        compression,
        head.producer_name,
        head.publish_time_ms,
        sequence_id,
        max(sequence_id, metadata.integer("highest_sequence_id", sequence_id)),
        broker,
        metadata.integer("marker_type") if "marker_type" in metadata else None,
    )


class _SharedMetadata(NamedTuple):
    """What all messages of an entry have in common."""

    producer_name: str
    sequence_id: int
    publish_time_ms: int
    batch_count: int | None
    """The messages of a batch; `None` if it is none."""
    highest: int = -1
    """The sequence id of the last message of a batch, if it is written."""


_VARINT = rb"([\x80-\xff]{0,8}[\x00-\x7f])"
_PLAIN_HEAD = re.compile(
    rb"\x10%b\x18%b(?:\x48[\x80-\xff]{0,8}[\x00-\x7f])?(?:\x58%b\xc0\x01%b)?" % ((_VARINT,) * 4)
)
"""The metadata of an entry after the producer's name: sequence id and time, perhaps the size of the payload,
and for a batch the number of its messages and the last sequence id. Each varint but the size is a group.
"""


def _plain_head(metadata: bytes) -> _SharedMetadata | None:
    """Return what the metadata of an entry without compression and keys have; `None` for any others.

    Most entries have nothing else, and the table takes three times as long.
    """
    if len(metadata) < 2 or metadata[0] != 0x0A or metadata[1] >= 0x80:
        return None
    begin = 2 + metadata[1]
    found = _PLAIN_HEAD.fullmatch(metadata, begin)
    if found is None:
        return None
    try:
        name = metadata[2:begin].decode()
    except UnicodeDecodeError:
        return None  # the table says what is wrong
    number = protobuf.decode_varint
    sequence_id, time_ms, count, highest = found.groups()
    if count is None:
        return _SharedMetadata(name, number(sequence_id), number(time_ms), None)
    return _SharedMetadata(name, number(sequence_id), number(time_ms), number(count), number(highest))


def _sized(data: bytes, at: int, name: str) -> tuple[bytes, int]:
    """Return the bytes after a size, and where they end."""
    begin = at + 4
    end = begin + int.from_bytes(data[at:begin], "big")
    if begin > len(data) or end > len(data):
        raise _MalformedEntry(f"it is no entry of a topic: the {name} would end after it")
    return data[begin:end], end


def _table(table: MessageTable, raw: bytes) -> protobuf.ProtobufMessage:
    message = protobuf.decode(table, raw)
    if isinstance(message, Malformed):
        raise _MalformedEntry(f"it is no entry of a topic: {message.reason}")
    return message


def _refuse_unsupported(metadata: protobuf.ProtobufMessage) -> None:
    kind = ""
    if metadata.integer("num_chunks_from_msg") > 1:
        kind = "chunked"
    elif "encryption_keys" in metadata:
        kind = "encrypted"
    elif "compacted_batch_indexes" in metadata:
        kind = "compacted"
    elif "marker_type" not in metadata and ("txnid_least_bits" in metadata or "txnid_most_bits" in metadata):
        kind = "transactional"
    if kind:
        raise _MalformedEntry(f"{kind} messages are not supported", UnsupportedMessage)


def _payload(compression: Compression, data: bytes, at: int, size: int) -> bytes:
    if compression is Compression.NONE:
        return data[at:]
    if not 0 <= size <= UNCOMPRESSED_SIZE_MAX:
        raise _MalformedEntry(f"{size} bytes before the compression; the limit is {UNCOMPRESSED_SIZE_MAX}")
    try:
        return decompress(compression, memoryview(data)[at:], size)
    except NotDecompressed as error:
        raise _MalformedEntry(f"{compression.name.lower()}: {error}") from error


def _message(payload: bytes, own: protobuf.ProtobufMessage, head: _SharedMetadata) -> Message:
    """Return a message. A single one has all its fields in the metadata of its entry."""
    properties: Mapping[str, str] = NO_PROPERTIES
    if "properties" in own:
        properties = {one.text("key"): one.text("value") for one in own.messages("properties")}
    key: str | bytes | None = own.text("partition_key") if "partition_key" in own else None
    if key is not None and own.integer("partition_key_b64_encoded"):
        try:
            key = base64.b64decode(key, validate=True)
        except (binascii.Error, ValueError):
            raise _MalformedEntry("a key that is no base64") from None
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


def _messages(payload: bytes, count: int, head: _SharedMetadata) -> tuple[Message, ...]:
    """Return the messages of a batch, which has to consist of just so many."""
    producer_name, publish_time_ms = head.producer_name, head.publish_time_ms
    messages: list[Message] = []
    at, end = 0, len(payload)
    size, size_field, sequence_field = 0, b"", b""
    make, plain = tuple.__new__, _PLAIN_METADATA.match
    # Each message has at least six bytes, so a count that is too large is not tried.
    if not 1 <= count <= end // 6:
        raise _MalformedEntry(f"a batch of {count} messages in {end} bytes", BatchCountWrong)
    while at < end and len(messages) < count:
        found, own = plain(payload, at), None
        if found is not None and (body := found.end()) == at + 4 + payload[at + 3]:
            field, sequence_field = found.groups()
            if field != size_field:
                size_field = field
                size = protobuf.decode_varint(field)
        else:
            begin = at + 4
            body = begin + int.from_bytes(payload[at:begin], "big")
            if body > end:
                raise _MalformedEntry(
                    f"the batch ends in its message {len(messages)} of {count}", BatchCountWrong
                )
            own = _table(_SINGLE, payload[begin:body])
            if own.integer("compacted_out"):
                raise _MalformedEntry("compacted messages are not supported", UnsupportedMessage)
            size, size_field = own.integer("payload_size"), b""
        at = body + size
        if size < 0 or at > end:
            raise _MalformedEntry(
                f"the batch ends in its message {len(messages)} of {count}", BatchCountWrong
            )
        if own is not None:
            messages.append(_message(payload[body:at], own, head))
        else:
            # The constructor is a function of Python, and takes twice as long.
            messages.append(
                make(
                    Message,
                    (
                        payload[body:at],
                        None,
                        NO_PROPERTIES,
                        None,
                        0,
                        publish_time_ms,
                        producer_name,
                        protobuf.decode_varint(sequence_field),
                        False,
                    ),
                )
            )
    if at < end or len(messages) < count:
        more = "more" if at < end else len(messages)
        raise _MalformedEntry(f"the batch has {more} messages instead of {count}", BatchCountWrong)
    return tuple(messages)


_PLAIN_METADATA = re.compile(rb"\0\0\0[\x04-\x14]\x18%b\x40%b" % (_VARINT, _VARINT))
"""Metadata of a size and a sequence id only, in this order, after its own size: both varints are groups.

Most messages have nothing else, and the table takes five times as long. Varints of ten bytes, which may be
negative numbers, are left to the table.
"""
