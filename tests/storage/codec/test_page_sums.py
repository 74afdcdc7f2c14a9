"""The records of the file of checksums."""

from __future__ import annotations

from array import array

from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from journals import flip

from storage.codec import page_sums as codec
from storage.codec.page_sums import Head, Record, numbers
from storage.outcome import Damaged, EndOfData, Flaw, Torn

WORDS = st.lists(st.integers(0, codec.PAGE_MAX), max_size=40)
RECORD = Record(7, 4096, 0x11223344, numbers(2, 5), numbers(1, 0xFFFFFFFF), numbers(9))


def decode(data: bytes, offset: int = 0) -> Record | EndOfData | Torn | Damaged:
    head = codec.decode_head(data, offset, len(data))
    if not isinstance(head, Head):
        return head
    return codec.decode_body(head, data, data[codec.HEAD_SIZE : codec.HEAD_SIZE + head.body_size])


@given(st.integers(0, 2**64 - 1), st.integers(0, codec.PAGE_MAX), WORDS, WORDS, st.integers(0, 2**40))
def test_a_record_reads_back(number: int, meta: int, pages: list[int], gone: list[int], start: int) -> None:
    sums = numbers(*map(crc32c, map(str.encode, map(str, pages))))
    record = Record(number, 4096, meta, numbers(*pages), sums, numbers(*gone))
    data = codec.encode(record, start)
    assert decode(data, start) == record
    assert len(data) == record.size
    assert len(data) % codec.ALIGNMENT == 0


def test_no_flipped_bit_and_no_prefix_of_a_record_is_believed() -> None:
    data = codec.encode(RECORD, 0)
    end = codec.HEAD_SIZE + 5 * 4
    for bit in range(end * 8):
        assert isinstance(decode(flip(data, bit // 8, bit % 8)), Damaged | Torn), bit
    for size in range(1, end):
        assert isinstance(decode(data[:size]), Damaged | Torn), size
    assert decode(data[:end]) == RECORD


def test_zeros_and_nothing_are_the_end() -> None:
    assert decode(b"") == decode(bytes(9000)) == EndOfData(0)


def test_a_record_of_another_place_is_none() -> None:
    found = decode(codec.encode(RECORD, 4096), 0)
    assert isinstance(found, Damaged)
    assert found.flaw is Flaw.OTHER_PLACE


def test_a_count_is_never_believed_beyond_the_file() -> None:
    data = bytearray(codec.encode(RECORD, 0))
    data[36:40] = b"\xff" * 4
    assert decode(bytes(data)) == Torn(0, Flaw.BODY_CUT)


@given(st.binary(max_size=200))
def test_any_bytes_are_answered(data: bytes) -> None:
    for anything in (data, codec.MAGIC + data):
        assert isinstance(decode(anything), Torn | Damaged | EndOfData)


def test_encoding_leaves_the_numbers_alone() -> None:
    codec.encode(RECORD, 0)
    assert RECORD.pages == array("I", [2, 5])
