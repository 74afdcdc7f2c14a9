"""An auditor, and bookies that come and go while it audits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from example_cluster import ROOT
from memory_znodes import Loss
from recovering_cluster import FAST, PATHS, changes_until, lose
from running_cluster import RunningCluster, run_with_cluster

from recovery.autorecovery import audits
from recovery.autorecovery.auditor import Auditor
from storage.cluster.client.distribution import Quorums
from storage.cluster.metadata import underreplication

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    import pytest

    from storage.cluster.metadata.paths import LedgerPaths
    from storage.cluster.metadata.znodes import Znodes

PASSES = 2
"""In so many passes the bookie is there for a moment. The first may begin before its loss is known."""


def test_a_bookie_that_is_there_for_a_moment_during_an_audit_is_audited_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def steps(cluster: RunningCluster) -> None:
        read_chunks, passes = audits.read_chunks, 0

        async def chunks_of_one(
            znodes: Znodes, paths: LedgerPaths, unreadable: Callable[[audits.Flaw], None]
        ) -> AsyncIterator[list[audits.LedgerOfCluster]]:
            nonlocal passes
            passes += 1
            ledgers = [one async for chunk in read_chunks(znodes, paths, unreadable) for one in chunk]
            for number, one in enumerate(ledgers):
                is_there = passes <= PASSES and number == 0
                if is_there:
                    await cluster.advertise("b1", 1)
                yield [one]
                if is_there:
                    await cluster.withdraw("b1")

        monkeypatch.setattr(audits, "read_chunks", chunks_of_one)
        async with cluster.client() as client:
            ids = []
            for _ in range(2):
                async with await client.create(Quorums(2, 2, 2)) as writer:
                    ids.append(writer.id)
            await lose(cluster, "b1")
            session = cluster.server.session()
            await underreplication.prepare(session, ROOT)
            auditing = asyncio.ensure_future(Auditor(session, PATHS, client, "auditor", FAST).run())
            marks = {underreplication.mark_path(ROOT, one) for one in ids}
            await changes_until(cluster, lambda: auditing.done() or marks <= cluster.server.paths().keys())
            auditing.cancel()
            await asyncio.gather(auditing, return_exceptions=True)
            assert marks <= cluster.server.paths().keys()

    run_with_cluster(tmp_path, 2, steps)


def test_an_auditor_that_cannot_take_its_vote_back_ends_as_it_was_told(tmp_path: Path) -> None:
    async def steps(cluster: RunningCluster) -> None:
        session = cluster.server.session()
        await underreplication.prepare(session, ROOT)
        async with cluster.client() as client:
            auditing = asyncio.ensure_future(Auditor(session, PATHS, client, "auditor", FAST).run())
            delay = underreplication.delay_path(ROOT)
            await changes_until(cluster, lambda: delay in cluster.server.paths())
            session.lose(Loss.NOT_DONE)
            session.lose_reads(2)
            auditing.cancel()
            await asyncio.wait((auditing,))
            assert auditing.cancelled()

    run_with_cluster(tmp_path, 1, steps)
