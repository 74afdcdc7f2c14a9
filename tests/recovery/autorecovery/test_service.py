"""Auto-recovery on running bookies: a lost bookie's entries are copied, and the marks go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovering_cluster import changes_until, locks_of, lose, marks_of, metadata_of, recovering
from running_cluster import RunningCluster, run_with_cluster

from storage.cluster.client.distribution import Quorums

if TYPE_CHECKING:
    from pathlib import Path

PAYLOADS = [b"payload %d" % number for number in range(20)]


def bookies_of(cluster: RunningCluster) -> set[str]:
    return set(cluster.ports)


def test_a_lost_bookie_is_replaced_and_its_marks_go(tmp_path: Path) -> None:
    async def steps(cluster: RunningCluster) -> None:
        async with cluster.client() as client:
            writer = await client.create(Quorums(3, 2, 2))
            await writer.append_many(PAYLOADS)
            await writer.close()
            lost = (await client.metadata(writer.id)).segments[0].bookies[0]
            await lose(cluster, lost)
            async with recovering(cluster):
                await changes_until(cluster, lambda: marks_of(cluster) > 0)
                await changes_until(cluster, lambda: marks_of(cluster) == 0 and not locks_of(cluster))
            [segment] = (await metadata_of(cluster, writer.id)).segments
            assert lost not in segment.bookies
            assert len(set(segment.bookies)) == 3
            assert [one async for one in (await client.view(writer.id)).payloads()] == PAYLOADS

    run_with_cluster(tmp_path, 4, steps)
