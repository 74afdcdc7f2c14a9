"""Auto-recovery on running bookies: what is marked, copied, recovered, left alone and given up."""

from __future__ import annotations

import asyncio
import gc
import logging
import shutil
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from certificates import CertificateAuthority
from example_cluster import ROOT, info
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

from recovery.autorecovery.progress import WorkerProgress, decode
from recovery.autorecovery.service import AutoRecovery
from storage.cluster.bookie.access import AccessPolicy, Channels
from storage.cluster.client.distribution import Quorums
from storage.cluster.metadata import underreplication
from storage.cluster.metadata.election import read_auditor
from storage.cluster.metadata.ledger import ClusterLedgerState
from storage.cluster.metadata.registration import BookieMode, register
from storage.cluster.metadata.underreplication import CheckKind
from storage.cluster.metadata.update import create_node
from storage.cluster.tls import ClientCertificates, ClientTls, TlsConfig, client_context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest
    from memory_znodes import MemoryZnodes

    from storage.cluster.client.async_writer import AsyncLedgerWriter
    from storage.cluster.client.cluster import AsyncCluster
    from storage.cluster.metadata.znodes import Znodes

USUAL = Quorums(3, 2, 2)
PAYLOADS = [b"payload %d" % number for number in range(20)]


async def written(client: AsyncCluster, quorums: Quorums = USUAL) -> AsyncLedgerWriter:
    """Return the writer of an open ledger with all payloads."""
    writer = await client.create(quorums)
    await writer.append_many(PAYLOADS)
    return writer


async def closed(client: AsyncCluster, quorums: Quorums = USUAL) -> int:
    writer = await written(client, quorums)
    await writer.close()
    return writer.id


async def wipe(cluster: RunningCluster, path: Path, bookie: str) -> None:
    """Let a bookie come back empty, under its name."""
    await cluster.stop(bookie)
    shutil.rmtree(path / bookie)
    await cluster.start(bookie)


async def mark(cluster: RunningCluster, ledger_id: int, *bookies: str) -> None:
    await underreplication.prepare(cluster.znodes, ROOT)
    await underreplication.mark_ledger(cluster.znodes, ROOT, ledger_id, bookies, 1)


async def until_repaired(cluster: RunningCluster) -> None:
    await changes_until(cluster, lambda: marks_of(cluster) == 0 and not locks_of(cluster))


async def copies(client: AsyncCluster, ledger_id: int) -> list[bytes]:
    return [one async for one in (await client.view(ledger_id)).payloads()]


def test_bookies_that_require_tls_and_certificates_are_repaired(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path / "certificates")
    own, worker = authority.certificate("bookie"), authority.certificate("worker")
    served = TlsConfig(str(own.key), str(own.certificate), str(own.authority), ClientCertificates.REQUIRED)
    shown = ClientTls(str(worker.authority), str(worker.certificate), str(worker.key))

    async def steps(cluster: RunningCluster) -> None:
        for number in range(1, 5):
            await cluster.start(f"b{number}", AccessPolicy(Channels.TLS_ONLY), served)
        async with cluster.client(tls=shown) as client:
            ledger_id = await closed(client)
            victim = (await metadata_of(cluster, ledger_id)).segments[0].bookies[0]
            await lose(cluster, victim)
            async with recovering(cluster, options=replace(OPTIONS, tls=client_context(shown))):
                await changes_until(cluster, lambda: marks_of(cluster) > 0)
                await until_repaired(cluster)
            assert victim not in (await metadata_of(cluster, ledger_id)).segments[0].bookies
            assert await copies(client, ledger_id) == PAYLOADS

    run_with_cluster(tmp_path, 0, steps)


def test_a_worker_publishes_what_it_has_copied_and_why_a_ledger_is_stuck(tmp_path: Path) -> None:
    async def steps(cluster: RunningCluster) -> None:
        async with cluster.client() as client:
            whole, alone = await closed(client), await closed(client, Quorums(1, 1, 1))
            victim = (await metadata_of(cluster, alone)).segments[0].bookies[0]
            await mark(cluster, whole, "b1")
            await mark(cluster, alone, victim)
            await lose(cluster, victim)
            async with recovering(cluster, replace(FAST, progress_interval_s=0.01)):

                def published() -> list[WorkerProgress]:
                    nodes = cluster.server.paths()
                    found = [decode(data) for path, data in nodes.items() if "/progress/" in path]
                    return [one for one in found if one is not None and one.stuck and one.repaired]

                await changes_until(cluster, lambda: bool(published()))
                [worker] = published()
            assert worker.name == "recovery-1"
            [stuck] = worker.stuck
            assert (stuck.ledger_id, stuck.pause_s) == (alone, None)
            assert "no registered bookie has a good copy" in stuck.reason
            copied = sum(len(one) for one in PAYLOADS) if worker.entries else 0
            assert worker.size >= copied

    run_with_cluster(tmp_path, 4, steps)


def test_a_lost_bookie_is_replaced_and_its_marks_go(tmp_path: Path) -> None:
    async def steps(cluster: RunningCluster) -> None:
        async with cluster.client() as client:
            ledger_id = await closed(client)
            lost = (await client.metadata(ledger_id)).segments[0].bookies[0]
            await lose(cluster, lost)
            async with recovering(cluster):
                await changes_until(cluster, lambda: marks_of(cluster) > 0)
                await until_repaired(cluster)
            [segment] = (await metadata_of(cluster, ledger_id)).segments
            assert lost not in segment.bookies
            assert len(set(segment.bookies)) == 3
            assert await copies(client, ledger_id) == PAYLOADS

    run_with_cluster(tmp_path, 4, steps)


def test_an_open_ledger_is_recovered_after_the_grace_if_its_writer_has_not_moved(tmp_path: Path) -> None:
    async def steps(cluster: RunningCluster) -> None:
        async with cluster.client() as client:
            writer = await written(client)
            ledger_id = writer.id
            lost = writer.metadata.segments[-1].bookies[0]
            await lose(cluster, lost)
            async with recovering(cluster):
                await changes_until(cluster, lambda: marks_of(cluster) > 0)
                await until_repaired(cluster)
            metadata = await metadata_of(cluster, ledger_id)
            assert metadata.state is ClusterLedgerState.CLOSED
            assert all(lost not in segment.bookies for segment in metadata.segments)
            assert await copies(client, ledger_id) == PAYLOADS
            writer.abandon()

    run_with_cluster(tmp_path, 4, steps)


def test_a_writer_at_a_read_only_bookie_is_not_fenced(tmp_path: Path) -> None:
    async def steps(cluster: RunningCluster) -> None:
        async with cluster.client() as client:
            writer = await written(client)
            bookie = writer.metadata.segments[-1].bookies[0]
            await register(cluster.znodes, ROOT, bookie, info(cluster.ports[bookie]), BookieMode.READ_ONLY, 1)
            await mark(cluster, writer.id, bookie)
            async with recovering(cluster):
                await until_repaired(cluster)
                assert (await metadata_of(cluster, writer.id)).state is ClusterLedgerState.OPEN
            await writer.close()

    run_with_cluster(tmp_path, 3, steps)


def test_while_it_is_disabled_nothing_is_marked_or_repaired(tmp_path: Path) -> None:
    async def steps(cluster: RunningCluster) -> None:
        async with cluster.client() as client:
            ledger_id = await closed(client)
            [segment] = (await metadata_of(cluster, ledger_id)).segments
            await mark(cluster, ledger_id, segment.bookies[0])
            await underreplication.disable(cluster.znodes, ROOT)
            await lose(cluster, segment.bookies[0])
            async with recovering(cluster):
                # The auditor is elected, and the worker has read the switch.
                await changes_until(
                    cluster, lambda: any("auditorelection/V_" in one for one in cluster.server.paths())
                )
                for _ in range(50):
                    await asyncio.sleep(0)
                found = await underreplication.read_mark(cluster.znodes, ROOT, ledger_id)
                assert isinstance(found, underreplication.UnderreplicationMark)
                assert (found.version, locks_of(cluster)) == (0, [])
                await underreplication.enable(cluster.znodes, ROOT)
                await until_repaired(cluster)
            assert segment.bookies[0] not in (await metadata_of(cluster, ledger_id)).segments[0].bookies

    run_with_cluster(tmp_path, 4, steps)


def test_marks_of_ledgers_that_are_gone_are_deleted_and_junk_is_passed_over(tmp_path: Path) -> None:
    async def steps(cluster: RunningCluster) -> None:
        async with cluster.client() as client:
            ledger_id = await closed(client)
            await mark(cluster, ledger_id, "b1")
            await mark(cluster, 999, "b1")
            junk = underreplication.mark_path(ROOT, 1000)
            await create_node(cluster.znodes, junk, b"junk")

            def marked() -> list[str]:
                return [one for one in cluster.server.paths() if "/urL" in one]

            async with recovering(cluster):
                await changes_until(cluster, lambda: len(marked()) == 1 and not locks_of(cluster))
            assert marked() == [junk]

    run_with_cluster(tmp_path, 3, steps)


def test_a_lost_ledger_is_reported_once_and_does_not_hold_up_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ledgerstore.autorecovery")

    async def steps(cluster: RunningCluster) -> None:
        async with cluster.client() as client:
            lost_id = await closed(client, Quorums(1, 1, 1))
            [segment] = (await metadata_of(cluster, lost_id)).segments
            [bookie] = segment.bookies
            other_id = await closed(client)
            await wipe(cluster, tmp_path, bookie)
            await mark(cluster, lost_id, bookie)
            await mark(cluster, other_id, "b1")
            path = underreplication.mark_path(ROOT, lost_id)
            async with recovering(cluster):
                await changes_until(
                    cluster,
                    lambda: (
                        not locks_of(cluster)
                        and [one for one in cluster.server.paths() if "/urL" in one] == [path]
                        and any("cannot be repaired" in one.getMessage() for one in caplog.records)
                    ),
                )
                # The mark of a third ledger lets the worker look through all marks again.
                await mark(cluster, 999, "b1")
                await changes_until(
                    cluster, lambda: len([1 for one in cluster.server.paths() if "/urL" in one]) == 1
                )
        reports = [one for one in caplog.records if one.levelno >= logging.ERROR]
        assert len(reports) == 1

    run_with_cluster(tmp_path, 3, steps)


def test_two_services_have_one_auditor_and_the_other_takes_over(tmp_path: Path) -> None:
    async def steps(cluster: RunningCluster) -> None:
        def votes() -> int:
            return sum("auditorelection/V_" in one for one in cluster.server.paths())

        async with AsyncExitStack() as first:
            await first.enter_async_context(recovering(cluster, name="first"))
            await changes_until(cluster, lambda: votes() == 1)
            async with recovering(cluster, name="second"):
                await changes_until(cluster, lambda: votes() == 2)
                assert await read_auditor(cluster.znodes, ROOT) == "first"
                await first.aclose()
                assert await read_auditor(cluster.znodes, ROOT) == "second"

    run_with_cluster(tmp_path, 1, steps)


def test_a_check_finds_a_wiped_bookie_which_is_filled_again_in_place_and_stores_its_time(
    tmp_path: Path,
) -> None:
    config = replace(FAST, entry_check_interval_s=1e6)

    async def steps(cluster: RunningCluster) -> None:
        async with cluster.client() as client:
            ledger_id = await closed(client)
            [segment] = (await metadata_of(cluster, ledger_id)).segments
            await wipe(cluster, tmp_path, segment.bookies[0])
            async with recovering(cluster, config):
                await changes_until(cluster, lambda: marks_of(cluster) > 0)
                await until_repaired(cluster)
                checked = f"{underreplication.base_path(ROOT)}/{CheckKind.REPLICAS.node}"
                await changes_until(cluster, lambda: checked in cluster.server.paths())
            assert (await metadata_of(cluster, ledger_id)).segments == (segment,)
            await lose(cluster, segment.bookies[1])
            assert await copies(client, ledger_id) == PAYLOADS

    run_with_cluster(tmp_path, 3, steps)


def test_a_service_that_is_stopped_in_the_moment_its_session_ends_stops(tmp_path: Path) -> None:
    async def steps(cluster: RunningCluster) -> None:
        sessions: list[MemoryZnodes] = []

        @asynccontextmanager
        async def connect() -> AsyncIterator[Znodes]:
            sessions.append(cluster.server.session())
            yield sessions[-1]

        service = AutoRecovery(connect, ROOT, PATHS.tree, "recovery-1", FAST, OPTIONS)
        running = asyncio.ensure_future(service.run())
        await changes_until(
            cluster, lambda: any("lostBookieRecoveryDelay" in one for one in cluster.server.paths())
        )
        for _ in range(50):
            await asyncio.sleep(0)
        sessions[0].expire()  # the watches of the auditor notice it in the next pass of the loop
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait_for(asyncio.wait((running,)), 5)
        assert running.cancelled()

    run_with_cluster(tmp_path, 1, steps)


def test_a_session_that_ends_leaves_no_error_that_nothing_asks_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recovery.autorecovery.service._PAUSE_S", 0.0)

    async def steps(cluster: RunningCluster) -> None:
        sessions: list[MemoryZnodes] = []

        @asynccontextmanager
        async def connect() -> AsyncIterator[Znodes]:
            sessions.append(cluster.server.session())
            yield sessions[-1]

        def votes() -> list[str]:
            return [one for one in cluster.server.paths() if "auditorelection/V_" in one]

        running = asyncio.ensure_future(AutoRecovery(connect, ROOT, PATHS.tree, "name", FAST, OPTIONS).run())
        for number in range(3):
            await changes_until(cluster, lambda: bool(votes()))
            for _ in range(10 * number):
                await asyncio.sleep(0)
            sessions[-1].expire()
            await changes_until(cluster, lambda: bool(votes()))
        running.cancel()
        await asyncio.wait((running,))

    run_with_cluster(tmp_path, 1, steps)
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []
