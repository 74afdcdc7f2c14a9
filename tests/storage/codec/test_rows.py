"""Ledger rows and the groups they are appended in."""

from __future__ import annotations

import msgpack
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from journals import flip

from storage.codec import row as row_codec
from storage.codec import rows as codec
from storage.entry import DigestType
from storage.outcome import Damaged, EndOfData, Flaw, Torn
from storage.position import JournalPosition, LogPosition
from storage.row import KnownBy, LedgerRow, Tombstone

IDS = st.integers(0, 2**63 - 1)
ROWS = st.builds(
    LedgerRow,
    ledger_id=IDS,
    change=IDS,
    digest_type=st.none() | st.sampled_from(DigestType),
    known_by=st.sampled_from(KnownBy),
    master_key=st.none() | st.binary(max_size=40),
    fenced=st.booleans(),
    explicit_lac=st.none() | st.binary(max_size=40),
    tombstone=st.none()
    | st.builds(
        Tombstone,
        st.builds(JournalPosition, IDS, IDS),
        st.none() | st.builds(LogPosition, st.integers(0, 2**31 - 1), IDS),
    ),
    in_limbo=st.booleans(),
)
ROW = LedgerRow(
    42,
    7,
    DigestType.MAC,
    KnownBy.INFERRED,
    b"key",
    True,
    b"lac",
    Tombstone(JournalPosition(3, 8192), LogPosition(1, 4096)),
    in_limbo=True,
)


@given(ROWS)
def test_a_row_reads_back(row: LedgerRow) -> None:
    assert row_codec.decode(row_codec.encode(row)) == row


def test_no_flipped_bit_and_no_prefix_of_a_row_is_believed() -> None:
    encoded = row_codec.encode(ROW)
    for bit in range(len(encoded) * 8):
        assert isinstance(row_codec.decode(flip(encoded, bit // 8, bit % 8)), Damaged), bit
    for size in range(len(encoded)):
        assert isinstance(row_codec.decode(encoded[:size]), Damaged), size


def signed(value: object) -> bytes:
    body: bytes = msgpack.packb(value)
    return body + crc32c(body).to_bytes(4, "big")


GOOD = [1, 42, 7, 3, 0, b"key", False, None, None, True]


def test_the_array_that_a_row_is() -> None:
    assert row_codec.decode(signed(GOOD)) == LedgerRow(
        42, 7, DigestType.CRC32C, KnownBy.DECLARED, b"key", False, None, in_limbo=True
    )


WRONG_FIELDS = [
    *((1, wrong) for wrong in (-1, "x", None, True)),
    (2, 2**63),
    (3, 9),
    (4, 5),
    (5, "text"),
    *((6, wrong) for wrong in (1, None)),
    (7, 1),
    *((8, wrong) for wrong in (7, [1], [1, 2, 3], [1, 2, 3, 4, 5], [-1, 0], ["a", 0], [1, 2, 2**31, 4])),
    *((9, wrong) for wrong in (1, None)),
]


@pytest.mark.parametrize(("field", "value"), WRONG_FIELDS)
def test_a_field_of_the_wrong_kind_is_damage(field: int, value: object) -> None:
    answer = row_codec.decode(signed([*GOOD[:field], value, *GOOD[field + 1 :]]))
    assert isinstance(answer, Damaged)
    assert answer.flaw is Flaw.BAD_FIELD


NO_ROWS = [
    ([2, *GOOD[1:]], Flaw.FUTURE_VERSION),
    ([0, *GOOD[1:]], Flaw.BAD_VERSION),
    ([None], Flaw.BAD_FIELD),
    (GOOD[:9], Flaw.BAD_FIELD),
    ([*GOOD, 1], Flaw.BAD_FIELD),
    ([], Flaw.BAD_FIELD),
    (7, Flaw.BAD_FIELD),
    ({}, Flaw.BAD_FIELD),
]


@pytest.mark.parametrize(("value", "flaw"), NO_ROWS)
def test_what_is_no_row(value: object, flaw: Flaw) -> None:
    answer = row_codec.decode(signed(value))
    assert isinstance(answer, Damaged)
    assert answer.flaw is flaw


def test_bytes_that_are_no_msgpack() -> None:
    body = b"\xc1\xc1"
    answer = row_codec.decode(body + crc32c(body).to_bytes(4, "big"))
    assert isinstance(answer, Damaged)
    assert answer.flaw is Flaw.BAD_TEXT


def read_group(data: bytes, offset: int = 0) -> object:
    head = codec.decode_group_head(data[offset : offset + codec.HEAD_SIZE], offset, len(data) - offset)
    if not isinstance(head, codec.GroupHead):
        return head
    body = data[offset + codec.HEAD_SIZE : offset + codec.HEAD_SIZE + head.body_size]
    return codec.decode_group_body(head, data[offset : offset + codec.HEAD_SIZE], body)


@given(st.lists(ROWS, max_size=20), st.integers(0, 100), st.integers(1, 2**64 - 1), IDS)
def test_a_group_reads_back_and_ends_at_4096(
    rows: list[LedgerRow], block: int, sequence: int, synced: int
) -> None:
    start = block * 4096
    group = codec.encode_group([row_codec.encode(row) for row in rows], sequence, start, synced)
    assert len(group) % 4096 == 0
    data = bytes(start) + group
    head = codec.decode_group_head(group, start, len(group))
    assert isinstance(head, codec.GroupHead)
    assert (head.sequence, head.synced_end, head.count, head.end) == (sequence, synced, len(rows), len(data))
    assert read_group(data, start) == rows


def one_group() -> bytes:
    return codec.encode_group([row_codec.encode(ROW), row_codec.encode(ROW)], 1, 4096, 4096)


def test_no_flipped_bit_in_a_group_is_believed() -> None:
    group = one_group()
    used = group.rstrip(b"\0")
    for bit in range(len(used) * 8):
        data = bytes(4096) + flip(group, bit // 8, bit % 8)
        assert isinstance(read_group(data, 4096), Damaged | Torn), bit


def test_every_prefix_of_a_group_is_torn_or_the_end() -> None:
    data = bytes(4096) + one_group()
    used = len(data.rstrip(b"\0"))
    assert read_group(data[:4096], 4096) == EndOfData(4096)
    for size in range(4097, used):
        assert isinstance(read_group(data[:size], 4096), Torn), size


def test_a_group_at_another_offset_is_not_accepted() -> None:
    answer = read_group(bytes(8192) + one_group(), 8192)
    assert isinstance(answer, Damaged)
    assert answer.flaw is Flaw.OTHER_PLACE


def test_zeros_are_the_end_of_the_rows() -> None:
    assert read_group(bytes(4096)) == EndOfData(0)
