"""The records of a sound journal in batches: all of them, in their order, cut at the groups' ends."""

from __future__ import annotations

import errno
import struct
import tracemalloc
from typing import TYPE_CHECKING

import pytest
import sealed_journals
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_builder import OurJournal, change, entry_record, scan_bytes, zero
from sampling import many
from sealed_journals import CHUNK_SIZES, JOURNAL_ID, SealedJournal

from storage.entry.read_result import Damaged
from storage.journal import format as journal_format
from storage.journal.reader import StoredPadding, StoredRecord
from storage.journal.record_batches import RecordBatch, record_batches
from storage.journal.scan import KeptPrefix
from storage.journal.seal import GroupFlag, StoredSeal

if TYPE_CHECKING:
    from collections.abc import Sequence

Entry = tuple[int, int, bytes]
Special = tuple[int, journal_format.Record | Damaged]
Group = tuple[int, list[Entry], list[Special]]


def groups_of(batches: Sequence[RecordBatch]) -> list[Group]:
    """Join the batches of each group, and those after the last group."""
    joined: list[Group] = []
    entries: list[Entry] = []
    special: list[Special] = []
    for batch in batches:
        entries += zip(batch.ledger_ids, batch.entry_ids, batch.records, strict=True)
        special += batch.special
        if batch.ends_group or batch is batches[-1]:
            joined.append((batch.end, entries, special))
            entries, special = [], []
    return joined


def groups_one_by_one(data: bytes, start: int, end: int) -> list[Group]:
    """Return the same by looking at every record. A group ends with its seal, the last one at `end`."""
    joined: list[Group] = []
    entries: list[Entry] = []
    special: list[Special] = []
    for item in sealed_journals.reader(data).items(start):
        if not isinstance(item, StoredRecord | StoredPadding) or item.offset >= end:
            break
        match item:
            case StoredRecord(record=journal_format.EntryRecord(ledger_id=ledger_id, entry_id=entry_id)):
                entries.append((ledger_id, entry_id, data[item.offset : item.end]))
            case StoredRecord(record=record):
                special.append((item.offset, record))
        if item.end == end or (isinstance(item, StoredPadding) and isinstance(item.seal, StoredSeal)):
            joined.append((item.end, entries, special))
            entries, special = [], []
    return joined


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(sealed_journals.sound(), CHUNK_SIZES, st.integers(0, 7), st.integers(0, 7))
def test_the_batches_are_all_records_of_the_groups_and_end_where_those_end(
    sample: SealedJournal, chunk_size: int, first: int, last: int
) -> None:
    start, end = sample.places[first % len(sample.places)], sample.places[last % len(sample.places)]
    batches = list(record_batches(sample.reader(chunk_size), start, end))
    assert groups_of(batches) == groups_one_by_one(sample.data, start, end)
    ends = [batch.end for batch in batches]
    assert ends == sorted(set(ends))


@pytest.mark.sampled
@settings(max_examples=many(120, 8), deadline=None)
@given(sealed_journals.unsound(), CHUNK_SIZES)
def test_the_sound_and_the_kept_part_of_any_journal_come_in_batches(
    sample: SealedJournal, chunk_size: int
) -> None:
    facts = scan_bytes(sample.data, JOURNAL_ID)
    for start, end in ((facts.start, facts.end), (facts.kept.start, facts.kept.end)):
        expected = groups_one_by_one(sample.data, start, end)
        try:
            batches = list(record_batches(sample.reader(chunk_size), start, end))
        except OSError:
            assert any(isinstance(record, Damaged) for *_, special in expected for _, record in special)
        else:
            assert groups_of(batches) == expected


def test_a_batch_has_the_ids_and_the_record_of_each_entry() -> None:
    journal = OurJournal(JOURNAL_ID).group(
        entry_record(3, 7), journal_format.encode_fence(3), entry_record(4, 0)
    )
    [batch] = record_batches(sealed_journals.reader(journal.file()), 4096, journal.end)
    assert batch == RecordBatch(
        journal.end,
        [3, 4],
        [7, 0],
        [entry_record(3, 7), entry_record(4, 0)],
        [(4096 + len(entry_record(3, 7)), journal_format.Fence(3))],
        ends_group=True,
    )


def test_special_records_of_every_kind_are_in_a_list_of_their_own() -> None:
    unknown = struct.pack(">qq", 4, -7)
    records = [
        journal_format.encode_ledger_key(1, b"key"),
        journal_format.encode_fence(2),
        journal_format.encode_explicit_lac(3, b"packet"),
        journal_format.encode_record(unknown),
    ]
    journal = OurJournal(JOURNAL_ID).group(*records)
    [batch] = record_batches(sealed_journals.reader(journal.file()), 4096, journal.end)
    assert [record for _, record in batch.special] == [
        journal_format.LedgerKey(1, b"key"),
        journal_format.Fence(2),
        journal_format.ExplicitLac(3, b"packet"),
        journal_format.UnknownRecord(4, -7, unknown),
    ]
    assert batch.records == []


@pytest.mark.parametrize(
    ("entries", "runs"),
    [
        ([], []),
        ([(1, 0)], [(1, 0, 1)]),
        ([(1, 5), (1, 6), (1, 7)], [(1, 5, 3)]),
        ([(1, 5), (1, 7), (1, 8)], [(1, 5, 1), (1, 7, 2)]),
        ([(1, 5), (2, 6), (2, 7)], [(1, 5, 1), (2, 6, 2)]),
        ([(1, 5), (1, 5), (1, 4)], [(1, 5, 1), (1, 5, 1), (1, 4, 1)]),
    ],
    ids=["none", "one", "a run", "a gap", "another ledger", "again"],
)
def test_consecutive_entries_of_one_ledger_are_a_run(
    entries: list[tuple[int, int]], runs: list[tuple[int, int, int]]
) -> None:
    records = [entry_record(ledger_id, entry_id) for ledger_id, entry_id in entries]
    journal = OurJournal(JOURNAL_ID).group(*records)
    [batch] = record_batches(sealed_journals.reader(journal.file()), 4096, journal.end)
    found = list(batch.runs())
    assert [(ledger_id, first_id, len(run)) for ledger_id, first_id, run in found] == runs
    assert [record for *_, run in found for record in run] == records


def test_an_empty_group_is_an_empty_batch() -> None:
    journal = OurJournal(JOURNAL_ID).group().group(entry_record(1, 0))
    batches = list(record_batches(sealed_journals.reader(journal.file()), 4096, journal.end))
    assert [(batch.end, len(batch.records)) for batch in batches] == [
        (journal.ends[0], 0),
        (journal.ends[1], 1),
    ]


def test_an_empty_range_has_no_batch() -> None:
    journal = OurJournal(JOURNAL_ID).group(entry_record(1, 0))
    for place in (0, 512, 4096, journal.end):
        assert list(record_batches(sealed_journals.reader(journal.file()), place, place)) == []


def test_only_the_kept_part_of_a_torn_group_is_in_a_batch() -> None:
    journal = OurJournal(JOURNAL_ID).group(entry_record(1, 0))
    start, records = (
        journal.end,
        [journal_format.encode_fence(1), entry_record(1, 1), journal_format.encode_fence(2)],
    )
    torn = zero(journal.group(*records).file(), journal.end - 64, journal.end)
    kept = scan_bytes(torn, JOURNAL_ID).kept
    assert kept == KeptPrefix(start, start + len(records[0] + records[1]), 2)
    [batch] = record_batches(sealed_journals.reader(torn), kept.start, kept.end)
    assert (batch.end, batch.records, batch.special) == (
        kept.end, [records[1]], [(start, journal_format.Fence(1))])  # fmt: skip


def test_a_torn_first_group_is_kept_from_the_end_of_the_header_on() -> None:
    journal = OurJournal(JOURNAL_ID).group(entry_record(1, 0))
    torn = zero(journal.file(), journal.end - 64, journal.end)
    kept = scan_bytes(torn, JOURNAL_ID).kept
    assert kept.start == 512
    [batch] = record_batches(sealed_journals.reader(torn), kept.start, kept.end)
    assert (batch.end, batch.records) == (kept.end, [entry_record(1, 0)])


SIZE = len(entry_record(1, 0, b"x"))


@pytest.mark.parametrize("cut", [2, 4, 8, SIZE - 1, 2 * SIZE - 1, 2 * SIZE + 4, 4095])
def test_a_range_that_ends_inside_an_item_is_an_error(cut: int) -> None:
    journal = OurJournal(JOURNAL_ID).group(entry_record(1, 0, b"x"), entry_record(1, 1, b"x"))
    with pytest.raises(OSError, match="changed while it was read: 'memory'") as raised:
        list(record_batches(sealed_journals.reader(journal.file()), 4096, 4096 + cut))
    assert raised.value.errno == errno.EIO


@pytest.mark.parametrize("length", [0, 1, 15, -1, -0x1000, 5000, 2**31 - 1])
def test_a_length_that_has_changed_since_the_scan_is_an_error(length: int) -> None:
    journal = OurJournal(JOURNAL_ID).group(*[entry_record(1, 0)] * 3)
    data = change(journal.file(), 4096 + len(entry_record(1, 0)), struct.pack(">i", length))
    with pytest.raises(OSError, match="changed while it was read"):
        list(record_batches(sealed_journals.reader(data), 4096, journal.end))


def test_a_file_that_has_become_shorter_since_the_scan_is_an_error() -> None:
    journal = OurJournal(JOURNAL_ID).group(entry_record(1, 0))
    for size in (600, 4096, journal.end - 1):
        with pytest.raises(OSError, match="changed while it was read"):
            list(record_batches(sealed_journals.reader(journal.file()[:size]), 4096, journal.end))


@pytest.mark.parametrize(
    "record",
    [struct.pack(">iqq", 16, -1, 5), struct.pack(">iqqi", 20, 1, journal_format.LEDGER_KEY, 5)],
    ids=["negative ledger", "key of another length"],
)
def test_a_sealed_record_that_no_store_writes_is_not_skipped(record: bytes) -> None:
    journal = OurJournal(JOURNAL_ID).group(entry_record(1, 0), record)
    facts = scan_bytes(journal.file(), JOURNAL_ID)
    assert facts.is_sound
    with pytest.raises(OSError, match=f"no record we write, at {4096 + len(entry_record(1, 0))}"):
        list(record_batches(sealed_journals.reader(journal.file()), facts.start, facts.end))


@pytest.mark.parametrize("flags", GroupFlag)
def test_records_and_groups_larger_than_a_window_come_whole(flags: GroupFlag) -> None:
    records = [entry_record(1, 0, b"y" * (3 << 20)), *[entry_record(1, 1, b"x" * 1000)] * 3000]
    journal = OurJournal(JOURNAL_ID).group(*records, flags=flags).group(entry_record(1, 2))
    batches = list(record_batches(sealed_journals.reader(journal.file()), 0, journal.end))
    assert len(batches) > 4
    joined = groups_of(batches)
    assert [[record for _, _, record in entries] for _, entries, _ in joined] == [
        records,
        [entry_record(1, 2)],
    ]


def test_a_seal_at_the_end_of_a_padding_larger_than_a_window_ends_its_group() -> None:
    journal = OurJournal(JOURNAL_ID).group(entry_record(1, 0)).group(entry_record(1, 1))
    seal = journal.file()[journal.ends[0] - 64 : journal.ends[0]]
    padding = journal_format.encode_free_padding(5 << 20, seal)
    first = entry_record(1, 0)
    data = journal.file()[:4096] + first + padding + journal.file()[journal.ends[0] : journal.end]
    batches = list(record_batches(sealed_journals.reader(data), 4096, len(data)))
    assert [batch.records for batch in batches] == [[first], [entry_record(1, 1)]]


def test_a_large_journal_is_never_in_memory_as_a_whole() -> None:
    journal = OurJournal(JOURNAL_ID).group(*[entry_record(1, 1, b"x" * 1000)] * 40_000)
    opened = sealed_journals.reader(journal.file())
    tracemalloc.start()
    try:
        count = sum(len(batch.records) for batch in record_batches(opened, 0, journal.end))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 40_000
    assert peak < 8 << 20
