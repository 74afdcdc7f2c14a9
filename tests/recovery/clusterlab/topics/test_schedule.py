"""Random schedules of owners of one topic violate no invariant, and play what they are there for."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from recovery.clusterlab.explorer import explore
from recovery.clusterlab.topics.schedule import TopicSchedule
from recovery.clusterlab.world import Choices
from storage.cluster.topics import cursor_store, policies

if TYPE_CHECKING:
    from recovery.clusterlab.world import TraceEvent


def test_no_random_schedule_of_a_topic_violates_an_invariant() -> None:
    assert list(explore(range(60), TopicSchedule)) == []


@pytest.mark.slow(60)
def test_no_schedule_of_a_topic_of_twenty_thousand_violates_an_invariant() -> None:
    assert list(explore(range(1_000, 21_000), TopicSchedule)) == []


def test_the_same_seed_is_the_same_schedule_of_a_topic() -> None:
    first, second = ([str(event) for event in trace_of(5)] for _ in range(2))

    # Entries are shown by their messages, so that no line has an address of memory.
    assert first == second
    assert first != [str(event) for event in trace_of(6)]


def test_schedules_of_a_topic_have_take_overs_trims_and_messages_of_unknown_outcome() -> None:
    found: Counter[str] = Counter()
    for seed in range(40):
        text = "\n".join(event.text for event in trace_of(seed))
        for name in ("TopicFenced", "MessageOutcomeUnknown", "Recover(", "is paused", "is killed"):
            found[name] += text.count(name)
        found["trimmed"] += text.count("Trimmed(ledger_ids=(") - text.count("Trimmed(ledger_ids=())")

    assert min(found.values()) >= 10, found


def test_readers_of_a_topic_are_shown_messages() -> None:
    shown = 0
    for seed in range(20):
        schedule = TopicSchedule(Choices(seed))
        schedule.play()
        shown += sum(len(reader.shown) for reader in schedule.topic_readers)

    assert shown >= 50


def test_consumers_take_a_subscription_over_whose_state_is_in_a_ledger() -> None:
    found: Counter[str] = Counter()
    for seed in range(60):
        schedule = TopicSchedule(Choices(seed))
        schedule.play()
        for consumer in schedule.consumers:
            found["lives"] += len(consumer.shown)
            found["shown"] += sum(map(len, consumer.shown.values()))
        if schedule.consumers:
            found["cursor ledgers"] += len(schedule.cursor_ledgers.by_id)

    assert found["lives"] >= 15, found
    assert found["shown"] >= 50, found
    assert found["cursor ledgers"] >= 10, found


def test_the_laboratory_finds_a_consumer_that_does_not_read_the_ledger_of_its_cursor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def nothing(*_: object) -> None:
        """Return no entry."""

    monkeypatch.setattr(cursor_store, "_last_entry", nothing)

    assert next(explore(range(2_000), TopicSchedule)).invariant == "O16"


def test_the_laboratory_finds_a_trim_that_asks_no_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "_is_passed", lambda *_: True)

    assert next(explore(range(2_000), TopicSchedule)).invariant == "O14"


def trace_of(seed: int) -> list[TraceEvent]:
    schedule = TopicSchedule(Choices(seed))
    schedule.world.trace = []
    schedule.play()
    return schedule.world.trace
