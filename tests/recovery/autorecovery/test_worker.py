"""The locks of a worker whose calls to the metadata do not end well."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from example_cluster import ROOT
from recovering_cluster import FAST, PATHS, changes_until, locks_of, lose, marks_of, metadata_of
from running_cluster import RunningCluster, run_with_cluster

from recovery.autorecovery.worker import ReplicationWorker
from storage.cluster.client.distribution import Quorums
from storage.cluster.errors import MetadataUnavailable
from storage.cluster.metadata import ledger, registration, underreplication
from storage.cluster.metadata.ledger import ClusterLedgerMetadata, ClusterLedgerState
from storage.cluster.metadata.update import create_node
from storage.cluster.metadata.znodes import Gone

if TYPE_CHECKING:
    from pathlib import Path

    from storage.cluster.metadata.registration import Bookies
    from storage.cluster.metadata.znodes import SetAnswer, Znodes

LEDGER = 999
"""It has no metadata, so that its repair only deletes its mark."""


async def mark(cluster: RunningCluster) -> None:
    await underreplication.prepare(cluster.znodes, ROOT)
    await underreplication.mark_ledger(cluster.znodes, ROOT, LEDGER, ["b1"], 1)


async def repair_all(cluster: RunningCluster, worker: ReplicationWorker) -> None:
    """Run a worker until nothing is marked or locked."""
    running = asyncio.ensure_future(worker.run())
    await changes_until(cluster, lambda: running.done() or not (marks_of(cluster) or locks_of(cluster)))
    await cancel(running)


async def cancel(running: asyncio.Future[None]) -> None:
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_a_lock_that_was_asked_for_by_a_repair_that_was_cancelled_is_deleted_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps(cluster: RunningCluster) -> None:
        await mark(cluster)
        session, is_locked = cluster.server.session(), asyncio.Event()
        create = session.create

        async def create_and_wait(path: str, *arguments: Any) -> object:
            answer = await create(path, *arguments)
            if "/locks/" in path and not is_locked.is_set():
                is_locked.set()
                await asyncio.Event().wait()  # the answer does not come before the caller is cancelled
            return answer

        monkeypatch.setattr(session, "create", create_and_wait)
        async with cluster.client() as client:
            worker = ReplicationWorker(session, ROOT, client, "worker", FAST)
            running = asyncio.ensure_future(worker.run())
            await is_locked.wait()
            await cancel(running)
            assert locks_of(cluster)
            await repair_all(cluster, worker)

    run_with_cluster(tmp_path, 1, steps)


def test_a_worker_looks_for_further_marks_soon_after_a_repair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An audit marks thousands of ledgers, and the watch of the tree's top shows the first one only."""
    monkeypatch.setattr("recovery.autorecovery.worker._LOOK_S", 3600.0)

    async def steps(cluster: RunningCluster) -> None:
        await mark(cluster)
        # This node stays when the marks beside it are deleted.
        await create_node(cluster.znodes, f"{underreplication.mark_path(ROOT, LEDGER)}-other")
        async with cluster.client() as client:
            worker = ReplicationWorker(cluster.server.session(), ROOT, client, "worker", FAST)
            running = asyncio.ensure_future(worker.run())
            path = underreplication.mark_path(ROOT, LEDGER)
            for _ in range(3):
                await changes_until(cluster, lambda: running.done() or path not in cluster.server.paths())
                assert not running.done()
                await mark(cluster)
            await cancel(running)

    run_with_cluster(tmp_path, 1, steps)


def test_a_lock_that_could_not_be_deleted_is_deleted_when_the_connection_is_back(tmp_path: Path) -> None:
    async def steps(cluster: RunningCluster) -> None:
        await mark(cluster)
        session = cluster.server.session()

        async def lose_connection() -> None:
            session.lose_reads(2)  # the look at the lock's owner, twice

        async def await_the_next() -> None:
            session.before_write = lose_connection

        session.before_write = await_the_next  # the first write is the lock, the second one deletes the mark
        async with cluster.client() as client:
            worker = ReplicationWorker(session, ROOT, client, "worker", FAST)
            with pytest.raises(ExceptionGroup):
                await worker.run()
            assert locks_of(cluster)
            await mark(cluster)
            await repair_all(cluster, worker)

    run_with_cluster(tmp_path, 1, steps)


def test_a_repair_that_is_cancelled_before_its_first_step_keeps_neither_its_turn_nor_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second ledger cannot be locked, because there is no connection, when the first one just was."""

    async def steps(cluster: RunningCluster) -> None:
        await mark(cluster)
        await underreplication.mark_ledger(cluster.znodes, ROOT, LEDGER + 1, ["b1"], 1)
        session, gets = cluster.server.session(), 0
        get = session.get

        async def get_or_fail(path: str) -> object:
            nonlocal gets
            gets += "/urL" in path
            if gets == 3:  # the mark of the first ledger is read before and after its lock
                gets += 1
                raise MetadataUnavailable("there is no connection")
            return await get(path)

        monkeypatch.setattr(session, "get", get_or_fail)
        async with cluster.client() as client:
            worker = ReplicationWorker(session, ROOT, client, "worker", FAST)
            with pytest.raises(ExceptionGroup):
                await worker.run()
            assert len(locks_of(cluster)) == 1
            await asyncio.wait_for(repair_all(cluster, worker), 10)

    run_with_cluster(tmp_path, 1, steps)


# ── the recovery of a ledger whose writer has not moved ───────────────────────────────────────────────────


def test_a_mark_names_the_bookies_of_a_recovery_before_the_metadata_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that dies after the close has told another one which copies have to be read."""

    async def steps(cluster: RunningCluster) -> None:
        await underreplication.prepare(cluster.znodes, ROOT)
        session = cluster.server.session()
        write, suspects, named = session.set, set[str](), set[str]()
        async with cluster.client() as client:
            writer = await client.create(Quorums(3, 3, 2))
            await writer.append(b"the recovery adds it again")
            lost = writer.metadata.segments[-1].bookies[0]
            await lose(cluster, lost)
            await underreplication.mark_ledger(cluster.znodes, ROOT, writer.id, [lost], 1)

            async def look_and_write(path: str, data: bytes, version: int = -1) -> SetAnswer:
                written = ledger.decode(data) if path == PATHS.path_of(writer.id) else None
                if isinstance(written, ClusterLedgerMetadata) and written.is_closed and not named:
                    named.update(bookie for one in written.segments for bookie in one.bookies)
                    mark = await underreplication.read_mark(cluster.znodes, ROOT, writer.id)
                    assert not isinstance(mark, Gone)
                    suspects.update(mark.replicas)
                return await write(path, data, version)

            monkeypatch.setattr(session, "set", look_and_write)
            async with cluster.client_of(session) as own:
                await repair_all(cluster, ReplicationWorker(session, ROOT, own, "worker", FAST))
            assert (await metadata_of(cluster, writer.id)).is_closed
            writer.abandon()
        assert len(named) == 3, "the recovery has replaced the lost bookie"
        assert named <= suspects

    run_with_cluster(tmp_path, 4, steps)


def test_a_writer_whose_bookie_comes_back_while_its_ledger_is_checked_is_not_fenced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, looks = registration.read_newest_bookies, 0

    async def steps(cluster: RunningCluster) -> None:
        await underreplication.prepare(cluster.znodes, ROOT)
        async with cluster.client() as client:
            writer = await client.create(Quorums(3, 2, 2))
            await writer.append(b"before")
            lost = writer.metadata.segments[-1].bookies[0]
            await cluster.withdraw(lost)

            async def come_back_after_the_look(znodes: Znodes, root: str) -> Bookies:
                nonlocal looks
                found = await read(znodes, root)
                looks += 1
                if looks == 1:
                    await cluster.advertise(lost, cluster.ports[lost])
                return found

            monkeypatch.setattr(registration, "read_newest_bookies", come_back_after_the_look)
            await underreplication.mark_ledger(cluster.znodes, ROOT, writer.id, [lost], 1)
            worker = ReplicationWorker(cluster.server.session(), ROOT, client, "worker", FAST)
            running = asyncio.ensure_future(worker.run())
            await changes_until(cluster, lambda: looks > 3 or not marks_of(cluster))
            await cancel(running)
            assert (await metadata_of(cluster, writer.id)).state is ClusterLedgerState.OPEN
            await writer.append(b"after")
            await writer.close()

    run_with_cluster(tmp_path, 3, steps)
