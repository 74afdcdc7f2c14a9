"""The store under real kills: SIGKILL around every call that changes files, LMDB's and the recovery's too."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
import store_programs
from kill_server import KillServer, memory_place
from kill_walk import KillWalk, Trial
from syscalls import When, every_kill

if TYPE_CHECKING:
    from collections.abc import Iterator

    from syscalls import Call

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the killer needs Linux")

TRIAL = Trial(
    store_programs.two_sittings,
    store_programs.recover,
    store_programs.contradiction,
    store_programs.go_on,
)


@pytest.fixture(scope="module")
def server() -> Iterator[KillServer]:
    with KillServer() as running:
        yield running


def test_a_kill_around_any_call_loses_nothing_that_was_answered(server: KillServer) -> None:
    with KillWalk(server, TRIAL, strides=(7,)) as walk:
        assert list(walk.violations()) == []
        assert walk.strayed == []


def test_no_kill_inside_a_commit_of_the_index_makes_it_pass_for_damaged(server: KillServer) -> None:
    found = set()
    for number, kill in enumerate([None, *every_kill(calls_in_the_index(server))]):
        with TemporaryDirectory(prefix=f"killed-{number}-", dir=memory_place()) as root:
            died = server.run(store_programs.two_sittings, Path(root), kill=kill)
            assert died.was_killed == (kill is not None)
            found.add(server.run(store_programs.found_index, Path(root)).checked().shown)
    assert found == {"GOOD", "AHEAD", "MADE"}  # the last while the store was founded; none was made again


def calls_in_the_index(server: KillServer) -> list[Call]:
    with TemporaryDirectory(dir=memory_place()) as root:
        calls = server.run(store_programs.two_sittings, Path(root)).checked().calls
    touching = [call for call in calls if "/index/" in call.path]
    assert {call.path.rpartition("/")[2] for call in touching} >= {"data.mdb", "sums.draft"}
    return touching


@pytest.mark.slow
def test_a_kill_around_every_call_loses_nothing_that_was_answered(server: KillServer) -> None:
    with KillWalk(server, TRIAL) as walk:
        assert list(walk.violations()) == []
        assert walk.strayed == []
        calls = walk.calls()
        assert walk.kills[0, When.BEFORE] == walk.kills[0, When.AFTER] == len(calls)
        touched = {call.path.split("/")[1] for call in calls if "/" in call.path}
        assert touched >= {"journal", "ledgers", "LOCK"}
        assert any(call.path.endswith("data.mdb") for call in calls)
        assert any(call.path.endswith(".log") for call in calls)


@pytest.mark.slow
def test_a_kill_around_every_call_of_a_recovery_loses_nothing_either(server: KillServer) -> None:
    with KillWalk(server, TRIAL, strides=(6, 1)) as walk:
        assert list(walk.violations()) == []
        assert walk.strayed == []
        assert sum(walk.kills[1, when] for when in When) > 1000
