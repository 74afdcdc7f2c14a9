"""The decision table, walked through every combination of its facts."""

from __future__ import annotations

from collections import Counter
from itertools import product

from recovery.decision import (
    TABLE,
    Behind,
    Claim,
    Decision,
    Facts,
    Following,
    Place,
    Reach,
    State,
    decide,
)
from storage.journal_scan import Owner

EVERY_COMBINATION = [
    Facts(*values) for values in product(Place, Owner, State, Claim, Reach, Behind, Following)
]


def in_plain_words(facts: Facts) -> Decision:
    """The rules of the protocol as one would tell them, without looking at the table."""
    if facts.state is State.UNREADABLE:
        return Decision.UNREADABLE
    if facts.claim is Claim.CONTRADICTED:
        return Decision.ROT
    if facts.place in (Place.MARKED, Place.SKIPPED):
        return Decision.VOID
    if facts.owner is Owner.UNKNOWN or facts.reach is Reach.SHORT:
        return Decision.ROT
    if facts.owner is Owner.NOBODY:
        return Decision.VOID
    if facts.place is Place.NAMED:
        return Decision.USE
    if facts.owner is Owner.BOOKIE and facts.place is Place.LATER:
        return bookie_in_plain_words(facts)
    if facts.place is Place.NEWEST and facts.state is State.SOUND:
        return Decision.USE
    if facts.state is State.BROKEN and facts.behind is Behind.PROOF:
        return Decision.ROT
    return Decision.CUT if facts.place is Place.NEWEST else Decision.KEEP


def bookie_in_plain_words(facts: Facts) -> Decision:
    if facts.state is State.SOUND:
        return Decision.USE
    last = facts.following is Following.NONE and facts.behind is Behind.NOTHING
    return Decision.CUT if last else Decision.ROT


def is_possible(facts: Facts) -> bool:
    """Facts that no set of files can show together are left out of the comparison, not out of the table."""
    if facts.place is Place.NEWEST and facts.owner is not Owner.OURS:
        return False  # a valid seal makes a journal ours
    # Behind a sound end there are only zeros.
    return facts.state is not State.SOUND or facts.behind is Behind.NOTHING


def test_every_combination_has_an_answer() -> None:
    assert len(EVERY_COMBINATION) == 5 * 4 * 3 * 2 * 2 * 2 * 2
    assert {decide(facts).decision for facts in EVERY_COMBINATION} == set(Decision)


def test_every_possible_combination_is_decided_as_the_protocol_says() -> None:
    possible = [facts for facts in EVERY_COMBINATION if is_possible(facts)]
    assert {facts: decide(facts).decision for facts in possible} == {
        facts: in_plain_words(facts) for facts in possible
    }


def test_every_rule_decides_something() -> None:
    used = Counter(id(decide(facts)) for facts in EVERY_COMBINATION if is_possible(facts))
    unused = [rule.why for rule in TABLE if not used[id(rule)]]
    assert unused == []


def test_what_is_vouched_for_and_gone_is_never_passed_over() -> None:
    on_the_chain = [facts for facts in EVERY_COMBINATION if facts.place not in (Place.MARKED, Place.SKIPPED)]
    short = [facts for facts in on_the_chain if facts.reach is Reach.SHORT]
    assert {decide(facts).decision for facts in short} == {Decision.ROT, Decision.UNREADABLE}


def test_damage_with_something_good_behind_it_is_never_cut() -> None:
    proved = [facts for facts in EVERY_COMBINATION if facts.behind is Behind.PROOF and is_possible(facts)]
    assert {decide(facts).decision for facts in proved}.isdisjoint({Decision.CUT, Decision.KEEP})
