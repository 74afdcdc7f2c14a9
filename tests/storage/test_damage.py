"""Damage of every simple kind, at every place: what is sound is still read, what is not is named exactly."""

from __future__ import annotations

import random
import struct
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from entrylogs import Log, direct_log, entries, holes, items, reader
from journals import (
    BookieJournal,
    OurJournal,
    change,
    entry_bytes,
    entry_record,
    flip,
    scan_bytes,
    zero,
)
from journals import reader as journal_reader
from memory import MemoryFile
from mutations import bookie_journal, campaign, campaign_apart, log_of, our_journal

from storage import entrylog_scan
from storage.codec import entrylog as log_codec
from storage.codec import journal as codec
from storage.codec.digest import DigestCheck, digester
from storage.codec.survey import EntryVerifier
from storage.entry import RECORD_SIZE_MAX, DigestType
from storage.entrylog_reader import EntryLogReader, LogEntry
from storage.entrylog_scan import Hole
from storage.journal_reader import JournalReader, StoredRecord
from storage.journal_scan import scan
from storage.outcome import Damaged, EndOfData, Flaw, Torn

MEMORY_MAX = 64 << 20


# ── journals ─────────────────────────────────────────────────────────────────────────────────────────────


def test_every_prefix_of_our_journal_keeps_its_whole_groups_and_nothing_else() -> None:
    journal = our_journal()
    for size in range(len(journal.data) + 1):
        facts = scan_bytes(bytes(journal.data[:size]), 1)
        whole = max([512 if size >= 512 else 0, *(end for end in journal.ends if end <= size)])
        assert facts.end == whole, size
        assert facts.is_sound is (size < 512 or not any(journal.data[whole:size])), size


def test_every_prefix_of_a_bookie_s_journal_keeps_its_whole_entries() -> None:
    journal = bookie_journal()
    stored = [
        item for item in journal_reader(bytes(journal.data), 1).items() if isinstance(item, StoredRecord)
    ]
    for size in range(512, len(journal.data) + 1):
        facts = scan_bytes(bytes(journal.data[:size]), 1)
        proving = [
            index
            for index, item in enumerate(stored, 1)
            if item.end <= size
            and (
                isinstance(item.record, codec.EntryRecord)
                or any(item.end <= end <= size for end in journal.ends)
            )
        ]
        assert facts.record_count == max(proving, default=0), size


def test_every_flipped_bit_in_our_groups_ends_the_sound_part_before_it() -> None:
    journal = our_journal()
    data = journal.file()
    for bit in range(512 * 8, len(journal.data) * 8):
        facts = scan_bytes(flip(data, bit // 8, bit % 8), 1)
        group = next(index for index, end in enumerate(journal.ends) if bit // 8 < end)
        assert facts.end == ([512, *journal.ends][group]), bit
        assert not facts.is_sound
        assert (facts.proof_offset is not None) == (group < len(journal.ends) - 1)


def test_every_flipped_bit_behind_our_end_is_seen() -> None:
    journal = our_journal()
    for bit in range(len(journal.data) * 8, journal.size * 8, 5):
        facts = scan_bytes(flip(journal.file(), bit // 8, bit % 8), 1)
        assert (facts.end, facts.is_sound) == (journal.end, False)


def test_every_flipped_bit_in_a_bookie_s_entries_is_seen() -> None:
    """Its special records carry nothing that could tell, and the only entry of a ledger not enough."""
    journal = BookieJournal(1, 6, size=4096)
    for number in range(2):
        journal.flush(entry_record(1, number), entry_record(2, number))
    for item in journal_reader(journal.file(), 1).items():
        if isinstance(item, StoredRecord):
            for bit in range(item.offset * 8, item.end * 8):
                assert not scan_bytes(flip(journal.file(), bit // 8, bit % 8), 1).is_sound, bit


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (2**31 - 1, Torn(512, Flaw.BODY_CUT)),
        (-1, Damaged(512, Flaw.LENGTH_NEGATIVE, "length -1")),
        (-5, Damaged(512, Flaw.LENGTH_NEGATIVE, "length -5")),
        (0, Damaged(512, Flaw.NOT_ZERO, "first at 523")),
        (1, Damaged(512, Flaw.LENGTH_TOO_SMALL, "length 1")),
    ],
)
def test_impossible_lengths_in_a_journal(length: int, expected: Damaged | Torn) -> None:
    for journal in (bookie_journal(), our_journal()):
        data = change(journal.file(), 512, struct.pack(">i", length))
        assert list(journal_reader(data, 1).items())[-1] == expected
        assert scan_bytes(data, 1).proof_offset is not None


@pytest.mark.parametrize("block", [512, 4096])
def test_a_zeroed_block_with_more_behind_it_is_never_an_end(block: int) -> None:
    journal = OurJournal(1, alignment=4096, size=65536)
    for number in range(6):
        journal.group(entry_record(1, number, b"x" * 3000))
    for start in range(4096, journal.ends[-2], block):
        zeroed = zero(journal.file(), start, start + block)
        if zeroed == journal.file():
            continue  # inside the padding
        facts = scan_bytes(zeroed, 1)
        assert facts.end <= start
        assert (facts.is_sound, facts.proof_offset is not None) == (False, True)


def test_a_newer_journal_is_refused_as_newer() -> None:
    data = change(bookie_journal().file(), 4, struct.pack(">i", 7))
    assert journal_reader(data, 1).header == Damaged(4, Flaw.FUTURE_VERSION, "version 7")


class Sparse:
    """A huge file of zeros with a few bytes in front, which allocates only what is asked for."""

    name = "sparse"

    def __init__(self, front: bytes, size: int) -> None:
        self._front, self._size = front, size
        self.largest = 0

    def size(self) -> int:
        return self._size

    def read(self, offset: int, size: int) -> bytes:
        self.largest = max(self.largest, size)
        size = min(size, self._size - offset)
        return self._front[offset : offset + size].ljust(size, b"\0")

    def close(self) -> None:
        pass

    def __enter__(self) -> Sparse:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("length", [RECORD_SIZE_MAX + 1, 2**31 - 1, 1 << 30])
def test_no_length_in_a_huge_file_is_a_request_to_allocate(length: int) -> None:
    front = BookieJournal(1, 6).file()[:512] + struct.pack(">i", length)
    journal = Sparse(front, 3 << 30)
    assert next(JournalReader(journal, 1).items()) == Damaged(512, Flaw.LENGTH_TOO_LARGE, f"length {length}")
    assert journal.largest <= MEMORY_MAX
    log = Sparse(log_codec.encode_header() + struct.pack(">iqq", length, 1, 1), 3 << 30)
    frame = EntryLogReader(log, 0, EntryVerifier()).frame_at(1024)
    assert frame == Damaged(1024, Flaw.LENGTH_TOO_LARGE, f"size {length}")
    assert log.largest <= MEMORY_MAX


# ── entry logs ───────────────────────────────────────────────────────────────────────────────────────────

ALL_IDS = [(number % 3, number // 3) for number in range(12)]


def test_an_undamaged_log_has_no_holes() -> None:
    for digest in DigestType:
        found = items(log_of(digest).seal().file())
        assert entries(found) == ALL_IDS
        assert holes(found) == []
        assert isinstance(found[-1], EndOfData)


@pytest.mark.parametrize("victim", range(12))
@pytest.mark.parametrize(
    "part", [4, 12, 20, 28, 36, -1], ids=["ledger", "entry", "lac", "length", "digest", "payload"]
)
def test_damage_inside_an_entry_costs_that_entry_only(victim: int, part: int) -> None:
    log = log_of()
    end = [*log.places, len(log.data)][victim + 1]
    offset = end - 1 if part == -1 else log.places[victim] + part + 3
    found = items(flip(log.seal().file(), offset, 2))
    good = [item.ids for item in found if isinstance(item, LogEntry) and item.check is DigestCheck.OK]
    assert good == ALL_IDS[:victim] + ALL_IDS[victim + 1 :]
    doubtful = [item for item in found if isinstance(item, LogEntry) and item.check is not DigestCheck.OK]
    assert [item.position.offset for item in doubtful] == [log.places[victim]]
    assert holes(found) == []


@pytest.mark.parametrize("victim", range(12))
@pytest.mark.parametrize("size", [0, 1, -1, -5, 2**31 - 1, 20, 5000, 90])
@pytest.mark.parametrize("sealed", ["sealed", "open"])
def test_a_damaged_size_costs_four_bytes(victim: int, size: int, sealed: str) -> None:
    log = log_of()
    place = log.places[victim]
    if sealed == "sealed":
        log.seal()
    found = items(change(log.file(), place, struct.pack(">i", size)))
    assert entries(found) == ALL_IDS
    assert holes(found) == [(place, place + 4)]


def test_every_flipped_bit_of_a_size_costs_four_bytes() -> None:
    log = log_of().seal()
    for place in log.places:
        for bit in range(32):
            found = items(flip(log.file(), place + bit // 8, bit % 8))
            assert entries(found) == ALL_IDS, (place, bit)
            assert holes(found) == [(place, place + 4)], (place, bit)


def test_a_first_size_that_swallows_the_whole_log_costs_four_bytes() -> None:
    log = log_of()
    place = log.places[0]
    found = items(change(log.file(), place, struct.pack(">i", len(log.data) - place - 4)))
    assert entries(found) == ALL_IDS
    assert holes(found) == [(place, place + 4)]


@pytest.mark.parametrize("victim", range(1, 11))
def test_a_zeroed_range_is_one_hole_up_to_the_next_sound_record(victim: int) -> None:
    log = log_of().seal()
    start, end = log.places[victim], log.places[victim + 1]
    found = items(zero(log.file(), start, end))
    assert holes(found) == [(start, end)]
    assert entries(found) == ALL_IDS[:victim] + ALL_IDS[victim + 1 :]


def test_a_destroyed_stretch_over_several_records_is_one_exact_hole() -> None:
    log = log_of().seal()
    start, end = log.places[3] + 2, log.places[6] + 20
    found = items(change(log.file(), start, random.Random(5).randbytes(end - start)))
    assert entries(found) == ALL_IDS[:3] + ALL_IDS[7:]
    assert holes(found) == [(log.places[3], log.places[7])]


@pytest.mark.parametrize("digest", [DigestType.CRC32, DigestType.MAC, DigestType.DUMMY])
def test_other_digests_are_found_again_too(digest: DigestType) -> None:
    log = log_of(digest).seal()
    start, end = log.places[4], log.places[5]
    found = items(
        change(log.file(), start, b"\xff" * (end - start)), EntryVerifier(password_of=lambda _: b"password")
    )
    assert entries(found) == ALL_IDS[:4] + ALL_IDS[5:]
    assert holes(found) == [(start, end)]


def test_every_prefix_of_a_log_keeps_its_whole_records() -> None:
    log = log_of()
    ends = [*log.places[1:], len(log.data)]
    for size in range(len(log.data) + 1):
        found = items(log.file()[:size])
        assert entries(found) == ALL_IDS[: sum(end <= size for end in ends)], size
        whole = max([1024, *(end for end in ends if end <= size)])
        assert isinstance(found[-1], Torn if any(log.data[whole:size]) else EndOfData), size


def test_a_payload_that_contains_a_log_is_one_entry() -> None:
    inner = log_of().file()[1024:]
    log = Log().add(entry_bytes(7, 0, inner), entry_bytes(7, 1))
    assert entries(items(log.file())) == [(7, 0), (7, 1)]
    found = items(change(log.file(), log.places[0], struct.pack(">i", 77)))
    assert entries(found)[-1] == (7, 1)
    assert isinstance(found[0], Hole)


def test_damage_in_the_map_is_told_and_the_log_is_scanned_instead() -> None:
    log = log_of().seal()
    header = log_codec.decode_header(log.file())
    assert isinstance(header, log_codec.Header)
    damaged = reader(change(log.file(), header.map_offset + 20, struct.pack(">i", 9)))
    assert isinstance(damaged.ledgers_map(), Damaged)
    assert entrylog_scan.metadata(damaged).sizes == log.sizes


def test_a_digest_that_nothing_tells_opens_no_entry_whose_framing_holds() -> None:
    """A payload may contain whole records: they are nobody's while the entry around them is framed."""
    inner = codec.encode_record(entry_bytes(1, 0, b"forged"))
    backup = entry_bytes(9, 4, b"backup:" + inner + b"....", DigestType.MAC)
    log = Log().add(entry_bytes(1, 0), entry_bytes(3, 0, digest=DigestType.CRC32), backup, entry_bytes(1, 1))
    assert entries(items(log.file())) == [(1, 0), (3, 0), (9, 4), (1, 1)]
    assert holes(items(log.file())) == []


@pytest.mark.parametrize("bit", range(32))
def test_a_damaged_size_of_a_filler_loses_no_entry(bit: int) -> None:
    log = Log().add(entry_bytes(1, 0))
    place = len(log.data)
    log.data += log_codec.encode_filler(place)
    log.add(*(entry_bytes(1, number, b"x" * 100) for number in range(1, 20)))
    found = items(flip(log.file(), place + bit // 8, bit % 8))
    assert entries(found) == [(1, number) for number in range(20)]


@pytest.mark.parametrize("size", [0, -1, 5, 77, 2**31 - 1])
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_damaged_size_before_a_direct_writer_s_padding_costs_four_bytes(size: int, victim: int) -> None:
    places = [item.position.offset for item in items(direct_log()) if isinstance(item, LogEntry)]
    found = items(change(direct_log(), places[victim], struct.pack(">i", size)))
    assert entries(found) == [(1, 0), (1, 1), (1, 2)]
    assert holes(found) == [(places[victim], places[victim] + 4)]


def test_a_damaged_size_before_zeros_costs_four_bytes() -> None:
    log = log_of()
    found = items(change(log.file() + bytes(5000), log.places[-1], struct.pack(">i", 2**31 - 1)))
    assert entries(found) == ALL_IDS
    assert holes(found) == [(log.places[-1], log.places[-1] + 4)]


@pytest.mark.parametrize("kept", [0.4, 0.99])
def test_a_sealed_log_that_ends_before_its_map_is_damaged_and_never_torn(kept: float) -> None:
    whole = log_of().seal().file()
    cut = reader(whole[: 1024 + int((len(whole) - 1024) * kept)])
    *_, stop = entrylog_scan.items(cut)
    assert isinstance(stop, Damaged)
    assert stop.flaw is Flaw.FILE_SHORT
    assert isinstance(cut.ledgers_map(), Damaged)


def test_a_map_with_more_bytes_than_stand_before_it_is_not_believed() -> None:
    log = log_of()
    log.sizes[0] += 1 << 20
    assert isinstance(reader(log.seal().file()).ledgers_map(), Damaged)


HARD_PAYLOADS = {
    "ones": b"\x01" * 300_000,
    "two-byte text": "damage in the middle of a long text. ".encode("utf-16-le") * 4000,
    "counters": b"".join(struct.pack(">q", number) for number in range(37_500)),
    "small numbers": b"".join(struct.pack(">i", number % 1000) for number in range(75_000)),
}


@pytest.mark.parametrize("payload", HARD_PAYLOADS.values(), ids=HARD_PAYLOADS)
def test_a_payload_full_of_places_that_could_be_records_is_searched_in_linear_reading(payload: bytes) -> None:
    log = Log().add(
        entry_bytes(1, 0),
        entry_bytes(1, 1, payload),
        *(entry_bytes(1, n, b"x" * 9000) for n in range(2, 300)),
    )
    damaged = Counting(change(log.file(), log.places[1], struct.pack(">i", 2**24 - 7)))
    opened = EntryLogReader(damaged, 0, EntryVerifier())
    assert entries(list(entrylog_scan.items(opened))) == [(1, number) for number in range(300)]
    assert damaged.count < 64 * len(log.data)
    journal = BookieJournal(1, size=1 << 21).flush(entry_record(1, 0)).flush(entry_record(1, 1, payload))
    torn = Counting(flip(journal.file(), journal.ends[0] + 50))
    facts = scan(JournalReader(torn, 1), EntryVerifier())
    assert (facts.end, facts.proof_offset) == (journal.ends[0], None)
    assert torn.count < 64 * journal.size


class Growing(MemoryFile):
    """A file of zeros into which a live writer puts a journal after a number of reads."""

    def __init__(self, before: bytes, after: bytes, reads: int) -> None:
        super().__init__(before)
        self._after, self._reads = after, reads

    def read(self, offset: int, size: int) -> bytes:
        if self._reads == 0:
            self._data = self._after
        self._reads -= 1
        return super().read(offset, size)


@pytest.mark.parametrize("reads", range(1, 8))
def test_data_that_a_live_writer_adds_while_we_read_is_no_damage(reads: int) -> None:
    before = OurJournal(1, size=3 << 20).group(entry_record(1, 0))
    after = OurJournal(1, size=3 << 20).group(entry_record(1, 0))
    for number in range(1, 400):
        after.group(entry_record(1, number))
    facts = scan(JournalReader(Growing(before.file(), after.file(), reads), 1), EntryVerifier())
    assert facts.is_sound
    assert facts.record_count >= 1


class Counting(MemoryFile):
    """Counts the bytes that are read."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.count = 0

    def read(self, offset: int, size: int) -> bytes:
        self.count += size
        return super().read(offset, size)


@pytest.mark.parametrize("password", [b"password", b"wrong"])
def test_reading_a_log_stays_linear_even_if_no_digest_matches(password: bytes) -> None:
    log = Log().add(*(entry_bytes(1, number, b"x" * 900, DigestType.MAC) for number in range(5000)))
    file = Counting(log.file())
    opened = EntryLogReader(file, 0, EntryVerifier({1: digester(DigestType.MAC, password)}))
    assert sum(isinstance(item, LogEntry) for item in entrylog_scan.items(opened)) == 5000
    assert file.count < 2 * len(log.data)


# ── at random ────────────────────────────────────────────────────────────────────────────────────────────


def test_thousands_of_mutations_are_read_without_a_crash_or_a_large_allocation() -> None:
    tracemalloc.start()
    try:
        assert campaign(1_500, seed=1) > 1_400
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MEMORY_MAX


@pytest.mark.slow
def test_a_hundred_thousand_mutations() -> None:
    with ProcessPoolExecutor(max_workers=2, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        answers = list(pool.map(campaign_apart, range(2, 12)))
    assert sum(distinct for distinct, _ in answers) > 100_000
    assert max(growth for _, growth in answers) < MEMORY_MAX
