"""The partition of a message: the hashes of brokers' clients, and the number of partitions."""

from __future__ import annotations

import pytest

from storage.cluster.errors import InvalidMetadata
from storage.cluster.topics.errors import InvalidTopicName
from storage.cluster.topics.managed_ledger import TopicName
from storage.cluster.topics.message import Message
from storage.cluster.topics.routing import (
    KeyHash,
    Router,
    decode_partitions,
    encode_partitions,
    java_string_hash,
    murmur3_hash,
    partitions_path,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", 0),  # Integer.MIN_VALUE in Java
        ("ü", 252),
        ("\U0001f600", 0xD83D * 31 + 0xDE00),
    ],
)
def test_the_hash_of_a_string_is_that_of_java_without_its_sign(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"\x00\x00\x00\x00", 0x2362F9DE),
        (b"hello", 0x248BFA47),
        (b"hello, world", 0x149BBB7F),
        (b"The quick brown fox jumps over the lazy dog", 0x2E4FF723),
        (b"\xff\xff\xff\xff", 0x76293B50),
        (b"\x21\x43\x65\x87", 0xF55B516B & 0x7FFFFFFF),
        (b"\x21\x43\x65", 0x7E4A8634),
        (b"\x21\x43", 0xA0F7B07A & 0x7FFFFFFF),
        (b"\x21", 0x72661CF4),
    ],
)
def test_murmur3_has_the_values_of_its_published_vectors_without_their_sign(
    data: bytes, expected: int
) -> None:
    assert murmur3_hash(data) == expected


@pytest.mark.parametrize("key_hash", KeyHash)
def test_a_key_always_goes_to_the_same_partition(key_hash: KeyHash) -> None:
    router, other = Router(7, key_hash), Router(7, key_hash)
    other.partition_of(Message(b""))
    chosen = [router.partition_of(Message(b"", f"key {number}")) for number in range(50)]
    assert chosen == [other.partition_of(Message(b"x", f"key {number}")) for number in range(50)]
    assert set(chosen) == set(range(7))
    assert router.partition_of(Message(b"", b"\0\1")) == router.partition_of(Message(b"", "AAE="))


def test_messages_without_a_key_go_round() -> None:
    router = Router(3)
    assert [router.partition_of(Message(b"")) for _ in range(5)] == [0, 1, 2, 0, 1]


def test_the_number_of_partitions_is_where_a_broker_has_it() -> None:
    name = TopicName.parse("a/b/c d")
    assert partitions_path(name) == "/admin/partitioned-topics/a/b/persistent/c+d"
    assert encode_partitions(name, 4) == b'{"partitions":4}'
    assert decode_partitions("/x", b'{"partitions":4,"deleted":false}') == 4


@pytest.mark.parametrize("count", [0, -1, 100_001])
def test_a_topic_has_no_such_number_of_partitions(count: int) -> None:
    with pytest.raises(InvalidTopicName, match="partitions; the limit"):
        encode_partitions(TopicName.parse("t"), count)


def test_a_partition_has_no_partitions() -> None:
    with pytest.raises(InvalidTopicName, match="a partition has no partitions"):
        encode_partitions(TopicName.parse("t-partition-1"), 2)


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"{}", b'{"partitions":"4"}', b'{"partitions":true}'])
def test_damaged_data_is_refused_with_its_path(data: bytes) -> None:
    with pytest.raises(InvalidMetadata, match="/admin/x") as refused:
        decode_partitions("/admin/x", data)
    assert refused.value.path == "/admin/x"
