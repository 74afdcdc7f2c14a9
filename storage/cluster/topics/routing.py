"""Partitioned topics: which partition a message goes to, as brokers' clients choose it. Pure.

A message with a key goes to `hash(key) mod partitions`, so that all messages of a key are in one partition,
in their order. The hash is that of Java's strings, or MurmurHash3; both without the sign. Clients in Java use
the first one if they are not told otherwise. All producers of a topic have to agree.
Messages without a key go round in turn. With a sequence id of the caller this number chooses, because a
message that is sent again has to come to the partition that may have it already.

    /admin/partitioned-topics/<tenant>/<namespace>/persistent/<topic>     {"partitions": 4}
    /managed-ledgers/<tenant>/<namespace>/persistent/<topic>-partition-0  each partition is a topic of its own
"""

from __future__ import annotations

import base64
import enum
import json
from typing import TYPE_CHECKING

from storage.cluster.errors import InvalidMetadata
from storage.cluster.topics.errors import InvalidTopicName
from storage.cluster.topics.managed_ledger import ROOT
from storage.cluster.topics.message import Message

if TYPE_CHECKING:
    from storage.cluster.topics.managed_ledger import TopicName

PARTITIONED_TOPICS = "/admin/partitioned-topics"

PARTITIONS_MAX = 100_000

_MASK = 0xFFFFFFFF
_NO_SIGN = 0x7FFFFFFF


class KeyHash(enum.Enum):
    """How a key becomes a number."""

    JAVA_STRING = "java-string"
    MURMUR3 = "murmur3"

    def of(self, key: str) -> int:
        """Return the hash of a key, which is never negative."""
        return java_string_hash(key) if self is KeyHash.JAVA_STRING else murmur3_hash(key.encode())


class Router:
    """Chooses the partition of each message of one producer."""

    def __init__(self, partitions: int, key_hash: KeyHash = KeyHash.JAVA_STRING) -> None:
        assert partitions > 0, "a topic has at least one partition"
        self._partitions = partitions
        self._key_hash = key_hash
        self._next = 0

    def partition_of(self, message: Message | bytes, sequence_id: int | None = None) -> int:
        """Return the number of the partition, and go on with the next one if nothing in the message tells it.

        `sequence_id` is the number that the caller has given to the message, if any.
        """
        key = message.key if isinstance(message, Message) else None
        if key is None and sequence_id is not None:
            return sequence_id % self._partitions
        if key is None:
            chosen, self._next = self._next, (self._next + 1) % self._partitions
            return chosen
        # A key of bytes is hashed in the form in which it is written.
        text = key if isinstance(key, str) else base64.b64encode(key).decode()
        return self._key_hash.of(text) % self._partitions


def java_string_hash(text: str) -> int:
    """Return the hash of a string in Java, without its sign."""
    value = 0
    raw = text.encode("utf-16-be")
    for at in range(0, len(raw), 2):
        value = (31 * value + (raw[at] << 8 | raw[at + 1])) & _MASK
    return value & _NO_SIGN


def murmur3_hash(data: bytes) -> int:
    """Return MurmurHash3 of 32 bits with the seed 0, without its sign."""
    value = 0
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        value ^= _mixed(int.from_bytes(data[at : at + 4], "little"))
        value = (_rotated(value, 13) * 5 + 0xE6546B64) & _MASK
    value ^= _mixed(int.from_bytes(data[whole:], "little")) ^ len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        value = ((value ^ value >> shift) * factor) & _MASK
    return value & _NO_SIGN


def _mixed(word: int) -> int:
    return _rotated(word * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK


def _rotated(word: int, count: int) -> int:
    return (word << count | word >> (32 - count)) & _MASK


# ── the number of partitions ─────────────────────────────────────────────────────────────────────────────


def partitions_path(name: TopicName) -> str:
    """Return the path of the node that says how many partitions a topic has."""
    return PARTITIONED_TOPICS + name.path.removeprefix(ROOT)


def encode_partitions(name: TopicName, count: int) -> bytes:
    """Return the data of that node. Raise `InvalidTopicName` if the topic cannot have so many partitions."""
    if name.partition_index >= 0:
        raise InvalidTopicName(str(name), "a partition has no partitions")
    if not 1 <= count <= PARTITIONS_MAX:
        raise InvalidTopicName(str(name), f"{count} partitions; the limit is {PARTITIONS_MAX}")
    return json.dumps({"partitions": count}, separators=(",", ":")).encode()


def decode_partitions(path: str, data: bytes) -> int:
    """Return the number of partitions in the data of that node. Raise `InvalidMetadata`."""
    try:
        values = json.loads(data)
    except ValueError as error:
        raise InvalidMetadata(path, f"no JSON: {error}") from None
    count = values.get("partitions") if isinstance(values, dict) else None
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= PARTITIONS_MAX:
        raise InvalidMetadata(path, f"no number of partitions: {data[:80]!r}")
    return count
