"""The comparison itself, without a bookie: whatever differs is told."""

from __future__ import annotations

from compare import Allowance, facts, listed, same, scans, served
from ours import Sound
from shown import Found, LedgerShown, Place, Scans

A, B = "a" * 64, "b" * 64


def ledger(*digests: str) -> LedgerShown:
    return LedgerShown(dict(enumerate(digests)), last_entry_id=len(digests) - 1)


def in_log(entry_id: int, digest: str, offset: int = 1024) -> Found:
    return Found(Place(0, offset), 1, entry_id, 40, digest)


def scanned(*logs: Found) -> Scans:
    return Scans((0, 0), (), logs, {})


SOUND = Sound({}, {0: 2000}, (0, 0), {}, set(), set())


def test_the_same_is_no_difference() -> None:
    assert list(served({1: ledger(A, B)}, {1: ledger(A, B)})) == []
    assert list(scans({1: ledger(A)}, scanned(in_log(0, A)), SOUND, Allowance())) == []


def test_an_entry_too_few_too_many_or_other_is_told() -> None:
    for theirs in (ledger(A), ledger(A, B, A), ledger(A, A)):
        assert len(list(served({1: ledger(A, B)}, {1: theirs}))) == 1
    assert len(list(served({1: ledger(A)}, {}))) == 1
    assert len(list(scans({1: ledger(A)}, scanned(), SOUND, Allowance()))) == 1
    assert len(list(scans({}, scanned(in_log(0, A)), SOUND, Allowance()))) == 1


def test_an_entry_whose_digest_does_not_hold_is_told() -> None:
    theirs = LedgerShown({0: A}, last_entry_id=0, problems={0: "a wrong digest"})
    assert len(list(served({1: ledger(A)}, {1: theirs}))) == 1


def test_what_stands_where_nobody_vouches_may_be_shown_and_nothing_else_there() -> None:
    allowed = Allowance().with_cut(scanned(in_log(1, B, offset=2000)), SOUND, (0, 0))
    assert list(served({1: ledger(A)}, {1: ledger(A, B)}, allowed)) == []
    assert len(list(served({1: ledger(A)}, {1: ledger(A, A)}, allowed))) == 1
    assert len(list(served({1: ledger(A, B)}, {1: ledger(A)}, allowed))) == 1


def test_what_stands_below_the_mark_is_not_replayed() -> None:
    torn = Scans((7, 512), (Found(Place(6, 600), 1, 1, 40, B),), (), {})
    sound = Sound({6: []}, {}, (7, 512), {}, {6}, set())
    assert Allowance().with_cut(torn, sound, (7, 512)).cut == {}
    assert Allowance().with_cut(torn, sound, (0, 0)).cut == {(1, 1): {B}}


def test_another_version_of_an_entry_is_told_unless_it_was_written_again() -> None:
    both = scanned(in_log(0, A), in_log(0, B, offset=1100))
    assert len(list(scans({1: ledger(A)}, both, SOUND, Allowance()))) == 1
    assert list(scans({1: ledger(A)}, both, SOUND, Allowance(rewritten={1}))) == []


def test_a_map_that_counts_otherwise_is_told() -> None:
    theirs = Scans((0, 0), (), (in_log(0, A),), {0: {1: 43}})
    sound = Sound({}, {0: 2000}, (0, 0), {0: {1: 43}}, set(), set())
    assert len(list(scans({1: ledger(A)}, theirs, sound, Allowance()))) == 1


def test_a_fence_a_key_and_a_confirmation_must_agree() -> None:
    answers = {"wrong_key": "BookieUnauthorizedAccessException", "right_key": "added"}
    ours = {1: LedgerShown(master_key="00")}
    assert list(facts(ours, {1: LedgerShown(master_key="00", answers=answers)}, Allowance())) == []
    for theirs in (
        LedgerShown(master_key="01", answers=answers),
        LedgerShown(master_key="00", answers=answers, fenced=True),
        LedgerShown(master_key="00", answers=answers, explicit_lac=3),
        LedgerShown(master_key="00", answers={**answers, "wrong_key": "added"}),
    ):
        assert len(list(facts(ours, {1: theirs}, Allowance()))) == 1


def test_a_wrong_key_may_be_refused_in_either_way_and_only_what_was_tried_is_asked_for() -> None:
    for answer in ("BookieUnauthorizedAccessException", "BookieIllegalOpException"):
        theirs = {1: LedgerShown(answers={"wrong_key": answer})}
        assert list(facts({1: LedgerShown()}, theirs, Allowance(), ["wrong_key"])) == []
        assert len(list(facts({1: LedgerShown()}, theirs, Allowance()))) == 1
    for answers in ({}, {"wrong_key": "added"}):
        theirs = {1: LedgerShown(answers=answers)}
        assert len(list(facts({1: LedgerShown()}, theirs, Allowance(), ["wrong_key"]))) == 1


def test_behind_a_handover_everything_counts_that_can_be_found() -> None:
    torn = Scans((0, 0), (), (in_log(0, A), in_log(1, B, offset=2000)), {}, {}, {0: "a torn end"})
    sound = Sound({}, {0: 2000}, (0, 0), {}, set(), {0})
    assert list(scans({1: ledger(A)}, torn, sound, Allowance())) == []
    assert len(list(scans({1: ledger(A)}, torn, sound.without_excuses(), Allowance()))) == 2


def test_two_readers_must_list_the_same_records() -> None:
    assert list(listed(scanned(in_log(0, A)), scanned(in_log(0, A)))) == []
    assert len(list(listed(scanned(in_log(0, A)), scanned(in_log(0, A, offset=1025))))) == 2


def test_what_comes_back_must_be_what_went_but_for_deleted_ledgers() -> None:
    assert list(same({1: ledger(A)}, {1: ledger(A), 2: ledger(B)}, Allowance(deleted={2}))) == []
    assert len(list(same({1: ledger(A)}, {1: ledger(A), 2: ledger(B)}, Allowance()))) == 1
    assert len(list(same({1: ledger(A)}, {1: LedgerShown({0: A}, fenced=True)}, Allowance()))) == 1
