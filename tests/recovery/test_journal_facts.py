"""What journals tell of ledgers: keys, fences, explicit LACs, whoever wrote them and wherever the mark is."""

from __future__ import annotations

import pytest
from journals import BookieJournal, OurJournal, entry_bytes, entry_record, flip
from written_logs import Ground

from recovery.journal_facts import JournalFacts, Told, gather, larger_lac
from recovery.meter import Meter, nowhere
from storage.codec import entry as entry_codec
from storage.codec import journal as codec
from storage.codec.digest import digester
from storage.codec.survey import EntryVerifier
from storage.entry import DigestType
from storage.errors import NewerFormat
from storage.position import START, JournalPosition
from storage.registry import plain
from storage.row import LedgerRow, Tombstone

KEY = b"k" * 20


def lac(ledger_id: int, confirmed: int, digest_type: DigestType = DigestType.CRC32C) -> bytes:
    return entry_codec.encode_lac(ledger_id, confirmed, digester(digest_type, b"password"))


def key(ledger_id: int, master_key: bytes = KEY) -> bytes:
    return codec.encode_ledger_key(ledger_id, master_key)


def told_by(
    *journals: tuple[int, bytes],
    mark: JournalPosition = START,
    rows: tuple[LedgerRow, ...] = (),
    verifier: EntryVerifier | None = None,
) -> JournalFacts:
    ground = Ground()
    for journal_id, data in journals:
        ground.put_journal(journal_id, data)
    known = {row.ledger_id: row for row in rows}
    return gather(ground.layout.journal, mark, known, verifier or EntryVerifier(), Meter(0, nowhere))


@pytest.mark.parametrize("version", [3, 4, 5, 6])
def test_a_bookie_s_journal_tells_keys_fences_and_lacs_as_far_as_its_version_has_them(version: int) -> None:
    records = [key(1), entry_record(1, 0)]
    records += [codec.encode_fence(1)] if version >= 4 else []
    records += [codec.encode_explicit_lac(1, lac(1, 0))] if version >= 6 else []
    found = told_by((1, BookieJournal(1, version).flush(*records).file()))
    expected = Told(KEY, version >= 4, lac(1, 0) if version >= 6 else None, by_a_bookie=True)
    assert found == JournalFacts({1: expected}, [])


@pytest.mark.parametrize("version", [1, 2])
def test_an_old_journal_tells_which_ledgers_there_are(version: int) -> None:
    found = told_by((1, BookieJournal(1, version).flush(entry_record(3, 0), entry_record(4, 0)).file()))
    assert found.ledgers == {3: Told(by_a_bookie=True), 4: Told(by_a_bookie=True)}


def test_our_own_journals_tell_the_same() -> None:
    journal = OurJournal(1).group(key(1), entry_record(1, 0)).group(codec.encode_fence(1))
    assert told_by((1, journal.file())).ledgers == {1: Told(KEY, fenced=True)}


def test_what_a_torn_group_of_ours_keeps_is_told() -> None:
    journal = OurJournal(1).group(key(1), entry_record(1, 0))
    torn = journal.file()[: journal.end] + codec.encode_fence(2) + entry_record(1, 1) + codec.encode_fence(3)
    found = told_by((1, torn.ljust(32768, b"\0")))
    assert found.ledgers == {1: Told(KEY), 2: Told(fenced=True)}


def test_a_fence_of_a_ledger_without_a_key_or_an_entry_is_told() -> None:
    journal = BookieJournal(1).flush(codec.encode_fence(4))
    assert told_by((1, journal.file())).ledgers == {4: Told(fenced=True, by_a_bookie=True)}


def test_journals_before_the_mark_are_read_too() -> None:
    old = BookieJournal(1).flush(key(1), codec.encode_fence(1))
    new = BookieJournal(2).flush(entry_record(1, 0))
    found = told_by((1, old.file()), (2, new.file()), mark=JournalPosition(2, new.ends[-1]))
    assert found.ledgers == {1: Told(KEY, fenced=True, by_a_bookie=True)}


def test_the_last_key_counts_and_one_without_content_does_not() -> None:
    first = BookieJournal(1).flush(key(1, b"1" * 20), key(2), key(3))
    second = BookieJournal(2).flush(key(1, b"2" * 20), key(2, b""), key(3, bytes(20)))
    keys = {
        one: told.master_key for one, told in told_by((1, first.file()), (2, second.file())).ledgers.items()
    }
    assert keys == {1: b"2" * 20, 2: KEY, 3: KEY}


def test_the_largest_lac_counts_wherever_it_stands() -> None:
    packets = [lac(1, 5), lac(1, 30), lac(1, 12)]
    journal = BookieJournal(1).flush(*(codec.encode_explicit_lac(1, packet) for packet in packets))
    assert told_by((1, journal.file())).ledgers[1].explicit_lac == lac(1, 30)


def test_a_lac_that_does_not_verify_is_told_and_does_not_count() -> None:
    bad = flip(lac(1, 30), 9)
    journal = BookieJournal(1).flush(
        codec.encode_explicit_lac(1, lac(1, 5)), codec.encode_explicit_lac(1, bad)
    )
    found = told_by((1, journal.file()))
    assert found.ledgers[1].explicit_lac == lac(1, 5)
    assert found.findings == ["JRN-004 1.txn@556: the explicit LAC of ledger 1 does not verify"]


@pytest.mark.parametrize("digest_type", DigestType)
def test_of_two_lacs_the_larger_counts_however_it_is_protected(digest_type: DigestType) -> None:
    small, large = lac(1, 5, digest_type), lac(1, 6, digest_type)
    assert larger_lac(small, large, 1) == large
    assert larger_lac(large, small, 1) == large
    assert larger_lac(None, small, 1) == small
    assert larger_lac(small, None, 1) == small


@pytest.mark.parametrize("packet", [b"", bytes(16)[:15], lac(2, 9), lac(1, 9) + b"?"])
def test_what_is_no_lac_of_this_ledger_does_not_count(packet: bytes) -> None:
    assert larger_lac(None, packet, 1) is None


def test_what_stands_before_a_tombstone_is_the_deleted_ledger_s() -> None:
    journal = OurJournal(3).group(key(1, b"1" * 20), entry_record(1, 0), codec.encode_fence(1))
    journal.group(key(1, b"2" * 20), entry_record(1, 0))
    row = LedgerRow(1, 1, tombstone=Tombstone(JournalPosition(3, journal.ends[0])))
    assert told_by((3, journal.file()), rows=(row,)).ledgers == {1: Told(b"2" * 20)}
    row = LedgerRow(1, 1, tombstone=Tombstone(JournalPosition(4, 0)))
    assert told_by((3, journal.file()), rows=(row,)).ledgers == {}
    assert told_by((3, journal.file()), rows=(plain(1),)).ledgers[1].fenced


def test_digest_types_are_learned_from_the_entries() -> None:
    verifier = EntryVerifier()
    records = [
        codec.encode_record(entry_bytes(ledger_id, number, digest=digest_type))
        for ledger_id, digest_type in enumerate(DigestType)
        for number in range(4)
    ]
    told_by((1, BookieJournal(1).flush(*records).file()), verifier=verifier)
    assert [verifier.survey.digest_type(one) for one in range(4)] == list(DigestType)


# ── damage ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_torn_tail_is_no_finding() -> None:
    journal = BookieJournal(1).flush(key(1), entry_record(1, 0))
    torn = journal.file()[: len(journal.data)] + entry_record(1, 1)[:30]
    assert told_by((1, torn.ljust(32768, b"\0"))) == JournalFacts({1: Told(KEY, by_a_bookie=True)}, [])


def test_behind_damage_what_is_sound_is_told_and_the_damage_is_a_finding() -> None:
    journal = BookieJournal(1).flush(key(1), entry_record(1, 0)).flush(entry_record(1, 1))
    journal.flush(entry_record(1, 2)).flush(codec.encode_fence(1))
    found = told_by((1, flip(journal.file(), journal.ends[0] + 30)))
    assert found.ledgers == {1: Told(KEY, fenced=True, by_a_bookie=True)}
    [finding] = found.findings
    assert finding.startswith("JRN-003 1.txn@1024: ")


def test_behind_damage_in_a_journal_of_ours_the_sealed_groups_are_told() -> None:
    journal = OurJournal(1).group(key(1), entry_record(1, 0)).group(entry_record(1, 1))
    journal.group(codec.encode_fence(1))
    found = told_by((1, flip(journal.file(), journal.ends[0] + 30)))
    assert found.ledgers == {1: Told(KEY, fenced=True)}
    assert [one[:15] for one in found.findings] == ["JRN-003 1.txn@8"]


def test_from_the_mark_on_everything_is_told_whatever_stands_before_it() -> None:
    journal = BookieJournal(1).flush(key(1), key(2))
    journal.flush(codec.encode_fence(1))  # without an entry nothing proves that it stands there
    damaged = flip(journal.file(), 512)
    assert told_by((1, damaged)).ledgers == {}
    found = told_by((1, damaged), mark=JournalPosition(1, journal.ends[0]))
    assert found.ledgers == {1: Told(fenced=True, by_a_bookie=True)}


def test_a_journal_of_nothing_tells_nothing() -> None:
    assert told_by((1, bytes(4096)), (2, b"")) == JournalFacts({}, [])


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
