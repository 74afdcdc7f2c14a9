"""The decision table, walked through every combination of its facts."""

from __future__ import annotations

from collections import Counter
from itertools import product

from recovery.replay.decision import (
    TABLE,
    ChainPlace,
    Decision,
    Following,
    JournalClaim,
    JournalFacts,
    JournalState,
    LaterData,
    Reach,
    decide,
)
from storage.journal.scan import Owner

EVERY_COMBINATION = [
    JournalFacts(*values)
    for values in product(ChainPlace, Owner, JournalState, JournalClaim, Reach, LaterData, Following)
]


def in_plain_words(facts: JournalFacts) -> Decision:
    """The rules of the protocol in code, independent of the table."""
    if facts.state is JournalState.UNREADABLE:
        return Decision.UNREADABLE
    if facts.claim is JournalClaim.CONTRADICTED:
        return Decision.ROT
    if facts.place in (ChainPlace.MARKED, ChainPlace.SKIPPED):
        return Decision.VOID
    if facts.owner is Owner.UNKNOWN or facts.reach is Reach.SHORT:
        return Decision.ROT
    if facts.owner is Owner.VOID:
        return Decision.VOID
    if facts.place is ChainPlace.NAMED:
        return Decision.USE
    if facts.owner is Owner.BOOKIE and facts.place is ChainPlace.LATER:
        return bookie_in_plain_words(facts)
    if facts.place is ChainPlace.NEWEST and facts.state is JournalState.SOUND:
        return Decision.USE
    if facts.state is JournalState.BROKEN and facts.later_data is LaterData.PROOF:
        return Decision.ROT
    return Decision.CUT if facts.place is ChainPlace.NEWEST else Decision.KEEP


def bookie_in_plain_words(facts: JournalFacts) -> Decision:
    if facts.state is JournalState.SOUND:
        return Decision.USE
    last = facts.following is Following.NONE and facts.later_data is LaterData.NOTHING
    return Decision.CUT if last else Decision.ROT


def is_possible(facts: JournalFacts) -> bool:
    """Whether a set of files can show these facts together."""
    if facts.place is ChainPlace.NEWEST and facts.owner is not Owner.OURS:
        return False  # a valid seal makes a journal ours
    # After a sound end there are only zeros.
    return facts.state is not JournalState.SOUND or facts.later_data is LaterData.NOTHING


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


def test_missing_durable_data_is_never_skipped() -> None:
    on_the_chain = [
        facts for facts in EVERY_COMBINATION if facts.place not in (ChainPlace.MARKED, ChainPlace.SKIPPED)
    ]
    short = [facts for facts in on_the_chain if facts.reach is Reach.SHORT]
    assert {decide(facts).decision for facts in short} == {Decision.ROT, Decision.UNREADABLE}


def test_damage_before_sound_data_is_never_cut() -> None:
    proved = [
        facts for facts in EVERY_COMBINATION if facts.later_data is LaterData.PROOF and is_possible(facts)
    ]
    assert {decide(facts).decision for facts in proved}.isdisjoint({Decision.CUT, Decision.KEEP})
