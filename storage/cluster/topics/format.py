"""The bytes of an entry of a topic: those that a broker writes for its clients.

    entry    = [broker entry] [checksum] u32 size, message metadata, payload         (numbers are big-endian)
    broker   = 0x0e02, u32 size, BrokerEntryMetadata        only if a broker is configured to add it
    checksum = 0x0e01, u32 CRC-32C of everything after it

    payload  of a single message: its bytes
             of a batch: its messages one after the other (batch_format)
             compressed as a whole, if the metadata says so

`num_messages_in_batch` in the metadata marks a batch. A batch of one message is still a batch: its message
has the index 0 and not -1. Fields that this module does not name are not kept.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, repeat
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from storage.cluster.topics.batch_format import PlainMessages, decode_batch, encode_batch
from storage.cluster.topics.compression import Compression, NotDecompressed, compress, decompress
from storage.cluster.topics.errors import (
    EntryChecksumWrong,
    UnknownCompression,
    UnsupportedMessage,
)
from storage.cluster.topics.message import NO_PROPERTIES, EntryPlace, Message, ReceivedMessage
from storage.cluster.topics.message_format import (
    KEY_VALUE,
    VARINT,
    MalformedEntry,
    SharedMetadata,
    fields_of,
    is_plain,
    message_of,
    parsed,
    payload_of,
)
from storage.cluster.wire import protobuf
from storage.cluster.wire.protobuf import FieldKind, MessageField, MessageTable, encode_varint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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

    messages: Sequence[Message]
    """Empty if the entry is a marker."""
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
    def payloads(self) -> Sequence[bytes]:
        """The payloads of the messages."""
        messages = self.messages
        return messages.payloads if type(messages) is PlainMessages else [one.payload for one in messages]

    @property
    def batch_size(self) -> int:
        """The number of messages of a batch; 0 if it is none."""
        return len(self.messages) if self.is_batch else 0

    def received(self, place: MessageId, topic: str) -> list[ReceivedMessage]:
        """Return the messages as a reader gives them, given the id of the entry."""
        messages, make = self.messages, tuple.__new__
        if not self.is_batch:
            # Constructors are functions of Python, and take twice as long.
            entry = make(EntryPlace, (place, topic, 0, None))
            return [make(ReceivedMessage, (one.payload, 0, entry, one, 0)) for one in messages]
        fields = messages.fields if type(messages) is PlainMessages else None
        own: Iterable[Message | None] = messages if fields is None else repeat(None)
        count = len(messages)
        entry = EntryPlace(place, topic, count, fields)
        rows = zip(self.payloads, range(count), repeat(entry), own, repeat(0), strict=False)
        return [*map(make, repeat(ReceivedMessage), rows)]


# ── encoding ─────────────────────────────────────────────────────────────────────────────────────────────


def encode_entry(
    messages: Sequence[Message | bytes],
    *,
    producer_name: str,
    sequence_ids: Sequence[int],
    publish_time_ms: int,
    compression: Compression = Compression.NONE,
    framing: Framing = Framing.BY_COUNT,
    broker: BrokerEntry | None = None,
) -> bytes:
    """Return the entry of these messages, each with its sequence id. Bytes are a message without more.

    Name, time and sequence ids are the producer's, and those in the messages are not looked at. The sequence
    ids of a batch have to grow.
    """
    assert messages, "an entry has at least one message"
    assert len(messages) == len(sequence_ids), "each message has a sequence id"
    first, is_batch = messages[0], len(messages) > 1 or framing is Framing.BATCH
    is_range = type(sequence_ids) is range
    assert is_range or all(one < other for one, other in pairwise(sequence_ids)), "sequence ids grow"
    payload = encode_batch(messages, sequence_ids) if is_batch else payload_of(first)
    if compression is Compression.NONE and broker is None and is_plain(first):
        head = _plain_head(producer_name, sequence_ids[0], publish_time_ms)
        last = b"\x48" + encode_varint(len(payload))
        if is_batch:
            last = b"\x58%b\xc0\x01%b" % (encode_varint(len(messages)), encode_varint(sequence_ids[-1]))
        return _with_checksum(head + last, payload)
    values: dict[str, Value] = {
        "producer_name": producer_name,
        "sequence_id": sequence_ids[0],
        "publish_time": publish_time_ms,
    }
    if is_batch:
        # The keys of the first message, because a broker chooses a consumer by them.
        values |= {name: value for name, value in fields_of(first).items() if name in _KEYS}
        values["num_messages_in_batch"] = len(messages)
        values["highest_sequence_id"] = sequence_ids[-1]
    else:
        values |= fields_of(first)
        values["uncompressed_size"] = len(payload)
    if compression is not Compression.NONE:
        values["compression"] = compression.value
        values["uncompressed_size"] = len(payload)
        payload = compress(compression, payload)
    metadata = protobuf.encode(_METADATA, protobuf.ProtobufMessage(values))
    return _broker_bytes(broker) + _with_checksum(metadata, payload)


_KEYS = {"partition_key", "partition_key_b64_encoded", "ordering_key"}


def _plain_head(producer_name: str, sequence_id: int, publish_time_ms: int) -> bytes:
    """Return the first fields of the metadata. The table takes five times as long."""
    number, time = encode_varint(sequence_id), _time_varint(publish_time_ms)
    return b"%b\x10%b\x18%b" % (_name_field(producer_name), number, time)


def _with_checksum(metadata: bytes, payload: bytes) -> bytes:
    size = len(metadata).to_bytes(4, "big")
    checksum = crc32c(payload, crc32c(size + metadata)).to_bytes(4, "big")
    return b"".join((_MAGIC_CHECKSUM, checksum, size, metadata, payload))


@lru_cache(maxsize=1024)
def _name_field(name: str) -> bytes:
    raw = name.encode()
    return b"\x0a%b%b" % (encode_varint(len(raw)), raw)


# Many entries have the same time, and a varint of that size takes a microsecond.
_time_varint = lru_cache(maxsize=1024)(encode_varint)
_time_of_varint = lru_cache(maxsize=1024)(protobuf.decode_varint)


def _broker_bytes(broker: BrokerEntry | None) -> bytes:
    if broker is None:
        return b""
    pairs = {"timestamp": broker.timestamp_ms, "index": broker.index}
    values: dict[str, Value] = {name: value for name, value in pairs.items() if value is not None}
    metadata = protobuf.encode(_BROKER, protobuf.ProtobufMessage(values))
    return _MAGIC_BROKER + len(metadata).to_bytes(4, "big") + metadata


# ── decoding ─────────────────────────────────────────────────────────────────────────────────────────────


def decode_entry(data: bytes, topic: str = "", ledger_id: int = -1, entry_id: int = -1) -> DecodedEntry:
    """Return the messages of an entry.

    Raise `InvalidMessageEntry` or one of its kinds, which name topic, ledger and entry;
    `CompressionUnavailable` if only the package of the compression is missing.
    """
    plain = _decode_plain(data)
    if plain is not None:
        return plain
    try:
        return _decode(data)
    except MalformedEntry as flaw:
        raise flaw.kind(topic, ledger_id, entry_id, flaw.reason) from None


def _decode(data: bytes) -> DecodedEntry:
    at, broker = 0, None
    if data.startswith(_MAGIC_BROKER):
        raw, at = _sized(data, 2, "broker entry metadata")
        values = parsed(_BROKER, raw)
        present = [values.integer(name) if name in values else None for name in ("timestamp", "index")]
        broker = BrokerEntry(*present)
    if data.startswith(_MAGIC_CHECKSUM, at):
        if len(data) < at + 6:
            raise MalformedEntry("it ends in its checksum")
        written = int.from_bytes(data[at + 2 : at + 6], "big")
        at += 6
        computed = crc32c(memoryview(data)[at:])
        if written != computed:
            raise MalformedEntry(f"checksum {computed:08x} instead of {written:08x}", EntryChecksumWrong)
    raw, at = _sized(data, at, "message metadata")
    metadata = parsed(_METADATA, raw)
    _refuse_unsupported(metadata)
    sequence_id = metadata.integer("sequence_id")
    count = metadata.integer("num_messages_in_batch") if "num_messages_in_batch" in metadata else None
    head = SharedMetadata(metadata.text("producer_name"), sequence_id, metadata.integer("publish_time"))
    compression = Compression.NONE
    messages: Sequence[Message] = ()
    if "marker_type" not in metadata:
        try:
            compression = Compression(metadata.integer("compression"))
        except ValueError:
            number = metadata.integer("compression")
            raise MalformedEntry(f"compression {number} is not known", UnknownCompression) from None
        payload = _payload(compression, data, at, metadata.integer("uncompressed_size"))
        if count is None:
            messages = (message_of(payload, metadata, head),)
        else:
            messages = decode_batch(payload, 0, count, head)
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


_PLAIN_METADATA = re.compile(
    rb"\x10%b\x18%b(?:\x48[\x80-\xff]{0,8}[\x00-\x7f])?(?:\x58%b\xc0\x01%b)?" % ((VARINT,) * 4)
)
"""The metadata of an entry after the producer's name: sequence id and time, perhaps the size of the payload,
and for a batch the number of its messages and the last sequence id. Each varint but the size is a group.
"""
_PLAIN_START = Struct(">2sIIBB")
"""The checksum, the size of the metadata, the key and the size of the producer's name."""


def _decode_plain(data: bytes) -> DecodedEntry | None:
    """Decode an entry without compression, keys and additions of a broker. Return `None` for any other.

    Most entries are of this form, and decoding by the tables takes three times as long. An entry that is
    damaged is left to the tables too, because they say what is wrong.
    """
    if len(data) < _PLAIN_START.size:
        return None
    magic, checksum, size, key, name_size = _PLAIN_START.unpack_from(data)
    if magic != _MAGIC_CHECKSUM or key != 0x0A or name_size >= 0x80:
        return None
    begin = _PLAIN_START.size + name_size
    found = _PLAIN_METADATA.match(data, begin)
    if found is None or (at := found.end()) != 10 + size or crc32c(memoryview(data)[6:]) != checksum:
        return None
    first, time, count, last = found.groups()
    try:
        name = _name_of(data[_PLAIN_START.size : begin])
    except UnicodeDecodeError:
        return None
    sequence_id, time_ms = protobuf.decode_varint(first), _time_of_varint(time)
    # Constructors are functions of Python, and take twice as long.
    make = tuple.__new__
    if count is None:
        message = data[at:], None, NO_PROPERTIES, None, 0, time_ms, name, sequence_id, False
        alone = (make(Message, message),)
        return make(
            DecodedEntry,
            (alone, False, Compression.NONE, name, time_ms, sequence_id, sequence_id, None, None),
        )
    batch_count = protobuf.decode_varint(count)
    try:
        batch = decode_batch(data, at, batch_count, SharedMetadata(name, sequence_id, time_ms))
    except MalformedEntry:
        return None
    highest = max(sequence_id, protobuf.decode_varint(last))
    return make(
        DecodedEntry, (batch, True, Compression.NONE, name, time_ms, sequence_id, highest, None, None)
    )


@lru_cache(maxsize=1024)
def _name_of(raw: bytes) -> str:
    return raw.decode()


def _sized(data: bytes, at: int, name: str) -> tuple[bytes, int]:
    """Return the bytes after a size, and where they end."""
    begin = at + 4
    end = begin + int.from_bytes(data[at:begin], "big")
    if begin > len(data) or end > len(data):
        raise MalformedEntry(f"it is no entry of a topic: the {name} would end after it")
    return data[begin:end], end


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
        raise MalformedEntry(f"{kind} messages are not supported", UnsupportedMessage)


def _payload(compression: Compression, data: bytes, at: int, size: int) -> bytes:
    if compression is Compression.NONE:
        return data[at:]
    if not 0 <= size <= UNCOMPRESSED_SIZE_MAX:
        raise MalformedEntry(f"{size} bytes before the compression; the limit is {UNCOMPRESSED_SIZE_MAX}")
    try:
        return decompress(compression, memoryview(data)[at:], size)
    except NotDecompressed as error:
        raise MalformedEntry(f"{compression.name.lower()}: {error}") from error
