"""Blocks of records and groups that are passed over agree with the codecs that look at one item at a time."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from journal_builder import OurJournal, entry_record

from storage.entry.model import RECORD_SIZE_MAX
from storage.journal import format as journal_format
from storage.journal import seal as journal_seal
from storage.journal.extents import JournalExtents
from storage.journal.group_reader import OpenGroup, SealedGroup, count_records, pass_groups
from storage.journal.reader import PartialChecksum
from storage.journal.record_batches import EntryColumns, take_entries
from storage.journal.seal import GroupFlag, Seal, StoredSeal

HEADER = journal_format.JournalHeader(journal_format.VERSION_MAX)
PARTS = st.one_of(
    st.builds(entry_record, st.integers(0, 3), st.integers(0, 3)),
    st.sampled_from(
        [
            journal_format.encode_fence(1),
            journal_format.encode_ledger_key(1, b"k"),
            journal_format.encode_free_padding(8),
            journal_format.encode_free_padding(100, b"LSSL" + bytes(60)),
            journal_format.encode_free_padding(100, b"LSSM" + bytes(60)),
            journal_seal.encode_atomic_mark(),
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


def frame(block: bytes, at: int) -> journal_format.JournalFrame | None:
    found = journal_format.frame(block[at : at + 8], at, len(block) - at, HEADER)
    return found if isinstance(found, journal_format.JournalFrame) else None


def record_at(block: bytes, at: int) -> journal_format.JournalFrame | None:
    found = frame(block, at)
    return found if found is not None and found.kind is journal_format.JournalFrameKind.RECORD else None


@given(BLOCKS)
def test_the_records_counted_are_those_that_are_framed(block: bytes) -> None:
    count = at = 0
    while (found := record_at(block, at)) is not None:
        count, at = count + 1, found.end
    assert count_records(block) == count_records(memoryview(block)) == (count, at)


@given(BLOCKS)
def test_the_entries_taken_are_those_that_decode_as_such(block: bytes) -> None:
    expected, at = EntryColumns([], [], []), 0
    while (found := record_at(block, at)) is not None:
        record = journal_format.decode_record(block[found.body : found.end], HEADER.version)
        if not isinstance(record, journal_format.EntryRecord):
            break
        expected.ledger_ids.append(record.ledger_id)
        expected.entry_ids.append(record.entry_id)
        expected.records.append(block[at : found.end])
        at = found.end
    taken = EntryColumns([], [], [])
    assert take_entries(block, 0, taken) == at
    assert taken == expected


@given(BLOCKS)
def test_a_padding_record_with_a_seal_in_it_ends_where_it_is_framed(block: bytes) -> None:
    for at in range(0, len(block) + 1, 4):
        found = frame(block, at) if block[at : at + 4] == journal_format.PADDING_WORD else None
        tail = b"" if found is None else block[max(found.body, found.end - journal_seal.SIZE) : found.end]
        end = found.end if found and isinstance(journal_seal.decode(tail), StoredSeal) else None
        assert journal_seal.sealed_end(block, at) == end


def test_records_are_counted_and_taken_from_the_start_on() -> None:
    block = entry_record(1, 0) + entry_record(1, 1)
    start = len(entry_record(1, 0))
    assert count_records(block, start) == (1, len(block))
    taken = EntryColumns([9], [9], [b"9"])
    assert take_entries(block, start, taken) == len(block)
    assert taken == EntryColumns([9, 1], [9, 1], [b"9", entry_record(1, 1)])


def test_no_block_is_large_enough_for_a_record_above_the_limit() -> None:
    largest = struct.pack(">iqq", RECORD_SIZE_MAX, 1, 1).ljust(RECORD_SIZE_MAX + 4, b"x")
    assert count_records(largest) == (1, len(largest))
    assert take_entries(largest, 0, EntryColumns([], [], [])) == len(largest)
    with pytest.raises(AssertionError):
        pass_groups(memoryview(largest + b"x"), 0, None, open_at(0))
    with pytest.raises(AssertionError):
        take_entries(largest + b"x", 0, EntryColumns([], [], []))


def seals(journal: OurJournal) -> list[Seal]:
    ends = [journal.file()[end - 64 : end] for end in journal.ends]
    return [stored.seal for stored in map(journal_seal.decode, ends) if isinstance(stored, StoredSeal)]


def open_at(start: int) -> OpenGroup:
    return OpenGroup(start, PartialChecksum(start))


NOTED = pytest.mark.parametrize("noted", [False, True], ids=["counted", "noted"])
"""Whether entries are only counted, or their extents are noted too."""


def extents_if(noted: bool) -> JournalExtents | None:
    return JournalExtents(1000) if noted else None


@NOTED
def test_groups_after_a_seal_are_passed_over_and_the_records_of_the_next_one_counted(noted: bool) -> None:
    journal = OurJournal(5)
    for number in range(3):
        journal.group(*[entry_record(1, number)] * number)
    first, *others = seals(journal)
    start, records = journal.ends[0], entry_record(1, 9) + journal_format.encode_fence(1)
    block = memoryview(bytes(journal.data[start:]) + records + bytes(3))
    passed = pass_groups(block, start, first, open_at(start), extents_if(noted))
    assert passed.groups == [
        SealedGroup(seal.group_start, end, seal, number)
        for number, (seal, end) in enumerate(zip(others, journal.ends[1:], strict=True), 1)
    ]
    assert (passed.open.record_count, passed.open.start) == (2, journal.end)
    assert passed.end == journal.end + len(records)
    assert passed.open.summed == PartialChecksum(passed.end, crc32c(records))


@NOTED
def test_without_a_seal_before_them_no_groups_are_passed_over(noted: bool) -> None:
    journal = OurJournal(5).group(entry_record(1, 0)).group(entry_record(1, 1))
    block = memoryview(journal.file())[4096:]
    passed = pass_groups(block, 4096, None, open_at(4096), extents_if(noted))
    size = len(entry_record(1, 0))
    assert (passed.groups, passed.end) == ([], 4096 + size)
    assert passed.open == OpenGroup(4096, PartialChecksum(4096 + size, crc32c(block[:size])), 1)


@NOTED
def test_an_atomic_group_is_passed_over(noted: bool) -> None:
    journal = OurJournal(5).group(entry_record(1, 0))
    journal.group(entry_record(1, 1), entry_record(1, 2), flags=GroupFlag.ATOMIC).group()
    first, *others = seals(journal)
    start = journal.ends[0]
    passed = pass_groups(memoryview(journal.data)[start:], start, first, open_at(start), extents_if(noted))
    assert [(group.seal, group.record_count) for group in passed.groups] == list(
        zip(others, (2, 0), strict=True)
    )


@pytest.mark.parametrize("what", ["place", "number", "journal", "salt", "flags", "checksum", "cut"])
@NOTED
def test_a_group_that_does_not_follow_is_not_passed_over(what: str, noted: bool) -> None:
    journal = OurJournal(5).group(entry_record(1, 0)).group(entry_record(1, 1)).group(entry_record(1, 2))
    last, offset = seals(journal)[0], journal.ends[0]
    block, group = bytearray(journal.data[offset:]), open_at(offset)
    match what:
        case "place":
            offset, group = offset + 512, open_at(offset + 512)
        case "number":
            last = Seal(5, last.salt, 2, 4096, last.durable_up_to, 1)
        case "journal":
            last = Seal(6, last.salt, 1, 4096, last.durable_up_to, 1)
        case "salt":
            last = Seal(5, 1, 1, 4096, last.durable_up_to, 1)
        case "flags":
            group = group._replace(flags=GroupFlag.ATOMIC)
        case "checksum":
            block[50] ^= 1
        case "cut":
            del block[4095:]
    passed = pass_groups(memoryview(block), offset, last, group, extents_if(noted))
    assert (passed.groups, passed.open.record_count, passed.open.start) == ([], 1, group.start)


def test_seals_are_looked_for_at_the_ends_of_sectors_only() -> None:
    block = bytearray(2048)
    for place in (448, 512, 960, 1400, 1984):
        block[place : place + 4] = journal_seal.MAGIC
    block[1472] = journal_seal.MAGIC[0]
    assert journal_seal.candidates(memoryview(block)) == [448, 960, 1984]
    assert journal_seal.candidates(memoryview(block)[:2000]) == [448, 960, 1984]
    assert journal_seal.candidates(memoryview(block)[:1986]) == [448, 960]
    assert journal_seal.candidates(memoryview(b"")) == []
