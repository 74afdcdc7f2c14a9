"""When a ledger whose repair has failed is tried again."""

from __future__ import annotations

from recovery.autorecovery.attempts import RepairAttempts

THERE = frozenset({"b1"})


def test_the_pause_of_a_ledger_doubles_up_to_the_longest() -> None:
    attempts = RepairAttempts(320)
    pauses = [attempts.note_postponed(1, 0, "no bookie", 0) for _ in range(8)]
    assert pauses == [10, 20, 40, 80, 160, 320, 320, 320]
    assert not attempts.may_try(1, 0, THERE, 319)
    assert attempts.may_try(1, 0, THERE, 320)


def test_another_ledger_and_a_renewed_mark_do_not_wait() -> None:
    attempts = RepairAttempts(320)
    attempts.note_postponed(1, 0, "no bookie", 0)
    assert attempts.may_try(2, 0, THERE, 0)
    assert attempts.may_try(1, 1, THERE, 0)
    assert attempts.note_postponed(1, 1, "no bookie", 0) == 10


def test_a_lost_ledger_is_reported_once_and_not_tried_again_by_time() -> None:
    attempts = RepairAttempts(320)
    assert attempts.note_unrepairable(1, 0, "entry 5", frozenset())
    assert not attempts.may_try(1, 0, THERE, 1e9)
    assert attempts.may_try(1, 1, THERE, 0), "its mark was renewed"
    assert not attempts.note_unrepairable(1, 1, "entry 5", frozenset())


def test_a_ledger_is_tried_again_when_a_bookie_is_back_that_may_have_its_entries() -> None:
    attempts = RepairAttempts(320)
    attempts.note_unrepairable(1, 0, "entry 5", frozenset({"b2"}))
    assert not attempts.may_try(1, 0, THERE, 1e9)
    assert attempts.may_try(1, 0, THERE | {"b2"}, 0)


def test_ledgers_that_are_not_marked_any_more_are_forgotten() -> None:
    attempts = RepairAttempts(320)
    attempts.note_postponed(1, 0, "no bookie", 0)
    attempts.note_postponed(2, 0, "no bookie", 0)
    attempts.keep_only(frozenset({2}))
    assert set(attempts.failed) == {2}
    attempts.note_repaired(2)
    assert set(attempts.failed) == set()
