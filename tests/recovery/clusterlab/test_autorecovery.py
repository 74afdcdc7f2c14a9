"""The laboratory plays auto-recovery: its coroutines over model bookies and model servers of metadata."""

from __future__ import annotations

import pytest

from recovery.clusterlab.autorecovery import AutoRecoverySchedule
from recovery.clusterlab.explorer import explore, minimise, play, trace
from recovery.clusterlab.oracles import InvariantViolated
from recovery.clusterlab.repair_oracles import ClusterOracles
from recovery.clusterlab.world import Choices

SAID = ("is lost", "marked", "copied", "repaired", "where the ledger grows")


def told(seed: int) -> list[str]:
    """Return the lines of a schedule's trace."""
    schedule = AutoRecoverySchedule(Choices(seed))
    schedule.world.trace = []
    schedule.play()
    return [str(event) for event in schedule.world.trace]


def test_no_schedule_of_auto_recovery_violates_an_invariant() -> None:
    assert list(explore(range(12), AutoRecoverySchedule)) == []


@pytest.mark.slow(60)
def test_no_schedule_of_two_thousand_violates_an_invariant() -> None:
    assert list(explore(range(100_000, 102_000), AutoRecoverySchedule)) == []


def test_the_same_seed_is_the_same_schedule() -> None:
    assert told(3) == told(3)
    assert told(3) != told(4)


def test_schedules_lose_bookies_and_repair_their_ledgers() -> None:
    """Otherwise the invariants would hold because nothing happens."""
    lines = [line for seed in (*range(15), 34) for line in told(seed)]
    for what in SAID:
        assert any(" log " in line and what in line for line in lines), what
    for fault in ("crashes", "loses its disk", "expires", "is killed", "disables auto-recovery"):
        assert any(fault in line for line in lines), fault
    assert any("deletes its copy of ledger" in line for line in lines)


def test_a_violation_is_played_again_by_its_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(_: ClusterOracles) -> None:
        raise InvariantViolated("O6", "an entry is missing")

    monkeypatch.setattr(ClusterOracles, "check_whole", lacks)
    failure = play(1, None, AutoRecoverySchedule)
    assert failure is not None
    assert failure.invariant == "O6"
    smaller = minimise(failure, 5)
    assert trace(smaller)[-1].text == "O6: an entry is missing"
