"""Where a check of all ledgers goes on that was cut short."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest
from cluster_loops import run
from example_cluster import ROOT
from recovering_cluster import PATHS, changes_until
from running_cluster import RunningCluster, run_with_cluster

from recovery.autorecovery import audits, check_position
from recovery.autorecovery.auditor import Auditor
from recovery.autorecovery.check_position import LEFT_MAX, CheckPosition, CheckProgress
from recovery.autorecovery.config import AutoRecoveryConfig
from storage.cluster.client.distribution import Quorums
from storage.cluster.metadata import underreplication
from storage.cluster.metadata.underreplication import CheckKind
from storage.cluster.metadata.update import create_node
from storage.cluster.metadata.znodes import Gone

if TYPE_CHECKING:
    from pathlib import Path

    from memory_znodes import MemoryZnodes

KIND = CheckKind.ALL_LEDGERS
BEGUN = CheckPosition(began_ms=1000, percent=0)


def test_a_position_names_what_is_under_way_and_what_could_not_be_checked() -> None:
    progress = CheckProgress(BEGUN)
    progress.begin([3, 4, 5, 6])
    progress.checked(3)
    progress.not_checked(4)
    progress.checked(6)
    assert progress.position == CheckPosition(1000, 0, next_id=7, left=(4, 5))
    progress.checked(5)
    assert (progress.position.left, progress.is_complete) == ((4,), False)


def test_a_ledger_that_was_left_is_begun_again_and_one_that_is_gone_is_forgotten() -> None:
    progress = CheckProgress(CheckPosition(1000, 0, next_id=7, left=(4, 5)))
    progress.forget({5})
    progress.begin([4])
    assert progress.position == CheckPosition(1000, 0, next_id=7, left=(4,))
    progress.checked(4)
    assert progress.position == CheckPosition(1000, 0, next_id=7)
    assert progress.is_complete


def test_more_open_ledgers_than_a_position_can_name_are_checked_again_from_the_first_of_them_on() -> None:
    progress = CheckProgress(BEGUN)
    progress.begin(range(2 * LEFT_MAX))
    progress.checked(0)
    position = progress.position
    assert (position.left[0], position.left[-1]) == (1, LEFT_MAX)
    assert position.next_id == LEFT_MAX + 1


def test_a_position_is_kept_read_and_cleared() -> None:
    async def test(znodes: MemoryZnodes) -> None:
        assert await check_position.read(znodes, ROOT, KIND) is None
        position = CheckPosition(1000, 5, 7, (4, 5))
        await check_position.write(znodes, ROOT, KIND, CheckPosition(999, 5))
        await check_position.write(znodes, ROOT, KIND, position)
        assert await check_position.read(znodes, ROOT, KIND) == position
        assert await check_position.read(znodes, ROOT, CheckKind.REPLICAS) is None
        await check_position.clear(znodes, ROOT, KIND)
        assert await check_position.read(znodes, ROOT, KIND) is None

    run(test)


@pytest.mark.parametrize("data", [b"", b"junk", b"{}", b'{"left": 1}', b'{"left": [], "other": 1}'])
def test_a_position_that_cannot_be_read_is_passed_over(data: bytes) -> None:
    async def test(znodes: MemoryZnodes) -> None:
        await create_node(znodes, check_position.position_path(ROOT, KIND), data)
        assert await check_position.read(znodes, ROOT, KIND) is None

    run(test)


async def checked_by_an_auditor(
    cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch, position: CheckPosition
) -> tuple[list[int], list[int], int | None]:
    """Return three ledgers, those that the next auditor checks, and the time that it stores."""
    checked: list[int] = []
    check_ledger = audits.check_ledger

    async def noted(client: Any, ledger: Any, *rest: Any) -> Any:
        checked.append(ledger.ledger_id)
        return await check_ledger(client, ledger, *rest)

    monkeypatch.setattr(audits, "check_ledger", noted)
    async with cluster.client() as client:
        ids = []
        for _ in range(3):
            async with await client.create(Quorums(1, 1, 1)) as writer:
                ids.append(writer.id)
        session = cluster.server.session()
        await underreplication.prepare(session, ROOT)
        path = check_position.position_path(ROOT, KIND)
        await create_node(session, path, json.dumps(asdict(position)).encode())
        config = AutoRecoveryConfig(check_interval_s=3600.0, progress_interval_s=3600.0)
        auditing = asyncio.ensure_future(Auditor(session, PATHS, client, "auditor", config).run())
        await changes_until(cluster, lambda: auditing.done() or path not in cluster.server.paths())
        auditing.cancel()
        await asyncio.gather(auditing, return_exceptions=True)
        time_ms = await underreplication.read_check_time(session, ROOT, KIND)
    return ids, sorted(checked), time_ms


def test_an_auditor_goes_on_where_another_one_was_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps(cluster: RunningCluster) -> None:
        position = CheckPosition(began_ms=1000, percent=0, next_id=2, left=(0,))
        ids, checked, time_ms = await checked_by_an_auditor(cluster, monkeypatch, position)
        assert ids == [0, 1, 2]
        # The pass has begun when the first auditor has begun it.
        assert (checked, time_ms) == ([0, 2], 1000)

    run_with_cluster(tmp_path, 1, steps)


def test_a_position_of_a_pass_with_another_sample_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps(cluster: RunningCluster) -> None:
        position = CheckPosition(began_ms=1000, percent=50, next_id=2)
        ids, checked, time_ms = await checked_by_an_auditor(cluster, monkeypatch, position)
        assert (checked, time_ms == 1000) == (ids, False)

    run_with_cluster(tmp_path, 1, steps)


def test_a_check_that_is_disabled_keeps_where_it_is(tmp_path: Path) -> None:
    async def steps(cluster: RunningCluster) -> None:
        kept: list[CheckPosition] = []

        async def keep(position: CheckPosition) -> None:
            kept.append(position)

        async with cluster.client() as client:
            async with await client.create(Quorums(1, 1, 1)):
                pass
            await underreplication.disable(cluster.znodes, ROOT)
            position = CheckPosition(1000, 0, next_id=0, left=(5,))
            result = await audits.check_all(cluster.znodes, PATHS, client, 0, lambda *_: None, position, keep)
        assert (result.is_complete, result.ledgers) == (False, 0)
        # Ledger 5 is gone.
        assert kept == [CheckPosition(1000, 0, next_id=0)]

    run_with_cluster(tmp_path, 1, steps)


def test_a_ledger_of_which_a_bookie_gives_no_answer_is_left_and_the_pass_is_not_complete(
    tmp_path: Path,
) -> None:
    async def steps(cluster: RunningCluster) -> None:
        kept: list[CheckPosition] = []

        async def keep(position: CheckPosition) -> None:
            kept.append(position)

        async with cluster.client() as client:
            ids = []
            for _ in range(2):
                async with await client.create(Quorums(1, 1, 1)) as writer:
                    await writer.append(b"payload")
                    ids.append(writer.id)
            # It stays registered, as a bookie that hangs does.
            await cluster.stop("b1")
            result = await audits.check_all(
                cluster.znodes, PATHS, client, 0, lambda *_: None, CheckPosition(1000, 0), keep
            )
        assert (result.is_complete, result.unreachable) == (False, 2)
        assert kept == [CheckPosition(1000, 0, next_id=2, left=tuple(ids))]
        assert isinstance(await cluster.znodes.get(f"{ROOT}/underreplication"), Gone)

    run_with_cluster(tmp_path, 1, steps)
