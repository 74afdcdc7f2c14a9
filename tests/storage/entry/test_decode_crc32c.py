"""Decoding of records under CRC-32C: the right entry, or nothing."""

from __future__ import annotations

import dataclasses
import pickle
import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from journal_builder import change, flip

from storage.entry import format as entry_format
from storage.entry.digest import digester
from storage.entry.model import ID_MAX, DigestType, Entry, UncheckedEntry
from storage.entry.record_format import FRONT_SIZE, decode_crc32c
from storage.journal import format as journal_format

IDS = st.integers(0, ID_MAX)
ENTRIES = st.builds(Entry, IDS, IDS, st.integers(-1, ID_MAX), IDS, st.binary(max_size=200))
HELLO = Entry(1, 2, -1, 5, b"hello")


def record(entry: Entry, digest_type: DigestType = DigestType.CRC32C) -> bytes:
    return bytes(journal_format.encode_record(entry_format.encode(entry, digester(digest_type, b"pw"))))


def with_head(*numbers: int) -> bytes:
    """Encode a record with these numbers in its head, and the digest for them."""
    head = struct.pack(">qqqq", *numbers)
    digest = struct.pack(">I", crc32c(b"hello", crc32c(head)))
    return struct.pack(">i", 41) + head + digest + b"hello"


@given(ENTRIES, st.binary(max_size=9))
def test_a_record_reads_back_whatever_follows_it(entry: Entry, behind: bytes) -> None:
    data = record(entry)
    assert decode_crc32c(data + behind, entry.ledger_id, entry.entry_id) == entry
    parts = bytearray(data[:FRONT_SIZE]), entry.ledger_id, entry.entry_id, data[FRONT_SIZE:]
    assert decode_crc32c(*parts) == entry


def test_a_decoded_entry_equals_a_constructed_one() -> None:
    found = decode_crc32c(record(HELLO), 1, 2)
    assert found is not None
    assert type(found) is Entry
    assert (found, hash(found), repr(found)) == (HELLO, hash(HELLO), repr(HELLO))
    assert pickle.loads(pickle.dumps(found)) == HELLO
    assert dataclasses.replace(found, length=7) == Entry(1, 2, -1, 7, b"hello")
    assert dataclasses.asdict(found) == dataclasses.asdict(HELLO)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.length = 7  # type: ignore[misc]
    match found:
        case Entry(1, 2, -1, 5, payload):
            assert payload == b"hello"


def test_an_unchecked_entry_has_the_fields_of_an_entry() -> None:
    assert set(UncheckedEntry.__slots__) == {field.name for field in dataclasses.fields(Entry)}


def test_a_record_with_any_bit_flipped_is_not_decoded() -> None:
    data = record(HELLO)
    for bit in range(8 * len(data)):
        damaged = flip(data, bit // 8, bit % 8)
        assert decode_crc32c(damaged, 1, 2) is None, bit
        assert decode_crc32c(damaged + bytes(300), 1, 2) is None, bit
        assert decode_crc32c(damaged[:FRONT_SIZE], 1, 2, damaged[FRONT_SIZE:]) is None, bit


def test_a_record_cut_anywhere_is_not_decoded() -> None:
    data = record(HELLO)
    for size in range(len(data)):
        assert decode_crc32c(data[:size], 1, 2) is None, size
    assert decode_crc32c(data[:FRONT_SIZE], 1, 2, b"hell") is None
    assert decode_crc32c(data[: FRONT_SIZE - 1], 1, 2, b"hello") is None


@pytest.mark.parametrize("ids", [(1, 3), (2, 2), (0, 2), (-1, 2), (1, -2)])
def test_a_record_of_another_entry_is_not_decoded(ids: tuple[int, int]) -> None:
    assert decode_crc32c(record(HELLO), *ids) is None


@pytest.mark.parametrize("digest_type", [one for one in DigestType if one is not DigestType.CRC32C])
def test_a_record_under_another_digest_is_not_decoded(digest_type: DigestType) -> None:
    assert decode_crc32c(record(HELLO, digest_type), 1, 2) is None


@pytest.mark.parametrize(
    ("numbers", "is_sound"),
    [
        ((1, 2, -1, 0), True),
        ((1, 2, ID_MAX, ID_MAX), True),
        ((1, 2, -2, 5), False),
        ((1, 2, -(2**63), 5), False),
        ((1, 2, -1, -1), False),
    ],
)
def test_a_record_with_impossible_numbers_is_not_decoded(
    numbers: tuple[int, int, int, int], is_sound: bool
) -> None:
    found = decode_crc32c(with_head(*numbers), 1, 2)
    assert (found is not None) == is_sound
    if not is_sound:
        with pytest.raises(ValueError, match="is not between"):
            Entry(*numbers, b"hello")


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 4, 35, 36, 40, 42, 2**31 - 1])
def test_a_record_with_a_wrong_length_word_is_not_decoded(length: int) -> None:
    assert decode_crc32c(change(record(HELLO), 0, struct.pack(">i", length)) + bytes(99), 1, 2) is None
