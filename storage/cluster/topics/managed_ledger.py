"""What the metadata has about a topic and its cursors, in the bytes of Pulsar's managed ledger.

    /managed-ledgers/<tenant>/<namespace>/persistent/<topic>             ManagedLedgerInfo: the ledgers
    /managed-ledgers/<tenant>/<namespace>/persistent/<topic>/<cursor>    ManagedCursorInfo: a subscription
    an entry of a cursor's ledger                                   PositionInfo: the same, without a limit

The last ledger of a topic has neither a number of entries nor a size as long as it is written. A position
before the first entry of a ledger has the entry id -1. A range of deleted entries begins after its lower end:
(lower, upper]. Fields of a later version are kept, and written after the others.

A value may be compressed: 0x4778, u32 size, its compression and size before it, and the compressed bytes.
Only uncompressed ones are written here, which every broker reads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote_plus, unquote_plus

from storage.cluster.errors import InvalidMetadata
from storage.cluster.topics.compression import Compression, NotDecompressed, decompress
from storage.cluster.topics.errors import InvalidTopicName
from storage.cluster.topics.message_format import KEY_VALUE
from storage.cluster.wire import protobuf
from storage.cluster.wire.protobuf import FieldKind, Malformed, MessageField, MessageTable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.cluster.wire.protobuf import Value

ROOT = "/managed-ledgers"

DOMAIN = "persistent"

NO_LEDGER = -1
"""The cursor's ledger if the cursor's node has the whole state."""

_PARTITION = re.compile(r"(.+)-partition-(0|[1-9][0-9]{0,9})", re.ASCII | re.DOTALL)
_NAMED = re.compile(r"[-=:.\w]+", re.ASCII)
_INDEX_MAX = 2**31 - 1


# ── names ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class TopicName:
    """The name of a topic, or of one of its partitions."""

    tenant: str
    namespace: str
    local_name: str

    @classmethod
    def parse(cls, name: str) -> TopicName:
        """Return the topic of `[persistent://]tenant/namespace/name`; a name alone is in public/default."""
        domain, separator, rest = name.partition("://")
        if separator and domain != DOMAIN:
            raise InvalidTopicName(name, f"only topics of the domain {DOMAIN} are kept in ledgers")
        fields = (rest if separator else name).split("/")
        if len(fields) == 1 and not separator:
            fields = ["public", "default", *fields]
        if len(fields) != 3:
            raise InvalidTopicName(
                name, "expected name, tenant/namespace/name or persistent://tenant/namespace/name"
            )
        tenant, namespace, local_name = fields
        if not _NAMED.fullmatch(tenant) or not _NAMED.fullmatch(namespace):
            raise InvalidTopicName(
                name, "tenant and namespace consist of letters, digits, and the signs -_=:."
            )
        if not local_name.strip():
            raise InvalidTopicName(name, "the name is empty")
        try:
            local_name.encode()
        except UnicodeEncodeError:
            raise InvalidTopicName(name, "the name has no form in UTF-8") from None
        return cls(tenant, namespace, local_name)

    def __str__(self) -> str:
        return f"{DOMAIN}://{self.tenant}/{self.namespace}/{self.local_name}"

    @property
    def path(self) -> str:
        """The path of the topic's node, which has the list of its ledgers."""
        return f"{namespace_path(self.tenant, self.namespace)}/{encode_name(self.local_name)}"

    def cursor_path(self, subscription: str) -> str:
        """Return the path of a subscription's node."""
        return f"{self.path}/{encode_name(subscription)}"

    @property
    def partition_index(self) -> int:
        """The number of the partition; -1 if the name is not that of one."""
        found = _PARTITION.fullmatch(self.local_name)
        return -1 if found is None or int(found[2]) > _INDEX_MAX else int(found[2])

    @property
    def partitioned(self) -> TopicName:
        """The topic that this is a partition of; the topic itself if it is none."""
        found = _PARTITION.fullmatch(self.local_name)
        if found is None or self.partition_index < 0:
            return self
        return TopicName(self.tenant, self.namespace, found[1])

    def partition(self, index: int) -> TopicName:
        """Return the name of a partition of this topic."""
        return TopicName(self.tenant, self.namespace, f"{self.local_name}-partition-{index}")


def namespace_path(tenant: str, namespace: str) -> str:
    """Return the path whose children are the topics of a namespace."""
    return f"{ROOT}/{tenant}/{namespace}/{DOMAIN}"


def encode_name(name: str) -> str:
    """Return the name of a node for a topic or subscription of that name, as Java's `URLEncoder` has it."""
    return quote_plus(name, safe="*").replace("~", "%7E")


def decode_name(encoded: str) -> str:
    """Return the name that a node stands for."""
    return unquote_plus(encoded)


# ── positions ────────────────────────────────────────────────────────────────────────────────────────────


class Position(NamedTuple):
    """An entry of a topic, or with the entry id -1 the place before the first entry of a ledger."""

    ledger_id: int
    entry_id: int

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


class DeletedRange(NamedTuple):
    """Entries that a cursor has passed one by one: those after `lower`, up to and with `upper`."""

    lower: Position
    upper: Position


class BatchAcks(NamedTuple):
    """Which messages of a batch are still to be acknowledged: bit i of `remaining` is that of index i."""

    position: Position
    remaining: int


class DeletedBits(NamedTuple):
    """The entries of a ledger that a cursor has passed one by one: bit i is that of entry i."""

    ledger_id: int
    bits: int


_INTEGER, _TEXT, _MESSAGE = FieldKind.INTEGER, FieldKind.TEXT, FieldKind.MESSAGE

_POSITION = MessageTable(
    "NestedPositionInfo",
    MessageField(1, "ledger", _INTEGER, is_required=True),
    MessageField(2, "entry", _INTEGER, is_required=True),
)
_RANGE = MessageTable(
    "MessageRange",
    MessageField(1, "lower", _MESSAGE, _POSITION, is_required=True),
    MessageField(2, "upper", _MESSAGE, _POSITION, is_required=True),
)
_BATCH_ACKS = MessageTable(
    "BatchedEntryDeletionIndexInfo",
    MessageField(1, "position", _MESSAGE, _POSITION, is_required=True),
    MessageField(2, "words", _INTEGER, is_repeated=True),
)
_DELETED_BITS = MessageTable(
    "LongListMap",
    MessageField(1, "ledger", _INTEGER, is_required=True),
    MessageField(2, "words", _INTEGER, is_repeated=True),
)
_NUMBER = MessageTable(
    "LongProperty",
    MessageField(1, "name", _TEXT, is_required=True),
    MessageField(2, "value", _INTEGER, is_required=True),
)
_STRING = MessageTable(
    "StringProperty",
    MessageField(1, "name", _TEXT, is_required=True),
    MessageField(2, "value", _TEXT, is_required=True),
)
_LEDGER = MessageTable(
    "LedgerInfo",
    MessageField(1, "ledger", _INTEGER, is_required=True),
    MessageField(2, "entries", _INTEGER),
    MessageField(3, "size", _INTEGER),
    MessageField(4, "timestamp", _INTEGER),
)
_MANAGED_LEDGER = MessageTable(
    "ManagedLedgerInfo",
    MessageField(1, "ledgers", _MESSAGE, _LEDGER, is_repeated=True),
    MessageField(2, "terminated", _MESSAGE, _POSITION),
    MessageField(3, "properties", _MESSAGE, KEY_VALUE, is_repeated=True),
)
_CURSOR = MessageTable(
    "ManagedCursorInfo",
    MessageField(1, "cursors_ledger", _INTEGER, is_required=True),
    MessageField(2, "ledger", _INTEGER),
    MessageField(3, "entry", _INTEGER),
    MessageField(4, "ranges", _MESSAGE, _RANGE, is_repeated=True),
    MessageField(5, "properties", _MESSAGE, _NUMBER, is_repeated=True),
    MessageField(6, "last_active", _INTEGER),
    MessageField(7, "batches", _MESSAGE, _BATCH_ACKS, is_repeated=True),
    MessageField(8, "cursor_properties", _MESSAGE, _STRING, is_repeated=True),
)
_CONSUMER = MessageTable("Consumer", MessageField(1001, "token", FieldKind.BYTES))
_POSITION_INFO = MessageTable(
    "PositionInfo",
    MessageField(1, "ledger", _INTEGER, is_required=True),
    MessageField(2, "entry", _INTEGER, is_required=True),
    MessageField(3, "ranges", _MESSAGE, _RANGE, is_repeated=True),
    MessageField(4, "properties", _MESSAGE, _NUMBER, is_repeated=True),
    MessageField(5, "batches", _MESSAGE, _BATCH_ACKS, is_repeated=True),
    MessageField(6, "bits", _MESSAGE, _DELETED_BITS, is_repeated=True),
)


# ── the ledgers of a topic ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class LedgerInfo:
    """A ledger of a topic. Entries and size are absent while it is written."""

    ledger_id: int
    entries: int | None = None
    size: int | None = None
    timestamp_ms: int | None = None
    """When it was closed; 0 while it is written."""
    unknown: bytes = b""
    """Other fields as they came: the place where a broker has moved the ledger, and its properties."""


@dataclass(frozen=True, slots=True)
class ManagedLedgerInfo:
    """The ledgers of a topic, the oldest first. The last one is written, or about to be."""

    ledgers: tuple[LedgerInfo, ...] = ()
    terminated: Position | None = None
    """The last entry of a topic that takes no more messages."""
    properties: tuple[tuple[str, str], ...] = ()
    unknown: bytes = b""


def encode_managed_ledger(info: ManagedLedgerInfo) -> bytes:
    """Return the data of a topic's node."""
    values: dict[str, Value] = {
        "ledgers": tuple(
            protobuf.ProtobufMessage(
                _present(
                    ledger=one.ledger_id, entries=one.entries, size=one.size, timestamp=one.timestamp_ms
                ),
                one.unknown,
            )
            for one in info.ledgers
        ),
        "properties": tuple(
            protobuf.ProtobufMessage({"key": key, "value": value}) for key, value in info.properties
        ),
    }
    if info.terminated is not None:
        values["terminated"] = _of_position(info.terminated)
    return protobuf.encode(_MANAGED_LEDGER, protobuf.ProtobufMessage(values, info.unknown))


def decode_managed_ledger(path: str, data: bytes) -> ManagedLedgerInfo:
    """Return the ledgers in the data of a topic's node. Raise `InvalidMetadata`."""
    message = _decode(path, _MANAGED_LEDGER, data)
    ledgers = tuple(
        LedgerInfo(
            one.integer("ledger"),
            _optional(one, "entries"),
            _optional(one, "size"),
            _optional(one, "timestamp"),
            one.unknown,
        )
        for one in message.messages("ledgers")
    )
    ids = [one.ledger_id for one in ledgers]
    if any(one < 0 for one in ids) or len(set(ids)) < len(ids):
        raise InvalidMetadata(path, f"ledgers that no topic can have: {ids}")
    if any((one.entries or 0) < 0 or (one.size or 0) < 0 for one in ledgers):
        raise InvalidMetadata(path, "a ledger with fewer than no entries or bytes")
    terminated = message.message("terminated")
    return ManagedLedgerInfo(
        ledgers,
        None if terminated is None else _position(terminated),
        tuple((one.text("key"), one.text("value")) for one in message.messages("properties")),
        message.unknown,
    )


# ── cursors ──────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ManagedCursorInfo:
    """A subscription, as its node has it."""

    cursors_ledger_id: int
    """The ledger whose last entry has the state; `NO_LEDGER` if it is here."""
    mark_delete: Position | None = None
    """All entries up to this one are acknowledged. With a cursor's ledger it is an older state."""
    ranges: tuple[DeletedRange, ...] = ()
    properties: tuple[tuple[str, int], ...] = ()
    last_active_ms: int | None = None
    batches: tuple[BatchAcks, ...] = ()
    cursor_properties: tuple[tuple[str, str], ...] = ()
    unknown: bytes = b""


@dataclass(frozen=True, slots=True)
class PositionInfo:
    """The state of a subscription, as an entry of its cursor's ledger has it.

    The ranges are there in one of two forms: brokers write bits unless they are told otherwise.
    """

    mark_delete: Position
    ranges: tuple[DeletedRange, ...] = ()
    properties: tuple[tuple[str, int], ...] = ()
    batches: tuple[BatchAcks, ...] = ()
    bits: tuple[DeletedBits, ...] = ()
    unknown: bytes = b""


def encode_cursor(info: ManagedCursorInfo) -> bytes:
    """Return the data of a subscription's node."""
    at = info.mark_delete
    values = _present(
        cursors_ledger=info.cursors_ledger_id,
        ledger=None if at is None else at.ledger_id,
        entry=None if at is None else at.entry_id,
        last_active=info.last_active_ms,
    )
    values |= _of_state(info.ranges, info.properties, info.batches)
    values["cursor_properties"] = tuple(
        protobuf.ProtobufMessage({"name": name, "value": value}) for name, value in info.cursor_properties
    )
    return protobuf.encode(_CURSOR, protobuf.ProtobufMessage(values, info.unknown))


def encode_consumers_cursor(info: ManagedCursorInfo, token: bytes) -> bytes:
    """Return the same with a mark of the consumer that writes it, in a field that brokers pass over.

    So a consumer knows its own write again if the answer was lost. Another one may have written the same
    state, as each does when it takes the subscription over.
    """
    mark = protobuf.encode(_CONSUMER, protobuf.ProtobufMessage({"token": token}))
    return encode_cursor(replace(info, unknown=mark))


def decode_cursor(path: str, data: bytes) -> ManagedCursorInfo:
    """Return the subscription in the data of its node. Raise `InvalidMetadata`."""
    message = _decode(path, _CURSOR, data)
    has_position = "ledger" in message and "entry" in message
    cursors_ledger_id = message.integer("cursors_ledger")
    if not has_position and cursors_ledger_id == NO_LEDGER:
        raise InvalidMetadata(path, "a cursor without position and without a ledger")
    return ManagedCursorInfo(
        cursors_ledger_id,
        _position(message) if has_position else None,
        _ranges(message),
        _numbers(message),
        _optional(message, "last_active"),
        _batches(message),
        tuple((one.text("name"), one.text("value")) for one in message.messages("cursor_properties")),
        message.unknown,
    )


def encode_position_info(info: PositionInfo) -> bytes:
    """Return the payload of an entry of a cursor's ledger."""
    values = _present(ledger=info.mark_delete.ledger_id, entry=info.mark_delete.entry_id)
    values |= _of_state(info.ranges, info.properties, info.batches)
    values["bits"] = tuple(
        protobuf.ProtobufMessage({"ledger": one.ledger_id, "words": _words(one.bits)}) for one in info.bits
    )
    return protobuf.encode(_POSITION_INFO, protobuf.ProtobufMessage(values, info.unknown))


def decode_position_info(place: str, data: bytes) -> PositionInfo:
    """Return the state in an entry of a cursor's ledger. Raise `InvalidMetadata` with its place."""
    message = _decode(place, _POSITION_INFO, data)
    return PositionInfo(
        _position(message),
        _ranges(message),
        _numbers(message),
        _batches(message),
        tuple(DeletedBits(one.integer("ledger"), _bits(one)) for one in message.messages("bits")),
        message.unknown,
    )


# ── parts ────────────────────────────────────────────────────────────────────────────────────────────────

_MAGIC_COMPRESSED = b"\x47\x78"
_COMPRESSED = MessageTable(
    "ManagedLedgerInfoMetadata",
    MessageField(1, "compression", _INTEGER, is_required=True),
    MessageField(2, "size", _INTEGER, is_required=True),
)
_SIZE_MAX = 1 << 26
"""Bytes of a value before its compression."""


def _decode(path: str, table: MessageTable, data: bytes) -> protobuf.ProtobufMessage:
    if data.startswith(_MAGIC_COMPRESSED):
        data = _decompressed(path, data)
    message = protobuf.decode(table, data)
    if isinstance(message, Malformed):
        raise InvalidMetadata(path, message.reason)
    return message


def _decompressed(path: str, data: bytes) -> bytes:
    end = 6 + int.from_bytes(data[2:6], "big")
    head = protobuf.decode(_COMPRESSED, data[6:end])
    if isinstance(head, Malformed) or end > len(data):
        raise InvalidMetadata(path, "the head of a compressed value is damaged")
    size = head.integer("size")
    if not 0 <= size <= _SIZE_MAX:
        raise InvalidMetadata(path, f"{size} bytes before the compression; the limit is {_SIZE_MAX}")
    try:
        return decompress(Compression(head.integer("compression")), data[end:], size)
    except (NotDecompressed, ValueError) as error:
        raise InvalidMetadata(path, str(error)) from error


def _present(**values: int | None) -> dict[str, Value]:
    return {name: value for name, value in values.items() if value is not None}


def _optional(message: protobuf.ProtobufMessage, name: str) -> int | None:
    return message.integer(name) if name in message else None


def _position(message: protobuf.ProtobufMessage) -> Position:
    return Position(message.integer("ledger"), message.integer("entry"))


def _of_position(position: Position) -> protobuf.ProtobufMessage:
    return protobuf.ProtobufMessage({"ledger": position.ledger_id, "entry": position.entry_id})


def _of_state(
    ranges: Iterable[DeletedRange], properties: Iterable[tuple[str, int]], batches: Iterable[BatchAcks]
) -> dict[str, Value]:
    """Return the fields that both forms of a cursor have."""
    return {
        "ranges": tuple(
            protobuf.ProtobufMessage({"lower": _of_position(lower), "upper": _of_position(upper)})
            for lower, upper in ranges
        ),
        "properties": tuple(
            protobuf.ProtobufMessage({"name": name, "value": value}) for name, value in properties
        ),
        "batches": tuple(
            protobuf.ProtobufMessage({"position": _of_position(one.position), "words": _words(one.remaining)})
            for one in batches
        ),
    }


def _ranges(message: protobuf.ProtobufMessage) -> tuple[DeletedRange, ...]:
    found = []
    for one in message.messages("ranges"):
        lower, upper = one.message("lower"), one.message("upper")
        assert lower is not None, "required"
        assert upper is not None, "required"
        found.append(DeletedRange(_position(lower), _position(upper)))
    return tuple(found)


def _numbers(message: protobuf.ProtobufMessage) -> tuple[tuple[str, int], ...]:
    return tuple((one.text("name"), one.integer("value")) for one in message.messages("properties"))


def _batches(message: protobuf.ProtobufMessage) -> tuple[BatchAcks, ...]:
    found = []
    for one in message.messages("batches"):
        position = one.message("position")
        assert position is not None, "required"
        found.append(BatchAcks(_position(position), _bits(one)))
    return tuple(found)


def _bits(message: protobuf.ProtobufMessage) -> int:
    """Return the words of a bit set as one number."""
    words = message.values.get("words", ())
    assert isinstance(words, tuple)
    return int.from_bytes(
        b"".join(word.to_bytes(8, "little", signed=True) for word in words if isinstance(word, int)), "little"
    )


def _words(bits: int) -> tuple[int, ...]:
    """Return a bit set as words of 64 bits, the lowest first, without zeros at the end."""
    size = (bits.bit_length() + 63) // 64
    raw = bits.to_bytes(8 * size, "little")
    return tuple(int.from_bytes(raw[at : at + 8], "little", signed=True) for at in range(0, len(raw), 8))
