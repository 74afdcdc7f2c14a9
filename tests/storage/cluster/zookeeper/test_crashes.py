"""No crash of the server takes back what a client has seen, leaves half of a multi, or loses a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from zookeeper_crashes import BURSTS, STATES_MIN, WORKLOADS, explore

from storage.cluster.zookeeper import server as server_module
from storage.cluster.zookeeper.log import DurableLog
from storage.cluster.zookeeper.tree import ZnodeTree

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from storage.cluster.zookeeper.connection import Connection

WRITE_SNAPSHOT = "_write"


def test_a_power_cut_leaves_the_tree_of_one_change_and_no_earlier_one_than_a_client_has_seen() -> None:
    figures = explore(0, stride=12, bursts=4)
    assert figures.violations == []
    assert len(figures.images) > 3


@pytest.mark.slow(seconds=120)
@pytest.mark.parametrize("seed", WORKLOADS)
def test_no_power_cut_takes_back_what_a_client_has_seen(seed: int) -> None:
    figures = explore(seed, bursts=BURSTS)
    assert figures.violations == []
    assert len(figures.images) >= STATES_MIN // len(WORKLOADS)


@pytest.mark.slow(seconds=20)
def test_an_answer_that_leaves_before_its_commit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(_: object, connection: Connection, frame: bytes) -> None:
        connection.queue(frame)

    monkeypatch.setattr(server_module, "_hand", at_once)
    assert any("has seen zxid" in one for one in explore(0, stride=4).violations)


@pytest.mark.slow(seconds=20)
def test_a_generation_that_is_deleted_before_the_snapshot_is_whole_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write: Callable[..., Awaitable[None]] = getattr(DurableLog, WRITE_SNAPSHOT)

    async def hasty(log: DurableLog, generation: int, snapshot: object) -> None:
        store = vars(log)["_store"]
        for ledger_id in await store.ledgers():
            if ledger_id // 2 < generation:
                await store.ledger(ledger_id).delete()
        await write(log, generation, snapshot)

    monkeypatch.setattr(DurableLog, WRITE_SNAPSHOT, hasty)
    assert explore(0).violations


@pytest.mark.slow(seconds=20)
def test_a_multi_that_keeps_what_it_did_before_its_error_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ZnodeTree, "_take_back", lambda *_: None)
    assert any("the tree is another" in one or "refused" in one for one in explore(0, stride=4).violations)
