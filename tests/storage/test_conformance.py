"""Counterparts of BookKeeper's own tests of reading and file formats; docs/conformance.md has the list."""

from __future__ import annotations

import struct

import pytest
from entry_log_builder import Log, direct_log, entries, items, reader
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_builder import (
    START,
    BookieJournal,
    OurJournal,
    change,
    entry_bytes,
    entry_record,
    flip,
    scan_all,
    scan_bytes,
    zero,
)
from journal_builder import reader as journal_reader
from memory_files import MemoryFile

from recovery.replay.chain import judge
from recovery.replay.decision import Decision
from storage.entry.digest_inference import EntryVerifier
from storage.entry.model import DigestType
from storage.entry.position import EntryLocation
from storage.entry.read_result import Damaged, Flaw, Torn
from storage.entrylog import format as entrylog_format
from storage.entrylog import scan as entrylog_scan
from storage.entrylog.reader import EntryLogReader, LogEntry, NotSealed
from storage.entrylog.scan import MapSource
from storage.journal import format as journal_format
from storage.journal.reader import JournalReader, StoredRecord
from storage.journal.scan import Owner


def read_ids(data: bytes, journal_id: int = 1) -> list[int]:
    """Return the entry ids of a journal's data records."""
    return [
        item.record.entry_id
        for item in journal_reader(data, journal_id).items()
        if isinstance(item, StoredRecord) and isinstance(item.record, journal_format.EntryRecord)
    ]


def one_journal(data: bytes) -> Decision:
    return judge(START, scan_all({1: data})).standings[0].decision


def with_entries(version: int, count: int, *specials: bytes, every: int = 1000) -> BookieJournal:
    journal = BookieJournal(1, version, size=1 << 20)
    for number in range(count):
        if number % every == 0:
            journal.flush(entry_record(1, number))
        else:
            journal.data += entry_record(1, number)
    if specials:
        journal.flush(*specials)
    return journal


# ── J: the journal ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("digest", [DigestType.CRC32, DigestType.CRC32C])
def test_j1_a_journal_from_before_headers_is_read(digest: DigestType) -> None:
    data = b"".join(
        journal_format.encode_record(entry_bytes(1, number, digest=digest)) for number in range(1, 101)
    )
    data = data.ljust(1 << 20, b"\0")
    assert journal_reader(data, 1).header == journal_format.VERSION_1
    assert read_ids(data) == list(range(1, 101))
    assert one_journal(data) is Decision.USE


def test_j1_a_damaged_magic_never_becomes_a_journal_from_before_headers() -> None:
    journal = with_entries(6, 20)
    for bit in range(32):
        header = journal_reader(flip(journal.file(), bit // 8, bit % 8), 1).header
        assert header == Damaged(0, Flaw.BAD_MAGIC), bit
        assert one_journal(flip(journal.file(), bit // 8, bit % 8)) is Decision.ROT


def test_j2_a_version_4_journal_is_read_and_its_fence_is_there() -> None:
    journal = with_entries(4, 100, journal_format.encode_fence(1))
    found = [
        item.record for item in journal_reader(journal.file(), 1).items() if isinstance(item, StoredRecord)
    ]
    assert journal.data[:8] == b"BKLG\0\0\0\4"
    assert len(found) == 101
    assert found[-1] == journal_format.Fence(1)
    assert one_journal(journal.file()) is Decision.USE


def test_j3_a_version_5_journal_padded_after_every_record_is_read() -> None:
    journal = with_entries(5, 1024, journal_format.encode_fence(1), every=1)
    assert read_ids(journal.file()) == list(range(1024))
    facts = scan_bytes(journal.file(), 1)
    assert (facts.record_count, facts.owner, facts.is_sound) == (1025, Owner.BOOKIE, True)


@pytest.mark.parametrize("size", [0, 8, 512, 1 << 20])
def test_j4_a_journal_of_zeros_does_not_prevent_an_opening(size: int) -> None:
    assert one_journal(bytes(size)) is Decision.VOID


@pytest.mark.parametrize("version", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("zeros", [0, 8192])
def test_j5_a_journal_with_only_its_magic_and_version_does_not_prevent_an_opening(
    version: int, zeros: int
) -> None:
    data = b"BKLG" + struct.pack(">i", version) + bytes(zeros)
    assert read_ids(data) == []
    assert one_journal(data) in (Decision.VOID, Decision.USE)


def last_record(journal: BookieJournal) -> int:
    *_, last = (item for item in journal_reader(journal.file(), 1).items() if isinstance(item, StoredRecord))
    return last.offset


@pytest.mark.parametrize("kept_of_the_length", [0, 1, 2, 3])
def test_j6_a_tail_zeroed_from_inside_the_last_length_keeps_earlier_records(kept_of_the_length: int) -> None:
    journal = with_entries(5, 100, every=1)
    start = last_record(journal)
    data = zero(journal.file(), start + kept_of_the_length, journal.size)
    facts = scan_bytes(data, 1)
    assert read_ids(data) == list(range(99))
    assert (facts.record_count, facts.end) == (99, start)
    assert facts.is_sound or one_journal(data) is Decision.CUT


def test_j7_a_tail_zeroed_from_inside_the_last_payload_is_flagged_not_served() -> None:
    journal = with_entries(5, 100, every=1)
    start = last_record(journal)
    data = zero(journal.file(), start + 4 + 40, journal.size)
    facts = scan_bytes(data, 1)
    assert read_ids(data) == list(range(100))  # framed, as the real reader sees it
    assert (facts.record_count, facts.stop) == (99, Damaged(start, Flaw.DIGEST))
    assert one_journal(data) is Decision.CUT


def test_j8_a_journal_of_junk_is_refused() -> None:
    junk = bytes(range(1, 256)) * 40
    assert one_journal(junk) is Decision.ROT


def test_j8_junk_at_the_end_is_a_torn_tail_and_never_a_silent_end() -> None:
    journal = with_entries(6, 100)
    data = bytes(journal.data) + b"JunkJunkJunk" * 40
    facts = scan_bytes(data, 1)
    assert not facts.is_sound
    assert (facts.record_count, facts.end) == (100, len(journal.data))
    assert one_journal(data) is Decision.CUT


def test_j9_an_error_of_the_disk_while_reading_is_raised() -> None:
    class Failing(MemoryFile):
        def read(self, offset: int, size: int) -> bytes:
            if offset > 0:
                raise OSError(5, "Input/output error")
            return super().read(offset, size)

    data = with_entries(6, 5000, every=1).file().ljust(3 << 20, b"\0")
    with pytest.raises(OSError, match="Input/output"):
        list(JournalReader(Failing(data), 1).items())


def test_j9_a_file_that_shrinks_while_it_is_read_is_an_error_not_an_end() -> None:
    class Shrinking(MemoryFile):
        def read(self, offset: int, size: int) -> bytes:
            return super().read(offset, size)[: max(0, 600 - offset)]

    with pytest.raises(OSError, match="shorter"):
        list(JournalReader(Shrinking(with_entries(6, 100).file()), 1).items())


@pytest.mark.parametrize("length", [-1, -5, -(2**31)])
def test_j10_a_negative_length_is_damage_and_reading_says_where(length: int) -> None:
    journal = with_entries(6, 10, every=1)
    start = last_record(journal)
    data = change(journal.file(), start, struct.pack(">i", length))
    assert list(journal_reader(data, 1).items())[-1] == Damaged(
        start, Flaw.LENGTH_NEGATIVE, f"length {length}"
    )


def test_j11_a_first_length_of_minus_one_is_a_named_refusal_or_a_torn_tail() -> None:
    alone = change(BookieJournal(1, 5).file(), 512, struct.pack(">i", -1))
    assert one_journal(alone) is Decision.CUT
    followed = change(with_entries(5, 10, every=1).file(), 512, struct.pack(">i", -1))
    assert one_journal(followed) is Decision.ROT


@pytest.mark.parametrize(("version", "knows_keys"), [(1, False), (2, False), (3, True), (4, True)])
def test_j12_ledger_keys_are_in_journals_from_version_3_on(version: int, knows_keys: bool) -> None:
    journal = BookieJournal(1, version)
    journal.flush(entry_record(1, 0), journal_format.encode_ledger_key(1, b"k" * 20))
    records = [
        item.record for item in journal_reader(journal.file(), 1).items() if isinstance(item, StoredRecord)
    ]
    assert (journal_format.LedgerKey(1, b"k" * 20) in records) is knows_keys
    assert (one_journal(journal.file()) is Decision.USE) is knows_keys


# ── E: the entry log ─────────────────────────────────────────────────────────────────────────────────────


def short_entry(ledger_id: int, entry_id: int) -> bytes:
    """Twenty-six bytes: two ids and a little text, as BookKeeper's tests write them. No client's entry."""
    return struct.pack(">qq", ledger_id, entry_id) + b"ledger-%03d" % entry_id


def test_e30_a_log_cut_in_its_last_entry_counts_the_complete_ones() -> None:
    log = Log().add(short_entry(1, 1), short_entry(3, 1), short_entry(2, 1))
    cut = log.file()[:-10]
    metadata = entrylog_scan.metadata(reader(cut))
    assert metadata.sizes == {1: 30, 3: 30}
    assert metadata.source is MapSource.SCAN
    assert metadata.stop == Torn(log.places[2], Flaw.BODY_CUT)


def four_entries() -> Log:
    return Log().add(short_entry(1, 1), short_entry(3, 1), short_entry(2, 1), short_entry(1, 2))


def test_e31_a_sealed_log_s_sizes_come_from_its_map() -> None:
    metadata = entrylog_scan.metadata(reader(four_entries().seal().file()))
    assert metadata.sizes == {1: 60, 2: 30, 3: 30}
    assert sum(metadata.sizes.values()) == 120
    assert metadata.source is MapSource.MAP


@pytest.mark.parametrize("header", [bytes(1024), b"BKLO".ljust(1024, b"\0")], ids=["zeros", "version 0"])
def test_e32_a_log_without_a_version_has_no_map_and_is_scanned(header: bytes) -> None:
    sealed = four_entries().seal().file()
    old = reader(header + sealed[1024:])
    assert isinstance(old.ledgers_map(), NotSealed)
    assert entrylog_scan.metadata(old).sizes == {1: 60, 2: 30, 3: 30}
    assert entrylog_scan.metadata(old).source is MapSource.SCAN


@pytest.mark.parametrize("count", [0, 2, 4])
def test_e33_a_map_that_contradicts_the_header_is_not_used(count: int) -> None:
    sealed = four_entries().seal().file()
    doubtful = reader(change(sealed, 16, struct.pack(">i", count)))
    assert isinstance(doubtful.ledgers_map(), Damaged)
    assert entrylog_scan.metadata(doubtful).sizes == {1: 60, 2: 30, 3: 30}


def test_e43_an_entry_is_read_by_its_location_with_or_without_its_ids() -> None:
    log = Log().add(entry_bytes(1, 0), entry_bytes(2, 7))
    opened = reader(log.file())
    location = EntryLocation(0, log.places[1] + 4)
    for wanted in (None, (2, 7)):
        answer = opened.read(location, wanted)
        assert isinstance(answer, LogEntry)
        assert answer.data == entry_bytes(2, 7)


def test_e43_another_entry_at_the_location_is_reported() -> None:
    log = Log().add(entry_bytes(1, 0), entry_bytes(2, 7))
    for wanted in ((1, 7), (2, 8)):
        answer = reader(log.file()).read(EntryLocation(0, log.places[1] + 4), wanted)
        assert isinstance(answer, Damaged)
        assert answer.flaw is Flaw.OTHER_ENTRY


def test_e43_a_location_without_a_record_is_reported() -> None:
    opened = reader(Log().add(entry_bytes(1, 0)).seal().file())
    for offset in (0, 4, 1000, 1023, 1027, 5000, 2**32 - 1):
        assert not isinstance(opened.read(EntryLocation(0, offset), (1, 0)), LogEntry), offset
    assert not isinstance(opened.read(EntryLocation(9, 1028), (1, 0)), LogEntry)
    assert isinstance(opened.read(EntryLocation(0, 1028), (1, 0)), LogEntry)


def test_e43_a_damaged_entry_is_not_served() -> None:
    log = Log().add(entry_bytes(1, 0), entry_bytes(1, 1))
    answer = reader(flip(log.file(), log.places[0] + 45)).read(EntryLocation(0, log.places[0] + 4), (1, 0))
    assert answer == Damaged(log.places[0], Flaw.DIGEST)


def test_e43_a_direct_writer_s_log_is_read_by_location_and_by_scan() -> None:
    data = direct_log()
    found = items(data)
    assert entries(found) == [(1, 0), (1, 1), (1, 2)]
    opened = EntryLogReader(MemoryFile(data), 0, EntryVerifier())
    for item in found:
        if isinstance(item, LogEntry):
            assert opened.read(item.position.location, item.ids) == item


@pytest.mark.slow
@pytest.mark.parametrize("ledgers", [1, 10_000, 20_001])
def test_e43_a_map_of_many_batches_is_read(ledgers: int) -> None:
    sizes = {ledger: 30 + ledger for ledger in range(ledgers)}
    entries_of_that_size = bytes(sum(sizes.values()))
    data = bytearray(entrylog_format.encode_header() + entries_of_that_size)
    map_offset = len(data)
    data += b"".join(entrylog_format.encode_ledgers_map(sizes))
    seal = entrylog_format.encode_map_fields(map_offset, ledgers)
    data[8 : 8 + len(seal)] = seal
    assert reader(bytes(data)).ledgers_map() == sizes


# ── our own tests beyond BookKeeper's ────────────────────────────────────────────────────────────────────


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.integers(0, 3000), min_size=0, max_size=4), max_size=5), st.sampled_from([512, 4096])
)
def test_our_own_pages_are_decoded(groups: list[list[int]], alignment: int) -> None:
    journal = OurJournal(1, alignment=alignment, size=1 << 17)
    written: list[bytes] = []
    for sizes in groups:
        records = [entry_record(1, len(written) + index, b"x" * size) for index, size in enumerate(sizes)]
        written += records
        journal.group(*records)
    data = journal.file()
    found = [
        data[item.offset : item.end]
        for item in journal_reader(data, 1).items()
        if isinstance(item, StoredRecord)
    ]
    assert found == written
    facts = scan_bytes(data, 1)
    assert (facts.record_count, facts.end, facts.is_sound) == (
        len(written),
        journal.end,
        True,
    )
