"""The records of the file of checksums."""

from __future__ import annotations

from array import array

from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from journal_builder import flip

from storage.entry.read_result import Damaged, EndOfData, Flaw, Torn
from storage.index.lmdb import checksum_format
from storage.index.lmdb.checksum_format import ChecksumRecord, RecordHead, numbers

WORDS = st.lists(st.integers(0, checksum_format.PAGE_MAX), max_size=40)
RECORD = ChecksumRecord(7, 4096, 0x11223344, numbers(2, 5), numbers(1, 0xFFFFFFFF), numbers(9))


def decode(data: bytes, offset: int = 0) -> ChecksumRecord | EndOfData | Torn | Damaged:
    head = checksum_format.decode_head(data, offset, len(data))
    if not isinstance(head, RecordHead):
        return head
    return checksum_format.decode_body(
        head, data, data[checksum_format.HEAD_SIZE : checksum_format.HEAD_SIZE + head.body_size]
    )


@given(
    st.integers(0, 2**64 - 1), st.integers(0, checksum_format.PAGE_MAX), WORDS, WORDS, st.integers(0, 2**40)
)
def test_a_record_reads_back(number: int, meta: int, pages: list[int], gone: list[int], start: int) -> None:
    sums = numbers(*map(crc32c, map(str.encode, map(str, pages))))
    record = ChecksumRecord(number, 4096, meta, numbers(*pages), sums, numbers(*gone))
    data = checksum_format.encode(record, start)
    assert decode(data, start) == record
    assert len(data) == record.size
    assert len(data) % checksum_format.ALIGNMENT == 0


def test_no_flipped_bit_and_no_prefix_of_a_record_is_believed() -> None:
    data = checksum_format.encode(RECORD, 0)
    end = checksum_format.HEAD_SIZE + 5 * 4
    for bit in range(end * 8):
        assert isinstance(decode(flip(data, bit // 8, bit % 8)), Damaged | Torn), bit
    for size in range(1, end):
        assert isinstance(decode(data[:size]), Damaged | Torn), size
    assert decode(data[:end]) == RECORD


def test_zeros_or_no_bytes_are_the_end() -> None:
    assert decode(b"") == decode(bytes(9000)) == EndOfData(0)


def test_a_record_of_another_offset_is_not_accepted() -> None:
    found = decode(checksum_format.encode(RECORD, 4096), 0)
    assert isinstance(found, Damaged)
    assert found.flaw is Flaw.OTHER_PLACE


def test_a_count_larger_than_the_file_is_not_believed() -> None:
    data = bytearray(checksum_format.encode(RECORD, 0))
    data[36:40] = b"\xff" * 4
    assert decode(bytes(data)) == Torn(0, Flaw.BODY_CUT)


@given(st.binary(max_size=200))
def test_any_bytes_are_answered(data: bytes) -> None:
    for anything in (data, checksum_format.MAGIC + data):
        assert isinstance(decode(anything), Torn | Damaged | EndOfData)


def test_encoding_does_not_change_the_numbers() -> None:
    checksum_format.encode(RECORD, 0)
    assert RECORD.pages == array("I", [2, 5])
