"""Topics of a cluster for threads, and for coroutines by the client's own method."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cluster_in_a_thread import cluster_in_a_thread
from running_cluster import run_with_cluster

from storage.cluster import connect
from storage.cluster.client.distribution import Quorums
from storage.cluster.errors import ClientClosed
from storage.cluster.topics.policies import RollOver
from storage.cluster.topics.producer import Batching

if TYPE_CHECKING:
    from pathlib import Path

    from running_cluster import RunningCluster

QUORUMS = Quorums(2, 2, 2)


def test_threads_write_a_topic_of_a_cluster_and_another_client_goes_on(tmp_path: Path) -> None:
    with cluster_in_a_thread(tmp_path, 2) as address:
        with connect(address) as cluster, cluster.topic("t/n/orders", QUORUMS) as topic:
            first = topic.send(b"one")
            with topic.producer("p", Batching(count=2, delay_s=60)) as producer:
                sent = [producer.submit(b"%d" % number) for number in range(4)]
            assert [one.result() for one in sent] == sorted(one.result() for one in sent)  # type: ignore[type-var]
        with connect(address) as cluster, cluster.topic("t/n/orders", QUORUMS) as topic:
            assert topic.producer("p").last_sequence_id == 3
            assert topic.send(b"five") > first
            assert [one.entries for one in topic.stats().ledgers] == [3, 1]
            assert len(cluster.ledgers()) == 2


def test_a_topic_whose_client_is_closed_fails_at_once_and_is_recovered_later(tmp_path: Path) -> None:
    async def steps(cluster: RunningCluster) -> None:
        async with cluster.client() as client:
            topic = client.topic("orders", QUORUMS, roll_over=RollOver(entries=5))
            await topic.send(b"one")
            producer = await topic.producer(batch=Batching(delay_s=3600))
            waiting = await producer.submit(b"never written")
        await producer.flush()
        with pytest.raises(ClientClosed):
            await waiting
        async with cluster.client() as client, client.topic("orders", QUORUMS) as topic:
            await topic.send(b"two")
            assert [one.entries for one in (await topic.stats()).ledgers] == [1, 1]

    run_with_cluster(tmp_path, 2, steps)
