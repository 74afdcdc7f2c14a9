"""The sealed groups of our journals: passed over many at a time, with the results of a walk one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
import sealed_journals
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_builder import OurJournal, entry_record, flip, zero
from memory_files import CountingFile, GrowingFile, MemoryFile
from sampling import many
from sealed_journals import CHUNK_SIZES, JOURNAL_ID, MISTAKES, SealedJournal, reseal

from storage.entry.digest_inference import EntryVerifier
from storage.entry.read_result import Damaged, EndOfData, Flaw, Stop, Torn
from storage.journal import format as journal_format
from storage.journal import scan as journal_scan
from storage.journal.group_reader import GroupWatch, SealedGroup, groups
from storage.journal.reader import JournalReader, StoredPadding, StoredRecord
from storage.journal.seal import GroupFlag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.journal.extents import JournalExtents


def groups_one_by_one(
    reader: JournalReader, start: int = 0, _: JournalExtents | None = None
) -> Iterator[SealedGroup | Stop]:
    """Return what `groups` returns, by looking at every record."""
    watch = GroupWatch(reader, start)
    for item in reader.items(start):
        match item:
            case StoredRecord():
                watch.record(item)
            case StoredPadding():
                found = watch.padding(item)
                if found is not None:
                    yield found
                if isinstance(found, Damaged):
                    return
            case EndOfData() if item.offset != watch.start:
                yield Torn(watch.start, Flaw.SEAL_MISSING)
            case EndOfData() | Torn() | Damaged():
                yield item


def assert_the_same(sample: SealedJournal, chunk_size: int, start: int = 0) -> None:
    """Check that groups and scan are as if every record had been looked at."""
    expected = list(groups_one_by_one(sample.reader(), start))
    assert list(groups(sample.reader(chunk_size), start)) == expected
    with patch.object(journal_scan, "groups", groups_one_by_one):
        facts = journal_scan.scan(sample.reader(), EntryVerifier(), start)
    # Seals are looked for by the sector, in pieces of whole sectors.
    opened = sample.reader(chunk_size - chunk_size % 512)
    assert journal_scan.scan(opened, EntryVerifier(), start) == facts


@pytest.mark.sampled
@settings(max_examples=many(80, 8), deadline=None)
@given(sealed_journals.sound(), CHUNK_SIZES)
def test_a_sound_journal_s_groups_are_those_of_a_walk_one_by_one(
    sample: SealedJournal, chunk_size: int
) -> None:
    for start in (0, *sample.places):
        assert_the_same(sample, chunk_size, start)


@pytest.mark.sampled
@settings(max_examples=many(200, 16), deadline=None)
@given(sealed_journals.unsound(), CHUNK_SIZES, st.data())
def test_a_damaged_journal_s_groups_are_those_of_a_walk_one_by_one(
    sample: SealedJournal, chunk_size: int, data: st.DataObject
) -> None:
    assert_the_same(sample, chunk_size)
    assert_the_same(sample, chunk_size, data.draw(st.sampled_from(sample.places)))


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("number", [0, 1, 2])
def test_every_wrong_field_of_a_seal_is_found_in_every_group(mistake: str, number: int) -> None:
    journal = OurJournal(JOURNAL_ID)
    for entry in range(3):
        journal.group(entry_record(1, entry))
    data, places = bytearray(journal.file()), [4096, *journal.ends]
    offset, field = MISTAKES[mistake]
    reseal(data, places[number], places[number + 1], offset, field(places[number]))
    *before, stop = groups(sealed_journals.reader(bytes(data)))
    assert (len(before), isinstance(stop, Damaged)) == (number, True)
    assert_the_same(SealedJournal(bytes(data), places), 1 << 20)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_flipped_bit_in_a_payload_is_found_in_every_group(number: int) -> None:
    journal = OurJournal(JOURNAL_ID)
    for entry in range(3):
        journal.group(entry_record(1, entry))
    places = [4096, *journal.ends]
    *before, stop = groups(sealed_journals.reader(flip(journal.file(), places[number] + 50)))
    assert (len(before), stop) == (number, Damaged(places[number], Flaw.CHECKSUM))


class Watched(JournalReader):
    """Counts the items that are looked at one by one."""

    looked_at = 0

    def item_at(self, offset: int) -> StoredRecord | StoredPadding | Stop:
        self.looked_at += 1
        return super().item_at(offset)


def test_neither_records_nor_small_groups_are_looked_at_one_by_one() -> None:
    journal = OurJournal(JOURNAL_ID, size=4 << 20)
    for _ in range(200):
        journal.group(entry_record(1, 0))
    journal.group(*[entry_record(1, 0, b"x" * 100)] * 20_000)
    watched = Watched(MemoryFile(journal.file()), JOURNAL_ID)
    assert sum(isinstance(group, SealedGroup) for group in groups(watched)) == 201
    # The header's padding and the first seal, the ends of seven windows, the last seal, the end.
    assert watched.looked_at < 14


@pytest.mark.parametrize("flags", GroupFlag)
def test_a_group_larger_than_any_window_is_one_group(flags: GroupFlag) -> None:
    journal = OurJournal(JOURNAL_ID, size=9 << 20)
    journal.group(entry_record(1, 0)).group(*[entry_record(1, 1, b"x" * 1000)] * 3000, flags=flags)
    journal.group(entry_record(1, 2, b"y" * (3 << 20))).group(entry_record(1, 3))
    assert [group.record_count for group in groups(sealed_journals.reader(journal.file()))
            if isinstance(group, SealedGroup)] == [1, 3000, 1, 1]  # fmt: skip
    assert_the_same(SealedJournal(journal.file(), []), 1 << 20)


def test_a_seal_means_nothing_in_a_version_without_padding() -> None:
    journal = OurJournal(JOURNAL_ID, alignment=512).group(entry_record(1, 0)).group(entry_record(1, 1))
    data = journal_format.encode_header(journal_format.JournalHeader(4)) + journal.file()[512:]
    for start in (0, 8):
        assert list(groups(sealed_journals.reader(data), start)) == list(
            groups_one_by_one(sealed_journals.reader(data), start)
        )


def test_a_journal_from_before_headers_may_be_searched_for_groups() -> None:
    data = entry_record(1, 0, bytes(3000)) + OurJournal(JOURNAL_ID).group(entry_record(1, 0)).file()
    opened = JournalReader(MemoryFile(data), JOURNAL_ID)
    assert opened.records_start == 0
    assert list(groups(opened)) == list(groups_one_by_one(opened))


def test_a_group_after_records_without_a_seal_is_in_the_wrong_place() -> None:
    journal = OurJournal(JOURNAL_ID, alignment=512).group(entry_record(1, 0))
    start = journal.end
    journal.data += entry_record(1, 1, b"x" * (1024 - len(entry_record(1, 1, b"x")) + 1))
    journal.group(entry_record(1, 2))
    for chunk_size in range(512, 3000, 100):
        *before, stop = groups(sealed_journals.reader(journal.file(), chunk_size))
        assert (len(before), stop) == (1, Damaged(start, Flaw.OTHER_PLACE))


def test_records_are_framed_and_summed_in_one_read() -> None:
    journal = OurJournal(JOURNAL_ID)
    for flags in (GroupFlag.NONE, GroupFlag.ATOMIC, GroupFlag.NONE):
        journal.group(*[entry_record(1, 1, b"x" * 1000)] * 3000, flags=flags)
    file = CountingFile(bytes(journal.data))
    assert sum(isinstance(found, SealedGroup) for found in groups(JournalReader(file, JOURNAL_ID))) == 3
    assert file.count < 1.2 * len(journal.data)


@pytest.mark.parametrize("reads", [1, 2, 3])
def test_a_group_that_was_being_written_while_its_first_part_was_read_is_summed_again(reads: int) -> None:
    journal = OurJournal(JOURNAL_ID, size=8 << 20).group(entry_record(1, 0))
    start = journal.end
    journal.group(*[entry_record(1, 1, b"x" * 1000)] * 3000)
    after = journal.file()
    before = zero(after, start + 500, start + 600)
    *found, end = groups(JournalReader(GrowingFile(before, after, reads), JOURNAL_ID))
    assert (len(found), end) == (2, EndOfData(journal.end))
    *found, end = groups(JournalReader(MemoryFile(before), JOURNAL_ID))
    assert (len(found), end) == (1, Damaged(start, Flaw.CHECKSUM))
