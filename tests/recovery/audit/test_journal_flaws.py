"""Damage in journals is named at its place, and nothing else is named."""

from __future__ import annotations

import struct
from random import Random
from typing import TYPE_CHECKING

import pytest
from audited_journals import JOURNAL_ID, AuditedItem, ids, items, part_of
from bookie_clients import AddingClient
from journal_builder import BookieJournal, OurJournal, change, entry_record, flip, zero
from sampling import every

from recovery.audit.digests.policy import DigestPolicy
from recovery.audit.model.scan_results import FlawAt, FlawKind
from storage.entry.model import DigestType
from storage.entry.position import LENGTH_WORD_SIZE
from storage.entry.read_result import Damaged, Flaw
from storage.journal import format as journal_format
from storage.journal import seal as journal_seal
from storage.journal.seal import GroupFlag

if TYPE_CHECKING:
    from collections.abc import Iterator

BOOKIE = DigestPolicy()
SEAL = journal_seal.SIZE
SEEDS = (*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 40)))
SPECIAL = (
    journal_format.encode_ledger_key(1, b"k" * 20),
    journal_format.encode_fence(2),
    journal_format.encode_explicit_lac(0, b"p" * 20),
)


def ours(seed: int = 0, groups: int = 10) -> OurJournal:
    """A journal with groups of entries of any size, with a key, a fence and an explicit LAC among them."""
    dice = Random(seed)
    journal = OurJournal(JOURNAL_ID, alignment=dice.choice([512, 4096]), size=1 << 17)
    counts = [0, 0, 0]
    for number in range(groups):
        records = []
        for _ in range(dice.randrange(1, 6)):
            ledger = dice.randrange(3)
            records.append(entry_record(ledger, counts[ledger], dice.randbytes(dice.randrange(1, 700))))
            counts[ledger] += 1
        records[dice.randrange(len(records) + 1) : 0] = [
            (
                journal_format.encode_ledger_key(1, b"k" * 20),
                journal_format.encode_fence(2),
                journal_format.encode_explicit_lac(0, b"p" * 20),
            )[number % 3]
        ]
        journal.group(*records, flags=dice.choice([GroupFlag.NONE, GroupFlag.ATOMIC]))
    return journal


def theirs(seed: int = 0, version: int = 6) -> BookieJournal:
    dice = Random(seed)
    journal = BookieJournal(JOURNAL_ID, version, size=1 << 17)
    counts = [0, 0, 0]
    for _ in range(40):
        records = []
        for _ in range(dice.randrange(1, 4)):
            ledger = dice.randrange(3)
            records.append(entry_record(ledger, counts[ledger], dice.randbytes(dice.randrange(1, 700))))
            counts[ledger] += 1
        journal.flush(*records)
    return journal


def at(data: bytes, place: int) -> AuditedItem:
    """Return the item at that byte."""
    return next(item for item in items(data) if item.start <= place < item.end)


def hits(part_flaws: tuple[FlawAt, ...]) -> list[tuple[int, int]]:
    return [(flaw.offset, flaw.end) for flaw in part_flaws]


def bits(first: int, last: int, seed: int, count: int) -> Iterator[tuple[int, int]]:
    dice = Random(seed)
    for _ in range(count):
        yield dice.randrange(first, last), dice.randrange(8)


# ── journals of ours ─────────────────────────────────────────────────────────────────────────────────────


def is_named(journal: OurJournal, flaws: tuple[FlawAt, ...], place: int) -> bool:
    """Return whether the flaws are those of one wrong byte: its entry exactly, or something in its group."""
    item = at(journal.file(), place)
    if item.is_entry:
        return hits(flaws) == [(item.start, item.end)]
    if item.start == journal_format.HEADER_SIZE_MAX < journal.alignment and place >= item.start + 8:
        return hits(flaws) == [(place, place + 1)]  # after the header
    end = next(end for end in journal.ends if end > place)
    start = max((end for end in journal.ends if end <= place), default=journal_format.HEADER_SIZE_MAX)
    is_hit = any(flaw.offset <= place < flaw.end for flaw in flaws)
    return is_hit and all(start <= flaw.offset < flaw.end <= end for flaw in flaws)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_flipped_bit_in_a_journal_of_ours_is_named_with_its_entry_or_its_group(seed: int) -> None:
    journal = ours(seed)
    data = journal.file()
    whole = part_of(data)
    first = journal_format.HEADER_SIZE_MAX
    for place, bit in bits(first, journal.ends[-2], seed, 60):
        item = at(data, place)
        part = part_of(flip(data, place, bit))
        assert is_named(journal, part.flaws, place), (place, bit, part.flaws, item)
        assert part.tail == ()
        is_head = item.start + 4 <= place < item.start + 36
        if item.is_entry and not is_head:
            assert (part.flaws[0].ledger_id, part.flaws[0].entry_id) == (item.ledger_id, item.entry_id)
        assert part.records <= whole.records, (place, item)


@pytest.mark.parametrize("seed", SEEDS)
def test_damage_before_the_mark_is_named_and_costs_no_entry_after_it(seed: int) -> None:
    journal = ours(seed)
    data, mark = journal.file(), journal.ends[5]
    behind = ids(part_of(data, mark).after_mark)
    for place, bit in bits(journal_format.HEADER_SIZE_MAX, mark, seed, 30):
        part = part_of(flip(data, place, bit), mark)
        assert is_named(journal, part.flaws, place)
        assert part.marked_at_record is True
        assert ids(part.after_mark) == behind
        assert part.scan.is_sound


@pytest.mark.parametrize("start", [0, None])
def test_damage_in_the_last_group_is_an_unvouched_tail(start: int | None) -> None:
    journal = ours()
    data = journal.file()
    for place, bit in bits(journal.ends[-2], journal.ends[-1], 1, 60):
        part = part_of(flip(data, place, bit), start)
        assert part.flaws == ()
        assert is_named(journal, part.tail, place)
        assert not part.scan.is_sound


@pytest.mark.sampled
def test_a_torn_tail_is_distinguished_from_damage() -> None:
    journal = ours()
    for end in every(4, range(journal.ends[-2] + 1, journal.ends[-1], 7)):
        data = zero(journal.file(), end, journal.ends[-1])
        part = part_of(data)
        assert part.flaws == ()
        assert part.scan.end == journal.ends[-2]
        assert part.scan.proof_offset is None


@pytest.mark.parametrize("seed", SEEDS)
def test_a_zeroed_block_is_named_with_every_record_that_it_hits(seed: int) -> None:
    journal = ours(seed)
    data = journal.file()
    every = items(data)
    for place, _ in bits(journal_format.HEADER_SIZE_MAX, journal.ends[-2] - 512, seed, 20):
        start = place - place % 512
        damaged = zero(data, start, start + 512)
        if damaged == data:
            continue
        part = part_of(damaged)
        hit = [
            item
            for item in every
            if item.start < start + 512
            and start < item.end
            and damaged[item.start : item.end] != data[item.start : item.end]
        ]
        for item in hit:
            assert any(flaw.offset < item.end and item.start < flaw.end for flaw in part.flaws), (start, item)
        # Nothing next to it is named.
        first, last = hit[0].start, max(item.end for item in every if item.start < start + 512)
        group_end = next(end for end in journal.ends if end >= last)
        assert all(first <= flaw.offset < flaw.end <= group_end for flaw in part.flaws), (start, part.flaws)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_misdirected_block_is_named(seed: int) -> None:
    journal = ours(seed)
    data, dice = journal.file(), Random(seed)
    for _ in range(15):
        source, target = (
            512 * dice.randrange(1, journal.ends[-2] // 512),
            512 * dice.randrange(8 if journal.alignment == 4096 else 1, journal.ends[-2] // 512),
        )
        damaged = change(data, target, data[source : source + 512])
        if damaged == data:
            continue
        part = part_of(damaged)
        assert any(flaw.offset < target + 512 and target < flaw.end for flaw in part.flaws), (source, target)


@pytest.mark.parametrize(
    "length", [0, 1, 15, 16, 20, 100, -1, -5, -0x100, 2**31 - 1, 1 << 24, 500, 1000, 5000]
)
def test_a_wrong_length_is_named_with_its_entry(length: int) -> None:
    journal = ours(3)
    data = journal.file()
    for item in items(data):
        size = item.end - item.start - 4
        if not item.is_entry or item.end > journal.ends[-2] or length == size:
            continue
        part = part_of(change(data, item.start, struct.pack(">i", length)))
        assert part.flaws[0].offset == item.start
        assert max(flaw.end for flaw in part.flaws) >= item.end
        assert part.flaws[0].ledger_id in (item.ledger_id, None)
        following = next(one for one in items(data) if one.start == item.end)
        if following.is_entry or following.is_padding:
            assert hits(part.flaws) == [(item.start, item.end)]
            assert (part.flaws[0].ledger_id, part.flaws[0].entry_id) == (item.ledger_id, item.entry_id)


@pytest.mark.parametrize("policy", [BOOKIE, DigestPolicy(presumed=DigestType.CRC32C)])
def test_a_length_that_has_grown_up_to_the_end_of_other_entries_hides_none_of_them(
    policy: DigestPolicy,
) -> None:
    made = entry_record(1, 0), entry_record(1, 1), entry_record(1, 2), entry_record(1, 3)
    journal = BookieJournal(JOURNAL_ID).flush(*made).flush(entry_record(1, 4)).file()
    if policy is not BOOKIE:
        journal = OurJournal(JOURNAL_ID).group(*made).group(entry_record(1, 4)).file()
    _, second, third, *_ = (item for item in items(journal) if item.is_entry)
    grown = struct.pack(">i", third.end - second.start - LENGTH_WORD_SIZE)
    part = part_of(change(journal, second.start, grown), 0, policy)
    assert [(flaw.offset, flaw.end, flaw.entry_id) for flaw in part.flaws] == [(second.start, second.end, 1)]


def test_a_length_that_has_grown_over_the_first_word_of_padding_concerns_only_its_entry() -> None:
    journal = OurJournal(JOURNAL_ID).group(entry_record(1, 0)).group(entry_record(1, 1)).file()
    entry = next(item for item in items(journal) if item.is_entry)
    grown = struct.pack(">i", entry.end - entry.start)
    part = part_of(change(journal, entry.start, grown), 0)
    assert [(flaw.offset, flaw.end, flaw.entry_id) for flaw in part.flaws] == [(entry.start, entry.end, 0)]


def test_two_damaged_records_of_a_group_are_two_flaws() -> None:
    journal = OurJournal(JOURNAL_ID, alignment=512)
    journal.group(*(entry_record(1, one, b"x" * 100) for one in range(6))).group(entry_record(1, 6))
    data = journal.file()
    records = [item for item in items(data) if item.is_entry]
    damaged = flip(flip(data, records[2].end - 1), records[3].end - 1)
    assert [flaw.entry_id for flaw in part_of(damaged).flaws] == [2, 3]


def test_damage_without_a_digest_is_found_by_the_checksum_of_the_group() -> None:
    """Fences, keys and entries without a digest: only the checksum of their group shows damage in them."""
    dummy = AddingClient(4, DigestType.DUMMY)
    journal = OurJournal(JOURNAL_ID, alignment=512)
    records = (
        entry_record(1, 0),
        journal_format.encode_ledger_key(2, b"k" * 20),
        journal_format.encode_record(dummy.entry(0, b"unproven")),
        journal_format.encode_fence(3),
    )
    journal.group(*records).group(entry_record(1, 1))
    data, policy = journal.file(), DigestPolicy({4: DigestType.DUMMY}, DigestType.CRC32C)
    for item in items(data)[1:4]:
        for place in range(item.start + (24 if item.entry_id is None else 36), item.end):
            (flaw,) = part_of(flip(data, place, 3), 0, policy).flaws
            assert (flaw.kind, flaw.flaw) == (FlawKind.RECORD, Flaw.CHECKSUM)
            assert (flaw.offset, flaw.end) == (512, journal.ends[0])


def test_several_wrong_bytes_without_a_digest_name_the_group() -> None:
    journal = OurJournal(JOURNAL_ID, alignment=512)
    journal.group(entry_record(1, 0), journal_format.encode_ledger_key(2, b"k" * 20)).group(
        entry_record(1, 1)
    )
    key = items(journal.file())[1]
    part = part_of(change(journal.file(), key.end - 9, b"somewhere"))
    assert part.flaws == (FlawAt(FlawKind.RECORD, Flaw.CHECKSUM, 512, journal.ends[0]),)


def test_padding_after_the_header_is_checked() -> None:
    journal = OurJournal(JOURNAL_ID, alignment=4096).group(entry_record(1, 0))
    (flaw,) = part_of(flip(journal.file(), 1000)).flaws
    assert (flaw.offset, flaw.end, flaw.flaw) == (1000, 1001, Flaw.NOT_ZERO)


def test_a_sound_file_that_lost_its_end_is_named() -> None:
    journal = OurJournal(JOURNAL_ID, filled_until=1 << 15).group(entry_record(1, 0))
    (flaw,) = part_of(journal.file()[: 1 << 14]).flaws
    assert (flaw.flaw, flaw.offset, flaw.end) == (Flaw.FILE_CUT, 1 << 14, 1 << 15)


def test_a_cut_file_is_named_if_its_true_size_is_known() -> None:
    journal = ours()
    for end in range(journal_format.HEADER_SIZE_MAX, journal.end, 499):
        part = part_of(journal.file()[:end])
        assert part.flaws == ()
        assert part.scan.end <= end


@pytest.mark.parametrize("place", [0, 3, 5, 9, 13, 20, 40, 500])
def test_a_damaged_header_of_ours_is_named(place: int) -> None:
    part = part_of(flip(ours().file(), place))
    header = part.scan.header
    assert isinstance(header, Damaged)
    assert hits(part.flaws) == [(0, 512)]
    assert part.flaws[0].flaw is header.flaw


def test_groups_of_another_journal_are_named_by_the_header() -> None:
    header = OurJournal(JOURNAL_ID, salt=77).file()[:512]
    (flaw,) = part_of(header + ours().file()[512:]).flaws
    assert (flaw.flaw, flaw.offset) == (Flaw.OTHER_HEADER, 0)


# ── a bookie's journal ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("version", "seed"),
    [
        (4, 0),
        (5, 1),
        (6, 2),
        *(pytest.param(4 + seed % 3, seed, marks=pytest.mark.slow) for seed in range(3, 40)),
    ],
)
def test_every_flipped_bit_of_an_entry_that_a_bookie_has_journaled_is_named(seed: int, version: int) -> None:
    journal = theirs(seed, version)
    data = journal.file()
    entries = [item for item in items(data) if item.is_entry]
    every = ids(part_of(data, 0, BOOKIE).after_mark)
    for place, bit in bits(entries[0].start, entries[-6].end, seed, 40):
        item = at(data, place)
        if item.is_padding:
            continue
        part = part_of(flip(data, place, bit), None, BOOKIE)
        assert part.flaws, (place, bit)
        assert part.tail == ()
        flaw = part.flaws[0]
        assert flaw.offset == item.start, (place, bit, part.flaws, item)
        assert {(one, two) for one, two in every} - {(item.ledger_id, item.entry_id)} == set(
            ids(part.before_mark)
        )
        if place >= item.start + 4:
            assert hits(part.flaws) == [(item.start, item.end)], (place, bit)


@pytest.mark.parametrize("seed", SEEDS)
def test_damage_of_a_bookie_s_journal_before_the_mark_is_named_too(seed: int) -> None:
    journal = theirs(seed)
    data, mark = journal.file(), journal.ends[25]
    behind = ids(part_of(data, mark, BOOKIE).after_mark)
    for place, bit in bits(512, journal.ends[24], seed, 20):
        item = at(data, place)
        if item.is_padding:
            continue
        part = part_of(flip(data, place, bit), mark, BOOKIE)
        assert part.flaws
        assert part.flaws[0].offset == item.start
        assert part.marked_at_record is True
        assert ids(part.after_mark) == behind


def test_the_last_entry_of_a_bookie_s_journal_is_a_tail() -> None:
    journal = theirs()
    data = journal.file()
    last = [item for item in items(data) if item.is_entry][-1]
    for place in range(last.start, last.end, 23):
        part = part_of(flip(data, place), 0, BOOKIE)
        assert part.flaws == ()
        assert part.tail
        assert part.tail[0].offset == last.start
        assert not part.scan.is_sound


def test_after_damage_in_the_middle_the_last_entry_is_still_a_tail() -> None:
    journal = theirs()
    entries = [item for item in items(journal.file()) if item.is_entry]
    data = flip(flip(journal.file(), entries[9].end - 1), entries[-1].end - 1)
    part = part_of(data, 0, BOOKIE)
    assert hits(part.flaws) == [(entries[9].start, entries[9].end)]
    assert hits(part.tail) == [(entries[-1].start, entries[-1].end)]


def test_a_zeroed_block_of_a_bookie_s_journal_is_named() -> None:
    journal = theirs(2)
    data = journal.file()
    every = items(data)
    for start in range(512, journal.ends[-8], 512):
        damaged = zero(data, start, start + 512)
        hit = [
            item
            for item in every
            if item.is_entry and damaged[item.start : item.end] != data[item.start : item.end]
        ]
        part = part_of(damaged, 0, BOOKIE)
        for item in hit:
            assert any(flaw.offset < item.end and item.start < flaw.end for flaw in part.flaws), (start, item)
        if hit:
            assert part.flaws[0].offset == hit[0].start


@pytest.mark.parametrize("more", [20, 600, 1300])
def test_a_record_that_has_grown_over_the_mark_is_wrong_and_not_the_mark(more: int) -> None:
    unproven, journal = AddingClient(4, DigestType.DUMMY), BookieJournal(JOURNAL_ID)
    for number in range(4):
        journal.flush(journal_format.encode_record(unproven.entry(number, bytes(100))))
    mark = journal.ends[-1]
    for number in range(4):
        journal.flush(entry_record(1, number, bytes(range(200))))
    last = [item for item in items(journal.file()) if item.is_entry and item.start < mark][-1]
    grown = struct.pack(">i", mark + more - last.start - LENGTH_WORD_SIZE)
    part = part_of(change(journal.file(), last.start, grown), mark, BOOKIE)
    assert hits(part.flaws) == [(last.start, mark)]
    assert part.marked_at_record is True
    assert ids(part.after_mark) == [(1, number) for number in range(4)]


def test_padding_of_a_bookie_s_journal_whose_length_has_grown_hides_nothing() -> None:
    journal = theirs(1)
    data = journal.file()
    padding = next(item for item in items(data) if item.is_padding)
    inside = next(item for item in items(data) if item.start == padding.end)
    grown = inside.end - padding.start - journal_format.PREFIX_SIZE
    part = part_of(change(data, padding.start + 4, struct.pack(">i", grown)), 0, BOOKIE)
    assert part.flaws
    assert part.flaws[0].offset == padding.start


def test_an_entry_of_a_ledger_without_other_evidence_is_doubted() -> None:
    """Its ledger id is damaged: the digests of other ledgers are no evidence."""
    journal = theirs(4)
    data = journal.file()
    item = next(one for one in items(data) if one.is_entry and one.entry_id)
    part = part_of(flip(data, item.start + 5), 0, BOOKIE)
    assert [(flaw.kind, flaw.offset, flaw.end) for flaw in part.flaws] in (
        [(FlawKind.DOUBT, item.start, item.end)],
        [(FlawKind.DIGEST, item.start, item.end)],
    )


def test_damage_that_no_reader_can_detect_is_unverified() -> None:
    dummy = AddingClient(4, DigestType.DUMMY)
    journal = BookieJournal(JOURNAL_ID)
    journal.flush(*(journal_format.encode_record(dummy.entry(one, b"unproven")) for one in range(20)))
    item = items(journal.file())[3]
    part = part_of(flip(journal.file(), item.end - 1), 0, BOOKIE)
    assert (part.flaws, part.unverified) == ((), {4: 20})


@pytest.mark.parametrize("place", [0, 3, 5, 300])
def test_a_damaged_header_of_a_bookie_s_journal_is_named(place: int) -> None:
    part = part_of(flip(theirs().file(), place), 0, BOOKIE)
    assert isinstance(part.scan.header, Damaged)
    assert hits(part.flaws) == [(0, 512)]


def test_a_seal_that_ends_in_a_zero_is_whole() -> None:
    # Zeros follow the seal, and the data seems to end one byte earlier.
    journal = next(
        one
        for salt in range(10_000)
        if (one := OurJournal(JOURNAL_ID, salt=salt).group(entry_record(7, 0, b"first"))).data[-1] == 0
    )
    data = flip(journal.file(), 4140)
    for start in (0, None):
        part = part_of(data, start)
        (flaw,) = (*part.flaws, *part.tail)
        assert (flaw.offset, flaw.end) == (4096, 4141)
