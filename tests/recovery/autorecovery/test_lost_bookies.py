"""When an auditor audits: by the bookies that are registered, the delay, and requests."""

from __future__ import annotations

import pytest
from planted_repair_bugs import LOST_BOOKIES_BUGS, PlantedRepairBug, planted

from recovery.autorecovery.lost_bookies import LostBookies

ALL = frozenset({"b1", "b2", "b3"})


def after_first_audit(delay_s: float) -> LostBookies:
    """Return an auditor's watch after its first audit, at time 100."""
    made = LostBookies(ALL, delay_s, 0)
    made.registered(ALL, 0)
    made.audit_begins()
    made.audited(frozenset())
    return made


def test_without_a_loss_nothing_is_due() -> None:
    assert after_first_audit(60).due_at is None


def test_an_auditor_begins_with_an_audit_after_the_delay() -> None:
    assert LostBookies(ALL, 0, 100).due_at == 100
    assert LostBookies(ALL, 60, 100).due_at == 160


def test_a_lost_bookie_is_audited_after_the_delay() -> None:
    one = after_first_audit(60)
    one.registered(ALL - {"b1"}, 100)
    assert (one.due_at, one.lost) == (160, frozenset({"b1"}))


def test_a_bookie_that_returns_within_the_delay_cancels_the_audit() -> None:
    one = after_first_audit(60)
    one.registered(ALL - {"b1"}, 100)
    one.registered(ALL, 130)
    assert (one.due_at, one.lost) == (None, frozenset())


def test_several_lost_bookies_are_audited_at_once() -> None:
    one = after_first_audit(60)
    one.registered(ALL - {"b1"}, 100)
    one.registered(ALL - {"b1", "b2"}, 110)
    assert one.due_at == 110


def test_a_bookie_whose_ledgers_are_marked_is_not_audited_again_until_it_was_back() -> None:
    one = after_first_audit(60)
    one.registered(ALL - {"b1"}, 100)
    one.audit_begins()
    one.audited(frozenset({"b1"}))
    due = [one.due_at]
    one.registered(ALL - {"b1", "b2"}, 180)
    assert [*due, one.due_at] == [None, 240], "one is newly lost, and not two"
    one.registered(ALL, 190)
    one.registered(ALL - {"b1"}, 200)
    assert one.due_at == 260


def test_a_bookie_that_is_lost_during_an_audit_is_not_covered_by_it() -> None:
    one = after_first_audit(0)
    one.registered(ALL - {"b1"}, 100)
    one.audit_begins()
    lost = one.lost
    one.registered(ALL - {"b1", "b2"}, 101)
    one.audited(lost)
    assert one.due_at == 101


def test_a_bookie_without_a_cookie_is_known_when_it_was_registered() -> None:
    one = after_first_audit(60)
    one.registered(ALL | {"new"}, 100)
    one.registered(ALL, 110)
    assert (one.due_at, one.lost) == (170, frozenset({"new"}))


def test_the_same_delay_again_is_a_request_and_another_one_counts_from_the_loss() -> None:
    one = after_first_audit(60)
    one.registered(ALL - {"b1"}, 100)
    one.delay_written(30, 110)
    assert one.due_at == 130
    one.delay_written(30, 115)
    assert one.due_at == 115
    two = after_first_audit(60)
    two.delay_written(0, 120)
    assert two.due_at == 120


def test_an_audit_that_was_cut_short_is_made_again() -> None:
    one = after_first_audit(60)
    one.audit_begins()
    one.audit_failed(100, 5)
    one.registered(ALL, 101)
    assert one.due_at == 105


@pytest.mark.parametrize("bug", LOST_BOOKIES_BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: PlantedRepairBug) -> None:
    [test] = bug.tests(globals())
    with planted(bug), pytest.raises(AssertionError):
        test()
