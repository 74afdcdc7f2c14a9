"""Every order of the messages of a small world is played."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from recovery.clusterlab.small_worlds import SMALL_WORLDS, SmallWorld, explore_all
from storage.cluster.client.distribution import Quorums
from storage.cluster.client.recoverer import LedgerRecoverer
from storage.cluster.client.writer import LedgerWriter, WriterState

if TYPE_CHECKING:
    from storage.cluster.client.effects import Effect, MetadataWritten

ONE_ENTRY = SmallWorld(Quorums(2, 2, 2), bookies=2, entries=1, recoveries=0)


def test_the_states_of_one_add_at_two_bookies_are_those_that_can_be_counted_by_hand() -> None:
    # Before the add there is one state. Then the copy at each bookie was sent, has arrived, or is answered.
    assert explore_all(ONE_ENTRY).states == 1 + 3 * 3
    assert explore_all(ONE_ENTRY).ends == 1


@pytest.mark.slow(2)
def test_a_take_over_violates_nothing_in_any_order() -> None:
    result = explore_all(SmallWorld(Quorums(2, 2, 2), bookies=2, entries=1, recoveries=1))

    assert result.violation == ""
    assert result.states > 1_000
    assert result.ends > 1


def test_a_bug_is_found_with_the_messages_that_lead_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is missing because one of two bookies with Qa = 1 lacks it."""
    monkeypatch.setattr(Quorums, "missing", property(lambda _: 1))
    result = explore_all(SmallWorld(Quorums(2, 2, 1), bookies=2, entries=1, recoveries=1))

    assert result.violation.startswith("T2")
    assert result.path[-1] == result.violation
    assert "writer: adds 0" in result.path


def test_a_client_that_waits_for_ever_is_found_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LedgerRecoverer, "_measure", lambda _: [])
    result = explore_all(SmallWorld(Quorums(2, 2, 2), bookies=2, entries=0, recoveries=1))

    assert result.violation.startswith("O8")


@pytest.mark.slow(20)
@pytest.mark.parametrize("name", ["take-over-and-crash", "ensemble-changes"])
def test_no_order_of_a_small_world_violates_an_invariant(name: str) -> None:
    result = explore_all(SMALL_WORLDS[name])

    assert result.violation == ""
    assert result.states > 10_000


def test_a_crash_in_the_middle_of_a_change_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    states = set()
    written = LedgerWriter.metadata_written

    def noted(self: LedgerWriter, answer: MetadataWritten) -> list[Effect]:
        states.add(self.state)
        return written(self, answer)

    monkeypatch.setattr(LedgerWriter, "metadata_written", noted)
    result = explore_all(SmallWorld(Quorums(2, 2, 2), bookies=3, entries=1, recoveries=0, crashes=1))

    assert result.violation == ""
    assert WriterState.CHANGING in states
