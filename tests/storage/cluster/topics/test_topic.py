"""A topic on a running cluster: produce, roll over, take over, trim."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from running_cluster import run_with_cluster

from storage.cluster.client.distribution import Quorums
from storage.cluster.topics.cluster_ledgers import ClusterLedgers
from storage.cluster.topics.errors import (
    LedgerMissing,
    MessageOutcomeUnknown,
    MessageTooLarge,
    ProducerExists,
    SequenceNotAscending,
    TopicClosed,
    TopicFenced,
)
from storage.cluster.topics.format import decode_entry
from storage.cluster.topics.managed_ledger import TopicName
from storage.cluster.topics.message import Message
from storage.cluster.topics.message_id import EARLIEST, MessageId
from storage.cluster.topics.policies import MissingLedgers, Retention, RollOver
from storage.cluster.topics.producer import Batching
from storage.cluster.topics.topic import AsyncTopic

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from running_cluster import RunningCluster

    from storage.cluster.client.cluster import AsyncCluster

NAME = TopicName.parse("public/default/orders")


def topic_of(client: AsyncCluster, **options: object) -> AsyncTopic:
    return AsyncTopic(ClusterLedgers(client, Quorums(2, 2, 2)), NAME, **options)  # type: ignore[arg-type]


@asynccontextmanager
async def topic_on(cluster: RunningCluster, **options: object) -> AsyncIterator[AsyncTopic]:
    """Open the topic with a client of its own, and close it."""
    async with cluster.client() as client, topic_of(client, **options) as topic:
        yield topic


async def payloads_of(client: AsyncCluster) -> list[bytes]:
    """Return the payloads of all messages, in their order."""
    topic = topic_of(client)
    found = []
    for one in await topic.ledgers():
        reader = await client.view(one.ledger_id)
        if reader.metadata.is_closed:
            async for entry in reader.entries():
                messages = decode_entry(entry.payload, str(NAME), one.ledger_id, entry.entry_id).messages
                found += [message.payload for message in messages]
    return found


def test_messages_get_ids_in_their_order(tmp_path: Path) -> None:
    async def steps(cluster: RunningCluster) -> None:
        async with topic_on(cluster) as topic:
            first, second = await topic.send(b"one"), await topic.send(b"two")
            batch = await topic.send_many([b"three", b"four"])
            (ledger,) = await topic.ledgers()
        assert [first, second] == [MessageId(ledger.ledger_id, 0), MessageId(ledger.ledger_id, 1)]
        assert batch == [MessageId(ledger.ledger_id, 2, -1, 0), MessageId(ledger.ledger_id, 2, -1, 1)]
        async with cluster.client() as client:
            assert await payloads_of(client) == [b"one", b"two", b"three", b"four"]

    run_with_cluster(tmp_path, 2, steps)


def test_a_full_ledger_is_followed_by_the_next_one(tmp_path: Path) -> None:
    async def steps(cluster: RunningCluster) -> None:
        async with topic_on(cluster, roll_over=RollOver(entries=3)) as topic:
            producer = await topic.producer()
            sent = [await producer.submit(b"%d" % number) for number in range(10)]
            ids = [await one for one in sent]
            assert ids == sorted(ids)  # type: ignore[type-var]
            infos = (await topic.stats()).ledgers
            assert [one.entries for one in infos] == [3, 3, 3, 1]
            assert all(one.timestamp_ms for one in infos[:-1])
        async with cluster.client() as client:
            assert await payloads_of(client) == [b"%d" % number for number in range(10)]

    run_with_cluster(tmp_path, 2, steps)


def test_an_owner_takes_over_and_the_first_one_learns_it(tmp_path: Path) -> None:
    async def steps(cluster: RunningCluster) -> None:
        async with cluster.client() as first_client, cluster.client() as second_client:
            first = topic_of(first_client)
            await first.send(b"acknowledged")
            second = topic_of(second_client)
            await second.send(b"of the second")
            with pytest.raises((TopicFenced, MessageOutcomeUnknown)):
                await first.send(b"lost")
            with pytest.raises(TopicFenced):
                await first.send(b"lost")
            with pytest.raises(TopicFenced):
                await first.close()
            await second.close()
            assert await payloads_of(second_client) == [b"acknowledged", b"of the second"]

    run_with_cluster(tmp_path, 2, steps)


def test_a_topic_whose_owner_was_killed_goes_on(tmp_path: Path) -> None:
    async def steps(cluster: RunningCluster) -> None:
        async with cluster.client() as client:
            await topic_of(client).send(b"before")  # never closed
        async with topic_on(cluster) as topic:
            after = await topic.send(b"after")
            closed, current = await topic.ledgers()
            assert (closed.entries, bool(closed.timestamp_ms)) == (1, True)
            assert after.ledger_id == current.ledger_id
        async with cluster.client() as client:
            assert await payloads_of(client) == [b"before", b"after"]

    run_with_cluster(tmp_path, 2, steps)


def test_an_empty_ledger_leaves_the_list_and_is_deleted(tmp_path: Path) -> None:
    async def steps(cluster: RunningCluster) -> None:
        async with topic_on(cluster) as topic:
            await topic.take_over()
            assert len(await topic.ledgers()) == 1
        async with cluster.client() as client:
            assert await topic_of(client).ledgers() == ()
            assert [one async for one in client.ledgers()] == []

    run_with_cluster(tmp_path, 2, steps)


def test_a_trim_deletes_the_ledgers_before_the_current_one(tmp_path: Path) -> None:
    async def steps(cluster: RunningCluster) -> None:
        options = {"roll_over": RollOver(entries=1), "retention": Retention(0, 0)}
        async with topic_on(cluster, **options) as topic:
            ids = [await topic.send(b"one"), await topic.send(b"two")]
            assert await topic.trim() == tuple(one.ledger_id for one in ids)
            async with cluster.client() as client:
                left = [one.ledger_id for one in await topic.ledgers()]
                assert [one async for one in client.ledgers()] == left

    run_with_cluster(tmp_path, 2, steps)


def test_a_sweep_deletes_a_ledger_that_no_list_names(tmp_path: Path) -> None:
    async def steps(cluster: RunningCluster) -> None:
        async with cluster.client() as client, topic_of(client) as topic:
            ledgers = ClusterLedgers(client, Quorums(2, 2, 2))
            managed_name = "public/default/persistent/orders"
            leaked = await ledgers.create(managed_name)
            other = await ledgers.create("public/default/persistent/another")
            await topic.send(b"one")
            assert await topic.sweep() == [leaked.id]
            left = [one async for one in client.ledgers()]
            assert other.id in left
            assert leaked.id not in left
            await topic.send(b"two")

    run_with_cluster(tmp_path, 2, steps)


def test_a_sweep_deletes_the_ledgers_that_no_cursor_names_once_it_has_no_consumer(tmp_path: Path) -> None:
    async def steps(cluster: RunningCluster) -> None:
        async with cluster.client() as client, topic_of(client) as topic:
            ledgers = ClusterLedgers(client, Quorums(2, 2, 2))
            gone = await ledgers.create("public/default/persistent/orders", "gone")
            leaked = await ledgers.create("public/default/persistent/orders", "with+space")
            await topic.send_many([b"one", b"two"], Batching(count=2))
            async with await topic.subscription("with space", start=EARLIEST) as subscription:
                await subscription.ack(await subscription.receive())
                await subscription.save()  # a part of a batch, so that it has a ledger
                assert await topic.sweep() == [gone.id]
            assert await topic.sweep() == [leaked.id]
            async with await topic.subscription("with space") as subscription:
                assert (await subscription.receive()).payload == b"two"

    run_with_cluster(tmp_path, 2, steps)


def test_a_ledger_that_is_gone_is_named_and_skipped_on_request(tmp_path: Path) -> None:
    async def steps(cluster: RunningCluster) -> None:
        async with topic_on(cluster, roll_over=RollOver(entries=1)) as topic:
            gone, kept = await topic.send(b"gone"), await topic.send(b"kept")
        async with cluster.client() as client:
            await client.delete(gone.ledger_id)
            with pytest.raises(LedgerMissing, match=f"ledger {gone.ledger_id} is in the list of the topic"):
                await topic_of(client).take_over()
            async with topic_of(client, missing=MissingLedgers.SKIP) as topic:
                await topic.take_over()
                assert kept.ledger_id == (await topic.ledgers())[0].ledger_id

    run_with_cluster(tmp_path, 2, steps)


def test_a_batch_is_written_when_it_is_full_or_its_delay_is_over(tmp_path: Path) -> None:
    async def steps(cluster: RunningCluster) -> None:
        async with topic_on(cluster) as topic:
            by_count = await topic.producer(batch=Batching(count=2, delay_s=3600))
            sent = [await by_count.submit(b"%d" % number) for number in range(3)]
            assert [(await one).batch_index for one in sent[:2]] == [0, 1]  # type: ignore[union-attr]
            assert not sent[2].done()
            await by_count.flush()
            assert sent[2].result().batch_index == -1  # type: ignore[union-attr]
            by_size = await topic.producer(batch=Batching(size=10, delay_s=3600))
            sent = [await by_size.submit(b"12345") for _ in range(2)]
            assert [(await one).batch_index for one in sent] == [0, 1]  # type: ignore[union-attr]
            by_delay = await topic.producer(batch=Batching(delay_s=0.001))
            assert (await by_delay.send(b"alone")) is not None

    run_with_cluster(tmp_path, 2, steps)


def test_a_message_keeps_its_key_and_properties(tmp_path: Path) -> None:
    async def steps(cluster: RunningCluster) -> None:
        async with cluster.client() as client:
            async with topic_of(client) as topic:
                producer = await topic.producer("p")
                sent = await producer.send(Message(b"x", key="k", properties={"a": "b"}))
            assert sent is not None
            entry = await (await client.view(sent.ledger_id)).read(sent.entry_id)
            (message,) = decode_entry(entry.payload).messages
            assert (message.key, dict(message.properties), message.producer_name) == ("k", {"a": "b"}, "p")
            assert message.sequence_id == 0

    run_with_cluster(tmp_path, 2, steps)


def test_a_message_that_is_too_large_is_refused_and_the_next_is_taken(tmp_path: Path) -> None:
    async def steps(cluster: RunningCluster) -> None:
        async with topic_on(cluster) as topic:
            with pytest.raises(
                MessageTooLarge, match="persistent://public/default/orders: a message of 6000000"
            ):
                await topic.send(bytes(6_000_000))
            assert (await topic.send(b"small")).entry_id == 0

    run_with_cluster(tmp_path, 2, steps)


def test_two_producers_of_one_name_are_refused_and_sequence_ids_ascend(tmp_path: Path) -> None:
    async def steps(cluster: RunningCluster) -> None:
        async with topic_on(cluster) as topic:
            producer = await topic.producer("p")
            with pytest.raises(ProducerExists):
                await topic.producer("p")
            await producer.send(b"one", sequence_id=5)
            with pytest.raises(SequenceNotAscending, match="sequence id 5 of producer 'p' does not follow 5"):
                await producer.send(b"two", sequence_id=5)
            await producer.close()
            with pytest.raises(TopicClosed):
                await producer.send(b"three")
            await (await topic.producer("p")).close()

    run_with_cluster(tmp_path, 2, steps)


def test_messages_of_a_failing_ledger_are_sent_to_the_next_one(tmp_path: Path) -> None:
    async def steps(cluster: RunningCluster) -> None:
        async with cluster.client() as client:
            async with topic_of(client) as topic:
                first = await topic.send(b"first")
                # A bookie that is gone, and no other one: the ledger cannot go on.
                await cluster.stop("b1")
                await cluster.withdraw("b1")
                await cluster.start("b3")
                sent = await asyncio.gather(*(topic.send(b"%d" % number) for number in range(5)))
                assert sent == sorted(sent)
                assert sent[0] > first
            assert await payloads_of(client) == [b"first", *(b"%d" % number for number in range(5))]

    run_with_cluster(tmp_path, 2, steps)


def test_one_topic_has_a_bounded_number_of_entries_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.cluster.topics.owner._ENTRIES_IN_FLIGHT_MAX", 2)

    async def steps(cluster: RunningCluster) -> None:
        async with topic_on(cluster) as topic:
            producer = await topic.producer()
            sent = [await producer.submit(b"1"), await producer.submit(b"2")]
            third = asyncio.ensure_future(producer.submit(b"3"))
            await asyncio.sleep(0)
            assert not third.done()
            await asyncio.gather(*sent)
            assert await (await third) is not None

    run_with_cluster(tmp_path, 2, steps)


def test_other_tasks_run_while_many_messages_are_encoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.cluster.topics.producer._PASS_COUNT", 4)
    has_run = asyncio.Event()
    seen: list[bool] = []

    def messages() -> Iterator[bytes]:
        for number in range(9):
            seen.append(has_run.is_set())
            yield b"%d" % number

    async def steps(cluster: RunningCluster) -> None:
        async with topic_on(cluster) as topic:
            await topic.take_over()
            producer = await topic.producer(batch=Batching(count=2))
            asyncio.get_running_loop().call_soon(has_run.set)
            ids = await producer.send_many(messages())
            assert [one.batch_index for one in ids] == [0, 1] * 4 + [-1]
            assert ids == sorted(ids)
        # The third batch is taken before the loop runs.
        assert seen == [False] * 6 + [True] * 3

    run_with_cluster(tmp_path, 2, steps)


def test_a_trim_ends_whose_client_is_closed_while_it_deletes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = asyncio.Event()
    delete = ClusterLedgers.delete

    async def delete_late(ledgers: ClusterLedgers, ledger_id: int) -> None:
        await closed.wait()
        await delete(ledgers, ledger_id)

    async def steps(cluster: RunningCluster) -> None:
        options: dict[str, Any] = {"roll_over": RollOver(entries=1), "retention": Retention(0, 0)}
        with monkeypatch.context() as patch:
            patch.setattr(ClusterLedgers, "delete", delete_late)
            async with cluster.client() as client:
                topic = client.topic("orders", Quorums(2, 2, 2), **options)
                first = (await topic.send(b"one")).ledger_id
                await topic.send(b"two")
                trimming = asyncio.ensure_future(topic.trim())
                while first in [one.ledger_id for one in await topic.ledgers()]:
                    await asyncio.sleep(0)
            closed.set()
            assert first in await trimming
        async with cluster.client() as client, topic_of(client) as topic:
            await topic.sweep()
            assert first not in [one async for one in client.ledgers()]

    run_with_cluster(tmp_path, 2, steps)
