"""The comparison itself, without a bookie: each difference is reported."""

from __future__ import annotations

from compare import Allowance, facts, listed, same, scans, served
from observed import FoundRecord, ObservedLedger, RecordPlace, Scans
from our_store import TrustedRanges

A, B = "a" * 64, "b" * 64


def ledger(*digests: str) -> ObservedLedger:
    return ObservedLedger(dict(enumerate(digests)), last_entry_id=len(digests) - 1)


def in_log(entry_id: int, digest: str, offset: int = 1024) -> FoundRecord:
    return FoundRecord(RecordPlace(0, offset), 1, entry_id, 40, digest)


def scanned(*logs: FoundRecord) -> Scans:
    return Scans((0, 0), (), logs, {})


SOUND = TrustedRanges({}, {0: 2000}, (0, 0), {}, set(), set())


def test_equal_content_has_no_difference() -> None:
    assert list(served({1: ledger(A, B)}, {1: ledger(A, B)})) == []
    assert list(scans({1: ledger(A)}, scanned(in_log(0, A)), SOUND, Allowance())) == []


def test_a_missing_an_additional_and_a_changed_entry_are_reported() -> None:
    for theirs in (ledger(A), ledger(A, B, A), ledger(A, A)):
        assert len(list(served({1: ledger(A, B)}, {1: theirs}))) == 1
    assert len(list(served({1: ledger(A)}, {}))) == 1
    assert len(list(scans({1: ledger(A)}, scanned(), SOUND, Allowance()))) == 1
    assert len(list(scans({}, scanned(in_log(0, A)), SOUND, Allowance()))) == 1


def test_an_entry_with_a_wrong_digest_is_reported() -> None:
    theirs = ObservedLedger({0: A}, last_entry_id=0, problems={0: "a wrong digest"})
    assert len(list(served({1: ledger(A)}, {1: theirs}))) == 1


def test_a_bookie_may_show_records_of_unproven_ranges_and_no_others() -> None:
    allowed = Allowance().with_cut(scanned(in_log(1, B, offset=2000)), SOUND, (0, 0))
    assert list(served({1: ledger(A)}, {1: ledger(A, B)}, allowed)) == []
    assert len(list(served({1: ledger(A)}, {1: ledger(A, A)}, allowed))) == 1
    assert len(list(served({1: ledger(A, B)}, {1: ledger(A)}, allowed))) == 1


def test_records_before_the_mark_are_not_replayed() -> None:
    torn = Scans((7, 512), (FoundRecord(RecordPlace(6, 600), 1, 1, 40, B),), (), {})
    sound = TrustedRanges({6: []}, {}, (7, 512), {}, {6}, set())
    assert Allowance().with_cut(torn, sound, (7, 512)).cut == {}
    assert Allowance().with_cut(torn, sound, (0, 0)).cut == {(1, 1): {B}}


def test_another_version_of_an_entry_is_reported_unless_it_was_rewritten() -> None:
    both = scanned(in_log(0, A), in_log(0, B, offset=1100))
    assert len(list(scans({1: ledger(A)}, both, SOUND, Allowance()))) == 1
    assert list(scans({1: ledger(A)}, both, SOUND, Allowance(rewritten={1}))) == []


def test_a_ledgers_map_with_other_sizes_than_the_scan_is_reported() -> None:
    theirs = Scans((0, 0), (), (in_log(0, A),), {0: {1: 43}})
    sound = TrustedRanges({}, {0: 2000}, (0, 0), {0: {1: 43}}, set(), set())
    assert len(list(scans({1: ledger(A)}, theirs, sound, Allowance()))) == 1


def test_a_fence_a_key_and_a_confirmation_must_agree() -> None:
    answers = {"wrong_key": "BookieUnauthorizedAccessException", "right_key": "added"}
    ours = {1: ObservedLedger(master_key="00")}
    assert list(facts(ours, {1: ObservedLedger(master_key="00", answers=answers)}, Allowance())) == []
    for theirs in (
        ObservedLedger(master_key="01", answers=answers),
        ObservedLedger(master_key="00", answers=answers, fenced=True),
        ObservedLedger(master_key="00", answers=answers, explicit_lac=3),
        ObservedLedger(master_key="00", answers={**answers, "wrong_key": "added"}),
    ):
        assert len(list(facts(ours, {1: theirs}, Allowance()))) == 1


def test_a_wrong_key_may_be_refused_in_two_ways_and_only_tried_keys_are_compared() -> None:
    for answer in ("BookieUnauthorizedAccessException", "BookieIllegalOpException"):
        theirs = {1: ObservedLedger(answers={"wrong_key": answer})}
        assert list(facts({1: ObservedLedger()}, theirs, Allowance(), ["wrong_key"])) == []
        assert len(list(facts({1: ObservedLedger()}, theirs, Allowance()))) == 1
    for answers in ({}, {"wrong_key": "added"}):
        theirs = {1: ObservedLedger(answers=answers)}
        assert len(list(facts({1: ObservedLedger()}, theirs, Allowance(), ["wrong_key"]))) == 1


def test_after_a_handover_every_record_in_the_files_is_compared() -> None:
    torn = Scans((0, 0), (), (in_log(0, A), in_log(1, B, offset=2000)), {}, {}, {0: "a torn end"})
    sound = TrustedRanges({}, {0: 2000}, (0, 0), {}, set(), {0})
    assert list(scans({1: ledger(A)}, torn, sound, Allowance())) == []
    assert len(list(scans({1: ledger(A)}, torn, sound.without_excuses(), Allowance()))) == 2


def test_two_readers_must_list_the_same_records() -> None:
    assert list(listed(scanned(in_log(0, A)), scanned(in_log(0, A)))) == []
    assert len(list(listed(scanned(in_log(0, A)), scanned(in_log(0, A, offset=1025))))) == 2


def test_content_before_and_after_must_be_equal_except_for_deleted_ledgers() -> None:
    assert list(same({1: ledger(A)}, {1: ledger(A), 2: ledger(B)}, Allowance(deleted={2}))) == []
    assert len(list(same({1: ledger(A)}, {1: ledger(A), 2: ledger(B)}, Allowance()))) == 1
    assert len(list(same({1: ledger(A)}, {1: ObservedLedger({0: A}, fenced=True)}, Allowance()))) == 1
