"""The encoding of ledger rows and of their groups."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from journal_builder import flip

from storage.entry import ledger_record_format
from storage.entry.ledger_record import KnownBy, LedgerRecord, Tombstone, Truncation
from storage.entry.model import DigestType
from storage.entry.position import JournalPosition, LogPosition
from storage.entry.read_result import Damaged, EndOfData, Flaw, Torn
from storage.ledgers import metadata_log_format

IDS = st.integers(0, 2**63 - 1)
ROWS = st.builds(
    LedgerRecord,
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
    truncation=st.none() | st.builds(Truncation, st.integers(1, 2**63 - 1), IDS, st.integers(-1, 2**63 - 1)),
)
ROW = LedgerRecord(
    42,
    7,
    DigestType.MAC,
    KnownBy.INFERRED,
    b"key",
    True,
    b"lac",
    Tombstone(JournalPosition(3, 8192), LogPosition(1, 4096)),
    in_limbo=True,
    truncation=Truncation(5, 100, 3),
)


@given(ROWS)
def test_a_row_reads_back(row: LedgerRecord) -> None:
    assert ledger_record_format.decode(ledger_record_format.encode(row)) == row


def test_no_flipped_bit_and_no_prefix_of_a_row_is_believed() -> None:
    encoded = ledger_record_format.encode(ROW)
    for bit in range(len(encoded) * 8):
        assert isinstance(ledger_record_format.decode(flip(encoded, bit // 8, bit % 8)), Damaged), bit
    for size in range(len(encoded)):
        assert isinstance(ledger_record_format.decode(encoded[:size]), Damaged), size


def signed(value: object) -> bytes:
    body: bytes = msgpack.packb(value)
    return body + crc32c(body).to_bytes(4, "big")


GOOD = [1, 42, 7, 3, 0, b"key", False, None, None, True]


def test_the_encoded_array_of_a_row() -> None:
    assert ledger_record_format.decode(signed(GOOD)) == LedgerRecord(
        42, 7, DigestType.CRC32C, KnownBy.DECLARED, b"key", False, None, in_limbo=True
    )


TRUNCATED = [2, *GOOD[1:], [5, 100, 3]]


def test_only_the_row_of_a_truncated_ledger_has_version_2() -> None:
    row = LedgerRecord(42, 7, DigestType.CRC32C, KnownBy.DECLARED, b"key", in_limbo=True)
    assert ledger_record_format.encode(row) == signed(GOOD)
    truncated = replace(row, truncation=Truncation(5, 100, 3))
    assert ledger_record_format.encode(truncated) == signed(TRUNCATED)
    assert ledger_record_format.decode(signed(TRUNCATED)) == truncated


WRONG_TRUNCATIONS: list[object] = [
    None,
    5,
    *([], [5], [5, 1], [5, 1, 1, 1]),
    *([0, 0, -1], [-1, 0, -1], [2**63, 0, -1], ["5", 0, 0], [True, 0, 0]),
    *([5, -1, 0], [5, 0, -2], [5, None, 0], [5, 0, 2**63]),
]


@pytest.mark.parametrize("wrong", WRONG_TRUNCATIONS)
def test_a_truncation_of_the_wrong_kind_is_damage(wrong: object) -> None:
    answer = ledger_record_format.decode(signed([*TRUNCATED[:-1], wrong]))
    assert isinstance(answer, Damaged)
    assert answer.flaw is Flaw.BAD_FIELD


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
    answer = ledger_record_format.decode(signed([*GOOD[:field], value, *GOOD[field + 1 :]]))
    assert isinstance(answer, Damaged)
    assert answer.flaw is Flaw.BAD_FIELD


NO_ROWS = [
    ([3, *GOOD[1:]], Flaw.FUTURE_VERSION),
    ([2, *GOOD[1:]], Flaw.BAD_FIELD),
    ([1, *TRUNCATED[1:]], Flaw.BAD_FIELD),
    ([0, *GOOD[1:]], Flaw.BAD_VERSION),
    ([None], Flaw.BAD_FIELD),
    (GOOD[:9], Flaw.BAD_FIELD),
    ([*GOOD, 1], Flaw.BAD_FIELD),
    ([], Flaw.BAD_FIELD),
    (7, Flaw.BAD_FIELD),
    ({}, Flaw.BAD_FIELD),
]


@pytest.mark.parametrize(("value", "flaw"), NO_ROWS)
def test_bytes_that_are_no_row(value: object, flaw: Flaw) -> None:
    answer = ledger_record_format.decode(signed(value))
    assert isinstance(answer, Damaged)
    assert answer.flaw is flaw


def test_bytes_that_are_no_msgpack() -> None:
    body = b"\xc1\xc1"
    answer = ledger_record_format.decode(body + crc32c(body).to_bytes(4, "big"))
    assert isinstance(answer, Damaged)
    assert answer.flaw is Flaw.BAD_TEXT


def read_group(data: bytes, offset: int = 0) -> object:
    head = metadata_log_format.decode_group_head(
        data[offset : offset + metadata_log_format.HEAD_SIZE], offset, len(data) - offset
    )
    if not isinstance(head, metadata_log_format.GroupHead):
        return head
    body = data[
        offset + metadata_log_format.HEAD_SIZE : offset + metadata_log_format.HEAD_SIZE + head.body_size
    ]
    return metadata_log_format.decode_group_body(
        head, data[offset : offset + metadata_log_format.HEAD_SIZE], body
    )


@given(st.lists(ROWS, max_size=20), st.integers(0, 100), st.integers(1, 2**64 - 1), IDS)
def test_a_group_reads_back_and_ends_at_4096(
    rows: list[LedgerRecord], block: int, sequence: int, synced: int
) -> None:
    start = block * 4096
    group = metadata_log_format.encode_group(
        [ledger_record_format.encode(row) for row in rows], sequence, start, synced
    )
    assert len(group) % 4096 == 0
    data = bytes(start) + group
    head = metadata_log_format.decode_group_head(group, start, len(group))
    assert isinstance(head, metadata_log_format.GroupHead)
    assert (head.sequence, head.synced_end, head.count, head.end) == (sequence, synced, len(rows), len(data))
    assert read_group(data, start) == rows


def one_group() -> bytes:
    return metadata_log_format.encode_group(
        [ledger_record_format.encode(ROW), ledger_record_format.encode(ROW)], 1, 4096, 4096
    )


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
