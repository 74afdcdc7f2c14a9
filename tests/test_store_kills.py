"""The store under real kills: SIGKILL around every call that changes files, LMDB's and the recovery's too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import store_programs
from lab_kills import Kills

from recovery.crashlab import CrashLab, preload
from recovery.crashlab.layers.kill import every_kill
from recovery.crashlab.tape import Call
from recovery.proving.kinds import IGNORED
from recovery.proving.lab import ledgerstore_lab

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(bool(preload.why_not()), reason=preload.why_not() or "nothing is missing")


@pytest.fixture(scope="module")
def kills() -> Iterator[Kills]:
    with Kills(ledgerstore_lab()) as kills:
        yield kills


def test_a_kill_around_any_call_loses_nothing_that_was_answered(kills: Kills) -> None:
    found = kills.of_workloads(every=150)

    assert found.breaches == []
    assert found.counts["kills"] > 20
    assert "strayed kills" not in found.counts


def test_a_kill_around_any_call_of_a_recovery_loses_nothing_either(kills: Kills) -> None:
    found = kills.of_recoveries(every=2000, every_call=4)

    assert found.breaches == []
    assert found.counts["kills of recoveries"] > 15


def test_no_kill_inside_a_commit_of_the_index_makes_it_pass_for_damaged() -> None:
    lab = CrashLab(store_programs.two_sittings, store_programs.found_index, lambda *_: None, ignore=IGNORED)
    with Kills(lab) as kills:
        found = kills.of_calls_in("index")
        events = [event for recording in kills.recordings for event in recording.events()]

    touched = {event.path.rpartition("/")[2] for event in events if "/index/" in event.path}
    assert touched >= {"data.mdb", "sums.draft"}
    # The last while the store was founded; none was made again.
    assert found.outcomes == {"answered 'GOOD'", "answered 'AHEAD'", "answered 'MADE'"}
    assert found.counts["kills"] > 50


@pytest.mark.slow(seconds=95)
def test_a_kill_around_each_fifth_call_loses_nothing_that_was_answered(kills: Kills) -> None:
    """Around every call of all workloads it is `make crash` that kills."""
    events = [event for recording in kills.recordings for event in recording.events()]

    found = kills.of_workloads(every=5)

    assert found.breaches == []
    assert found.counts.keys() == {"kills"}
    assert found.counts["kills"] * 5 >= sum(1 for _ in every_kill(events))
    calls = {event.path for event in events if event.call is not Call.MARK}
    assert {path.split("/")[1] for path in calls if "/" in path} >= {"journal", "ledgers", "LOCK"}
    assert any(path.endswith("data.mdb") for path in calls)
    assert any(path.endswith(".log") for path in calls)


@pytest.mark.slow(seconds=95)
def test_a_kill_around_every_call_of_some_recoveries_loses_nothing_either(kills: Kills) -> None:
    found = kills.of_recoveries(every=250)

    assert found.breaches == []
    assert found.counts["kills of recoveries"] > 1000
