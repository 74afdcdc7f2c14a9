"""The metadata of topics and cursors: names, paths and bytes."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.cluster.errors import InvalidMetadata
from storage.cluster.topics.compression import Compression, compress
from storage.cluster.topics.errors import InvalidTopicName
from storage.cluster.topics.managed_ledger import (
    NO_LEDGER,
    BatchAcks,
    DeletedBits,
    DeletedRange,
    LedgerInfo,
    ManagedCursorInfo,
    ManagedLedgerInfo,
    Position,
    PositionInfo,
    TopicName,
    decode_cursor,
    decode_managed_ledger,
    decode_name,
    decode_position_info,
    encode_cursor,
    encode_managed_ledger,
    encode_name,
    encode_position_info,
)

if TYPE_CHECKING:
    from collections.abc import Callable

# ── names ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "full", "path"),
    [
        ("orders", "persistent://public/default/orders", "/managed-ledgers/public/default/persistent/orders"),
        ("a/b/c", "persistent://a/b/c", "/managed-ledgers/a/b/persistent/c"),
        (
            "persistent://a/b/c d~ü*-partition-3",
            "persistent://a/b/c d~ü*-partition-3",
            "/managed-ledgers/a/b/persistent/c+d%7E%C3%BC*-partition-3",
        ),
    ],
)
def test_a_topic_has_a_full_name_and_a_path(name: str, full: str, path: str) -> None:
    topic = TopicName.parse(name)
    assert str(topic) == full
    assert topic.path == path


def test_a_subscription_is_a_child_of_its_topic() -> None:
    assert TopicName.parse("t").cursor_path("s/1") == "/managed-ledgers/public/default/persistent/t/s%2F1"


@given(st.text(st.characters(codec="utf-8")))
def test_encoded_names_give_the_name_back(name: str) -> None:
    assert decode_name(encode_name(name)) == name
    assert "/" not in encode_name(name)


@pytest.mark.parametrize(
    ("name", "index", "whole"),
    [
        ("t-partition-0", 0, "t"),
        ("t-partition-12", 12, "t"),
        ("t-partition-1-partition-2", 2, "t-partition-1"),
        ("t-partition-01", -1, "t-partition-01"),
        ("t-partition--1", -1, "t-partition--1"),
        ("t-partition-2147483648", -1, "t-partition-2147483648"),
        ("t-partition-", -1, "t-partition-"),
        ("t", -1, "t"),
    ],
)
def test_the_partition_is_a_number_at_the_end_of_the_name(name: str, index: int, whole: str) -> None:
    topic = TopicName.parse(name)
    assert topic.partition_index == index
    assert topic.partitioned == TopicName.parse(whole)
    assert TopicName.parse("x").partition(7).partition_index == 7


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "a/b",
        "a/b/c/d",
        "a/b/",
        "/b/c",
        "a//c",
        "persistent://c",
        "persistent://a/b",
        "persistent://a/b/c/d",
        "non-persistent://a/b/c",
        "a b/c/d",
        "a/b/\ud800",
    ],
)
def test_a_name_that_no_topic_can_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidTopicName, match="topic") as refused:
        TopicName.parse(name)
    assert refused.value.name == name


# ── bytes ────────────────────────────────────────────────────────────────────────────────────────────────

MINUS_ONE = "ffffffffffffffffff01"

LEDGERS = ManagedLedgerInfo(
    (LedgerInfo(0, 4, 132, 1790340000169), LedgerInfo(3, timestamp_ms=0)),
)


def test_a_topic_of_a_broker_is_read_and_written() -> None:
    data = bytes.fromhex("0a0e" "0800" "1004" "188401" "20a9d397a09f34" "0a04" "0803" "2000")  # fmt: skip
    info = decode_managed_ledger("/x", data)
    assert [(one.ledger_id, one.entries, one.size) for one in info.ledgers] == [(0, 4, 132), (3, None, None)]
    assert info.ledgers[1].timestamp_ms == 0
    assert encode_managed_ledger(info) == data


def test_a_cursor_of_a_broker_is_read_and_written() -> None:
    data = bytes.fromhex("08" + MINUS_ONE + "1001" + "18" + MINUS_ONE + "3007")
    info = decode_cursor("/x", data)
    assert info == ManagedCursorInfo(NO_LEDGER, Position(1, -1), last_active_ms=7)
    assert encode_cursor(info) == data


def test_ranges_batches_and_bits_have_the_fields_of_a_broker() -> None:
    batch = BatchAcks(Position(3, 9), 0b101 | 1 << 127)
    info = PositionInfo(
        Position(3, 4),
        (DeletedRange(Position(3, 5), Position(3, 7)),),
        (("n", -2),),
        (batch,),
        (DeletedBits(3, 1 << 6),),
    )
    ranges = "1a0c" "0a0408031005" "120408031007"  # fmt: skip
    properties = "220e" "0a016e" "10feffffffffffffffff01"  # fmt: skip
    batches = "2a13" "0a0408031009" "1005" "1080808080808080808001"  # fmt: skip
    bits = "3204" "0803" "1040"  # fmt: skip
    assert encode_position_info(info).hex() == "08031004" + ranges + properties + batches + bits
    assert decode_position_info("x", encode_position_info(info)) == info


POSITIONS = st.builds(Position, st.integers(0, 2**63 - 1), st.integers(-1, 2**63 - 1))
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
RANGES = st.lists(st.builds(DeletedRange, POSITIONS, POSITIONS), max_size=3).map(tuple)
NUMBERS = st.lists(st.tuples(TEXTS, st.integers(-(2**63), 2**63 - 1)), max_size=2).map(tuple)
BATCHES = st.lists(st.builds(BatchAcks, POSITIONS, st.integers(0, 2**200)), max_size=3).map(tuple)
BITS = st.lists(st.builds(DeletedBits, st.integers(0, 9), st.integers(0, 2**200)), max_size=3).map(tuple)
STRINGS = st.lists(st.tuples(TEXTS, TEXTS), max_size=2).map(tuple)
UNKNOWN = st.sampled_from([b"", b"\xf8\x7f\x05", b"\xfa\x7f\x02ab"])
COUNTS = st.none() | st.integers(0, 2**63 - 1)


@given(
    st.builds(
        ManagedLedgerInfo,
        st.lists(
            st.builds(LedgerInfo, st.integers(0, 2**63 - 1), COUNTS, COUNTS, COUNTS, UNKNOWN),
            max_size=3,
            unique_by=lambda one: one.ledger_id,
        ).map(tuple),
        st.none() | POSITIONS,
        STRINGS,
        UNKNOWN,
    )
)
def test_topics_are_read_as_they_were_written_with_unknown_fields(info: ManagedLedgerInfo) -> None:
    assert decode_managed_ledger("/x", encode_managed_ledger(info)) == info


@given(
    st.builds(
        ManagedCursorInfo, st.integers(-1, 9), POSITIONS, RANGES, NUMBERS, COUNTS, BATCHES, STRINGS, UNKNOWN
    )
)
def test_cursors_are_read_as_they_were_written_with_unknown_fields(info: ManagedCursorInfo) -> None:
    assert decode_cursor("/x", encode_cursor(info)) == info


@given(st.builds(PositionInfo, POSITIONS, RANGES, NUMBERS, BATCHES, BITS, UNKNOWN))
def test_states_in_a_ledger_are_read_as_they_were_written_with_unknown_fields(info: PositionInfo) -> None:
    assert decode_position_info("x", encode_position_info(info)) == info


@pytest.mark.parametrize("compression", [one for one in Compression if one is not Compression.NONE])
def test_a_compressed_value_is_read(compression: Compression) -> None:
    data = encode_managed_ledger(LEDGERS)
    head = bytes([0x08, compression.value, 0x10, len(data)])
    assert decode_managed_ledger("/x", b"\x47\x78\0\0\0\x04" + head + compress(compression, data)) == LEDGERS


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("0a00", "ledgerId|ledger is missing"),
        ("0aff", "ends"),
        ("0a0208050a020805", r"\[5, 5\]"),
        ("0a0b08" + MINUS_ONE, r"\[-1\]"),
        ("0a0d080110" + MINUS_ONE, "fewer than no entries"),
        ("477800", "head of a compressed value"),
        ("4778000000040802100aff", "zlib|decompress|incorrect"),
        ("4778000000040809100aff", "9"),
        ("477800000008080210ffffffff0fff", "the limit is"),
    ],
)
def test_damaged_data_of_a_topic_is_refused_with_its_path(data: str, reason: str) -> None:
    with pytest.raises(InvalidMetadata, match=reason) as refused:
        decode_managed_ledger("/managed-ledgers/x", bytes.fromhex(data))
    assert refused.value.path == "/managed-ledgers/x"


@pytest.mark.parametrize("data", ["", "08" + MINUS_ONE, "08032202", "08" + MINUS_ONE + "1001"])
def test_damaged_data_of_a_cursor_is_refused(data: str) -> None:
    with pytest.raises(InvalidMetadata):
        decode_cursor("/x", bytes.fromhex(data))


@pytest.mark.parametrize(
    ("decode", "data"),
    [
        (decode_managed_ledger, encode_managed_ledger(LEDGERS)),
        (
            decode_cursor,
            encode_cursor(
                ManagedCursorInfo(
                    NO_LEDGER,
                    Position(1, 2),
                    (DeletedRange(Position(1, 3), Position(1, 4)),),
                    batches=(BatchAcks(Position(1, 7), 5),),
                )
            ),
        ),
        (
            decode_position_info,
            encode_position_info(PositionInfo(Position(1, 2), bits=(DeletedBits(1, 1 << 70),))),
        ),
    ],
    ids=["topic", "cursor", "state"],
)
def test_changed_data_is_decoded_or_refused(decode: Callable[[str, bytes], object], data: bytes) -> None:
    chance, refused = random.Random(7), 0
    for _ in range(1_500):
        changed = bytearray(data)
        for _ in range(chance.randrange(1, 3)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        try:
            decode("/x", bytes(changed[: chance.randrange(1, len(changed) + 1)]))
        except InvalidMetadata:
            refused += 1
    assert 100 < refused < 1_500
