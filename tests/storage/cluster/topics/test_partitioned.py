"""All partitions of a topic as one object: routing, merging, subscriptions, and refused arguments."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest
from memory_topics import MemoryLedgers

import ledgerstore
from storage.cluster.topics.administration import create_partitions
from storage.cluster.topics.errors import (
    NoSuchTopic,
    NotInTopic,
    ProducerExists,
    SubscriptionBusy,
    TopicClosed,
    TopicExists,
    TopicFenced,
)
from storage.cluster.topics.managed_ledger import TopicName
from storage.cluster.topics.message import Message
from storage.cluster.topics.message_id import EARLIEST, LATEST, MessageId
from storage.cluster.topics.policies import Retention, RollOver
from storage.cluster.topics.producer import Batching
from storage.cluster.topics.reader import After, AtTime
from storage.cluster.topics.routing import KeyHash, Router
from storage.cluster.topics.subscription import SubscriptionMode
from storage.cluster.topics.topic import AsyncTopic

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine
    from pathlib import Path

    from storage.cluster.topics.message import ReceivedMessage
    from storage.cluster.topics.partitioned import AsyncPartitionedTopic

NAME = TopicName.parse("orders")
TWO = RollOver(entries=2)


def run(steps: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 30))


async def opened(
    count: int = 3, ledgers: MemoryLedgers | None = None, roll_over: RollOver = TWO
) -> AsyncPartitionedTopic:
    return await AsyncTopic(ledgers or MemoryLedgers(), NAME, roll_over).partitioned(count)


async def some(messages: AsyncGenerator[ReceivedMessage, None], count: int) -> list[bytes]:
    found: list[bytes] = []
    async with aclosing(messages):
        async for message in messages:
            found.append(message.payload)
            if len(found) == count:
                break
    return found


def test_messages_go_to_the_partition_of_their_key_or_round_in_turn() -> None:
    async def steps() -> None:
        async with await opened() as topic:
            ids = await topic.send_many([b"%d" % number for number in range(6)], Batching(count=2))
            assert [one.partition for one in ids] == [0, 1, 2, 0, 1, 2]
            router = Router(3)
            for key in ("a", "b", "some longer key"):
                sent = await topic.send(Message(b"", key))
                assert sent.partition == router.partition_of(Message(b"", key))

    run(steps())


def test_the_ids_of_many_messages_are_in_their_order_whatever_partition_they_go_to() -> None:
    async def steps() -> None:
        async with await opened() as topic:
            messages = [Message(b"%d" % number, f"key {number % 7}") for number in range(40)]
            ids = await topic.send_many(messages, Batching(count=3))
            read = {message.id: message async for message in topic.reader().messages()}
            assert [read[one].message.key for one in ids] == [one.key for one in messages]
            assert [read[one].payload for one in ids] == [one.payload for one in messages]

    run(steps())


def test_a_reader_merges_the_partitions_by_the_times_of_their_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def steps() -> None:
        async with await opened() as topic:
            now = 1_000.0
            monkeypatch.setattr("storage.cluster.topics.producer.time.time", lambda: now)
            for number in range(10):
                now += 1
                await topic.send(Message(b"%d" % number, "ab"[number % 2]))
            reader = topic.reader()
            assert await some(reader.messages(), 3) == [b"0", b"1", b"2"]
            assert await some(reader.messages(), 99) == [b"%d" % number for number in range(3, 10)]
            assert await some(reader.messages(), 1) == []
            since = topic.reader(AtTime(1_005_500))
            assert await some(since.messages(), 99) == [b"5", b"6", b"7", b"8", b"9"]

    run(steps())


def test_a_follower_gets_what_is_written_to_any_partition_once() -> None:
    async def steps() -> None:
        async with await opened() as topic:
            await topic.send_many([b"a", b"b", b"c", b"d"])  # the third partition has one, the first two
            reader = topic.reader()
            first = await some(reader.follow(), 2)
            waiting = asyncio.ensure_future(some(reader.follow(), 4))
            await topic.send(b"e")
            await topic.send(b"f")
            assert sorted(first + await waiting) == [b"a", b"b", b"c", b"d", b"e", b"f"]

    run(steps())


def test_a_reader_of_new_messages_gets_the_first_one_of_each_partition() -> None:
    """A partition is made by its first message, so that it is not there when the reader begins."""

    async def steps() -> None:
        async with await opened() as topic:
            reader = topic.reader(LATEST)
            assert await some(reader.messages(), 1) == []
            await topic.send_many([b"a", b"b", b"c"])
            assert sorted(await some(reader.messages(), 9)) == [b"a", b"b", b"c"]

    run(steps())


def test_a_reader_can_begin_at_another_place_in_each_partition() -> None:
    async def steps() -> None:
        async with await opened(2) as topic:
            ids = await topic.send_many([b"a", b"b", b"c", b"d"])
            assert sorted(await some(topic.reader({0: After(ids[0])}).messages(), 9)) == [b"b", b"c", b"d"]
            assert sorted(await some(topic.reader({0: ids[2], 1: ids[3]}).messages(), 9)) == [b"c", b"d"]
            for start in (ids[0], After(ids[0]), {2: EARLIEST}):
                with pytest.raises(NotInTopic):
                    topic.reader(start)

    run(steps())


def test_a_subscription_delivers_all_partitions_and_acknowledges_each() -> None:
    async def steps() -> None:
        ledgers = MemoryLedgers()
        async with await opened(3, ledgers) as topic:
            ids = await topic.send_many([b"%d" % number for number in range(9)], Batching(count=2))
            async with await topic.subscription("s", start=EARLIEST) as subscription:
                for _ in range(100):
                    await asyncio.sleep(0)  # until each partition has messages that wait
                received = [await subscription.receive() for _ in range(9)]
                # None has to wait until another one has no more.
                assert sorted(one.id.partition for one in received[:3]) == [0, 1, 2]
                for message in received:
                    if message.id in ids[:4]:
                        await subscription.ack(message)
                await subscription.ack_through(ids[7])
                await subscription.redeliver_all()
                left = [await subscription.receive() for _ in range(3)]
                assert sorted(one.payload for one in left) == [b"5", b"6", b"8"]
                assert {one.redelivery_count for one in left} == {1}
                await subscription.redeliver(left[0])
                assert (await subscription.receive()).id == left[0].id
                assert await subscription.receive_within(0.0) is None
                waiting = asyncio.ensure_future(subscription.receive())
                await topic.send(b"new")
                assert (await waiting).payload == b"new"
                with pytest.raises(SubscriptionBusy):
                    await topic.subscription("s", SubscriptionMode.EXCLUSIVE)
            async with await topic.subscription("s") as subscription:
                again = {(await subscription.receive()).payload for _ in range(4)}
                assert again == {b"5", b"6", b"8", b"new"}
                with pytest.raises(NotInTopic):
                    await subscription.ack(MessageId(0, 0, 7))
                await subscription.seek(EARLIEST)
                await subscription.seek({0: ids[6]})
                payloads = sorted([(await subscription.receive()).payload for _ in range(8)])
                assert payloads == sorted([b"1", b"2", b"4", b"5", b"6", b"7", b"8", b"new"])

    run(steps())


def test_a_consumer_that_cannot_have_a_partition_leaves_the_others() -> None:
    async def steps() -> None:
        ledgers = MemoryLedgers()
        async with await opened(3, ledgers) as topic:
            await topic.send_many([b"a", b"b", b"c"])
            one = await topic.partitions[2].subscription("s", start=EARLIEST)
            with pytest.raises(SubscriptionBusy):
                await topic.subscription("s", start=EARLIEST)
            await one.close()
            async with await topic.subscription("s", start=EARLIEST) as subscription:
                assert sorted([(await subscription.receive()).payload for _ in range(3)]) == [
                    b"a",
                    b"b",
                    b"c",
                ]

    run(steps())


def test_a_named_producer_that_sends_again_writes_each_message_once() -> None:
    async def steps() -> None:
        ledgers = MemoryLedgers()
        messages = [Message(b"%d" % number, f"key {number}") for number in range(8)]
        async with await opened(2, ledgers) as topic, await topic.producer("p") as producer:
            assert producer.last_sequence_id == -1
            for number, message in enumerate(messages[:5]):
                await producer.send(message, number)
        async with await opened(2, ledgers) as topic, await topic.producer("p") as producer:
            assert producer.last_sequence_id < 5
            sent = [await producer.send(message, number) for number, message in enumerate(messages)]
            assert sent[:5] == [None] * 5
            assert None not in sent[5:]
            found = [message.payload async for message in topic.reader().messages()]
            assert sorted(found) == [one.payload for one in messages]

    run(steps())


def test_a_message_without_a_key_that_is_sent_again_comes_to_the_partition_that_may_have_it() -> None:
    """Another partition may have a later number, and would drop the message as one that it has."""

    async def steps() -> None:
        ledgers = MemoryLedgers()
        async with await opened(2, ledgers) as topic, await topic.producer("p") as producer:
            for number in (0, 1, 3):  # a crash has taken 2
                await producer.send(b"%d" % number, number)
        async with await opened(2, ledgers) as topic, await topic.producer("p") as producer:
            again = range(producer.last_sequence_id + 1, 5)
            sent = {number: await producer.send(b"%d" % number, number) for number in again}
            assert [number for number, place in sent.items() if place is not None] == [2, 4]
            found = [message.payload async for message in topic.reader().messages()]
            assert sorted(found) == [b"0", b"1", b"2", b"3", b"4"]

    run(steps())


def test_a_producer_that_cannot_have_a_partition_leaves_its_name_to_another_one() -> None:
    async def steps() -> None:
        async with await opened(3) as topic:
            one = await topic.partitions[2].producer("p")
            with pytest.raises(ProducerExists):
                await topic.producer("p")
            await one.close()
            async with await topic.producer("p") as producer:
                assert producer.name == "p"

    run(steps())


def test_figures_are_those_of_all_partitions_together() -> None:
    async def steps() -> None:
        async with await opened(roll_over=RollOver()) as topic:
            await topic.send_many([b"a", b"b", b"c", b"d"], Batching(count=1))
            async with await topic.subscription("s"):
                pass
            stats = await topic.stats()
            assert (stats.entries, len(stats.partitions), stats.ledgers) == (4, 3, 3)
            assert stats.size == sum(one.size for one in stats.partitions) > 4
            assert stats.subscriptions == ["s"]
            await topic.roll_over()
            for one in topic.partitions:
                one.retention = Retention(0, 0)
            assert len(await topic.trim()) == 3
            assert (await topic.stats()).entries == 0

    run(steps())


def test_partitions_are_made_once_and_a_topic_without_them_is_refused() -> None:
    async def steps() -> None:
        ledgers = MemoryLedgers()
        with pytest.raises(NoSuchTopic):
            await AsyncTopic(ledgers, NAME).partitioned()
        await create_partitions(ledgers, NAME, 2)
        assert len((await AsyncTopic(ledgers, NAME).partitioned()).partitions) == 2
        assert len((await AsyncTopic(ledgers, NAME).partitioned(2)).partitions) == 2
        with pytest.raises(TopicExists):
            await AsyncTopic(ledgers, NAME).partitioned(3)

    run(steps())


def test_partitions_are_closed_with_their_topic() -> None:
    async def steps() -> None:
        topic = AsyncTopic(MemoryLedgers(), NAME)
        partitions = await topic.partitioned(2)
        await partitions.send(b"a")
        await topic.close()
        with pytest.raises(TopicClosed):
            await partitions.partitions[0].send(b"b")
        with pytest.raises(TopicClosed):
            await partitions.send(b"b")

    run(steps())


def test_a_partition_that_another_process_has_taken_does_not_keep_the_others_open() -> None:
    async def steps() -> None:
        ledgers = MemoryLedgers()
        topic = AsyncTopic(ledgers, NAME)
        partitions = (await topic.partitioned(3)).partitions
        for one in partitions:
            await one.send(b"a")
        await AsyncTopic(ledgers.other(), NAME.partition(0)).take_over()
        with pytest.raises(TopicFenced):
            await topic.close()
        assert [one.is_closed for one in partitions] == [True] * 3

    run(steps())


def test_threads_have_partitions_too(tmp_path: Path) -> None:
    with (
        ledgerstore.open(tmp_path / "store") as store,
        store.topic("orders") as topic,
        topic.partitioned(2, KeyHash.MURMUR3) as orders,
    ):
        assert "orders with 2 partitions" in repr(orders)
        with orders.producer("p", Batching(count=2)) as producer:
            sent = [producer.submit(b"%d" % number) for number in range(6)]
        ids = [one.result() for one in sent]
        assert [one.partition for one in ids if one is not None] == [0, 1, 0, 1, 0, 1]
        reader = orders.reader()
        found = []
        for message in reader.messages():
            found.append(message.payload)
            if len(found) == 2:
                break
        found += [message.payload for message in reader.messages()]
        assert sorted(found) == [b"%d" % number for number in range(6)]
        assert next(orders.reader().follow()).payload in found
        with orders.subscription("s", start=EARLIEST) as subscription:
            assert {subscription.receive().payload for _ in range(6)} == set(found)
            subscription.seek(EARLIEST)
            subscription.ack(subscription.receive())
        assert orders.stats().entries == 4
        assert orders.partitions[0].name.partition_index == 0
