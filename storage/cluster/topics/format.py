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
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

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


@dataclass(frozen=True, slots=True)
class DecodedEntry:
    """The messages of an entry."""

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
        make, (ledger_id, entry_id, partition, _) = type(entry), entry
        return [make(ledger_id, entry_id, partition, index) for index in range(len(self.messages))]


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
    metadata = protobuf.encode(_METADATA, protobuf.Message(values))
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
            protobuf.Message({"key": key, "value": value}) for key, value in message.properties.items()
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
    for message, sequence_id in zip(messages, sequence_ids, strict=True):
        payload, key, properties, ordering_key, event_time_ms, _, _, _, is_null = message
        if key is None and not properties and ordering_key is None and not event_time_ms and not is_null:
            # Most messages have nothing else, and the table takes five times as long.
            metadata = b"\x18%b\x40%b" % (encode_varint(len(payload)), encode_varint(sequence_id))
        else:
            own = {"payload_size": len(payload), "sequence_id": sequence_id, **_of_message(message)}
            metadata = protobuf.encode(_SINGLE, protobuf.Message(own))
        parts += (len(metadata).to_bytes(4, "big"), metadata, payload)
    return b"".join(parts)


def _broker_bytes(broker: BrokerEntry | None) -> bytes:
    if broker is None:
        return b""
    pairs = {"timestamp": broker.timestamp_ms, "index": broker.index}
    values: dict[str, Value] = {name: value for name, value in pairs.items() if value is not None}
    metadata = protobuf.encode(_BROKER, protobuf.Message(values))
    return _MAGIC_BROKER + len(metadata).to_bytes(4, "big") + metadata


# ── decoding ─────────────────────────────────────────────────────────────────────────────────────────────


class _Flaw(Exception):
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
    except _Flaw as flaw:
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
            raise _Flaw("it ends in its checksum")
        written = int.from_bytes(data[at + 2 : at + 6], "big")
        at += 6
        computed = crc32c(memoryview(data)[at:])
        if written != computed:
            raise _Flaw(f"checksum {computed:08x} instead of {written:08x}", EntryChecksumWrong)
    raw, at = _sized(data, at, "message metadata")
    metadata = _table(_METADATA, raw)
    _refuse_unsupported(metadata)
    count = metadata.integer("num_messages_in_batch", 1)
    sequence_id = metadata.integer("sequence_id")
    compression = Compression.NONE
    messages: tuple[Message, ...] = ()
    if "marker_type" not in metadata:
        try:
            compression = Compression(metadata.integer("compression"))
        except ValueError:
            number = metadata.integer("compression")
            raise _Flaw(f"compression {number} is not known", UnknownCompression) from None
        payload = _payload(compression, data, at, metadata.integer("uncompressed_size"))
        if "num_messages_in_batch" in metadata:
            messages = _messages(payload, count, metadata)
        else:
            messages = (_message(payload, metadata, metadata),)
    return DecodedEntry(
        messages,
        "num_messages_in_batch" in metadata,
        compression,
        metadata.text("producer_name"),
        metadata.integer("publish_time"),
        sequence_id,
        max(sequence_id, metadata.integer("highest_sequence_id", sequence_id)),
        broker,
        metadata.integer("marker_type") if "marker_type" in metadata else None,
    )


def _sized(data: bytes, at: int, name: str) -> tuple[bytes, int]:
    """Return the bytes after a size, and where they end."""
    begin = at + 4
    end = begin + int.from_bytes(data[at:begin], "big")
    if begin > len(data) or end > len(data):
        raise _Flaw(f"it is no entry of a topic: the {name} would end after it")
    return data[begin:end], end


def _table(table: MessageTable, raw: bytes) -> protobuf.Message:
    message = protobuf.decode(table, raw)
    if isinstance(message, Malformed):
        raise _Flaw(f"it is no entry of a topic: {message.reason}")
    return message


def _refuse_unsupported(metadata: protobuf.Message) -> None:
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
        raise _Flaw(f"{kind} messages are not supported", UnsupportedMessage)


def _payload(compression: Compression, data: bytes, at: int, size: int) -> bytes:
    if compression is Compression.NONE:
        return data[at:]
    if not 0 <= size <= UNCOMPRESSED_SIZE_MAX:
        raise _Flaw(f"{size} bytes before the compression; the limit is {UNCOMPRESSED_SIZE_MAX}")
    try:
        return decompress(compression, memoryview(data)[at:], size)
    except NotDecompressed as error:
        raise _Flaw(f"{compression.name.lower()}: {error}") from error


def _message(payload: bytes, own: protobuf.Message, metadata: protobuf.Message) -> Message:
    """Return a message. A single one has all its fields in the metadata of its entry."""
    properties: Mapping[str, str] = NO_PROPERTIES
    if "properties" in own:
        properties = {one.text("key"): one.text("value") for one in own.messages("properties")}
    key: str | bytes | None = own.text("partition_key") if "partition_key" in own else None
    if key is not None and own.integer("partition_key_b64_encoded"):
        try:
            key = base64.b64decode(key, validate=True)
        except (binascii.Error, ValueError):
            raise _Flaw("a key that is no base64") from None
    return Message(
        payload,
        key,
        properties,
        own.data("ordering_key") if "ordering_key" in own else None,
        own.integer("event_time"),
        metadata.integer("publish_time"),
        metadata.text("producer_name"),
        own.integer("sequence_id", metadata.integer("sequence_id")),
        bool(own.integer("null_value")),
    )


def _messages(payload: bytes, count: int, metadata: protobuf.Message) -> tuple[Message, ...]:
    """Return the messages of a batch, which has to consist of just so many."""
    publish_time_ms, producer_name = metadata.integer("publish_time"), metadata.text("producer_name")
    messages: list[Message] = []
    at, end = 0, len(payload)
    # Each message has at least six bytes, so a count that is too large is not tried.
    if not 1 <= count <= end // 6:
        raise _Flaw(f"a batch of {count} messages in {end} bytes", BatchCountWrong)
    while at < end and len(messages) < count:
        begin = at + 4
        body = begin + int.from_bytes(payload[at:begin], "big")
        if body > end:
            raise _Flaw(f"the batch ends in its message {len(messages)} of {count}", BatchCountWrong)
        size, sequence_id = _size_and_sequence_id(payload[begin:body])
        own = None
        if sequence_id < 0:
            own = _table(_SINGLE, payload[begin:body])
            if own.integer("compacted_out"):
                raise _Flaw("compacted messages are not supported", UnsupportedMessage)
            size = own.integer("payload_size")
        at = body + size
        if size < 0 or at > end:
            raise _Flaw(f"the batch ends in its message {len(messages)} of {count}", BatchCountWrong)
        if own is None:
            messages.append(
                Message(
                    payload[body:at],
                    None,
                    NO_PROPERTIES,
                    None,
                    0,
                    publish_time_ms,
                    producer_name,
                    sequence_id,
                )
            )
        else:
            messages.append(_message(payload[body:at], own, metadata))
    if at < end or len(messages) < count:
        more = "more" if at < end else len(messages)
        raise _Flaw(f"the batch has {more} messages instead of {count}", BatchCountWrong)
    return tuple(messages)


def _size_and_sequence_id(metadata: bytes) -> tuple[int, int]:
    """Return both if a message's metadata has these two fields only, in this order; otherwise 0 and -1.

    Most messages have nothing else, and the table takes five times as long.
    """
    end = len(metadata)
    if end < 4 or metadata[0] != 0x18:
        return 0, -1
    at = 1
    while at < end - 1 and metadata[at] >= 0x80:
        at += 1
    at += 1
    # More than nine bytes may be a negative number.
    if at > 9 or at >= end or metadata[at] != 0x40 or not 1 <= end - at - 1 <= 9:
        return 0, -1
    rest = metadata[at + 1 :]
    if rest[-1] >= 0x80 or any(byte < 0x80 for byte in rest[:-1]):
        return 0, -1
    return protobuf.decode_varint(metadata[1:at]), protobuf.decode_varint(rest)
