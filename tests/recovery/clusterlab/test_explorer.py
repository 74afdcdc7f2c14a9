"""The laboratory finds nothing in the client, and finds bugs that are put into it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from recovery.clusterlab.deferred import DeferredSchedule
from recovery.clusterlab.directed import SCENARIOS
from recovery.clusterlab.explorer import explore, minimise, play, play_scenario, trace
from recovery.clusterlab.workload import Schedule
from recovery.clusterlab.world import Choices
from storage.cluster.client.copies import CopyResult, EntriesUnderWay
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import CodeAnswer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recovery.clusterlab.world import TraceEvent
    from storage.cluster.client.effects import BookieAnswer, Sending


@pytest.fixture
def every_answer_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an answer count although its copy was sent to another bookie since."""
    answered = EntriesUnderWay.answered

    def changed(
        self: EntriesUnderWay, sending: Sending, entry_ids: Sequence[int], answer: BookieAnswer
    ) -> CopyResult:
        entries = [self.pending[one] for one in entry_ids if one in self.pending]
        if entries and answer == CodeAnswer(Code.OK):
            for entry in entries:
                entry.stored.add(sending)
            return CopyResult.STORED
        return answered(self, sending, entry_ids, answer)

    monkeypatch.setattr(EntriesUnderWay, "answered", changed)


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_schedule_that_is_written_by_hand_violates_an_invariant(name: str) -> None:
    assert play_scenario(name) is None


def test_no_random_schedule_violates_an_invariant() -> None:
    assert list(explore(range(300))) == []


def test_no_random_schedule_with_deferred_syncs_violates_an_invariant() -> None:
    assert list(explore(range(150), DeferredSchedule)) == []


@pytest.mark.slow(20)
def test_no_schedule_of_ten_thousand_with_deferred_syncs_violates_an_invariant() -> None:
    assert list(explore(range(1_000, 11_000), DeferredSchedule)) == []


@pytest.mark.slow(20)
def test_no_schedule_of_twenty_thousand_violates_an_invariant() -> None:
    assert list(explore(range(1_000, 21_000))) == []


@pytest.mark.usefixtures("every_answer_counts")
def test_a_failing_schedule_is_made_smaller_and_is_played_again() -> None:
    failure = next(explore(range(20_000)))
    smaller = minimise(failure)

    assert failure.invariant == smaller.invariant == "T2"
    assert sum(map(bool, smaller.choices)) < sum(map(bool, failure.choices)) / 2
    again = play(0, smaller.choices)
    assert again is not None
    assert again.text == smaller.text
    assert trace(smaller)[-1].text == smaller.text


def test_the_same_seed_is_the_same_schedule() -> None:
    first, second = (trace_of(seed) for seed in (5, 5))

    assert first == second
    assert first != trace_of(6)


def trace_of(seed: int) -> list[TraceEvent]:
    schedule = Schedule(Choices(seed))
    schedule.world.trace = []
    schedule.play()
    return schedule.world.trace
