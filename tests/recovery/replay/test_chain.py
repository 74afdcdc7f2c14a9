"""The chain of journals, with real bytes that are damaged as a crash, a disk or a bookie leaves them."""

from __future__ import annotations

import random
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
    scan_all,
    scan_bytes,
    zero,
)

from recovery.replay.chain import ChainVerdict, RequiredJournal, judge
from recovery.replay.decision import ChainPlace, Decision, Following, LaterData
from storage.entry.digest_inference import EntryVerifier
from storage.entry.model import DigestType
from storage.entry.position import JournalPosition
from storage.entry.read_result import Damaged, Flaw, Torn
from storage.journal import format as journal_format
from storage.journal.seal import GroupFlag


def verdict(files: dict[int, bytes], mark: JournalPosition = START, **required: int) -> ChainVerdict:
    return judge(
        mark, scan_all(files, mark), [RequiredJournal(number, by) for by, number in required.items()]
    )


def decisions(found: ChainVerdict) -> dict[int, Decision]:
    return {one.scan.journal_id: one.decision for one in found.standings}


def three_groups(journal_id: int = 1, synced: JournalPosition = START) -> OurJournal:
    journal = OurJournal(journal_id, synced=synced)
    for number in range(3):
        journal.group(entry_record(1, number), entry_record(2, number))
    return journal


# ── one journal of ours ──────────────────────────────────────────────────────────────────────────────────


def test_a_sound_journal_counts_whole() -> None:
    journal = three_groups()
    found = verdict({1: journal.file()})
    assert decisions(found) == {1: Decision.USE}
    assert found.standings[0].end == journal.end
    assert not found.is_refused


def test_a_torn_last_group_is_cut() -> None:
    journal = three_groups()
    torn = zero(journal.file(), journal.ends[1] + 40, journal.end)
    found = verdict({1: torn})
    assert decisions(found) == {1: Decision.CUT}
    assert found.standings[0].end == journal.ends[1]


def test_records_of_a_torn_group_that_verify_are_kept() -> None:
    journal = OurJournal(1).group(entry_record(1, 0))
    start = journal.end
    records = [entry_record(1, 1), entry_record(1, 2), entry_record(1, 3)]
    journal.group(*records)
    torn = flip(journal.file(), start + len(records[0]) + len(records[1]) + 45)  # in the third payload
    kept = verdict({1: torn}).standings[0].scan.kept
    assert (kept.start, kept.end, kept.count) == (start, start + len(records[0]) + len(records[1]), 2)


KEY = b"k" * 20


@pytest.mark.parametrize("known", [{}, {1: b"another"}], ids=["no key", "another key"])
def test_a_key_that_is_not_known_ends_what_is_kept(known: dict[int, bytes]) -> None:
    journal = OurJournal(1).group(entry_record(1, 0))
    start, first = journal.end, entry_record(1, 1)
    journal.group(first, journal_format.encode_ledger_key(1, KEY), entry_record(1, 2))
    torn = zero(journal.file(), journal.end - 64, journal.end)
    kept = scan_bytes(torn, 1, verifier=EntryVerifier(key_of=known.get)).kept
    assert (kept.end, kept.count) == (start + len(first), 1)


def test_a_fence_without_an_entry_after_it_is_not_kept() -> None:
    journal = OurJournal(1).group(entry_record(1, 0))
    start = journal.end
    records = [journal_format.encode_ledger_key(1, KEY), entry_record(1, 1), journal_format.encode_fence(1)]
    journal.group(*records)
    torn = zero(journal.file(), journal.end - 64, journal.end)
    kept = scan_bytes(torn, 1, verifier=EntryVerifier(key_of={1: KEY}.get)).kept
    assert (kept.end, kept.count) == (start + len(records[0]) + len(records[1]), 2)


def test_an_atomic_group_without_its_seal_is_not_kept_at_all() -> None:
    journal = OurJournal(1).group(entry_record(1, 0))
    journal.group(entry_record(1, 1), entry_record(1, 2), flags=GroupFlag.ATOMIC)
    torn = zero(journal.file(), journal.end - 64, journal.end)
    found = verdict({1: torn})
    assert decisions(found) == {1: Decision.CUT}
    assert found.standings[0].scan.kept.count == 0


def test_damage_before_a_later_seal_is_rot() -> None:
    journal = three_groups()
    for offset in (4096 + 60, journal.ends[0] + 60, journal.ends[0] - 1):
        found = verdict({1: flip(journal.file(), offset)})
        assert decisions(found) == {1: Decision.ROT}, offset


def test_a_zeroed_group_before_a_later_seal_is_rot() -> None:
    journal = three_groups()
    found = verdict({1: zero(journal.file(), journal.ends[0], journal.ends[1])})
    assert decisions(found) == {1: Decision.ROT}


def test_a_lost_first_group_with_a_later_seal_is_rot() -> None:
    journal = three_groups()
    found = verdict({1: zero(journal.file(), 4096, journal.ends[0])})
    assert decisions(found) == {1: Decision.ROT}


def test_a_damaged_header_alone_loses_nothing() -> None:
    journal = three_groups()
    found = verdict({1: flip(journal.file(), 17)})
    assert decisions(found) == {1: Decision.USE}
    assert found.standings[0].end == journal.end


def test_a_damaged_header_and_a_damaged_first_group_are_rot() -> None:
    journal = three_groups()
    found = verdict({1: flip(flip(journal.file(), 17), 4096 + 60)})
    assert decisions(found) == {1: Decision.ROT}


def test_a_damaged_header_without_any_seal_is_rot() -> None:
    journal = OurJournal(1)
    assert decisions(verdict({1: flip(journal.file(), 17)})) == {1: Decision.ROT}


def test_a_zeroed_header_before_data_is_rot() -> None:
    bookie = BookieJournal(1).flush(entry_record(1, 0))
    assert decisions(verdict({1: zero(bookie.file(), 0, 512)})) == {1: Decision.ROT}


def test_a_journal_of_zeros_or_none_is_void() -> None:
    for data in (b"", bytes(100), bytes(16384)):
        assert decisions(verdict({1: data})) == {1: Decision.VOID}


def test_ours_without_any_seal_is_neither_rot_nor_foreign() -> None:
    journal = OurJournal(1)
    assert decisions(verdict({1: journal.file()})) == {1: Decision.KEEP}


def test_a_torn_group_after_the_mark_is_still_ours() -> None:
    journal = three_groups()
    mark = journal.position
    start = journal.end
    journal.group(entry_record(1, 3), entry_record(1, 4))
    found = verdict({1: zero(journal.file(), journal.end - 64, journal.end)}, mark)
    assert decisions(found) == {1: Decision.KEEP}
    assert (found.standings[0].scan.kept.start, found.standings[0].scan.kept.count) == (start, 2)


def test_the_first_group_of_a_new_journal_is_kept_as_far_as_it_verifies() -> None:
    first = three_groups()
    second = OurJournal(2, synced=first.position)
    records = [entry_record(3, 0), entry_record(3, 1)]
    second.group(*records)
    torn = flip(second.file(), 4096 + len(records[0]) + 45)
    found = verdict({1: first.file(), 2: torn})
    assert decisions(found) == {1: Decision.USE, 2: Decision.KEEP}
    assert found.standings[1].scan.kept.count == 1


def with_the_header_of(other: OurJournal, journal: OurJournal) -> bytes:
    return other.file()[:512] + journal.file()[512:]


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("marked", [0, 1])
def test_another_journal_s_header_is_rot_and_no_journal_without_groups(groups: int, marked: int) -> None:
    journal = OurJournal(1, salt=1)
    for number in range(groups + marked):
        journal.group(entry_record(1, number))
    mark = JournalPosition(1, journal.ends[0]) if marked else START
    found = verdict({1: with_the_header_of(OurJournal(2, salt=2), journal)}, mark)
    assert decisions(found) == {1: Decision.ROT}
    assert found.standings[0].scan.stop == Damaged(0, Flaw.OTHER_HEADER)
    assert found.standings[0].facts.later_data is LaterData.PROOF


def test_another_journal_s_content_is_rot() -> None:
    first = OurJournal(1, salt=1).group(entry_record(1, 0)).group(entry_record(1, 1))
    found = verdict({1: first.file(), 2: first.file()})
    assert decisions(found) == {1: Decision.USE, 2: Decision.ROT}


def test_another_journal_s_header_where_no_group_was_begun_loses_nothing() -> None:
    found = verdict({1: with_the_header_of(OurJournal(2, salt=2), OurJournal(1, salt=1))})
    assert decisions(found) == {1: Decision.KEEP}


def test_another_journal_s_header_between_two_links_is_void() -> None:
    first = three_groups()
    skipped = OurJournal(2, salt=1, synced=first.position).group(entry_record(1, 3))
    third = OurJournal(3, synced=first.position).group(entry_record(1, 3))
    other = with_the_header_of(OurJournal(9, salt=2), skipped)
    found = verdict({1: first.file(), 2: other, 3: third.file()})
    assert decisions(found) == {1: Decision.USE, 2: Decision.VOID, 3: Decision.USE}


@pytest.mark.parametrize("shift", [0, 1])
def test_a_payload_that_contains_a_journal_does_not_deny_the_header(shift: int) -> None:
    """A torn first group with a payload that contains a sound group of a journal with the same id or salt."""
    for inner in (OurJournal(1, salt=7), OurJournal(7)):
        journal = OurJournal(1)
        before = len(entry_record(1, 0, b"x")) - 1
        # At a multiple of the alignment, where seals are searched, but not at the group's own offset.
        fill = bytes(8192 * (1 + shift) - 4096 - before)
        sealed = inner.group(entry_record(2, 0)).file()[4096:8192]
        journal.group(entry_record(1, 0, fill + sealed + bytes(4096)))
        assert journal.file()[8192 * (1 + shift) :].startswith(sealed)
        torn = zero(journal.file(), journal.end - 64, journal.end)
        assert decisions(verdict({1: torn})) == {1: Decision.KEEP}


def test_later_seals_of_the_same_id_do_not_contradict_a_confirmed_header() -> None:
    journal = three_groups()
    other = OurJournal(1, salt=7)
    for number in range(4):
        other.group(entry_record(1, number))
    assert decisions(verdict({1: journal.file()[: journal.end] + other.file()[journal.end :]})) == {
        1: Decision.CUT
    }


# ── a journal that has lost its end ──────────────────────────────────────────────────────────────────────


def filled(journal_id: int = 1, groups: int = 3, synced: JournalPosition = START) -> OurJournal:
    journal = OurJournal(journal_id, filled_until=32768, synced=synced)
    for number in range(groups):
        journal.group(entry_record(1, number))
    return journal


@pytest.mark.parametrize("groups", [0, 1, 3])
def test_the_newest_journal_is_never_shorter_than_it_was_before_its_first_group(groups: int) -> None:
    journal = filled(groups=groups)
    assert not verdict({1: journal.file()}).is_refused
    for size in (4096, 5000, 8192, 12288, 20000, 32767):
        found = verdict({1: journal.file()[:size]})
        assert decisions(found) == {1: Decision.ROT}
        assert found.standings[0].scan.stop == Torn(size, Flaw.FILE_CUT)


def test_a_file_may_be_longer_than_it_was() -> None:
    assert not verdict({1: filled().file() + bytes(4096)}).is_refused


def test_a_named_journal_may_lose_data_after_its_named_end() -> None:
    first = filled()
    second = filled(2, synced=first.position)
    files = {1: first.file()[: first.end], 2: second.file()}
    assert decisions(verdict(files)) == {1: Decision.USE, 2: Decision.USE}
    assert decisions(verdict(files | {1: first.file()[: first.end - 1]}))[1] is Decision.ROT


def test_a_journal_whose_header_has_no_size_is_not_reported_as_short() -> None:
    journal = three_groups()
    assert decisions(verdict({1: journal.file()[: journal.ends[1]]})) == {1: Decision.USE}


def newer_seal(journal: OurJournal, group: int) -> bytes:
    """The journal, with the seal of one group as a later version would write it, with a right checksum."""
    start, end = [4096, *journal.ends][group], journal.ends[group]
    changed = change(journal.file(), end - 60, b"\2")
    return change(changed, end - 4, crc32c(changed[start : end - 4]).to_bytes(4, "big"))


@pytest.mark.parametrize("group", [0, 1, 2])
def test_a_group_of_a_newer_version_is_refused_and_never_cut(group: int) -> None:
    found = verdict({1: newer_seal(three_groups(), group)})
    assert decisions(found) == {1: Decision.UNREADABLE}
    assert found.is_refused


def test_a_journal_of_a_newer_version_is_refused() -> None:
    plain = change(three_groups().file(), 4, struct.pack(">i", 7))
    checksum = crc32c(plain[16:512], crc32c(plain[:12]))
    assert decisions(verdict({1: change(plain, 12, struct.pack(">I", checksum))})) == {1: Decision.UNREADABLE}
    assert decisions(verdict({1: change(two_flushes().file(), 4, struct.pack(">i", 7))})) == {
        1: Decision.UNREADABLE
    }


def test_groups_of_a_newer_version_after_damage_are_proof_and_refused() -> None:
    journal = three_groups()
    for group in (1, 2):
        damaged = flip(newer_seal(journal, group), 4096 + 60)
        found = verdict({1: damaged})
        assert decisions(found) == {1: Decision.UNREADABLE}
        assert found.standings[0].facts.later_data is LaterData.PROOF


def test_a_flipped_bit_in_a_seal_s_version_is_not_a_newer_version() -> None:
    journal = three_groups()
    assert decisions(verdict({1: change(journal.file(), journal.ends[1] - 60, b"\2")})) == {1: Decision.ROT}
    assert decisions(verdict({1: change(journal.file(), journal.ends[2] - 60, b"\2")})) == {1: Decision.CUT}


# ── chains ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_named_journal_counts_exactly_up_to_where_it_is_named() -> None:
    first = three_groups()
    named = JournalPosition(1, first.ends[1])  # the third group was read after a crash, and carried over
    second = OurJournal(2, synced=named).group(entry_record(1, 2))
    found = verdict({1: first.file(), 2: second.file()})
    assert decisions(found) == {1: Decision.USE, 2: Decision.USE}
    assert found.standings[0].end == first.ends[1]
    assert [one.facts.following for one in found.standings] == [Following.SOME, Following.NONE]
    assert found.durable_up_to == named


def test_damage_after_the_named_end_of_a_journal_is_void() -> None:
    first = three_groups()
    second = OurJournal(2, synced=JournalPosition(1, first.ends[1])).group(entry_record(1, 2))
    found = verdict({1: flip(first.file(), first.ends[1] + 60), 2: second.file()})
    assert decisions(found) == {1: Decision.USE, 2: Decision.USE}


def test_damage_before_the_named_end_of_a_journal_is_rot() -> None:
    first = three_groups()
    second = OurJournal(2, synced=first.position).group(entry_record(1, 3))
    damaged = flip(first.file(), first.ends[1] + 60)
    found = verdict({1: damaged, 2: second.file()})
    assert decisions(found) == {1: Decision.ROT, 2: Decision.USE}
    assert found.is_refused
    assert found.standings[0].end == first.ends[1]
    # The named end counts, although the mark and the trailer require less.
    assert decisions(verdict({1: damaged, 2: second.file()}, trailer=1))[1] is Decision.ROT
    mark = JournalPosition(1, first.ends[0])
    assert decisions(verdict({1: damaged, 2: second.file()}, mark))[1] is Decision.ROT


def test_journals_between_two_links_are_void() -> None:
    first = three_groups()
    begun_and_lost = OurJournal(2, synced=first.position)
    third = OurJournal(3, synced=first.position).group(entry_record(1, 3))
    found = verdict({1: first.file(), 2: flip(begun_and_lost.file(), 3), 3: third.file()})
    assert decisions(found) == {1: Decision.USE, 2: Decision.VOID, 3: Decision.USE}
    assert [one.facts.place for one in found.standings] == [
        ChainPlace.NAMED,
        ChainPlace.SKIPPED,
        ChainPlace.NEWEST,
    ]


def test_a_bookie_s_journal_without_records_between_two_links_is_void() -> None:
    first = three_groups()
    third = OurJournal(3, synced=first.position).group(entry_record(1, 3))
    found = verdict({1: first.file(), 2: BookieJournal(2).file(), 3: third.file()})
    assert decisions(found) == {1: Decision.USE, 2: Decision.VOID, 3: Decision.USE}


def test_ids_between_two_links_may_be_absent() -> None:
    first = three_groups()
    third = OurJournal(3, synced=first.position).group(entry_record(1, 3))
    assert not verdict({1: first.file(), 3: third.file()}).is_refused


def test_a_missing_journal_that_a_first_seal_names_is_refused() -> None:
    second = OurJournal(2, synced=JournalPosition(1, 8192)).group(entry_record(1, 3))
    found = verdict({2: second.file()})
    assert found.missing == (RequiredJournal(1, "the first seal of 2.txn"),)
    assert found.is_refused


def test_a_required_journal_is_missing_only_if_it_is_absent_and_not_before_the_mark() -> None:
    first = three_groups()
    second = OurJournal(2, synced=first.position).group(entry_record(1, 3))
    mark = JournalPosition(1, first.ends[0])
    assert verdict({1: first.file(), 2: second.file()}, mark, trailer=2).missing == ()
    assert verdict({2: second.file()}, JournalPosition(2, 4096), trailer=1).missing == ()
    assert RequiredJournal(1, "the mark") in verdict({2: second.file()}, mark).missing


def test_a_missing_journal_that_the_mark_or_its_trailer_names_is_refused() -> None:
    third = OurJournal(3, synced=JournalPosition(2, 4096)).group(entry_record(1, 3))
    found = verdict({3: third.file()}, JournalPosition(2, 4096), trailer=4)
    assert found.missing == (RequiredJournal(2, "the mark"), RequiredJournal(4, "trailer"))


def test_replay_starts_at_the_mark_and_damage_below_it_does_not_matter() -> None:
    journal = three_groups()
    mark = JournalPosition(1, journal.ends[1])
    damaged = flip(flip(journal.file(), 4096 + 60), 17)
    found = verdict({1: damaged}, mark)
    assert decisions(found) == {1: Decision.USE}
    assert (found.standings[0].scan.start, found.standings[0].end) == (mark.offset, journal.end)


def test_journals_before_the_mark_are_ignored() -> None:
    second = OurJournal(2, synced=JournalPosition(1, 4096)).group(entry_record(1, 3))
    found = verdict({1: b"anything", 2: second.file()}, JournalPosition(2, 4096))
    assert decisions(found) == {2: Decision.USE}


def test_data_after_the_mark_is_void_if_a_later_journal_names_only_the_mark() -> None:
    first = OurJournal(1).group(entry_record(1, 0)).group(entry_record(1, 1))
    mark = JournalPosition(1, first.ends[0])
    second = OurJournal(2, synced=mark).group(entry_record(1, 1))
    for read_after_the_crash in (first.file(), flip(first.file(), first.ends[0] + 50)):
        found = verdict({1: read_after_the_crash, 2: second.file()}, mark)
        assert decisions(found) == {1: Decision.VOID, 2: Decision.USE}
        assert [one.facts.place for one in found.standings] == [ChainPlace.MARKED, ChainPlace.NEWEST]


def test_journals_that_contradict_the_chain_that_skips_them_are_refused() -> None:
    first = three_groups()
    mark = JournalPosition(1, first.ends[0])
    after_the_mark = OurJournal(2, synced=mark).group(entry_record(1, 1))
    assert decisions(verdict({1: first.file(), 2: after_the_mark.file()}, mark))[1] is Decision.ROT
    skipping = OurJournal(3, synced=first.position).group(entry_record(1, 9))
    skipped = three_groups(2, synced=first.position)
    assert decisions(verdict({1: first.file(), 2: skipped.file(), 3: skipping.file()}))[2] is Decision.ROT
    bookie = two_flushes(1)
    marked = JournalPosition(1, bookie.ends[0])
    ours = OurJournal(2, synced=marked).group(entry_record(1, 9))
    assert decisions(verdict({1: bookie.file(), 2: ours.file()}, marked))[1] is Decision.ROT


def test_a_first_seal_that_names_no_earlier_journal_is_refused() -> None:
    first = three_groups()
    second = OurJournal(2, synced=JournalPosition(2, 4096)).group(entry_record(1, 9))
    assert decisions(verdict({1: first.file(), 2: second.file()}))[2] is Decision.ROT


def following(journal_id: int, follows: int) -> OurJournal:
    """Return a journal without a group, whose header names the journal before it."""
    journal = OurJournal(journal_id)
    header = journal_format.JournalHeader(journal_format.VERSION_MAX, journal.salt, follows=follows)
    encoded = journal_format.encode_header(header)
    journal.data[: len(encoded)] = encoded
    return journal


def missing(files: dict[int, bytes], mark: JournalPosition = START) -> list[tuple[int, str]]:
    return [(one.journal_id, one.named_by) for one in verdict(files, mark).missing]


def test_a_journal_that_only_the_header_of_the_next_one_names_is_missing() -> None:
    assert missing({2: following(2, 1).file()}) == [(1, "the header of 2.txn")]
    assert missing({0x1B: following(0x1B, 0x1A).file()}) == [(0x1A, "the header of 1b.txn")]


def test_a_journal_that_the_mark_and_a_header_name_is_missing_once() -> None:
    assert missing({2: following(2, 1).file()}, JournalPosition(1, 4096)) == [(1, "the mark")]


def test_no_journal_before_the_mark_is_missing() -> None:
    assert missing({2: following(2, 1).file()}, JournalPosition(2, 4096)) == []


def test_a_header_that_names_no_journal_requires_none() -> None:
    assert missing({2: following(2, 0).file()}) == []


def test_the_first_seal_of_a_journal_counts_and_not_its_header() -> None:
    sealed = following(2, 1).group(entry_record(1, 0))
    assert missing({2: sealed.file()}) == []


@pytest.mark.parametrize("lost", [b"", bytes(300), bytes(16384)])
def test_a_named_journal_that_is_empty_is_refused(lost: bytes) -> None:
    first = three_groups()
    found = verdict({1: first.file(), 2: lost}, trailer=2)
    assert decisions(found) == {1: Decision.USE, 2: Decision.ROT}
    assert decisions(verdict({1: first.file(), 2: lost})) == {1: Decision.USE, 2: Decision.VOID}


def test_a_chain_that_ends_at_a_journal_without_groups_is_refused() -> None:
    """All journals before it would be skipped."""
    first = three_groups(1)
    empty = OurJournal(2, synced=first.position)
    third = OurJournal(3, synced=JournalPosition(2, 4096)).group(entry_record(1, 9))
    found = verdict({1: first.file(), 2: empty.file(), 3: third.file()})
    assert decisions(found)[2] is Decision.ROT


def test_a_file_that_ends_before_its_own_mark_is_rot() -> None:
    journal = three_groups()
    mark = JournalPosition(1, journal.ends[1])
    assert decisions(verdict({1: journal.file()[: journal.ends[0]]}, mark)) == {1: Decision.ROT}
    assert decisions(verdict({1: bytes(journal.size)}, mark)) == {1: Decision.ROT}


# ── bookies' journals ────────────────────────────────────────────────────────────────────────────────────


def two_flushes(journal_id: int = 1, version: int = 6) -> BookieJournal:
    journal = BookieJournal(journal_id, version)
    return journal.flush(entry_record(1, 0), entry_record(2, 0)).flush(entry_record(1, 1))


@pytest.mark.parametrize("version", [2, 3, 4, 5, 6])
def test_a_bookie_s_journal_counts_up_to_its_end(version: int) -> None:
    journal = two_flushes(version=version)
    found = verdict({1: journal.file()})
    assert decisions(found) == {1: Decision.USE}
    assert found.standings[0].end == journal.ends[-1]


@pytest.mark.parametrize("version", [4, 6])
def test_damage_at_the_end_of_the_last_bookie_s_journal_is_a_torn_tail(version: int) -> None:
    journal = two_flushes(version=version)
    found = verdict({1: flip(journal.file(), journal.ends[0] + 50)})
    assert decisions(found) == {1: Decision.CUT}
    assert found.standings[0].end == journal.ends[0]


@pytest.mark.parametrize("version", [4, 6])
def test_damage_before_a_good_entry_is_rot(version: int) -> None:
    journal = two_flushes(version=version)
    start = journal_format.JournalHeader(version).size
    for damaged in (
        flip(journal.file(), start + 50),
        change(journal.file(), start, (2**31 - 1).to_bytes(4, "big")),
        zero(journal.file(), start, start + 4),
    ):
        assert decisions(verdict({1: damaged})) == {1: Decision.ROT}


def test_damage_in_a_bookie_s_journal_that_is_not_the_last_is_rot() -> None:
    first, second = two_flushes(1), two_flushes(2)
    found = verdict({1: flip(first.file(), first.ends[0] + 50), 2: second.file()})
    assert decisions(found) == {1: Decision.ROT, 2: Decision.USE}


def test_a_journal_with_a_damaged_header_counts_as_a_later_journal() -> None:
    first = two_flushes(1)
    torn = flip(first.file(), first.ends[0] + 50)
    found = verdict({1: torn, 2: flip(two_flushes(2).file(), 0)})
    assert decisions(found) == {1: Decision.ROT, 2: Decision.ROT}


def test_a_bookie_s_damaged_header_before_the_mark_does_not_matter() -> None:
    journal = two_flushes()
    damaged, mark = flip(journal.file(), 0), JournalPosition(1, journal.ends[0])
    assert decisions(verdict({1: damaged}, mark)) == {1: Decision.USE}
    torn = flip(damaged, journal.ends[0] + 50)
    assert decisions(verdict({1: torn}, mark)) == {1: Decision.CUT}
    assert decisions(verdict({1: damaged})) == {1: Decision.ROT}


def test_junk_after_the_end_is_not_ignored() -> None:
    journal = two_flushes()
    junk = change(journal.file(), journal.ends[-1] + 2048, b"junk")
    found = verdict({1: junk})
    assert decisions(found) == {1: Decision.CUT}
    assert not found.standings[0].scan.is_sound
    assert decisions(verdict({1: junk, 2: two_flushes(2).file()}))[1] is Decision.ROT


def test_our_torn_tail_before_a_bookie_s_journal_is_still_a_torn_tail() -> None:
    ours, bookie = three_groups(1), two_flushes(2)
    torn = zero(ours.file(), ours.ends[1] + 40, ours.end)
    assert decisions(verdict({1: torn, 2: bookie.file()})) == {1: Decision.CUT, 2: Decision.USE}


def test_a_bookie_s_journal_that_a_seal_skips_is_refused() -> None:
    ours, bookie = three_groups(1), two_flushes(2)
    later = OurJournal(3, synced=ours.position).group(entry_record(1, 9))
    found = verdict({1: ours.file(), 2: bookie.file(), 3: later.file()})
    assert decisions(found) == {1: Decision.USE, 2: Decision.ROT, 3: Decision.USE}


def test_a_torn_tail_of_a_bookie_before_a_journal_of_ours_without_groups_is_still_a_torn_tail() -> None:
    bookie = two_flushes(1)
    torn = flip(bookie.file(), bookie.ends[0] + 50)
    mark = JournalPosition(1, bookie.ends[0])
    assert decisions(verdict({1: torn, 2: OurJournal(2).file()}, mark)) == {1: Decision.CUT, 2: Decision.KEEP}


def test_nothing_counts_after_the_zero_length_where_a_bookie_s_replay_stopped() -> None:
    bookie = two_flushes(1)
    end = bookie.ends[-1]
    torn = change(bookie.file(), end + 512, b"the second sector of a flush whose first was lost")
    mark = JournalPosition(1, end + 4)
    assert decisions(verdict({1: torn, 2: two_flushes(2).file()}, mark)) == {1: Decision.USE, 2: Decision.USE}


def mac_record(entry_id: int, payload: bytes) -> bytes:
    return journal_format.encode_record(entry_bytes(9, entry_id, payload, DigestType.MAC))


def striped(*more: bytes) -> BookieJournal:
    """Entries of a CRC-32C ledger, and every third one of a MAC ledger, whose digest type is unknown."""
    journal = BookieJournal(1, size=65536).flush(*more, *(entry_record(1, number) for number in range(5)))
    for number in range(1, 40, 3):
        journal.flush(mac_record(number, b"x" * 50))
    return journal


def test_entries_of_unknown_digest_type_count_if_the_key_was_logged() -> None:
    journal = striped(journal_format.encode_ledger_key(9, b"k" * 20))
    found = verdict({1: journal.file()})
    assert decisions(found) == {1: Decision.USE}
    assert found.standings[0].end == journal.ends[-1]


def test_entries_of_unknown_digest_type_are_never_cut() -> None:
    assert decisions(verdict({1: striped().file()})) == {1: Decision.UNREADABLE}
    journal = BookieJournal(1).flush(*(entry_record(1, number) for number in range(5)))
    journal.flush(mac_record(7, b"last"))
    assert decisions(verdict({1: journal.file()})) == {1: Decision.UNREADABLE}


def macs(count: int = 20) -> BookieJournal:
    journal = BookieJournal(1, size=65536)
    for number in range(count):
        journal.flush(mac_record(number, b"y" * 100))
    return journal


@pytest.mark.parametrize(
    ("offset", "byte"), [(7, 4), (7, 2), (512, 0x80), (512 + 4 + 152, 0x7F), (512 + 4 + 152 + 4, 0x80)]
)
def test_one_damaged_byte_does_not_cut_a_journal_of_unknown_digest_type(offset: int, byte: int) -> None:
    damaged = change(macs().file(), offset, bytes([byte]))
    assert decisions(verdict({1: damaged})) == {1: Decision.ROT}


def test_a_flush_with_a_fence_is_proof_where_no_digest_verifies() -> None:
    journal = BookieJournal(1, size=8192).flush(mac_record(0, b"y" * 100))
    journal.flush(mac_record(1, b"y" * 100), journal_format.encode_fence(9))
    assert decisions(verdict({1: change(journal.file(), 512, b"\x80")})) == {1: Decision.ROT}


def test_a_large_good_entry_before_a_torn_one_is_proof() -> None:
    journal = BookieJournal(1, size=65536).flush(entry_record(1, 0)).flush(entry_record(1, 1))
    torn = journal.data + entry_record(1, 2, b"z" * 9000) + (5000).to_bytes(4, "big")
    rotten = flip(bytes(torn).ljust(65536, b"\0"), journal.ends[0] + 50)
    assert decisions(verdict({1: rotten})) == {1: Decision.ROT}


def test_an_entry_with_a_damaged_length_over_another_is_noticed_without_a_digest() -> None:
    journal = BookieJournal(1, size=65536)
    records = []
    for number in range(4):
        records += [mac_record(number, b"m" * 72), entry_record(1, number, b"c" * 88)]
    assert {len(record) for record in records} == {128}
    journal.flush(*records)
    grown = change(journal.file(), 512 + 2 * 128, struct.pack(">i", 252))
    found = verdict({1: grown})
    assert decisions(found) == {1: Decision.ROT}
    assert decisions(verdict({1: journal.file()})) == {1: Decision.USE}


def test_a_damaged_entry_after_the_mark_stays_damaged() -> None:
    journal = two_flushes()
    damaged = flip(journal.file(), journal.ends[0] + 50)
    for mark in (START, JournalPosition(1, journal.ends[0])):
        assert decisions(verdict({1: damaged}, mark)) == {1: Decision.CUT}


def test_a_bookie_s_mark_after_the_end_replays_nothing_more() -> None:
    journal = two_flushes()
    for offset in (journal.ends[-1] + 4, journal.size):
        found = verdict({1: journal.file()}, JournalPosition(1, offset))
        assert decisions(found) == {1: Decision.USE}
        assert found.standings[0].scan.record_count == 0


# ── all of it at once ────────────────────────────────────────────────────────────────────────────────────


def test_any_flipped_bit_in_durable_bytes_is_refused_and_none_after_them_is() -> None:
    first = three_groups(1)
    second = OurJournal(2, synced=first.position)
    for number in range(3, 6):
        second.group(entry_record(1, number))
    files = {1: first.file(), 2: second.file()}
    proven = second.ends[1]
    dice = random.Random(7)
    for _ in range(400):
        journal_id = dice.choice([1, 2])
        end = first.end if journal_id == 1 else second.end
        offset = dice.randrange(4096, end)
        damaged = files | {journal_id: flip(files[journal_id], offset, dice.randrange(8))}
        vouched = journal_id == 1 or offset < proven
        assert verdict(damaged).is_refused is vouched, (journal_id, offset)
