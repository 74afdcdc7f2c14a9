"""The store under real kills: SIGKILL before and after calls that change files, also LMDB's and those of
recoveries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import store_programs
from lab_kills import KillRunner

from recovery.crashlab import CrashLab
from recovery.crashlab.layers.kill import every_kill
from recovery.crashlab.record import preload
from recovery.crashlab.record.tape import Call
from recovery.proving.file_kinds import IGNORED
from recovery.proving.lab import ledgerstore_lab

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(bool(preload.why_not()), reason=preload.why_not() or "nothing is missing")


@pytest.fixture(scope="module")
def kills() -> Iterator[KillRunner]:
    with KillRunner(ledgerstore_lab()) as kills:
        yield kills


@pytest.mark.slow
def test_a_kill_around_any_call_loses_no_acknowledged_entry(kills: KillRunner) -> None:
    found = kills.of_workloads(every=150)

    assert found.breaches == []
    assert found.counts["kills"] > 20
    assert "strayed kills" not in found.counts


@pytest.mark.slow
def test_a_kill_around_any_call_of_a_recovery_loses_no_acknowledged_entry(kills: KillRunner) -> None:
    found = kills.of_recoveries(every=2000, every_call=4)

    assert found.breaches == []
    assert found.counts["kills of recoveries"] > 15


@pytest.mark.slow
def test_no_kill_inside_a_commit_of_the_index_makes_it_look_damaged() -> None:
    lab = CrashLab(store_programs.two_sittings, store_programs.found_index, lambda *_: None, ignore=IGNORED)
    with KillRunner(lab) as kills:
        found = kills.of_calls_in("index")
        events = [event for recording in kills.recordings for event in recording.events()]

    touched = {event.path.rpartition("/")[2] for event in events if "/index/" in event.path}
    assert touched >= {"data.mdb", "sums.draft"}
    # The last one happens while the store is created. No index is rebuilt.
    assert found.outcomes == {"answered 'GOOD'", "answered 'AHEAD'", "answered 'MADE'"}
    assert found.counts["kills"] > 50


@pytest.mark.slow(seconds=95)
def test_a_kill_around_each_fifth_call_loses_no_acknowledged_entry(kills: KillRunner) -> None:
    """`make crash` kills around every call of all workloads."""
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
def test_a_kill_around_every_call_of_some_recoveries_loses_no_acknowledged_entry(kills: KillRunner) -> None:
    found = kills.of_recoveries(every=250)

    assert found.breaches == []
    assert found.counts["kills of recoveries"] > 1000
