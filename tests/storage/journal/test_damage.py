"""Damage in journals, of every simple kind at every place: sound records are read, damage is named."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from journal_builder import (
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
from journal_builder import reader as journal_reader
from memory_files import SparseFile
from random_damage import bookie_journal, our_journal
from sampling import every
from store_internals import encoded_seal

from storage.entry.digest import digester, master_key
from storage.entry.digest_inference import EntryVerifier
from storage.entry.model import RECORD_SIZE_MAX, DigestType
from storage.entry.position import JournalPosition
from storage.entry.read_result import Damaged, EndOfData, Flaw, Torn
from storage.entrylog import format as entrylog_format
from storage.entrylog.reader import EntryLogReader
from storage.journal import format as journal_format
from storage.journal import seal as journal_seal
from storage.journal.reader import JournalReader, StoredRecord
from storage.journal.scan import KeptPrefix, Owner
from storage.journal.seal import GroupFlag, Seal

MEMORY_MAX = 64 << 20


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
                isinstance(item.record, journal_format.EntryRecord)
                or any(item.end <= end <= size for end in journal.ends)
            )
        ]
        assert facts.record_count == max(proving, default=0), size


@pytest.mark.sampled
def test_every_flipped_bit_in_our_groups_ends_the_sound_part_before_it() -> None:
    journal = our_journal()
    data = journal.file()
    for bit in every(25, range(512 * 8, len(journal.data) * 8)):
        facts = scan_bytes(flip(data, bit // 8, bit % 8), 1)
        group = next(index for index, end in enumerate(journal.ends) if bit // 8 < end)
        assert facts.end == ([512, *journal.ends][group]), bit
        assert not facts.is_sound
        assert (facts.proof_offset is not None) == (group < len(journal.ends) - 1)


@pytest.mark.slow
def test_every_flipped_bit_after_our_end_is_seen() -> None:
    journal = our_journal()
    for bit in range(len(journal.data) * 8, journal.size * 8, 5):
        facts = scan_bytes(flip(journal.file(), bit // 8, bit % 8), 1)
        assert (facts.end, facts.is_sound) == (journal.end, False)


@pytest.mark.slow
def test_every_flipped_bit_in_a_bookie_s_entries_is_seen() -> None:
    """Return a journal whose special records do not show a type, and whose one entry does not suffice."""
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
def test_a_zeroed_block_with_data_after_it_is_never_an_end(block: int) -> None:
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


@pytest.mark.parametrize("length", [RECORD_SIZE_MAX + 1, 2**31 - 1, 1 << 30])
def test_no_length_in_a_huge_file_is_a_request_to_allocate(length: int) -> None:
    front = BookieJournal(1, 6).file()[:512] + struct.pack(">i", length)
    journal = SparseFile(front, 3 << 30)
    assert next(JournalReader(journal, 1).items()) == Damaged(512, Flaw.LENGTH_TOO_LARGE, f"length {length}")
    assert journal.largest <= MEMORY_MAX
    log = SparseFile(entrylog_format.encode_header() + struct.pack(">iqq", length, 1, 1), 3 << 30)
    frame = EntryLogReader(log, 0, EntryVerifier()).frame_at(1024)
    assert frame == Damaged(1024, Flaw.LENGTH_TOO_LARGE, f"size {length}")
    assert log.largest <= MEMORY_MAX


@pytest.mark.parametrize("number", [0, 1, 2])
def test_after_damage_the_first_seal_that_holds_is_the_proof(number: int) -> None:
    journal = our_journal()
    facts = scan_bytes(flip(journal.file(), [512, *journal.ends][number] + 30), 1)
    assert facts.proof_offset == {0: journal.ends[0], 1: journal.ends[1], 2: None}[number]


def test_a_seal_of_a_newer_version_after_damage_is_the_proof_too() -> None:
    journal = OurJournal(1).group(entry_record(1, 0)).group(entry_record(1, 1))
    newer = change(journal.file(), journal.end - 60, b"\2")
    checksum = crc32c(newer[journal.ends[0] : journal.end - 4])
    facts = scan_bytes(flip(change(newer, journal.end - 4, struct.pack(">I", checksum)), 4096 + 30), 1)
    assert facts.proof_offset == journal.ends[0]
    assert facts.stop == Damaged(journal.ends[0], Flaw.FUTURE_VERSION)


def test_the_largest_durable_position_of_all_seals_counts() -> None:
    claims = [JournalPosition(1, 4096), JournalPosition(1, 8192), JournalPosition(1, 5000)]
    journal = OurJournal(1)
    for number, claim in enumerate(claims):
        journal.group(entry_record(1, number), durable_up_to=claim)
    for damaged in (journal.file(), flip(journal.file(), 4096 + 30)):
        assert scan_bytes(damaged, 1).durable_up_to == claims[1]
    assert scan_bytes(flip(journal.file(), journal.ends[0] + 30), 1).durable_up_to == claims[2]


def test_nothing_is_kept_of_a_journal_without_a_torn_group() -> None:
    ours, bookie = our_journal(), bookie_journal()
    for facts in (scan_bytes(ours.file(), 1), scan_bytes(bookie.file(), 1)):
        end = ours.end if facts.owner is Owner.OURS else bookie.ends[-1]
        assert (facts.kept, facts.stop) == (KeptPrefix(end, end, 0), EndOfData(end))
    assert scan_bytes(bytes(4096), 1).kept == KeptPrefix(0, 0, 0)


def test_nothing_is_kept_of_a_bookie_s_torn_tail() -> None:
    journal = bookie_journal()
    end = journal.ends[1]
    facts = scan_bytes(flip(journal.file(), end + 45), 1)
    assert (facts.kept, facts.stop) == (KeptPrefix(end, end, 0), Damaged(end, Flaw.DIGEST))


@pytest.mark.parametrize(
    ("specials", "count"),
    [
        ([journal_format.encode_ledger_key(1, master_key(b""))], 2),
        ([journal_format.encode_ledger_key(1, b"k" * 20)], 0),
        ([journal_format.encode_fence(1)], 2),
        ([journal_format.encode_explicit_lac(1, b"p" * 20)], 2),
        (
            [
                journal_format.encode_ledger_key(1, master_key(b"")),
                journal_format.encode_fence(1),
                journal_format.encode_explicit_lac(1, b"p"),
            ],
            4,
        ),
        ([journal_format.encode_record(struct.pack(">qq", 1, -7))], 0),
        ([journal_format.encode_record(struct.pack(">qqi", 1, journal_format.LEDGER_KEY, 5))], 0),
        ([journal_format.encode_padding(1100, 512)], 0),
    ],
    ids=["key", "unknown key", "fence", "lac", "all three", "unknown", "damaged", "padding"],
)
def test_special_records_of_a_torn_group_are_kept_if_an_entry_follows(
    specials: list[bytes], count: int
) -> None:
    journal = OurJournal(1).group(entry_record(1, 0))
    start, records = journal.end, [*specials, entry_record(1, 1)]
    torn = zero(journal.group(*records).file(), journal.end - 64, journal.end)
    end = start + sum(map(len, records)) if count else start
    assert scan_bytes(torn, 1).kept == KeptPrefix(start, end, count)


def test_a_key_in_a_torn_group_is_kept_if_it_is_known() -> None:
    journal = OurJournal(1).group(entry_record(1, 0))
    start, records = journal.end, [journal_format.encode_ledger_key(1, b"k" * 20), entry_record(1, 1)]
    torn = zero(journal.group(*records).file(), journal.end - 64, journal.end)
    for known, count in ((b"k" * 20, 2), (b"l" * 20, 0), (None, 0)):
        kept = scan_bytes(torn, 1, verifier=EntryVerifier(key_of={1: known}.get)).kept
        assert kept == KeptPrefix(start, start + sum(map(len, records)) if count else start, count)


def test_records_after_a_damaged_seal_do_not_belong_to_the_torn_group() -> None:
    journal = OurJournal(1, alignment=512).group().group(entry_record(1, 0))
    torn = flip(flip(journal.file(), journal.ends[0] - 1), journal.ends[1] - 1)
    assert scan_bytes(torn, 1).kept == KeptPrefix(512, 512, 0)


def test_an_atomic_first_group_without_its_seal_is_not_kept_at_all() -> None:
    journal = OurJournal(1, alignment=512).group(entry_record(1, 0), flags=GroupFlag.ATOMIC)
    torn = zero(journal.file(), journal.end - 64, journal.end)
    assert scan_bytes(torn, 1).kept == KeptPrefix(512, 512, 0)


def test_a_flush_that_ends_aligned_needs_no_padding() -> None:
    key = journal_format.encode_ledger_key(1, b"k" * 488)
    journal = BookieJournal(1, 6, size=4096).flush(key)
    assert journal.ends == [1024]
    facts = scan_bytes(journal.file(), 1)
    assert (facts.record_count, facts.end, facts.is_sound) == (1, 1024, True)


def test_padding_of_any_size_ends_a_flush() -> None:
    journal = BookieJournal(1, 6, size=4096)
    journal.data += journal_format.encode_ledger_key(1, b"k") + journal_format.encode_free_padding(30)
    facts = scan_bytes(journal.file(), 1)
    assert (facts.record_count, facts.end, facts.is_sound) == (1, len(journal.data), True)


def test_digest_types_after_a_mark_are_inferred_despite_damage_before_it() -> None:
    journal = bookie_journal().flush(entry_record(1, 2))
    damaged = change(journal.file(), 512, struct.pack(">i", -1))
    damaged = flip(damaged, journal.ends[0] + 45)
    facts = scan_bytes(damaged, 1, start=journal.ends[0])
    assert facts.stop == Damaged(journal.ends[0], Flaw.DIGEST)
    assert facts.proof_offset is not None


@pytest.mark.parametrize("behind", [4, 8, 512])
def test_nothing_counts_after_a_zero_length_that_a_bookie_s_replay_has_marked(behind: int) -> None:
    journal = bookie_journal()
    end = journal.ends[-1]
    facts = scan_bytes(change(journal.file(), end + behind, b"\xff" * 64), 1, start=end + 4)
    assert (facts.end, facts.is_sound) == (end + 4, True)


def test_a_mark_after_the_length_word_of_a_record_hides_nothing() -> None:
    journal = bookie_journal()
    assert not scan_bytes(journal.file(), 1, start=journal.ends[0] + 4).is_sound


def test_without_padding_a_record_may_begin_anywhere_after_zeros() -> None:
    payload = bytes(512 - len(entry_record(1, 0, b"x")) - 3)
    journal = BookieJournal(1, 4, size=4096).flush(entry_record(1, 0, payload))
    start = len(journal.data)
    assert (start % 512, any(journal.data[-4:])) == (4, False)
    assert scan_bytes(journal.flush(entry_record(1, 1)).file(), 1, start).record_count == 1


# the proof, after damage in a bookie's journal, that more was written

LARGE = entry_record(1, 1, b"x" * 9000)


def behind_damage(*records: bytes, version: int = 6) -> tuple[bytes, int]:
    """Return a bookie's journal whose first, large entry is damaged, and where the records after it begin."""
    journal = BookieJournal(1, version, size=65536).flush(entry_record(1, 0, b"w" * 9000))
    place = journal.ends[0]
    journal.data += b"".join(records)
    return flip(journal.file(), journal_format.JournalHeader(version).size + 50), place


@pytest.mark.parametrize(
    "following",
    [
        b"",
        entry_record(1, 2),
        journal_format.encode_fence(1),
        journal_format.encode_ledger_key(1, b"k"),
        journal_format.encode_explicit_lac(1, b"p"),
        journal_format.encode_padding(len(LARGE), 512),
    ],
    ids=["zeros", "entry", "fence", "key", "lac", "padding"],
)
def test_a_large_entry_after_damage_is_proof_whatever_follows_it(following: bytes) -> None:
    damaged, place = behind_damage(LARGE, following)
    assert scan_bytes(damaged, 1).proof_offset == place


def test_a_large_entry_at_the_very_end_of_the_file_is_proof() -> None:
    damaged, place = behind_damage(LARGE)
    assert scan_bytes(damaged[: place + len(LARGE)], 1).proof_offset == place


def test_a_small_entry_after_damage_is_proof_whatever_follows() -> None:
    damaged, place = behind_damage(entry_record(1, 1), b"\xff" * 600)
    assert scan_bytes(damaged, 1).proof_offset == place


def mac_record(entry_id: int, payload: bytes = b"") -> bytes:
    """Return an entry that cannot be verified, because its ledger's password is not known."""
    return journal_format.encode_record(entry_bytes(9, entry_id, payload, DigestType.MAC))


FILLING = mac_record(1, b"y" * (512 - len(mac_record(1, b"y")) + 1))


@pytest.mark.parametrize(
    ("records", "proves"),
    [
        ([mac_record(1), journal_format.encode_padding(len(mac_record(1)), 512)], True),
        ([FILLING, b"\xff" * 600], True),
        ([mac_record(1), b"\xff" * 600], False),
        ([mac_record(1), mac_record(2), mac_record(3), mac_record(4), b"\xff" * 600], False),
        ([mac_record(1), journal_format.encode_free_padding(40), b"\xff" * 600], False),
        (
            [
                mac_record(1),
                journal_format.encode_free_padding(40),
                mac_record(2),
                journal_format.encode_padding(2 * len(mac_record(1)) + 40, 512),
            ],
            False,
        ),
    ],
    ids=["padded", "aligned", "one torn", "four torn", "padded too short", "padded in its middle"],
)
def test_a_whole_flush_of_unverifiable_records_is_proof(records: list[bytes], proves: bool) -> None:
    damaged, place = behind_damage(*records)
    assert scan_bytes(damaged, 1).proof_offset == (place if proves else None)


@pytest.mark.parametrize(("count", "proves"), [(2, False), (3, True)])
def test_without_padding_three_unverifiable_records_in_a_row_are_proof(count: int, proves: bool) -> None:
    records = [mac_record(number) for number in range(1, 1 + count)]
    damaged, place = behind_damage(*records, b"\xff" * 600, version=4)
    assert place % 512 != 0
    assert scan_bytes(damaged, 1).proof_offset == (place if proves else None)


def test_without_padding_one_aligned_record_is_no_proof() -> None:
    _, place = behind_damage(version=4)
    record = mac_record(1, b"y" * (-(place + len(mac_record(1, b"y")) - 1) % 512))
    assert (place + len(record)) % 512 == 0
    damaged, _ = behind_damage(record, b"\xff" * 600, version=4)
    assert scan_bytes(damaged, 1).proof_offset is None


def test_a_flush_of_entries_with_wrong_digests_is_no_proof() -> None:
    journal = bookie_journal().flush(entry_record(1, 2))
    damaged = flip(flip(journal.file(), journal.ends[1] + 45), journal.ends[2] + 45)
    facts = scan_bytes(damaged, 1)
    assert (facts.end, facts.proof_offset) == (journal.ends[1], None)


def test_records_inside_an_entry_prove_that_its_length_has_grown() -> None:
    swallower = mac_record(5, b"y" * 40)
    grown = bytearray(swallower + entry_record(1, 0))
    grown[:4] = struct.pack(">i", len(grown) - 4)
    journal = BookieJournal(1, size=4096).flush(entry_record(1, 1), entry_record(1, 2)).flush(bytes(grown))
    place = journal.ends[0]
    facts = scan_bytes(journal.file(), 1)
    assert facts.stop == Damaged(place, Flaw.DIGEST, "other entries stand inside")
    assert facts.proof_offset == place + len(swallower)


def test_an_entry_whose_payload_ends_in_records_has_the_right_length() -> None:
    backup = entry_record(1, 2, b"backup:" + entry_record(1, 0) + entry_record(1, 1))
    journal = BookieJournal(1, size=4096).flush(entry_record(1, 0), entry_record(1, 1)).flush(backup)
    facts = scan_bytes(journal.file(), 1)
    assert (facts.record_count, facts.is_sound) == (3, True)


def test_a_ledger_declared_without_a_digest_is_not_verified() -> None:
    journal = bookie_journal()
    verifier = EntryVerifier({number: digester(DigestType.DUMMY) for number in (1, 2)})
    facts = scan_bytes(journal.file(), 1, verifier=verifier)
    assert (facts.end, facts.is_sound) == (journal.ends[-1], True)


# headers


@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_long_header_with_the_version_of_a_short_one_is_damaged(version: int) -> None:
    data = change(bookie_journal().file(), 4, struct.pack(">i", version))
    assert journal_reader(data, 1).header == Damaged(4, Flaw.BAD_VERSION, "zeros before data")


@pytest.mark.parametrize("journal", [bookie_journal(), OurJournal(1)], ids=["a bookie's", "ours"])
def test_zeros_instead_of_a_header_before_data_are_damage(journal: BookieJournal | OurJournal) -> None:
    header = journal_reader(zero(journal.file(), 0, 512), 1).header
    assert header == Damaged(0, Flaw.BAD_MAGIC, "zeros before data")


def test_a_file_without_a_header_whose_first_record_does_not_verify_is_no_journal_from_before_headers() -> (
    None
):
    journal = BookieJournal(1, 1, size=4096).flush(entry_record(1, 0))
    assert journal_reader(journal.file(), 1).header == journal_format.VERSION_1
    assert journal_reader(flip(journal.file(), 45), 1).header == Damaged(0, Flaw.BAD_MAGIC)


# seals


def with_seal(start: int, end: int, checksum: int | None = None) -> bytes:
    """Return our journal with a seal that ends at `end` and names this start of its group."""
    seal = Seal(1, OurJournal(1).salt, 1, start, START, 0)
    data = change(our_journal().file(), end - 64, encoded_seal(seal))
    checksum = crc32c(data[start : end - 4]) if checksum is None else checksum
    return change(data, end - 4, struct.pack(">I", checksum))


def seals(data: bytes, start: int = 2048) -> list[int]:
    return [stored.seal.group_start for stored in journal_reader(data, 1).seals_after(start)]


def test_a_seal_is_believed_in_its_place_only() -> None:
    assert seals(with_seal(2048, 3072)) == [2048]
    assert seals(with_seal(2048, 3072 - 8)) == []  # not at the end of a sector
    assert seals(with_seal(0, 3072)) == []  # a group that begins in the header


@pytest.mark.parametrize("start", [3072 - 63, 3072 - 4, 3072, 1 << 40])
def test_a_seal_of_a_group_that_begins_after_it_is_not_believed(start: int) -> None:
    data = with_seal(start, 3072, checksum=crc32c(our_journal().file()[start : 3072 - 4]))
    assert seals(data) == []
    stored = journal_seal.decode(data[3072 - 64 : 3072])
    assert isinstance(stored, journal_seal.StoredSeal)
    assert journal_reader(data, 1).seal_flaw(stored, 3072) is Flaw.OTHER_PLACE
