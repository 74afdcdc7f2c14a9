"""Whole topics: listed, with partitions, deleted, and copied with their subscriptions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from memory_topics import MemoryLedgers, WrittenTopic, new_topic

from storage.cluster.metadata.znodes import Gone
from storage.cluster.topics.administration import (
    CopiedEntry,
    Places,
    copy_topic,
    create_partitions,
    delete_partitions,
    delete_topic,
    list_topics,
    partition_names,
    read_partitions,
)
from storage.cluster.topics.cursor_store import subscriptions_of
from storage.cluster.topics.errors import InvalidTopicName, NoSuchTopic, TopicExists
from storage.cluster.topics.managed_ledger import Position, TopicName
from storage.cluster.topics.message_id import EARLIEST, MessageId
from storage.cluster.topics.policies import RollOver
from storage.cluster.topics.reader import AsyncTopicReader
from storage.cluster.topics.subscription import open_subscription
from storage.errors import LedgerFenced

if TYPE_CHECKING:
    from collections.abc import Coroutine


def run(steps: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 30))


async def read(ledgers: MemoryLedgers, name: TopicName) -> list[tuple[str, bytes]]:
    return [(str(one.id), one.payload) async for one in AsyncTopicReader(ledgers, name).messages()]


def test_topics_of_all_namespaces_are_listed_in_order() -> None:
    async def steps() -> None:
        topic = new_topic("b c")
        await topic.write([[b"x"]])
        await WrittenTopic(topic.ledgers, TopicName.parse("a-partition-1")).write([[b"y"]])
        assert [str(one) async for one in list_topics(topic.ledgers)] == [
            "persistent://public/default/a-partition-1",
            "persistent://public/default/b c",
        ]
        assert [one async for one in list_topics(MemoryLedgers())] == []

    run(steps())


def test_a_topic_gets_partitions_once() -> None:
    async def steps() -> None:
        ledgers, name = MemoryLedgers(), TopicName.parse("a/b/c")
        assert await partition_names(ledgers, name) == [name]
        await create_partitions(ledgers, name, 3)
        await create_partitions(ledgers, name, 3)
        assert await read_partitions(ledgers, name) == 3
        assert [one.local_name for one in await partition_names(ledgers, name)] == [
            "c-partition-0",
            "c-partition-1",
            "c-partition-2",
        ]
        with pytest.raises(TopicExists, match="it has 3 partitions"):
            await create_partitions(ledgers, name, 4)
        with pytest.raises(InvalidTopicName):
            await create_partitions(ledgers, name.partition(1), 4)
        await delete_partitions(ledgers, name)
        assert await read_partitions(ledgers, name) == 0
        topic = new_topic()
        await topic.write([[b"x"]])
        with pytest.raises(TopicExists, match="messages and no partitions"):
            await create_partitions(topic.ledgers, topic.name, 4)

    run(steps())


def test_a_server_that_lags_hides_neither_partitions_nor_a_topic() -> None:
    """Messages would go where no reader of the partitions looks, or a copy into a topic that has others."""

    async def steps() -> None:
        ledgers, name = MemoryLedgers(), TopicName.parse("a/b/c")
        behind, copying = ledgers.other(), ledgers.other()
        behind.nodes.lag()
        await create_partitions(ledgers, name, 3)
        assert await read_partitions(behind, name) == 3
        behind.nodes.lag()
        copying.nodes.lag()
        topic = WrittenTopic(ledgers, TopicName.parse("orders"))
        await topic.write([[b"x"]])
        with pytest.raises(TopicExists, match="messages and no partitions"):
            await create_partitions(behind, topic.name, 4)
        with pytest.raises(TopicExists, match="a copy needs a new one"):
            await anext(copy_topic(ledgers, topic.name, copying, topic.name, RollOver()))

    run(steps())


def test_a_topic_is_deleted_with_its_subscriptions_and_ledgers_and_its_writer_is_fenced() -> None:
    async def steps() -> None:
        topic = new_topic()
        await topic.write([[b"a"], [b"b", b"c"]])
        last = await topic.begin()
        async with await open_subscription(topic.ledgers, topic.name, "s", start=EARLIEST) as subscription:
            for _ in range(2):
                await subscription.ack(await subscription.receive())
        open_ledger = topic.ledgers.ledgers[last]
        assert await delete_topic(topic.ledgers, topic.name) == 2
        assert topic.ledgers.ledgers == {}
        assert open_ledger.is_closed
        assert isinstance(await topic.ledgers.nodes.get(topic.name.path), Gone)
        with pytest.raises(NoSuchTopic, match="persistent://public/default/orders"):
            await delete_topic(topic.ledgers, topic.name)

    run(steps())


def test_a_ledger_that_is_begun_during_the_delete_is_fenced_and_deleted() -> None:
    async def steps() -> None:
        topic = new_topic()
        await topic.write([[b"a"]])
        writer = WrittenTopic(topic.ledgers.other(), topic.name)
        writer.infos = topic.infos
        topic.ledgers.nodes.before_write = writer.begin
        assert await delete_topic(topic.ledgers, topic.name) == 2
        with pytest.raises(LedgerFenced):
            await writer.send(b"lost")
        assert topic.ledgers.ledgers == {}

    run(steps())


def test_a_topic_whose_ledgers_are_gone_is_deleted() -> None:
    async def steps() -> None:
        topic = new_topic()
        await topic.write([[b"a"]])
        await topic.begin()
        topic.ledgers.ledgers.clear()
        assert await delete_topic(topic.ledgers, topic.name) == 2

    run(steps())


def test_a_copy_has_all_messages_and_says_where_they_are() -> None:
    async def steps() -> None:
        topic, target = new_topic(), MemoryLedgers()
        await topic.write([[b"a"], [b"b", b"c"]], [[b"d"]])
        await topic.begin()
        await topic.send(b"e")
        for _ in range(5):
            await target.create("another")
        name = TopicName.parse("copy")
        copied = [
            one async for one in copy_topic(topic.ledgers, topic.name, target, name, RollOver(entries=3))
        ]
        assert [one.messages for one in copied] == [1, 2, 1, 1]
        before = await read(topic.ledgers, topic.name)
        after = await read(target, name)
        assert [payload for _, payload in after] == [b"a", b"b", b"c", b"d", b"e"]
        places = {str(one.source): str(one.target) for one in copied}
        for (source, _), (there, _) in zip(before, after, strict=True):
            ledger, entry, rest = source.split(":", 2)
            assert f"{places[f'{ledger}:{entry}']}:{rest}" == there
        assert len({one.target.ledger_id for one in copied}) == 2
        with pytest.raises(TopicExists, match="a copy needs a new one"):
            await anext(copy_topic(topic.ledgers, topic.name, target, name, RollOver()))
        with pytest.raises(NoSuchTopic):
            await anext(copy_topic(topic.ledgers, name, target, topic.name, RollOver()))

    run(steps())


def test_subscriptions_of_a_copy_go_on_where_they_were() -> None:
    async def steps() -> None:
        topic, target = new_topic(), MemoryLedgers()
        await topic.write([[b"a"], [b"b", b"c"], [b"d"]], [[b"e"], [b"f"]])
        for subscription_name, acknowledged in (("some", (0, 2, 4)), ("none", ())):
            opened = await open_subscription(topic.ledgers, topic.name, subscription_name, start=EARLIEST)
            async with opened as subscription:
                messages = [await subscription.receive() for _ in range(6)]
                for number in acknowledged:
                    await subscription.ack(messages[number])
        name = TopicName.parse("copy")
        await target.create("another")
        async for _ in copy_topic(topic.ledgers, topic.name, target, name, RollOver(entries=2)):
            pass
        assert await subscriptions_of(target, name) == ["none", "some"]
        for subscription_name, expected in (("some", b"bdf"), ("none", b"abcdef")):
            async with await open_subscription(target, name, subscription_name) as subscription:
                received = [(await subscription.receive()).payload for _ in expected]
                assert b"".join(received) == expected
                assert await subscription.receive_within(0.0) is None

    run(steps())


def test_places_of_a_copy_are_found_by_those_of_the_source() -> None:
    places = Places()
    copied = [
        CopiedEntry(Position(*source), Position(*target), 1)
        for source, target in [
            ((1, 0), (7, 0)),
            ((1, 1), (7, 1)),
            ((1, 2), (8, 0)),
            ((4, 0), (8, 1)),
            ((4, 1), (8, 2)),
        ]
    ]
    for one in copied:
        places.add(one.source, one.target)
    assert all(places.of(one.source) == one.target for one in copied)
    assert [places.of(Position(*one)) for one in ((0, 0), (1, 3), (4, 2), (5, 0))] == [None] * 4
    assert places.before(Position(1, -1)) is None
    assert places.before(Position(1, 9)) == Position(8, 0)
    assert places.before(Position(4, 0)) == Position(8, 1)
    assert places.before(Position(9, 0)) == Position(8, 2)
    assert MessageId(*Position(1, 0)) < MessageId(1, 1)
