"""Inference of a ledger's digest type from its entries."""

from __future__ import annotations

import random

import pytest
from journal_builder import flip

from storage.entry import digest_inference
from storage.entry import format as entry_format
from storage.entry.digest import DigestCheck, digester
from storage.entry.digest_inference import DigestSurvey, EntryVerifier
from storage.entry.model import DigestType, Entry

dice = random.Random(3)
PAYLOADS = [dice.randbytes(dice.randrange(0, 60)) for _ in range(20)]


def ledger(digest_type: DigestType, ledger_id: int = 1) -> list[bytes]:
    """Return twenty entries as one writer would have made them."""
    length = 0
    entries = []
    for number, payload in enumerate(PAYLOADS):
        length += len(payload)
        entry = Entry(ledger_id, number, number - 1, length, payload)
        entries.append(entry_format.encode(entry, digester(digest_type, b"pw")))
    return entries


def surveyed(entries: list[bytes]) -> DigestType | None:
    digest_inference = DigestSurvey()
    for data in entries:
        digest_inference.observe(data)
    return digest_inference.digest_type(1)


@pytest.mark.parametrize("digest_type", DigestType)
def test_each_type_is_recognised(digest_type: DigestType) -> None:
    assert surveyed(ledger(digest_type)) is digest_type


@pytest.mark.parametrize("digest_type", DigestType)
@pytest.mark.parametrize("skipped", [0, 1, 5])
def test_each_type_is_recognised_in_two_consecutive_entries(digest_type: DigestType, skipped: int) -> None:
    assert surveyed(ledger(digest_type)[skipped : skipped + 2]) is digest_type


@pytest.mark.parametrize("digest_type", DigestType)
@pytest.mark.parametrize("victim", [0, 3])
@pytest.mark.parametrize("byte", [25, 31, 34, -1])
def test_one_damaged_entry_never_changes_the_answer(digest_type: DigestType, victim: int, byte: int) -> None:
    entries = ledger(digest_type)[:6]
    entries[victim] = flip(entries[victim], byte % len(entries[victim]), 3)
    assert surveyed(entries) is digest_type


def test_no_type_is_inferred_without_evidence() -> None:
    assert surveyed([]) is None
    assert surveyed([b"short"]) is None
    assert surveyed(ledger(DigestType.MAC)[4:5]) is None


def test_a_survey_of_many_ledgers_forgets_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest_inference, "LEDGERS_MAX", 2)
    counted = DigestSurvey()
    for ledger_id in (1, 2, 3):
        counted.observe(ledger(DigestType.CRC32C, ledger_id)[0])
    assert [counted.digest_type(ledger_id) for ledger_id in (1, 2, 3)] == [
        None,
        DigestType.CRC32C,
        DigestType.CRC32C,
    ]


def test_a_survey_remembers_as_many_ledgers_as_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest_inference, "LEDGERS_MAX", 2)
    counted = DigestSurvey(3)
    for ledger_id in (1, 2, 3):
        counted.observe(ledger(DigestType.CRC32C, ledger_id)[0])
    assert counted.digest_type(1) is DigestType.CRC32C


def test_a_declared_type_is_not_questioned() -> None:
    verifier = EntryVerifier({1: digester(DigestType.CRC32)})
    assert verifier.check(ledger(DigestType.CRC32C)[0]) is DigestCheck.MISMATCH


def test_a_mac_is_verified_with_its_password_only() -> None:
    entries = ledger(DigestType.MAC)
    without, right, wrong = (
        EntryVerifier(),
        EntryVerifier(password_of=lambda _: b"pw"),
        EntryVerifier(password_of=lambda _: b"other"),
    )
    answers = [[verifier.check(data) for data in entries][-1] for verifier in (without, right, wrong)]
    assert answers == [DigestCheck.UNVERIFIED, DigestCheck.OK, DigestCheck.MISMATCH]


def test_only_an_entry_with_a_verifiable_digest_is_proved() -> None:
    verifier = EntryVerifier()
    assert verifier.proves(ledger(DigestType.CRC32)[3])
    assert not verifier.proves(ledger(DigestType.DUMMY)[3])
    assert not verifier.proves(flip(ledger(DigestType.CRC32C)[3], 33))
    assert not verifier.proves(b"short")


def crc_ledgers(*ledger_ids: int) -> DigestSurvey:
    counted = DigestSurvey()
    for ledger_id in ledger_ids:
        counted.observe(ledger(DigestType.CRC32C, ledger_id)[0])
    return counted


def test_a_ledger_without_evidence_is_doubted_where_all_others_agree_on_a_crc() -> None:
    counted = crc_ledgers(1, 2)
    assert [counted.is_doubtful(ledger_id) for ledger_id in (1, 2, 9)] == [False, False, True]
    counted.note_key(9)
    assert not counted.is_doubtful(9)


@pytest.mark.parametrize("other", [DigestType.CRC32, DigestType.MAC, DigestType.DUMMY])
def test_no_ledger_is_doubted_where_the_others_differ(other: DigestType) -> None:
    counted = crc_ledgers(1)
    counted.observe(ledger(other, 2)[0])
    assert not counted.is_doubtful(9)


@pytest.mark.parametrize("kind", [DigestType.MAC, DigestType.DUMMY])
def test_no_ledger_is_doubted_where_the_others_cannot_be_verified(kind: DigestType) -> None:
    counted = DigestSurvey()
    counted.observe(ledger(kind)[0])
    assert not counted.is_doubtful(9)
    assert not DigestSurvey().is_doubtful(9)


def test_a_declared_ledger_is_not_doubted() -> None:
    verifier = EntryVerifier({9: digester(DigestType.DUMMY)})
    verifier.check(ledger(DigestType.CRC32C)[0])
    assert [verifier.is_doubtful(ledger_id) for ledger_id in (8, 9)] == [True, False]


def test_a_ledger_that_looked_different_at_first_agrees_in_the_end() -> None:
    entries = ledger(DigestType.CRC32C)
    looks_like_crc32 = Entry(1, 0, -1, len(PAYLOADS[0]), b"1234" + PAYLOADS[0])
    encoded = entry_format.encode(looks_like_crc32, digester(DigestType.CRC32C))
    counted = crc_ledgers(2)
    counted.observe(flip(encoded, len(encoded) - 1))
    assert counted.digest_type(1) is DigestType.CRC32
    assert not counted.is_doubtful(9)
    for data in entries[:2]:
        counted.observe(data)
    assert counted.digest_type(1) is DigestType.CRC32C
    assert counted.is_doubtful(9)


def test_a_forgotten_ledger_disagrees_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest_inference, "LEDGERS_MAX", 2)
    counted = DigestSurvey()
    counted.observe(ledger(DigestType.CRC32, 1)[0])
    counted.observe(ledger(DigestType.CRC32C, 2)[0])
    assert not counted.is_doubtful(9)
    counted.observe(ledger(DigestType.CRC32C, 3)[0])
    assert counted.is_doubtful(9)


def test_the_number_of_remembered_keys_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest_inference, "LEDGERS_MAX", 2)
    counted = crc_ledgers(1)
    for ledger_id in (7, 8, 9):
        counted.note_key(ledger_id)
    assert [counted.is_doubtful(ledger_id) for ledger_id in (7, 8, 9)] == [False, False, True]


def test_a_ledger_that_all_votes_agree_on_is_settled_for_good() -> None:
    assert surveyed(ledger(DigestType.CRC32C) + ledger(DigestType.CRC32) * 9) is DigestType.CRC32C


def test_a_ledger_with_votes_for_two_types_goes_on_counting() -> None:
    entries = [*ledger(DigestType.CRC32)[:3], *ledger(DigestType.CRC32C)[:1], *ledger(DigestType.CRC32C)]
    assert surveyed(entries) is DigestType.CRC32C


def test_lengths_tell_nothing_across_a_gap() -> None:
    first = Entry(1, 3, 2, 100, b"a" * 20)
    behind_a_gap = Entry(1, 5, 4, 100 + 12 + 20, b"b" * 20)
    assert (
        surveyed([entry_format.encode(one, digester(DigestType.MAC)) for one in (first, behind_a_gap)])
        is None
    )


def test_an_entry_too_short_for_its_digest_is_never_ok() -> None:
    verifier = EntryVerifier({1: digester(DigestType.CRC32C)})
    entry = ledger(DigestType.CRC32C)[0]
    assert {verifier.check(entry[:size]) for size in range(16)} == {DigestCheck.UNVERIFIED}
    assert {verifier.check(entry[:size]) for size in range(16, 36)} == {DigestCheck.MISMATCH}
