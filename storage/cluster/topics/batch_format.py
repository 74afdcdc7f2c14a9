"""The messages of a batch: for each of them u32 size, SingleMessageMetadata, its bytes.

Most messages have a payload and nothing else. Their metadata are two varints: the size of the payload and the
sequence id. Neighbours of the same size differ only in the second one. So they are written and read together,
and their other fields are made when they are asked for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, repeat
from struct import Struct
from typing import TYPE_CHECKING, overload

from storage.cluster.topics.errors import BatchCountWrong, UnsupportedMessage
from storage.cluster.topics.message import Message, PlainFields
from storage.cluster.topics.message_format import (
    KEY_VALUE,
    VARINT,
    MalformedEntry,
    fields_of,
    message_of,
    parsed,
    payload_of,
    payloads_of,
)
from storage.cluster.wire import protobuf
from storage.cluster.wire.protobuf import FieldKind, MessageField, MessageTable, encode_varint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.cluster.topics.message_format import SharedMetadata

_INTEGER = FieldKind.INTEGER
_SINGLE = MessageTable(
    "SingleMessageMetadata",
    MessageField(1, "properties", FieldKind.MESSAGE, KEY_VALUE, is_repeated=True),
    MessageField(2, "partition_key", FieldKind.TEXT),
    MessageField(3, "payload_size", _INTEGER, is_required=True),
    MessageField(4, "compacted_out", _INTEGER),
    MessageField(5, "event_time", _INTEGER),
    MessageField(6, "partition_key_b64_encoded", _INTEGER),
    MessageField(7, "ordering_key", FieldKind.BYTES),
    MessageField(8, "sequence_id", _INTEGER),
    MessageField(9, "null_value", _INTEGER),
)


# ── encoding ─────────────────────────────────────────────────────────────────────────────────────────────


def encode_batch(messages: Sequence[Message | bytes], sequence_ids: Sequence[int]) -> bytes:
    """Return the messages of a batch, each after its size and metadata. Bytes are a message without more.

    The sequence ids grow.
    """
    if sequence_ids[-1] - sequence_ids[0] == len(messages) - 1:
        payloads = payloads_of(messages)
        if payloads is not None:
            return _plain_batch(payloads, sequence_ids[0])
    parts: list[bytes] = []
    for message, sequence_id in zip(messages, sequence_ids, strict=True):
        payload = payload_of(message)
        own = {"payload_size": len(payload), "sequence_id": sequence_id, **fields_of(message)}
        metadata = protobuf.encode(_SINGLE, protobuf.ProtobufMessage(own))
        parts += (len(metadata).to_bytes(4, "big"), metadata, payload)
    return b"".join(parts)


def _plain_batch(payloads: Sequence[bytes], first: int) -> bytes:
    """Return the messages of these payloads, whose sequence ids follow each other.

    The varints of numbers that differ in their lowest seven bits only are equal after their first byte.
    """
    rows: list[Iterator[tuple[bytes, ...]]] = []
    at = 0
    while at < len(payloads):
        number = first + at
        low, high = number & 0x7F, encode_varint(number >> 7) if number >> 7 else b""
        end = min(at + 0x80 - low, len(payloads))
        lows = (_CONTINUED if high else _LAST)[low : low + end - at]
        before = map(_before, map(len, payloads[at:end]), repeat(len(high) + 1))
        rows.append(zip(before, lows, repeat(high), payloads[at:end], strict=False))
        at = end
    return b"".join(chain.from_iterable(chain.from_iterable(rows)))


@lru_cache(maxsize=1024)
def _before(size: int, number_size: int) -> bytes:
    """Return the bytes before the sequence id of a plain message, given the sizes of payload and id."""
    field = b"\x18%b\x40" % encode_varint(size)
    return (len(field) + number_size).to_bytes(4, "big") + field


_LAST = [bytes((byte,)) for byte in range(0x80)]
_CONTINUED = [bytes((byte | 0x80,)) for byte in range(0x80)]


# ── decoding ─────────────────────────────────────────────────────────────────────────────────────────────


class PlainMessages(Sequence[Message]):
    """Messages that have a payload and a sequence id only. Each is made when it is asked for."""

    __slots__ = ("fields", "payloads")

    def __init__(self, payloads: Sequence[bytes], fields: PlainFields) -> None:
        self.payloads = payloads
        self.fields = fields

    def __len__(self) -> int:
        return len(self.payloads)

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...

    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        if isinstance(index, slice):
            return tuple(self[one] for one in range(*index.indices(len(self))))
        return self.fields.message(index, self.payloads[index])

    def __eq__(self, other: object) -> bool:
        """Return whether the other ones are the same messages, which may be in a tuple."""
        return isinstance(other, tuple | PlainMessages) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self.payloads))

    def __repr__(self) -> str:
        return repr(tuple(self))


def decode_batch(payload: bytes, at: int, count: int, head: SharedMetadata) -> Sequence[Message]:
    """Return the messages of a batch, which has just so many from `at` on. Raise `MalformedEntry`."""
    size = len(payload) - at
    # Each message has at least six bytes, so a count that is too large is not tried.
    if not 1 <= count <= size // 6:
        raise MalformedEntry(f"a batch of {count} messages in {size} bytes", BatchCountWrong)
    return _plain_messages(payload, at, count, head) or _any_messages(payload, at, count, head)


_PLAIN_METADATA = re.compile(rb"\0\0\0[\x04-\x14]\x18%b\x40%b" % (VARINT, VARINT))
"""Metadata of a size and a sequence id only, in this order, after its own size: both varints are groups."""


def _plain_messages(payload: bytes, at: int, count: int, head: SharedMetadata) -> PlainMessages | None:
    """Return the messages if all are plain ones. `None` for others, and if something is wrong with them."""
    payloads: list[bytes] = []
    numbers: list[bytes] = []
    end, match = len(payload), _PLAIN_METADATA.match
    while at < end and len(payloads) < count:
        found = match(payload, at)
        if found is None or (body := found.end()) != at + 4 + payload[at + 3]:
            return None
        field, number = found.groups()
        size = protobuf.decode_varint(field)
        after = body + size
        if after > end:
            return None
        # Most batches have messages of one size.
        before = payload[at : body - len(number)]
        if payload.startswith(before, after):
            run = min(count - len(payloads), (end - at) // (after - at))
            if payload.startswith(before, at + (run - 1) * (after - at)):
                shape = Struct(f"{len(before)}s{len(number)}s{size}s")
                rows = shape.iter_unpack(memoryview(payload)[at : at + run * shape.size])
                heads, varints, bodies = zip(*rows, strict=True)
                if heads.count(before) == run and _are_varints(varints):
                    payloads += bodies
                    numbers += varints
                    at += run * shape.size
                    continue
        payloads.append(payload[body:after])
        numbers.append(number)
        at = after
    if at < end or len(payloads) < count:
        return None
    return PlainMessages(payloads, PlainFields(head.producer_name, head.publish_time_ms, numbers))


def _are_varints(fields: Sequence[bytes]) -> bool:
    """Return whether each of these fields, which have one length, is one whole varint."""
    length, joined = len(fields[0]), b"".join(fields)
    return joined[length - 1 :: length].isascii() and all(
        min(joined[byte::length]) >= 0x80 for byte in range(length - 1)
    )


def _any_messages(payload: bytes, at: int, count: int, head: SharedMetadata) -> tuple[Message, ...]:
    """Return messages of any kind, or raise for what is wrong with one."""
    messages: list[Message] = []
    end = len(payload)
    while at < end and len(messages) < count:
        begin = at + 4
        body = begin + int.from_bytes(payload[at:begin], "big")
        if body > end:
            raise MalformedEntry(f"the batch ends in its message {len(messages)} of {count}", BatchCountWrong)
        own = parsed(_SINGLE, payload[begin:body])
        if own.integer("compacted_out"):
            raise MalformedEntry("compacted messages are not supported", UnsupportedMessage)
        size = own.integer("payload_size")
        at = body + size
        if size < 0 or at > end:
            raise MalformedEntry(f"the batch ends in its message {len(messages)} of {count}", BatchCountWrong)
        messages.append(message_of(payload[body:at], own, head))
    if at < end or len(messages) < count:
        more = "more" if at < end else len(messages)
        raise MalformedEntry(f"the batch has {more} messages instead of {count}", BatchCountWrong)
    return tuple(messages)
