"""Blocks passed over in tight loops agree with the codecs that look at one thing at a time."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from journals import OurJournal, entry_record

from storage.codec import blocks
from storage.codec import journal as codec
from storage.codec import seal as seal_codec
from storage.codec.blocks import Entries
from storage.codec.seal import GroupFlag, Seal, StoredSeal
from storage.entry import RECORD_SIZE_MAX

HEADER = codec.Header(codec.VERSION_MAX)
PARTS = st.one_of(
    st.builds(entry_record, st.integers(0, 3), st.integers(0, 3)),
    st.sampled_from(
        [
            codec.encode_fence(1),
            codec.encode_ledger_key(1, b"k"),
            codec.encode_free_padding(8),
            codec.encode_free_padding(100, b"LSSL" + bytes(60)),
            codec.encode_free_padding(100, b"LSSM" + bytes(60)),
            seal_codec.encode_atomic_mark(),
            struct.pack(">iqq", 16, -1, 5),
            struct.pack(">iqq", 15, 1, 5),
            struct.pack(">i", 16),
            struct.pack(">i", -1),
            b"\0\0\0\x10\0\0",
            bytes(4),
            bytes(72),
        ]
    ),
    st.binary(max_size=30),
)
BLOCKS = st.lists(PARTS, max_size=8).map(b"".join)


def frame(block: bytes, at: int) -> codec.Frame | None:
    found = codec.frame(block[at : at + 8], at, len(block) - at, HEADER)
    return found if isinstance(found, codec.Frame) else None


def record_at(block: bytes, at: int) -> codec.Frame | None:
    found = frame(block, at)
    return found if found is not None and found.kind is codec.FrameKind.RECORD else None


@given(BLOCKS)
def test_the_records_counted_are_those_that_are_framed(block: bytes) -> None:
    count = at = 0
    while (found := record_at(block, at)) is not None:
        count, at = count + 1, found.end
    assert blocks.count_records(block) == blocks.count_records(memoryview(block)) == (count, at)


@given(BLOCKS)
def test_the_entries_taken_are_those_that_decode_as_such(block: bytes) -> None:
    expected, at = Entries([], [], []), 0
    while (found := record_at(block, at)) is not None:
        record = codec.decode_record(block[found.body : found.end], HEADER.version)
        if not isinstance(record, codec.EntryRecord):
            break
        expected.ledger_ids.append(record.ledger_id)
        expected.entry_ids.append(record.entry_id)
        expected.records.append(block[at : found.end])
        at = found.end
    taken = Entries([], [], [])
    assert blocks.take_entries(block, 0, taken) == at
    assert taken == expected


@given(BLOCKS)
def test_a_padding_record_with_a_seal_in_it_ends_where_it_is_framed(block: bytes) -> None:
    for at in range(0, len(block) + 1, 4):
        found = frame(block, at) if block[at : at + 4] == codec.PADDING_WORD else None
        tail = b"" if found is None else block[max(found.body, found.end - seal_codec.SIZE) : found.end]
        end = found.end if found and isinstance(seal_codec.decode(tail), StoredSeal) else None
        assert blocks.sealed_end(block, at) == end


def test_what_begins_behind_the_start_is_counted_and_taken_from_there() -> None:
    block = entry_record(1, 0) + entry_record(1, 1)
    start = len(entry_record(1, 0))
    assert blocks.count_records(block, start) == (1, len(block))
    taken = Entries([9], [9], [b"9"])
    assert blocks.take_entries(block, start, taken) == len(block)
    assert taken == Entries([9, 1], [9, 1], [b"9", entry_record(1, 1)])


def test_no_block_is_large_enough_for_a_record_that_nobody_believes() -> None:
    largest = struct.pack(">iqq", RECORD_SIZE_MAX, 1, 1).ljust(RECORD_SIZE_MAX + 4, b"x")
    assert blocks.count_records(largest) == (1, len(largest))
    assert blocks.take_entries(largest, 0, Entries([], [], [])) == len(largest)
    with pytest.raises(AssertionError):
        blocks.count_records(largest + b"x")
    with pytest.raises(AssertionError):
        blocks.take_entries(largest + b"x", 0, Entries([], [], []))


def seals(journal: OurJournal) -> list[Seal]:
    ends = [journal.file()[end - 64 : end] for end in journal.ends]
    return [stored.seal for stored in map(seal_codec.decode, ends) if isinstance(stored, StoredSeal)]


def test_groups_behind_a_seal_are_passed_over_and_the_records_of_the_next_one_counted() -> None:
    journal = OurJournal(5)
    for number in range(3):
        journal.group(*[entry_record(1, number)] * number)
    first, *behind = seals(journal)
    start, records = journal.ends[0], entry_record(1, 9) + codec.encode_fence(1)
    block = bytes(journal.data[start:]) + records + bytes(3)
    passed = blocks.pass_over(block, start, first)
    assert passed.groups == list(zip(behind, journal.ends[1:], strict=True))
    assert (passed.record_count, passed.start) == (2, journal.end - start)
    assert passed.end == passed.start + len(records)


def test_without_a_seal_before_them_no_groups_are_passed_over() -> None:
    journal = OurJournal(5).group(entry_record(1, 0)).group(entry_record(1, 1))
    passed = blocks.pass_over(journal.file()[4096:], 4096, None)
    assert passed == blocks.Passed([], 1, 0, len(entry_record(1, 0)))


@pytest.mark.parametrize("what", ["place", "number", "journal", "salt", "atomic", "checksum", "cut"])
def test_a_group_that_does_not_plainly_follow_is_left_to_be_looked_at(what: str) -> None:
    journal = OurJournal(5).group(entry_record(1, 0))
    flags = GroupFlag.ATOMIC if what == "atomic" else GroupFlag.NONE
    journal.group(entry_record(1, 1), flags=flags).group(entry_record(1, 2))
    last, offset = seals(journal)[0], journal.ends[0]
    block = bytearray(journal.data[offset:])
    match what:
        case "place":
            offset += 512
        case "number":
            last = Seal(5, last.salt, 2, 4096, last.durable_up_to, 1)
        case "journal":
            last = Seal(6, last.salt, 1, 4096, last.durable_up_to, 1)
        case "salt":
            last = Seal(5, 1, 1, 4096, last.durable_up_to, 1)
        case "checksum":
            block[50] ^= 1
        case "cut":
            del block[4095:]
    passed = blocks.pass_over(block, offset, last)
    record_count = 0 if what == "atomic" else 1
    assert (passed.groups, passed.record_count, passed.start) == ([], record_count, 0)


def test_seals_are_looked_for_at_the_ends_of_sectors_only() -> None:
    block = bytearray(2048)
    for place in (448, 512, 960, 1400, 1984):
        block[place : place + 4] = seal_codec.MAGIC
    block[1472] = seal_codec.MAGIC[0]
    assert seal_codec.places(memoryview(block)) == [448, 960, 1984]
    assert seal_codec.places(memoryview(block)[:2000]) == [448, 960, 1984]
    assert seal_codec.places(memoryview(block)[:1986]) == [448, 960]
    assert seal_codec.places(memoryview(b"")) == []
