"""Bad input and bad moments, on running bookies: unknown bookies, two auditors, full disks, and metadata that
are slow, gone or switched off at any step of a repair.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from example_cluster import ROOT
from memory_znodes import Loss
from recovering_cluster import (
    FAST,
    OPTIONS,
    PATHS,
    changes_until,
    locks_of,
    lose,
    marks_of,
    metadata_of,
    recovering,
)
from running_cluster import RunningCluster, run_with_cluster
from store_internals import AsyncEngine

from recovery.autorecovery.auditor import Auditor
from recovery.autorecovery.service import AutoRecovery
from storage.cluster.client.distribution import Quorums
from storage.cluster.metadata import ledger, underreplication
from storage.cluster.metadata.election import election_path
from storage.cluster.metadata.ledger import ClusterLedgerMetadata, LedgerSegment
from storage.cluster.metadata.update import change_ledger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from memory_znodes import MemoryZnodes

    from storage.cluster.client.cluster import AsyncCluster
    from storage.cluster.metadata.znodes import Znodes

    Disturb = Callable[[RunningCluster, MemoryZnodes], Awaitable[asyncio.Task[None] | None]]

PAYLOADS = [b"payload %d" % number for number in range(20)]


async def closed(client: AsyncCluster, quorums: Quorums = Quorums(3, 2, 2)) -> int:  # noqa: B008 - immutable
    async with await client.create(quorums) as writer:
        await writer.append_many(PAYLOADS)
    return int(writer.id)


async def copies(client: AsyncCluster, ledger_id: int) -> list[bytes]:
    return [one async for one in (await client.view(ledger_id)).payloads()]


def bookies_of(cluster: RunningCluster, ledger_id: int) -> set[str]:
    """Return the bookies that the metadata name now."""
    found = ledger.decode(cluster.server.paths()[PATHS.path_of(ledger_id)])
    assert isinstance(found, ClusterLedgerMetadata)
    return {bookie for one in found.segments for bookie in one.bookies}


# ── unknown bookies ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("unknown", ["never-heard-of:3181", "no id of a bookie/at all", ""])
def test_a_bookie_that_the_cluster_does_not_know_is_replaced(tmp_path: Path, unknown: str) -> None:
    async def steps(cluster: RunningCluster) -> None:
        async with cluster.client() as client:
            ledger_id = await closed(client)

            def name_unknown(metadata: ClusterLedgerMetadata) -> ClusterLedgerMetadata:
                [segment] = metadata.segments
                return replace(metadata, segments=(LedgerSegment(0, (unknown, *segment.bookies[1:])),))

            await change_ledger(cluster.znodes, PATHS, ledger_id, name_unknown)
            async with recovering(cluster):
                await changes_until(cluster, lambda: unknown not in bookies_of(cluster, ledger_id))
                await changes_until(cluster, lambda: not (marks_of(cluster) or locks_of(cluster)))
            assert await copies(client, ledger_id) == PAYLOADS

    run_with_cluster(tmp_path, 4, steps)


# ── two auditors ──────────────────────────────────────────────────────────────────────────────────────────


def test_two_auditors_mark_the_same_ledgers_and_these_are_whole_afterwards(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The old one does not notice that its vote is gone, and goes on as long as its session lasts."""
    caplog.set_level(logging.INFO, logger="ledgerstore.autorecovery")

    def saying(what: str) -> int:
        return sum(what in record.getMessage() for record in caplog.records)

    async def steps(cluster: RunningCluster) -> None:
        async with cluster.client() as client:
            await underreplication.prepare(cluster.znodes, ROOT)
            ids = [await closed(client, Quorums(2, 2, 2)) for _ in range(4)]
            auditing = []
            for name in ("old", "new"):
                auditor = Auditor(cluster.server.session(), PATHS, client, name, FAST)
                auditing.append(asyncio.ensure_future(auditor.run()))
                while not saying(f"{name} is the auditor"):
                    await asyncio.sleep(0)
                for path in cluster.server.paths():
                    if path.startswith(f"{election_path(ROOT)}/V_"):
                        await cluster.znodes.delete(path)
            await lose(cluster, "b1")
            async with recovering(cluster, name="third"):
                # The third one is a candidate that waits for no vote, so it is an auditor, too.
                while saying("bookie b1 is lost") < 2 or saying("ledgers marked") < 2:
                    await asyncio.sleep(0)
                await changes_until(
                    cluster,
                    lambda: (
                        not (
                            marks_of(cluster)
                            or locks_of(cluster)
                            or any("b1" in bookies_of(cluster, one) for one in ids)
                        )
                    ),
                )
            for one in auditing:
                one.cancel()
            await asyncio.gather(*auditing, return_exceptions=True)
            assert [await copies(client, one) for one in ids] == [PAYLOADS] * 4

    run_with_cluster(tmp_path, 4, steps)


# ── a disk that fills ─────────────────────────────────────────────────────────────────────────────────────


def test_a_disk_that_fills_during_a_copy_leaves_the_ledger_marked_until_another_bookie_takes_it(
    tmp_path: Path,
) -> None:
    async def steps(cluster: RunningCluster) -> None:
        async with cluster.client() as client:
            ledger_id = await closed(client)
            [segment] = (await metadata_of(cluster, ledger_id)).segments
            await cluster.start("b4")
            refused = 0

            def note() -> None:
                nonlocal refused
                refused += 1

            async def fill_after_some_entries() -> None:
                while not cluster.stores["b4"].bookie.has_entries(ledger_id):
                    await asyncio.sleep(0)
                AsyncEngine(cluster.stores["b4"]).refuse_for_space(note)

            filling = asyncio.ensure_future(fill_after_some_entries())
            await lose(cluster, segment.bookies[0])
            few = replace(FAST, copying=replace(FAST.copying, entries_ahead=1))
            async with recovering(cluster, few):
                await filling
                # More often than entries are left, because a repair ends with the first that is refused.
                while refused < len(PAYLOADS):
                    await asyncio.sleep(0)
                assert bookies_of(cluster, ledger_id) == set(segment.bookies)
                assert marks_of(cluster) > 0
                await cluster.start("b5")
                await changes_until(cluster, lambda: not (marks_of(cluster) or locks_of(cluster)))
            assert bookies_of(cluster, ledger_id) == {*segment.bookies[1:], "b5"}
            assert await copies(client, ledger_id) == PAYLOADS

    run_with_cluster(tmp_path, 3, steps)


# ── metadata that are slow, gone, or switched off ─────────────────────────────────────────────────────────


async def nothing(*_: object) -> None:
    """Disturb nothing."""


async def be_slow(*_: object) -> None:
    """Answer after everything else that can happen has happened."""
    for _pass in range(200):
        await asyncio.sleep(0)


async def disconnect(_: RunningCluster, session: MemoryZnodes) -> None:
    """Lose the next calls: every other write takes place."""
    session.lose_reads(3)
    session.lose(Loss.DONE)
    session.lose(Loss.NOT_DONE, after=1)


async def expire(_: RunningCluster, session: MemoryZnodes) -> None:
    session.expire()


async def disable(cluster: RunningCluster, _: MemoryZnodes) -> asyncio.Task[None]:
    """Disable auto-recovery, and enable it when nothing changes any more."""
    await underreplication.disable(cluster.znodes, ROOT)
    return asyncio.get_running_loop().create_task(_enable_later(cluster))


async def _enable_later(cluster: RunningCluster) -> None:
    await changes_until(cluster, lambda: not locks_of(cluster))
    # What was under way is written: a mark with its parents, the end of a repair.
    for _ in range(100):
        await asyncio.sleep(0)
    before = cluster.server.tree.zxid
    for _ in range(200):
        await asyncio.sleep(0)
    is_unchanged = cluster.server.tree.zxid == before
    await underreplication.enable(cluster.znodes, ROOT)
    assert is_unchanged, "something was written although it is disabled"


async def repaired(cluster: RunningCluster, client: AsyncCluster, disturb: Disturb, at: int) -> int:
    """Let a service repair a ledger, and disturb the call of that number. Return how many calls it took."""
    ledger_id = await closed(client)
    victim = min(bookies_of(cluster, ledger_id))
    await cluster.withdraw(victim)
    calls, after = 0, None

    @asynccontextmanager
    async def connect() -> AsyncIterator[Znodes]:
        session = cluster.server.session()

        async def before_call() -> None:
            nonlocal calls, after
            calls += 1
            if calls == at:
                after = await disturb(cluster, session)

        session.before_call = before_call
        try:
            yield session
        finally:
            session.expire()

    service = AutoRecovery(connect, ROOT, PATHS.tree, "recovery-1", FAST, OPTIONS)
    running = asyncio.ensure_future(service.run())
    disabled = underreplication.disable_path(ROOT)
    await changes_until(
        cluster,
        lambda: (
            victim not in bookies_of(cluster, ledger_id)
            # Empty inner nodes of marks may stay when an answer is lost.
            and not any("/urL" in path for path in cluster.server.paths())
            and disabled not in cluster.server.paths()
            and (disturb is not disable or calls < at or after is not None)
        ),
    )
    took, at = calls, 0  # nothing is disturbed from now on
    if after is not None:
        await after
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await cluster.advertise(victim, cluster.ports[victim])
    assert await copies(client, ledger_id) == PAYLOADS
    await client.delete(ledger_id)
    return took


DISTURBANCES = (be_slow, disconnect, expire, disable)


@pytest.fixture
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service begins again at once, and looks again soon."""
    monkeypatch.setattr("recovery.autorecovery.service._PAUSE_S", 0.0)
    monkeypatch.setattr("recovery.autorecovery.auditor._RETRY_S", 0.0)
    monkeypatch.setattr("recovery.autorecovery.worker._LOOK_S", 0.01)
    monkeypatch.setattr("recovery.autorecovery.worker._SOON_S", 0.0)


@pytest.mark.usefixtures("_no_pauses")
@pytest.mark.parametrize("disturb", DISTURBANCES, ids=lambda one: one.__name__)
def test_a_disturbance_at_some_call_to_the_metadata_delays_a_repair(tmp_path: Path, disturb: Disturb) -> None:
    async def steps(cluster: RunningCluster) -> None:
        async with cluster.client() as client:
            for at in (5, 40):
                assert await repaired(cluster, client, disturb, at) > at

    run_with_cluster(tmp_path, 4, steps)


@pytest.mark.slow(60)
@pytest.mark.usefixtures("_no_pauses")
@pytest.mark.parametrize("disturb", DISTURBANCES, ids=lambda one: one.__name__)
def test_a_disturbance_at_any_call_to_the_metadata_delays_a_repair(tmp_path: Path, disturb: Disturb) -> None:
    async def steps(cluster: RunningCluster) -> None:
        async with cluster.client() as client:
            calls = await repaired(cluster, client, nothing, 0)
            for at in range(1, calls + 1):
                await repaired(cluster, client, disturb, at)
            assert calls > 50

    run_with_cluster(tmp_path, 4, steps)
