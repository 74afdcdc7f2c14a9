"""Damage of every simple kind, at every place: what is sound is still read, what is not is named exactly."""

from __future__ import annotations

import random
import struct
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from typing import TYPE_CHECKING

import pytest
from crc32c import crc32c
from entrylogs import Log, direct_log, entries, holes, items, reader
from journals import (
    START,
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

from storage import entrylog_scan, resync
from storage.codec import entrylog as log_codec
from storage.codec import journal as codec
from storage.codec import seal as seal_codec
from storage.codec.digest import DigestCheck, digester
from storage.codec.resync import places
from storage.codec.seal import GroupFlag, Seal
from storage.codec.survey import EntryVerifier
from storage.entry import RECORD_SIZE_MAX, DigestType
from storage.entrylog_reader import EntryLogReader, LogEntry
from storage.entrylog_scan import Hole, LogFiller
from storage.journal_reader import JournalReader, StoredRecord
from storage.journal_scan import Kept, Owner, scan
from storage.outcome import Damaged, EndOfData, Flaw, Torn
from storage.position import JournalPosition
from storage.window import CHUNK_SIZE, LOOK_BEHIND, Window

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.codec.digest import Buffer

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


@pytest.mark.parametrize("number", [0, 1, 2])
def test_behind_damage_the_first_seal_that_holds_is_the_proof(number: int) -> None:
    journal = our_journal()
    facts = scan_bytes(flip(journal.file(), [512, *journal.ends][number] + 30), 1)
    assert facts.proof_offset == {0: journal.ends[0], 1: journal.ends[1], 2: None}[number]


def test_a_newer_seal_behind_damage_is_the_proof_too() -> None:
    journal = OurJournal(1).group(entry_record(1, 0)).group(entry_record(1, 1))
    newer = change(journal.file(), journal.end - 60, b"\2")
    checksum = crc32c(newer[journal.ends[0] : journal.end - 4])
    facts = scan_bytes(flip(change(newer, journal.end - 4, struct.pack(">I", checksum)), 4096 + 30), 1)
    assert facts.proof_offset == journal.ends[0]
    assert facts.stop == Damaged(journal.ends[0], Flaw.FUTURE_VERSION)


def test_what_a_seal_claims_counts_wherever_it_stands_and_the_largest_claim_wins() -> None:
    claims = [JournalPosition(1, 4096), JournalPosition(1, 8192), JournalPosition(1, 5000)]
    journal = OurJournal(1)
    for number, claim in enumerate(claims):
        journal.group(entry_record(1, number), durable_up_to=claim)
    for damaged in (journal.file(), flip(journal.file(), 4096 + 30)):
        assert scan_bytes(damaged, 1).durable_up_to == claims[1]
    assert scan_bytes(flip(journal.file(), journal.ends[0] + 30), 1).durable_up_to == claims[2]


def test_nothing_is_kept_where_nothing_is_torn() -> None:
    ours, bookie = our_journal(), bookie_journal()
    for facts in (scan_bytes(ours.file(), 1), scan_bytes(bookie.file(), 1)):
        end = ours.end if facts.owner is Owner.OURS else bookie.ends[-1]
        assert (facts.kept, facts.stop) == (Kept(end, end, 0), EndOfData(end))
    assert scan_bytes(bytes(4096), 1).kept == Kept(0, 0, 0)


def test_nothing_is_kept_of_a_bookie_s_torn_tail() -> None:
    journal = bookie_journal()
    end = journal.ends[1]
    facts = scan_bytes(flip(journal.file(), end + 45), 1)
    assert (facts.kept, facts.stop) == (Kept(end, end, 0), Damaged(end, Flaw.DIGEST))


@pytest.mark.parametrize(
    ("specials", "count"),
    [
        ([codec.encode_ledger_key(1, b"k" * 20)], 2),
        ([codec.encode_fence(1)], 2),
        ([codec.encode_explicit_lac(1, b"p" * 20)], 2),
        ([codec.encode_ledger_key(1, b"k"), codec.encode_fence(1), codec.encode_explicit_lac(1, b"p")], 4),
        ([codec.encode_record(struct.pack(">qq", 1, -7))], 0),
        ([codec.encode_record(struct.pack(">qqi", 1, codec.LEDGER_KEY, 5))], 0),
        ([codec.encode_padding(1100, 512)], 0),
    ],
    ids=["key", "fence", "lac", "all three", "unknown", "damaged", "padding"],
)
def test_of_a_torn_group_specials_are_kept_that_an_entry_follows(specials: list[bytes], count: int) -> None:
    journal = OurJournal(1).group(entry_record(1, 0))
    start, records = journal.end, [*specials, entry_record(1, 1)]
    torn = zero(journal.group(*records).file(), journal.end - 64, journal.end)
    end = start + sum(map(len, records)) if count else start
    assert scan_bytes(torn, 1).kept == Kept(start, end, count)


def test_what_stands_behind_a_damaged_seal_is_no_part_of_the_torn_group() -> None:
    journal = OurJournal(1, alignment=512).group().group(entry_record(1, 0))
    torn = flip(flip(journal.file(), journal.ends[0] - 1), journal.ends[1] - 1)
    assert scan_bytes(torn, 1).kept == Kept(512, 512, 0)


def test_an_atomic_first_group_without_its_seal_is_not_kept_at_all() -> None:
    journal = OurJournal(1, alignment=512).group(entry_record(1, 0), flags=GroupFlag.ATOMIC)
    torn = zero(journal.file(), journal.end - 64, journal.end)
    assert scan_bytes(torn, 1).kept == Kept(512, 512, 0)


def test_a_flush_that_ends_aligned_needs_no_padding() -> None:
    key = codec.encode_ledger_key(1, b"k" * 488)
    journal = BookieJournal(1, 6, size=4096).flush(key)
    assert journal.ends == [1024]
    facts = scan_bytes(journal.file(), 1)
    assert (facts.record_count, facts.end, facts.is_sound) == (1, 1024, True)


def test_padding_of_any_size_ends_a_flush() -> None:
    journal = BookieJournal(1, 6, size=4096)
    journal.data += codec.encode_ledger_key(1, b"k") + codec.encode_free_padding(30)
    facts = scan_bytes(journal.file(), 1)
    assert (facts.record_count, facts.end, facts.is_sound) == (1, len(journal.data), True)


def test_the_digest_types_behind_a_mark_are_learned_over_damage_before_it() -> None:
    journal = bookie_journal().flush(entry_record(1, 2))
    damaged = change(journal.file(), 512, struct.pack(">i", -1))
    damaged = flip(damaged, journal.ends[0] + 45)
    facts = scan_bytes(damaged, 1, start=journal.ends[0])
    assert facts.stop == Damaged(journal.ends[0], Flaw.DIGEST)
    assert facts.proof_offset is not None


@pytest.mark.parametrize("behind", [4, 8, 512])
def test_behind_a_zero_length_that_a_bookie_s_replay_has_marked_nothing_counts(behind: int) -> None:
    journal = bookie_journal()
    end = journal.ends[-1]
    facts = scan_bytes(change(journal.file(), end + behind, b"\xff" * 64), 1, start=end + 4)
    assert (facts.end, facts.is_sound) == (end + 4, True)


def test_a_mark_behind_the_length_of_a_record_hides_nothing() -> None:
    journal = bookie_journal()
    assert not scan_bytes(journal.file(), 1, start=journal.ends[0] + 4).is_sound


def test_without_padding_a_record_may_begin_anywhere_behind_zeros() -> None:
    payload = bytes(512 - len(entry_record(1, 0, b"x")) - 3)
    journal = BookieJournal(1, 4, size=4096).flush(entry_record(1, 0, payload))
    start = len(journal.data)
    assert (start % 512, any(journal.data[-4:])) == (4, False)
    assert scan_bytes(journal.flush(entry_record(1, 1)).file(), 1, start).record_count == 1


# what proves, behind damage in a bookie's journal, that more was written

LARGE = entry_record(1, 1, b"x" * 9000)


def behind_damage(*records: bytes, version: int = 6) -> tuple[bytes, int]:
    """A bookie's journal whose first, large entry is damaged; and where the records behind it begin."""
    journal = BookieJournal(1, version, size=65536).flush(entry_record(1, 0, b"w" * 9000))
    place = journal.ends[0]
    journal.data += b"".join(records)
    return flip(journal.file(), codec.Header(version).size + 50), place


@pytest.mark.parametrize(
    "following",
    [
        b"",
        entry_record(1, 2),
        codec.encode_fence(1),
        codec.encode_ledger_key(1, b"k"),
        codec.encode_explicit_lac(1, b"p"),
        codec.encode_padding(len(LARGE), 512),
    ],
    ids=["zeros", "entry", "fence", "key", "lac", "padding"],
)
def test_a_large_entry_behind_damage_is_proof_whatever_goes_on_behind_it(following: bytes) -> None:
    damaged, place = behind_damage(LARGE, following)
    assert scan_bytes(damaged, 1).proof_offset == place


def test_a_large_entry_at_the_very_end_of_the_file_is_proof() -> None:
    damaged, place = behind_damage(LARGE)
    assert scan_bytes(damaged[: place + len(LARGE)], 1).proof_offset == place


def test_a_small_entry_behind_damage_is_proof_whatever_follows() -> None:
    damaged, place = behind_damage(entry_record(1, 1), b"\xff" * 600)
    assert scan_bytes(damaged, 1).proof_offset == place


def mac_record(entry_id: int, payload: bytes = b"") -> bytes:
    """An entry that nothing verifies: its ledger's password is not known."""
    return codec.encode_record(entry_bytes(9, entry_id, payload, DigestType.MAC))


FILLING = mac_record(1, b"y" * (512 - len(mac_record(1, b"y")) + 1))


@pytest.mark.parametrize(
    ("records", "proves"),
    [
        ([mac_record(1), codec.encode_padding(len(mac_record(1)), 512)], True),
        ([FILLING, b"\xff" * 600], True),
        ([mac_record(1), b"\xff" * 600], False),
        ([mac_record(1), mac_record(2), mac_record(3), mac_record(4), b"\xff" * 600], False),
        ([mac_record(1), codec.encode_free_padding(40), b"\xff" * 600], False),
        (
            [
                mac_record(1),
                codec.encode_free_padding(40),
                mac_record(2),
                codec.encode_padding(2 * len(mac_record(1)) + 40, 512),
            ],
            False,
        ),
    ],
    ids=["padded", "aligned", "one torn", "four torn", "padded too short", "padded in its middle"],
)
def test_records_that_nothing_verifies_prove_as_a_whole_flush(records: list[bytes], proves: bool) -> None:
    damaged, place = behind_damage(*records)
    assert scan_bytes(damaged, 1).proof_offset == (place if proves else None)


@pytest.mark.parametrize(("count", "proves"), [(2, False), (3, True)])
def test_without_padding_three_records_in_a_row_that_nothing_verifies_prove(count: int, proves: bool) -> None:
    records = [mac_record(number) for number in range(1, 1 + count)]
    damaged, place = behind_damage(*records, b"\xff" * 600, version=4)
    assert place % 512 != 0
    assert scan_bytes(damaged, 1).proof_offset == (place if proves else None)


def test_without_padding_one_record_that_ends_aligned_proves_nothing() -> None:
    _, place = behind_damage(version=4)
    record = mac_record(1, b"y" * (-(place + len(mac_record(1, b"y")) - 1) % 512))
    assert (place + len(record)) % 512 == 0
    damaged, _ = behind_damage(record, b"\xff" * 600, version=4)
    assert scan_bytes(damaged, 1).proof_offset is None


def test_a_flush_of_entries_whose_digests_are_wrong_proves_nothing() -> None:
    journal = bookie_journal().flush(entry_record(1, 2))
    damaged = flip(flip(journal.file(), journal.ends[1] + 45), journal.ends[2] + 45)
    facts = scan_bytes(damaged, 1)
    assert (facts.end, facts.proof_offset) == (journal.ends[1], None)


def test_the_proof_that_an_entry_has_swallowed_others_stands_inside_it() -> None:
    swallower = mac_record(5, b"y" * 40)
    grown = bytearray(swallower + entry_record(1, 0))
    grown[:4] = struct.pack(">i", len(grown) - 4)
    journal = BookieJournal(1, size=4096).flush(entry_record(1, 1), entry_record(1, 2)).flush(bytes(grown))
    place = journal.ends[0]
    facts = scan_bytes(journal.file(), 1)
    assert facts.stop == Damaged(place, Flaw.DIGEST, "other entries stand inside")
    assert facts.proof_offset == place + len(swallower)


def test_an_entry_whose_payload_ends_in_records_has_swallowed_nothing() -> None:
    backup = entry_record(1, 2, b"backup:" + entry_record(1, 0) + entry_record(1, 1))
    journal = BookieJournal(1, size=4096).flush(entry_record(1, 0), entry_record(1, 1)).flush(backup)
    facts = scan_bytes(journal.file(), 1)
    assert (facts.record_count, facts.is_sound) == (3, True)


def test_a_ledger_declared_to_carry_no_digest_is_not_held_to_one() -> None:
    journal = bookie_journal()
    verifier = EntryVerifier({number: digester(DigestType.DUMMY) for number in (1, 2)})
    facts = scan_bytes(journal.file(), 1, verifier=verifier)
    assert (facts.end, facts.is_sound) == (journal.ends[-1], True)


# headers


@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_long_header_that_names_a_short_one_s_version_is_damaged(version: int) -> None:
    data = change(bookie_journal().file(), 4, struct.pack(">i", version))
    assert journal_reader(data, 1).header == Damaged(4, Flaw.BAD_VERSION, "zeros in front of data")


@pytest.mark.parametrize("journal", [bookie_journal(), OurJournal(1)], ids=["a bookie's", "ours"])
def test_zeros_instead_of_a_header_in_front_of_data_are_damage(journal: BookieJournal | OurJournal) -> None:
    header = journal_reader(zero(journal.file(), 0, 512), 1).header
    assert header == Damaged(0, Flaw.BAD_MAGIC, "zeros in front of data")


def test_a_file_without_a_header_whose_first_record_does_not_verify_is_no_journal_from_before_headers() -> (
    None
):
    journal = BookieJournal(1, 1, size=4096).flush(entry_record(1, 0))
    assert journal_reader(journal.file(), 1).header == codec.VERSION_1
    assert journal_reader(flip(journal.file(), 45), 1).header == Damaged(0, Flaw.BAD_MAGIC)


# seals


def with_seal(start: int, end: int, checksum: int | None = None) -> bytes:
    """Our journal with a seal that ends at `end` and says that its group begins at `start`."""
    seal = Seal(1, OurJournal(1).salt, 1, start, START, 0)
    data = change(our_journal().file(), end - 64, seal_codec._encode(seal))
    checksum = crc32c(data[start : end - 4]) if checksum is None else checksum
    return change(data, end - 4, struct.pack(">I", checksum))


def seals(data: bytes, start: int = 2048) -> list[int]:
    return [stored.seal.group_start for stored in journal_reader(data, 1).seals_behind(start)]


def test_a_seal_is_believed_in_its_place_only() -> None:
    assert seals(with_seal(2048, 3072)) == [2048]
    assert seals(with_seal(2048, 3072 - 8)) == []  # not at the end of a sector
    assert seals(with_seal(0, 3072)) == []  # a group that begins in the header


@pytest.mark.parametrize("start", [3072 - 63, 3072 - 4, 3072, 1 << 40])
def test_a_seal_of_a_group_that_begins_behind_it_is_not_believed(start: int) -> None:
    data = with_seal(start, 3072, checksum=crc32c(our_journal().file()[start : 3072 - 4]))
    assert seals(data) == []
    stored = seal_codec.decode(data[3072 - 64 : 3072])
    assert isinstance(stored, seal_codec.StoredSeal)
    assert journal_reader(data, 1).seal_flaw(stored, 3072) is Flaw.OTHER_PLACE


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


def entries_of(ledger_id: int, numbers: Iterable[int], digest: DigestType = DigestType.CRC32C) -> list[bytes]:
    return [entry_bytes(ledger_id, number, digest=digest) for number in numbers]


def destroyed(log: Log, *victims: int) -> bytes:
    """The log with nothing but ones where these records stood."""
    data = log.file()
    for victim in victims:
        start, end = [*log.places, len(data)][victim : victim + 2]
        data = change(data, start, b"\xff" * (end - start))
    return data


def test_reading_may_begin_at_any_record_and_never_inside_the_header() -> None:
    log = log_of()
    opened = reader(log.file())
    entrylog_scan.survey(opened)
    assert entries(list(entrylog_scan.items(opened, log.places[5]))) == ALL_IDS[5:]
    whole = list(entrylog_scan.items(opened, 0))
    assert (entries(whole), holes(whole)) == (ALL_IDS, [])


def test_what_a_scan_counted_comes_with_how_it_ended() -> None:
    log = log_of()
    assert entrylog_scan.metadata(reader(log.file())).stop == EndOfData(len(log.data))
    broken = change(log.file(), log.places[-1], b"\xff" * 20)
    stop = Damaged(log.places[-1], Flaw.LENGTH_NEGATIVE)
    assert entrylog_scan.metadata(reader(broken[: log.places[-1] + 20])).stop == stop


def test_a_rescued_entry_is_proved_by_its_digest() -> None:
    log = log_of()
    found = items(change(log.file(), log.places[4], struct.pack(">i", -1)))
    assert [item.check for item in found if isinstance(item, LogEntry)] == [DigestCheck.OK] * 12


@pytest.mark.parametrize(("size", "rescued"), [(999, True), (1000, True), (1001, False)])
def test_no_entry_above_the_limit_is_rescued(
    size: int, rescued: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log().add(entry_bytes(1, 0), entry_bytes(1, 1, b"x" * (size - 36)), entry_bytes(1, 2))
    assert log.places[2] - log.places[1] == 4 + size
    damaged = change(log.file(), log.places[1], struct.pack(">i", -1))
    monkeypatch.setattr(entrylog_scan, "RECORD_SIZE_MAX", 1000)
    assert ((1, 1) in entries(items(damaged))) is rescued


@pytest.mark.parametrize(
    "following",
    [
        log_codec.encode_record(entry_bytes(1, 3)),
        log_codec.encode_ledgers_map({1: 30})[0],
        log_codec.encode_record(struct.pack(">qq", -1, -3) + bytes(500)),
        bytes([0xF0] * 4096),
        bytes(5000),
        b"",
    ],
    ids=["entry", "map", "filler", "direct padding", "zeros", "end"],
)
def test_a_large_entry_behind_a_hole_is_found_whatever_goes_on_behind_it(following: bytes) -> None:
    log = Log().add(*entries_of(1, range(2)), entry_bytes(1, 2, b"x" * 9000))
    if following[:1] == b"\xf0":
        following = following[len(log.data) % 4096 :]
    found = items(destroyed(log, 1) + following)
    assert entries(found)[:2] == [(1, 0), (1, 2)]
    assert holes(found) == [(log.places[1], log.places[2])]


def test_a_small_entry_between_two_holes_is_found() -> None:
    log = Log().add(entry_bytes(1, 0, b"x" * 9000), *entries_of(1, range(1, 5)))
    found = items(destroyed(log, 1, 3))
    assert entries(found) == [(1, 0), (1, 2), (1, 4)]
    assert holes(found) == [(log.places[1], log.places[2]), (log.places[3], log.places[4])]


@pytest.mark.parametrize("content", [bytes(500), b""], ids=["long", "short"])
def test_a_hole_ends_where_a_filler_begins(content: bytes) -> None:
    log = Log().add(*entries_of(1, range(2)))
    filler = log_codec.encode_record(struct.pack(">qq", -1, -3) + content)
    end = len(log.data)
    found = items(destroyed(log, 1) + filler + log_codec.encode_record(entry_bytes(1, 2)))
    assert found[1:3] == [
        Hole(log.places[1], end, Flaw.LENGTH_NEGATIVE),
        LogFiller(end, end + len(filler)),
    ]


def test_a_hole_does_not_end_at_a_map_that_contradicts_itself() -> None:
    log = Log().add(*entries_of(1, range(2)))
    contradiction = log_codec.encode_record(struct.pack(">qqi", -1, -2, 7) + bytes(16))
    found = items(destroyed(log, 1) + contradiction + log_codec.encode_record(entry_bytes(1, 2)))
    assert holes(found) == [(log.places[1], len(log.data) + len(contradiction))]
    assert entries(found) == [(1, 0), (1, 2)]


def test_a_hole_does_not_end_at_an_entry_whose_digest_is_wrong() -> None:
    log = log_of()
    damaged = flip(destroyed(log, 4), log.places[6] - 1)
    assert holes(items(damaged)) == [(log.places[4], log.places[6])]


DUMMIES = [log_codec.encode_record(data) for data in entries_of(9, range(2, 6), DigestType.DUMMY)]


@pytest.mark.parametrize(
    ("following", "believed"),
    [
        ([*DUMMIES[:1]], True),
        ([*DUMMIES[:1], bytes(100)], True),
        ([*DUMMIES[:1], bytes(100), b"\xff"], False),
        ([*DUMMIES[:1], b"\xff" * 100], False),
        ([*DUMMIES[:2], b"\xff" * 100], False),
        ([*DUMMIES[:4], b"\xff" * 100], True),
        ([*DUMMIES[:1], log_codec.encode_ledgers_map({1: 30})[0]], True),
        ([*DUMMIES[:1], log_codec.encode_record(entry_bytes(1, 3)), b"\xff" * 100], False),
        ([*DUMMIES[:1], b"\xf0" * 8192], True),
    ],
    ids=[
        "end",
        "zeros",
        "zeros in front of junk",
        "one and junk",
        "two and junk",
        "four and junk",
        "map",
        "another ledger's",
        "direct padding",
    ],
)
def test_behind_a_hole_an_entry_without_a_digest_is_believed_if_the_framing_holds(
    following: list[bytes], believed: bool
) -> None:
    log = Log().add(*entries_of(9, range(2), DigestType.DUMMY))
    data = destroyed(log, 1) + b"".join(following)
    if following[-1][:1] == b"\xf0":
        data = data[: -(len(data) % 4096)]
    found = items(data)
    assert ((9, 2) in entries(found)) is believed
    assert not believed or holes(found)[0] == (log.places[1], len(log.data))


def wrong(data: bytes) -> bytes:
    """The record of an entry whose last byte is wrong."""
    return log_codec.encode_record(flip(data, len(data) - 1))


INNER = log_codec.encode_record(entry_bytes(1, 7))
OUTER = entry_bytes(1, 1, b"backup:" + INNER + b"....")
WRONG = [wrong(data) for data in entries_of(1, range(2, 20))]
FRAMED = {
    "end": b"",
    "zeros": bytes(5000),
    "sound entry": log_codec.encode_record(entry_bytes(1, 2)) + b"\xff" * 100,
    "sixteen wrong digests": b"".join(WRONG[:16]) + b"\xff" * 100,
    "map": log_codec.encode_ledgers_map({1: 30})[0],
    "filler": log_codec.encode_record(struct.pack(">qq", -1, -3) + bytes(50)),
    "direct padding": bytes([0xF0] * 4096),
}
NOT_FRAMED = {
    "junk": b"\xff" * 100,
    "zeros in front of junk": bytes(5000) + b"\xff",
    "fifteen wrong digests": b"".join(WRONG[:15]) + b"\xff" * 100,
    "contradicting map": log_codec.encode_record(struct.pack(">qqi", -1, -2, 7) + bytes(16)),
    "filler with content": log_codec.encode_record(struct.pack(">qq", -1, -3) + b"content"),
}


@pytest.mark.parametrize("following", [*FRAMED, *NOT_FRAMED])
def test_a_record_inside_a_damaged_entry_counts_only_if_the_framing_behind_is_broken(following: str) -> None:
    log = Log().add(entry_bytes(1, 0))
    place = len(log.data)
    log.data += wrong(OUTER)
    end, behind = len(log.data), (FRAMED | NOT_FRAMED)[following]
    if following == "direct padding":
        behind = behind[end % 4096 :]
    _, found, *_ = items(log.file() + behind)
    inner = end - 4 - len(INNER)
    if following in FRAMED:
        assert isinstance(found, LogEntry)
        assert (found.end, found.check) == (end, DigestCheck.MISMATCH)
    else:
        assert found == Hole(place, inner, Flaw.DIGEST)


def test_an_entry_without_a_digest_keeps_its_place_whatever_it_contains_and_whatever_follows() -> None:
    dummies = [entry_bytes(9, 0, digest=DigestType.DUMMY), entry_bytes(9, 1, INNER, DigestType.DUMMY)]
    log = Log().add(entry_bytes(5, 0), *dummies)
    assert entries(items(log.file() + b"\xff" * 100)) == [(5, 0), (9, 0), (9, 1)]


def test_a_damaged_entry_in_front_of_a_hole_keeps_its_place() -> None:
    log = log_of()
    found = items(flip(destroyed(log, 5), log.places[5] - 1))
    assert [item.ids for item in found if isinstance(item, LogEntry)] == ALL_IDS[:5] + ALL_IDS[6:]
    assert holes(found) == [(log.places[5], log.places[6])]


def test_a_damaged_entry_in_front_of_entries_without_digests_keeps_its_place() -> None:
    log = Log().add(entry_bytes(1, 0), *entries_of(9, range(4), DigestType.DUMMY))
    found = items(flip(log.file(), log.places[1] - 1) + b"\xff" * 100)
    assert entries(found) == [(1, 0), (9, 0), (9, 1), (9, 2), (9, 3)]


def test_entries_of_another_digest_than_declared_are_passed_once_each() -> None:
    log = Log().add(*entries_of(1, range(2)))
    opened = reader(log.file() + b"\xff" * 100, verifier=EntryVerifier({1: digester(DigestType.CRC32)}))
    assert entries(list(islice(entrylog_scan.items(opened), 20))) == [(1, 0), (1, 1)]


def test_a_filler_over_records_is_told_as_such() -> None:
    log = Log().add(entry_bytes(1, 0))
    place = len(log.data)
    records = b"".join(map(log_codec.encode_record, entries_of(1, range(1, 3))))
    found = items(log.file() + log_codec.encode_record(struct.pack(">qq", -1, -3) + bytes(50) + records))
    assert found[1] == Hole(place, place + 4 + 16 + 50, Flaw.NOT_ZERO)
    assert entries(found) == [(1, 0), (1, 1), (1, 2)]


HARD_PAYLOADS = {
    "ones": b"\x01" * 300_000,
    "two-byte text": "damage in the middle of a long text. ".encode("utf-16-le") * 4000,
    "counters": b"".join(struct.pack(">q", number) for number in range(37_500)),
    "small numbers": b"".join(struct.pack(">i", number % 1000) for number in range(75_000)),
}


class Weighing(EntryVerifier):
    """Counts the bytes that it was asked to prove."""

    weight = 0

    def proves(self, data: Buffer) -> bool:
        self.weight += len(data)
        return super().proves(data)


@pytest.mark.parametrize("payload", HARD_PAYLOADS.values(), ids=HARD_PAYLOADS)
def test_a_payload_full_of_places_that_could_be_records_is_searched_in_linear_reading(payload: bytes) -> None:
    log = Log().add(
        entry_bytes(1, 0),
        entry_bytes(1, 1, payload),
        *(entry_bytes(1, n, b"x" * 9000) for n in range(2, 300)),
    )
    damaged = Counting(change(log.file(), log.places[1], struct.pack(">i", 2**24 - 7)))
    verifier = Weighing()
    opened = EntryLogReader(damaged, 0, verifier)
    assert entries(list(entrylog_scan.items(opened))) == [(1, number) for number in range(300)]
    assert damaged.count < 64 * len(log.data)
    assert verifier.weight < 64 * len(log.data)
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


class TornRead(MemoryFile):
    """A file that a live writer has written to during one read: its beginning is as before."""

    def __init__(self, before: bytes, after: bytes, cut: int) -> None:
        super().__init__(before)
        self._after, self._cut, self._reads = after, cut, 0

    def read(self, offset: int, size: int) -> bytes:
        self._reads += 1
        if self._reads == 2:
            self._data = self._data[: self._cut] + self._after[self._cut :]
        elif self._reads > 2:
            self._data = self._after
        return super().read(offset, size)


def test_data_that_a_live_writer_adds_during_one_read_is_no_damage() -> None:
    before = OurJournal(1, size=3 << 20).group(entry_record(1, 0))
    after = OurJournal(1, size=3 << 20).group(entry_record(1, 0))
    for number in range(1, 400):
        after.group(entry_record(1, number))
    file = TornRead(before.file(), after.file(), cut=before.end + 4096)
    found = [item for item in JournalReader(file, 1).items() if isinstance(item, StoredRecord)]
    assert len(found) == 400


def test_reading_a_journal_stays_linear() -> None:
    journal = BookieJournal(1, size=3 << 20)
    journal.flush(*(entry_record(1, number, b"x" * 900) for number in range(2500)))
    file = Counting(journal.file())
    assert sum(isinstance(item, StoredRecord) for item in JournalReader(file, 1).items()) == 2500
    assert file.count < 2 * journal.size


# ── the window that everything is read through ───────────────────────────────────────────────────────────

LETTERS = bytes(range(97, 123)) * 40


def test_a_window_shows_the_file_wherever_one_looks() -> None:
    for look in (Window.view, Window.peek):
        window = Window(MemoryFile(LETTERS), chunk_size=100)
        for offset in (0, 1, 500, 99, 100, 0, 1039, 1040, 5000):
            for size in (1, 10, 250, 0, 5000):
                assert bytes(look(window, offset, size)) == LETTERS[offset : offset + size], (offset, size)


def test_what_a_window_holds_is_not_read_again_and_nothing_behind_the_end() -> None:
    file = Counting(LETTERS)
    window = Window(file)
    for look in (window.view, window.view, window.peek):
        assert bytes(look(0, len(LETTERS))) == LETTERS
        assert bytes(look(0, 1)) == LETTERS[:1]
        assert bytes(look(len(LETTERS), 1)) == bytes(look(1 << 30, 1)) == b""
    assert file.count == len(LETTERS)


def test_what_lies_a_little_before_is_still_there_and_what_lies_further_is_read() -> None:
    data = random.Random(8).randbytes(300_000)
    file = Counting(data)
    for look in (Window.view, Window.peek):
        window = Window(file, chunk_size=1000)
        assert bytes(window.view(200_000, 10)) == data[200_000:200_010]
        count = file.count
        first = 200_000 - LOOK_BEHIND
        assert bytes(look(window, first, 10)) == data[first : first + 10]
        assert file.count == count
        assert bytes(look(window, first - 1, 10)) == data[first - 1 : first + 9]


def test_a_window_forgets_on_request() -> None:
    file = MemoryFile(LETTERS)
    window = Window(file)
    assert bytes(window.view(0, 1)) == b"a"
    file._data = LETTERS.upper()
    assert bytes(window.view(0, 1)) == b"a"
    window.refresh()
    assert bytes(window.view(0, 1)) == b"A"


def test_a_range_comes_in_pieces_up_to_the_end_of_the_file() -> None:
    window = Window(MemoryFile(LETTERS), chunk_size=100)
    pieces = [(offset, bytes(piece)) for offset, piece in window.pieces(50, 1 << 20)]
    assert pieces == [(offset, LETTERS[offset : offset + 100]) for offset in range(50, 1040, 100)]


def test_a_file_that_lost_part_of_what_is_asked_for_is_an_error() -> None:
    file = MemoryFile(LETTERS)
    window = Window(file)
    file._data = LETTERS[:500]
    with pytest.raises(OSError, match="shorter"):
        window.view(400, 200)


# ── the search for the next sound record ─────────────────────────────────────────────────────────────────

FOUND = log_codec.encode_record(entry_bytes(1, 1))
META = struct.pack(">iqq", 100, -1, -2)


class Judge:
    """Finds every place sound, or none, and remembers which it was asked about."""

    def __init__(self, *, sound: bool) -> None:
        self._sound = sound
        self.places: list[int] = []

    def __call__(self, place: int) -> bool:
        self.places.append(place)
        return self._sound


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search looks at a hundred bytes at a time."""
    monkeypatch.setattr(resync, "CHUNK_SIZE", 100)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("record", [FOUND, META], ids=["entry", "map"])
def test_a_record_is_found_wherever_the_chunks_of_the_search_end(record: bytes) -> None:
    for place in range(350):
        judge = Judge(sound=True)
        window = Window(MemoryFile(b"\xee" * place + record))
        assert resync.find_record(window, 0, judge, window.size) == place
        assert judge.places == [place]


@pytest.mark.usefixtures("small_chunks")
def test_no_place_is_judged_twice_and_none_outside_the_range() -> None:
    window = Window(MemoryFile(FOUND * 10))
    for start in range(1, len(FOUND) + 1):
        judge = Judge(sound=False)
        assert resync.find_record(window, start, judge, 7 * len(FOUND)) is None
        assert judge.places == [number * len(FOUND) for number in range(1, 7)]


def test_a_record_that_begins_at_the_last_place_of_the_range_is_found() -> None:
    window = Window(MemoryFile(b"\xee" * 50 + FOUND))
    assert resync.find_record(window, 0, lambda _: True, 51) == 50
    assert resync.find_record(window, 0, lambda _: True, 50) is None


def test_a_search_holds_no_more_than_a_chunk() -> None:
    file = Sparse(b"\xee" * 4096, 5 << 20)
    window = Window(file)
    assert resync.find_record(window, 0, lambda _: True, window.size) is None
    assert file.largest <= 2 * CHUNK_SIZE


def head(size: int, ledger_id: int, entry_id: int, confirmed: int, length: int) -> bytes:
    return struct.pack(">iqqqq", size, ledger_id, entry_id, confirmed, length)


@pytest.mark.parametrize(
    ("fields", "plausible"),
    [
        ((100, 1, 5, 4, 100), True),
        ((100, 0, 5, -1, 48), True),
        ((100, 0, 5, 5, 100), False),
        ((100, 0, 5, 6, 100), False),
        ((100, 1, 5, 4, 47), False),
        ((32, 0, 0, -1, 0), True),
        ((31, 0, 0, -1, 0), False),
        ((RECORD_SIZE_MAX, 1, 5, 4, RECORD_SIZE_MAX), True),
        ((RECORD_SIZE_MAX + 1, 1, 5, 4, RECORD_SIZE_MAX * 2), False),
        ((100, -1, 5, 4, 100), False),
        ((100, 1, -1, -2, 100), False),
        ((100, 1, 5, -2, 100), False),
        ((100, 1, 5, 4, -1), False),
        ((100, -1, -2, 5, 0), True),
        ((100, -1, -3, 0, 0), True),
        ((100, -1, -4, 0, 0), False),
    ],
)
def test_what_could_be_a_record(fields: tuple[int, int, int, int, int], plausible: bool) -> None:
    for behind in (b"", b"x"):
        assert (0 in places(head(*fields) + behind)) is plausible


def test_the_front_of_a_map_or_filler_is_enough() -> None:
    assert list(places(META)) == [0]
    assert list(places(b"\xee" * 200 + META)) == [200]


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
