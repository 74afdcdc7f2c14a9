"""The store under real kills: SIGKILL around every call that changes files, LMDB's and the recovery's too."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
import store_programs
from kill_server import KillServer
from kill_walk import KillWalk, Trial
from syscalls import When

if TYPE_CHECKING:
    from collections.abc import Iterator

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
