"""Keys, fences and explicit LACs in journals of both writers, before and after the mark."""

from __future__ import annotations

import pytest
from journal_builder import BookieJournal, OurJournal, entry_bytes, entry_record, flip
from simulated_directories import SimulatedDirectories

from recovery.replay.journal_metadata import JournaledLedger, JournalMetadata, gather_metadata, larger_lac
from recovery.replay.progress import ReadMeter, ignore
from storage.entry import format as entry_format
from storage.entry.digest import digester
from storage.entry.digest_inference import EntryVerifier
from storage.entry.ledger_record import LedgerRecord, Tombstone
from storage.entry.model import DigestType
from storage.entry.position import START, JournalPosition
from storage.errors import NewerFormat
from storage.journal import format as journal_format
from storage.ledgers.metadata import plain

KEY = b"k" * 20


def lac(ledger_id: int, confirmed: int, digest_type: DigestType = DigestType.CRC32C) -> bytes:
    return entry_format.encode_lac(ledger_id, confirmed, digester(digest_type, b"password"))


def key(ledger_id: int, master_key: bytes = KEY) -> bytes:
    return journal_format.encode_ledger_key(ledger_id, master_key)


def told_by(
    *journals: tuple[int, bytes],
    mark: JournalPosition = START,
    rows: tuple[LedgerRecord, ...] = (),
    verifier: EntryVerifier | None = None,
) -> JournalMetadata:
    site = SimulatedDirectories()
    for journal_id, data in journals:
        site.put_journal(journal_id, data)
    known = {row.ledger_id: row for row in rows}
    return gather_metadata(
        site.layout.journal, mark, known, verifier or EntryVerifier(), ReadMeter(0, ignore)
    )


@pytest.mark.parametrize("version", [3, 4, 5, 6])
def test_keys_fences_and_lacs_are_read_from_a_bookie_s_journal_of_any_version(version: int) -> None:
    records = [key(1), entry_record(1, 0)]
    records += [journal_format.encode_fence(1)] if version >= 4 else []
    records += [journal_format.encode_explicit_lac(1, lac(1, 0))] if version >= 6 else []
    found = told_by((1, BookieJournal(1, version).flush(*records).file()))
    expected = JournaledLedger(KEY, version >= 4, lac(1, 0) if version >= 6 else None, by_a_bookie=True)
    assert found == JournalMetadata({1: expected}, [])


@pytest.mark.parametrize("version", [1, 2])
def test_the_ledgers_are_read_from_a_journal_of_an_old_version(version: int) -> None:
    found = told_by((1, BookieJournal(1, version).flush(entry_record(3, 0), entry_record(4, 0)).file()))
    assert found.ledgers == {3: JournaledLedger(by_a_bookie=True), 4: JournaledLedger(by_a_bookie=True)}


def test_the_same_is_read_from_our_own_journals() -> None:
    journal = OurJournal(1).group(key(1), entry_record(1, 0)).group(journal_format.encode_fence(1))
    assert told_by((1, journal.file())).ledgers == {1: JournaledLedger(KEY, fenced=True)}


def test_metadata_in_the_kept_part_of_a_torn_group_counts() -> None:
    journal = OurJournal(1).group(key(1), entry_record(1, 0))
    torn = (
        journal.file()[: journal.end]
        + journal_format.encode_fence(2)
        + entry_record(1, 1)
        + journal_format.encode_fence(3)
    )
    found = told_by((1, torn.ljust(32768, b"\0")))
    assert found.ledgers == {1: JournaledLedger(KEY), 2: JournaledLedger(fenced=True)}


def test_a_fence_counts_without_a_key_or_an_entry_of_the_ledger() -> None:
    journal = BookieJournal(1).flush(journal_format.encode_fence(4))
    assert told_by((1, journal.file())).ledgers == {4: JournaledLedger(fenced=True, by_a_bookie=True)}


def test_journals_before_the_mark_are_read_too() -> None:
    old = BookieJournal(1).flush(key(1), journal_format.encode_fence(1))
    new = BookieJournal(2).flush(entry_record(1, 0))
    found = told_by((1, old.file()), (2, new.file()), mark=JournalPosition(2, new.ends[-1]))
    assert found.ledgers == {1: JournaledLedger(KEY, fenced=True, by_a_bookie=True)}


def test_the_last_key_counts_and_one_without_content_does_not() -> None:
    first = BookieJournal(1).flush(key(1, b"1" * 20), key(2), key(3))
    second = BookieJournal(2).flush(key(1, b"2" * 20), key(2, b""), key(3, bytes(20)))
    keys = {
        one: told.master_key for one, told in told_by((1, first.file()), (2, second.file())).ledgers.items()
    }
    assert keys == {1: b"2" * 20, 2: KEY, 3: KEY}


def test_the_largest_lac_counts_in_any_order() -> None:
    packets = [lac(1, 5), lac(1, 30), lac(1, 12)]
    journal = BookieJournal(1).flush(*(journal_format.encode_explicit_lac(1, packet) for packet in packets))
    assert told_by((1, journal.file())).ledgers[1].explicit_lac == lac(1, 30)


def test_a_lac_that_does_not_verify_is_a_finding_and_does_not_count() -> None:
    bad = flip(lac(1, 30), 9)
    journal = BookieJournal(1).flush(
        journal_format.encode_explicit_lac(1, lac(1, 5)), journal_format.encode_explicit_lac(1, bad)
    )
    found = told_by((1, journal.file()))
    assert found.ledgers[1].explicit_lac == lac(1, 5)
    assert found.findings == ["JRN-004 1.txn@556: the explicit LAC of ledger 1 does not verify"]


@pytest.mark.parametrize("digest_type", DigestType)
def test_the_larger_of_two_lacs_counts_with_any_digest_type(digest_type: DigestType) -> None:
    small, large = lac(1, 5, digest_type), lac(1, 6, digest_type)
    assert larger_lac(small, large, 1) == large
    assert larger_lac(large, small, 1) == large
    assert larger_lac(None, small, 1) == small
    assert larger_lac(small, None, 1) == small


@pytest.mark.parametrize("packet", [b"", bytes(16)[:15], lac(2, 9), lac(1, 9) + b"?"])
def test_a_packet_that_is_no_lac_of_the_ledger_does_not_count(packet: bytes) -> None:
    assert larger_lac(None, packet, 1) is None


def test_records_before_a_tombstone_belong_to_the_deleted_ledger() -> None:
    journal = OurJournal(3).group(key(1, b"1" * 20), entry_record(1, 0), journal_format.encode_fence(1))
    journal.group(key(1, b"2" * 20), entry_record(1, 0))
    row = LedgerRecord(1, 1, tombstone=Tombstone(JournalPosition(3, journal.ends[0])))
    assert told_by((3, journal.file()), rows=(row,)).ledgers == {1: JournaledLedger(b"2" * 20)}
    row = LedgerRecord(1, 1, tombstone=Tombstone(JournalPosition(4, 0)))
    assert told_by((3, journal.file()), rows=(row,)).ledgers == {}
    assert told_by((3, journal.file()), rows=(plain(1),)).ledgers[1].fenced


def test_digest_types_are_learned_from_the_entries() -> None:
    verifier = EntryVerifier()
    records = [
        journal_format.encode_record(entry_bytes(ledger_id, number, digest=digest_type))
        for ledger_id, digest_type in enumerate(DigestType)
        for number in range(4)
    ]
    told_by((1, BookieJournal(1).flush(*records).file()), verifier=verifier)
    assert [verifier.survey.digest_type(one) for one in range(4)] == list(DigestType)


# ── damage ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_torn_tail_is_no_finding() -> None:
    journal = BookieJournal(1).flush(key(1), entry_record(1, 0))
    torn = journal.file()[: len(journal.data)] + entry_record(1, 1)[:30]
    assert told_by((1, torn.ljust(32768, b"\0"))) == JournalMetadata(
        {1: JournaledLedger(KEY, by_a_bookie=True)}, []
    )


def test_sound_records_after_damage_count_and_the_damage_is_a_finding() -> None:
    journal = BookieJournal(1).flush(key(1), entry_record(1, 0)).flush(entry_record(1, 1))
    journal.flush(entry_record(1, 2)).flush(journal_format.encode_fence(1))
    found = told_by((1, flip(journal.file(), journal.ends[0] + 30)))
    assert found.ledgers == {1: JournaledLedger(KEY, fenced=True, by_a_bookie=True)}
    [finding] = found.findings
    assert finding.startswith("JRN-003 1.txn@1024: ")


def test_sealed_groups_after_damage_in_our_journal_count() -> None:
    journal = OurJournal(1).group(key(1), entry_record(1, 0)).group(entry_record(1, 1))
    journal.group(journal_format.encode_fence(1))
    found = told_by((1, flip(journal.file(), journal.ends[0] + 30)))
    assert found.ledgers == {1: JournaledLedger(KEY, fenced=True)}
    assert [one[:15] for one in found.findings] == ["JRN-003 1.txn@8"]


def test_records_after_the_mark_count_if_those_before_it_are_damaged() -> None:
    journal = BookieJournal(1).flush(key(1), key(2))
    journal.flush(
        journal_format.encode_fence(1)
    )  # without an entry nothing proves that the group was written
    damaged = flip(journal.file(), 512)
    assert told_by((1, damaged)).ledgers == {}
    found = told_by((1, damaged), mark=JournalPosition(1, journal.ends[0]))
    assert found.ledgers == {1: JournaledLedger(fenced=True, by_a_bookie=True)}


def test_an_empty_journal_says_nothing() -> None:
    assert told_by((1, bytes(4096)), (2, b"")) == JournalMetadata({}, [])


def test_a_damaged_header_is_a_finding() -> None:
    journal = BookieJournal(1).flush(key(1), entry_record(1, 0))
    found = told_by((1, flip(journal.file(), 0)))
    assert [one[:13] for one in found.findings] == ["JRN-003 1.txn"]


def test_a_newer_journal_is_refused() -> None:
    journal = bytearray(OurJournal(1).group(key(1)).file())
    journal[4:8] = (7).to_bytes(4, "big")
    journal[8:24] = bytes(16)
    with pytest.raises(NewerFormat):
        told_by((1, bytes(journal)))
