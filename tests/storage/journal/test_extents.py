"""The places of a journal's entries, noted while its groups are verified: all of them, or none."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
import sealed_journals
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_builder import OurJournal, entry_record, zero
from sampling import many
from sealed_journals import CHUNK_SIZES, JOURNAL_ID, SealedJournal

from storage.entry.position import LENGTH_WORD_SIZE
from storage.journal import extents
from storage.journal import format as journal_format
from storage.journal.extents import SIZE_MAX, UNEVEN_SIZE_MAX, JournalExtents
from storage.journal.group_reader import SealedGroup, groups
from storage.journal.reader import StoredRecord
from storage.journal.seal import ALIGNMENTS, GroupFlag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.entry.read_result import Stop

PLENTY = 1 << 20
_SIZES = st.one_of(st.just([30]), st.lists(st.sampled_from([0, 30, 31, 400, 3000]), min_size=1, max_size=3))
_SPECIALS = (
    journal_format.encode_ledger_key(1, b"k" * 20),
    journal_format.encode_fence(2),
    journal_format.encode_explicit_lac(3, b"p"),
)


@st.composite
def plain(draw: st.DrawFn) -> SealedJournal:
    """Draw a journal as a store writes it: each ledger's entries in their order, most without a gap."""
    journal = OurJournal(JOURNAL_ID, alignment=draw(st.sampled_from(ALIGNMENTS)))
    places, next_ids = [512, journal.end], [0, 0, 1 << 40]
    for _ in range(draw(st.integers(0, 5))):
        records: list[bytes] = []
        for _ in range(draw(st.integers(0, 3))):
            ledger_id, sizes = draw(st.integers(0, 2)), draw(_SIZES)
            next_ids[ledger_id] += draw(st.sampled_from([0, 0, 0, 5]))
            for number in range(draw(st.integers(1, 20))):
                payload = b"x" * sizes[number % len(sizes)]
                records.append(entry_record(ledger_id, next_ids[ledger_id], payload))
                next_ids[ledger_id] += 1
            records += draw(st.lists(st.sampled_from(_SPECIALS), max_size=1))
        journal.group(*records, flags=draw(st.sampled_from(GroupFlag)))
        places.append(journal.end)
    journal.size = draw(st.sampled_from([0, journal.end + 1000]))
    return SealedJournal(journal.file(), places)


def walked(
    sample: SealedJournal, chunk_size: int, start: int = 0, number_max: int = PLENTY
) -> tuple[list[SealedGroup | Stop], JournalExtents]:
    noted = JournalExtents(number_max)
    return list(groups(sample.reader(chunk_size), start, noted)), noted


def entries_in(noted: JournalExtents, data: bytes) -> dict[int, list[tuple[int, bytes]]]:
    """Return the ids and records of each ledger; compare each extent with its checksum."""
    found: dict[int, list[tuple[int, bytes]]] = {}
    for ledger_id, packed in noted.packed.items():
        for one in extents.unpack(packed):
            there = data[one.offset : one.offset + one.size]
            assert extents.is_same(one, there)
            records = extents.records(one, there)
            assert len(records) == one.number
            found.setdefault(ledger_id, []).extend(enumerate(records, one.first_id))
    return found


def entries_of(data: bytes, sound: Sequence[SealedGroup]) -> dict[int, list[tuple[int, bytes]]]:
    """Return the same for groups that hold, by looking at every record."""
    found: dict[int, list[tuple[int, bytes]]] = {}
    for group in sound:
        for item in sealed_journals.reader(data).items(group.start):
            if item.offset >= group.end:
                break
            match item:
                case StoredRecord(record=journal_format.EntryRecord(ledger_id, entry_id)):
                    found.setdefault(ledger_id, []).append((entry_id, data[item.offset : item.end]))
    return found


@pytest.mark.sampled
@settings(max_examples=many(150, 10), deadline=None)
@given(plain(), CHUNK_SIZES, st.integers(0, 9))
def test_every_entry_of_a_journal_as_we_write_it_is_noted(
    sample: SealedJournal, chunk_size: int, first: int
) -> None:
    for start in (0, sample.places[first % len(sample.places)]):
        found, noted = walked(sample, chunk_size, start)
        assert found == list(groups(sample.reader(), start))
        sound = [one for one in found if isinstance(one, SealedGroup)]
        assert noted.is_plain
        assert entries_in(noted, sample.data) == entries_of(sample.data, sound)
        assert sum(one.record_count for one in sound) == len(noted.special) + sum(
            extents.totals(packed)[0] for packed in noted.packed.values()
        )


@pytest.mark.sampled
@settings(max_examples=many(250, 16), deadline=None)
@given(sealed_journals.unsound(), CHUNK_SIZES, st.integers(0, 9))
def test_noting_extents_changes_no_group_and_wrong_extents_are_disowned(
    sample: SealedJournal, chunk_size: int, first: int
) -> None:
    for start in (0, sample.places[first % len(sample.places)]):
        found, noted = walked(sample, chunk_size, start)
        assert found == list(groups(sample.reader(), start))
        if noted.is_plain:
            sound = [one for one in found if isinstance(one, SealedGroup)]
            assert entries_in(noted, sample.data) == entries_of(sample.data, sound)


@pytest.mark.parametrize("chunk_size", [600, 1 << 20])
def test_a_special_record_is_noted_with_its_offset(chunk_size: int) -> None:
    journal = (
        OurJournal(JOURNAL_ID).group(entry_record(1, 0)).group(_SPECIALS[0], entry_record(1, 1), *_SPECIALS)
    )
    _, noted = walked(SealedJournal(journal.file(), []), chunk_size)
    start = journal.ends[0]
    behind = start + len(_SPECIALS[0]) + len(entry_record(1, 1))
    second = behind + len(_SPECIALS[0])
    assert noted.special == [
        (start, _SPECIALS[0]),
        (behind, _SPECIALS[0]),
        (second, _SPECIALS[1]),
        (second + len(_SPECIALS[1]), _SPECIALS[2]),
    ]


def test_nothing_is_noted_of_a_group_that_does_not_hold() -> None:
    journal = OurJournal(JOURNAL_ID)
    for entry_id in range(4):
        journal.group(entry_record(1, entry_id))
    torn = zero(journal.file(), journal.ends[2] - 64, journal.ends[2])
    found, noted = walked(SealedJournal(torn, []), 1 << 20)
    assert len(found) == 3
    assert list(entries_in(noted, torn)) == [1]
    assert [entry_id for entry_id, _ in entries_in(noted, torn)[1]] == [0, 1]


@pytest.mark.parametrize(
    "ids",
    [[(1, 5), (1, 5)], [(1, 5), (1, 6), (1, 6)], [(1, 5), (2, 0), (1, 4)]],
    ids=["again", "run", "before"],
)
@pytest.mark.parametrize("together", [1, 3])
def test_a_journal_in_which_an_older_id_comes_again_is_not_plain(
    ids: list[tuple[int, int]], together: int
) -> None:
    journal = OurJournal(JOURNAL_ID).group()
    for first in range(0, len(ids), together):
        journal.group(*[entry_record(*one) for one in ids[first : first + together]])
    assert not walked(SealedJournal(journal.file(), []), 1 << 20)[1].is_plain


def test_a_record_too_short_for_an_entry_is_noted_as_a_special_one() -> None:
    # Too short for an entry's head, so the record decoder judges it.
    short = journal_format.encode_record(struct.pack(">qqq", 1, 7, 0))
    journal = OurJournal(JOURNAL_ID).group().group(short)
    assert walked(SealedJournal(journal.file(), []), 1 << 20)[1].special == [(journal.ends[0], short)]


def test_if_there_are_too_many_extents_none_is_noted() -> None:
    journal = OurJournal(JOURNAL_ID).group()
    journal.group(*[entry_record(one, 0) for one in range(5)])
    sample = SealedJournal(journal.file(), [])
    assert walked(sample, 1 << 20, number_max=5)[1].is_plain
    _, noted = walked(sample, 1 << 20, number_max=4)
    assert (noted.is_plain, noted.packed) == (False, {})


def test_a_record_larger_than_any_block_is_noted() -> None:
    journal = OurJournal(JOURNAL_ID).group(entry_record(1, 0, b"y" * 10_000)).group(entry_record(1, 1))
    journal.group(entry_record(1, 2, b"y" * 10_000), entry_record(1, 3))
    _, noted = walked(SealedJournal(journal.file(), []), 600)
    assert noted.is_plain
    assert [entry_id for entry_id, _ in entries_in(noted, journal.file())[1]] == [0, 1, 2, 3]


def test_a_special_record_larger_than_any_block_makes_the_journal_not_plain() -> None:
    journal = OurJournal(JOURNAL_ID).group().group(journal_format.encode_explicit_lac(1, b"p" * 5000))
    assert not walked(SealedJournal(journal.file(), []), 600)[1].is_plain


def extents_of(*records: bytes) -> list[extents.JournalExtent]:
    journal = OurJournal(JOURNAL_ID, size=4 << 20).group().group(*records)
    _, noted = walked(SealedJournal(journal.file(), []), 1 << 20)
    return [one for packed in noted.packed.values() for one in extents.unpack(packed)]


def test_entries_of_one_size_and_entries_of_several_make_two_extents() -> None:
    even = [entry_record(1, entry_id, b"x" * 50) for entry_id in range(10)]
    uneven = [entry_record(1, entry_id, b"x" * (entry_id % 3)) for entry_id in range(10, 20)]
    first, second = extents_of(*even, *uneven)
    assert (first.number, first.stride, second.number, second.stride) == (10, len(even[0]), 10, 0)
    assert first.size == 10 * len(even[0])


def test_an_extent_ends_before_it_is_too_large_to_be_searched() -> None:
    even = extents_of(*[entry_record(1, entry_id, b"x" * 9_000) for entry_id in range(100)])
    assert [one.size <= SIZE_MAX for one in even] == [True] * 4
    uneven = extents_of(*[entry_record(1, entry_id, b"x" * (500 + entry_id)) for entry_id in range(100)])
    assert max(one.size for one in uneven) <= UNEVEN_SIZE_MAX
    assert len(uneven) == 4
    assert [one.number for one in extents_of(entry_record(1, 0, b"x" * SIZE_MAX), entry_record(1, 1))] == [
        1,
        1,
    ]


def test_an_extent_with_a_changed_bit_or_without_its_end_is_not_the_same() -> None:
    journal = OurJournal(JOURNAL_ID).group().group(*[entry_record(1, one) for one in range(5)])
    _, noted = walked(SealedJournal(journal.file(), []), 1 << 20)
    [one] = extents.unpack(noted.packed[1])
    data = bytearray(journal.file()[one.offset : one.offset + one.size])
    assert extents.is_same(one, data)
    assert not extents.is_same(one, data[:-1])
    data[LENGTH_WORD_SIZE] ^= 1
    assert not extents.is_same(one, data)
