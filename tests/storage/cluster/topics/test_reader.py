"""Reading a topic: across ledgers, from each kind of start, while it is written, and with ledgers missing."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest
from memory_topics import WrittenTopic, new_topic

from storage.cluster.metadata.znodes import Created
from storage.cluster.topics.cursor import Extents
from storage.cluster.topics.errors import (
    EntryChecksumWrong,
    InvalidMessageEntry,
    LedgerMissing,
    NoSuchTopic,
    NotInTopic,
)
from storage.cluster.topics.managed_ledger import Position
from storage.cluster.topics.message_id import EARLIEST, LATEST, MessageId
from storage.cluster.topics.policies import MissingLedgers
from storage.cluster.topics.reader import After, AsyncTopicReader, AtTime, read_extents

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine

    from storage.cluster.topics.message import ReceivedMessage
    from storage.cluster.topics.reader import Start


def run(steps: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 20))


def reader_of(topic: WrittenTopic, start: Start = EARLIEST) -> AsyncTopicReader:
    return AsyncTopicReader(topic.ledgers, topic.name, start)


async def payloads(topic: WrittenTopic, start: Start = EARLIEST) -> list[bytes]:
    return [one.payload async for one in reader_of(topic, start).messages()]


async def some(count: int, messages: AsyncGenerator[ReceivedMessage, None]) -> list[bytes]:
    """Return the payloads of the next messages."""
    return [(await anext(messages)).payload for _ in range(count)]


async def two_ledgers() -> WrittenTopic:
    """Return a topic of the ledgers 0, with a batch as its second entry, and 1."""
    topic = new_topic()
    await topic.write([[b"a"], [b"b", b"c", b"d"], [b"e"]], [[b"f"], [b"g"]])
    return topic


def test_messages_come_in_order_across_ledgers_with_their_ids() -> None:
    async def steps() -> None:
        topic = await two_ledgers()
        read = [one async for one in reader_of(topic).messages()]
        assert [one.payload for one in read] == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
        assert [str(one.id) for one in read] == [
            "0:0:-1:-1",
            "0:1:-1:0",
            "0:1:-1:1",
            "0:1:-1:2",
            "0:2:-1:-1",
            "1:0:-1:-1",
            "1:1:-1:-1",
        ]
        assert {(one.topic, one.batch_size) for one in read} == {
            ("persistent://public/default/orders", 0),
            ("persistent://public/default/orders", 3),
        }

    run(steps())


def test_the_ids_of_a_partition_have_its_number() -> None:
    async def steps() -> None:
        topic = new_topic("orders-partition-3")
        await topic.write([[b"a"]])
        (read,) = [one async for one in reader_of(topic).messages()]
        assert read.id == MessageId(0, 0, 3)

    run(steps())


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (EARLIEST, b"abcdefg"),
        (LATEST, b""),
        (After(EARLIEST), b"abcdefg"),
        (After(LATEST), b""),
        (MessageId(0, -1), b"abcdefg"),
        (MessageId(0, 1), b"bcdefg"),
        (MessageId(0, 1, -1, 1), b"cdefg"),
        (MessageId(0, 2), b"efg"),
        (MessageId(0, 3), b"fg"),
        (MessageId(0, 3, -1, 1), b"fg"),
        (MessageId(1, 1), b"g"),
        (MessageId(1, 2), b""),
        (After(MessageId(0, 0)), b"bcdefg"),
        (After(MessageId(0, 1)), b"efg"),
        (After(MessageId(0, 1, -1, 0)), b"cdefg"),
        (After(MessageId(0, 1, -1, 2)), b"efg"),
        (After(MessageId(0, 2)), b"fg"),
        (After(MessageId(1, 1)), b""),
        (AtTime(0), b"abcdefg"),
        (AtTime(1_010), b"bcdefg"),
        (AtTime(1_011), b"efg"),
        (AtTime(1_021), b"fg"),
        (AtTime(1_040), b"g"),
        (AtTime(9_999), b""),
    ],
    ids=str,
)
def test_a_reader_starts_where_it_is_told_to(start: Start, expected: bytes) -> None:
    async def steps() -> None:
        assert b"".join(await payloads(await two_ledgers(), start)) == expected

    run(steps())


def test_an_iteration_that_was_left_inside_a_batch_is_followed_by_one_that_goes_on_there() -> None:
    async def steps() -> None:
        topic = new_topic()
        await topic.write([[b"a"], [b"b", b"c", b"d"], [b"e"]])
        reader = AsyncTopicReader(topic.ledgers, topic.name)
        found = []
        for _ in range(3):
            async with aclosing(reader.messages()) as messages:
                async for message in messages:
                    found.append(message.payload)
                    if len(found) in (1, 3):
                        break
        assert b"".join(found) == b"abcde"

    run(steps())


def test_a_start_at_a_time_looks_at_no_ledger_that_was_closed_before() -> None:
    async def steps() -> None:
        topic = await two_ledgers()
        assert await payloads(topic, AtTime(1_040)) == [b"g"]
        assert set(topic.ledgers.views) == {1}

    run(steps())


def test_a_start_in_a_ledger_that_was_trimmed_is_the_first_message() -> None:
    async def steps() -> None:
        topic = await two_ledgers()
        del topic.infos[0]
        await topic.write_list()
        assert await payloads(topic, MessageId(0, 1, -1, 2)) == [b"f", b"g"]

    run(steps())


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        (MessageId(7, 0), "after the last one"),
        (After(MessageId(7, 0)), "after the last one"),
        (MessageId(1, 0, 3), "partition 3"),
        (MessageId(2, 0), "does not have its ledger"),
    ],
)
def test_an_id_of_another_topic_is_refused(start: Start, reason: str) -> None:
    async def steps() -> None:
        topic = await two_ledgers()
        await topic.ledgers.create("another")
        await topic.write([[b"h"]])
        with pytest.raises(NotInTopic, match=reason) as refused:
            await payloads(topic, start)
        assert "persistent://public/default/orders has no message" in str(refused.value)

    run(steps())


def test_the_ledger_that_is_written_is_read_up_to_its_acknowledged_end() -> None:
    async def steps() -> None:
        topic = await two_ledgers()
        await topic.begin()
        for number in range(5):
            await topic.send(b"%d" % number)
        reader = reader_of(topic, MessageId(1, 1))
        assert [one.payload async for one in reader.messages()] == [b"g", b"0", b"1", b"2", b"3", b"4"]
        await topic.send(b"5")
        await topic.end()
        await topic.write([[b"6"]])
        assert [one.payload async for one in reader.messages()] == [b"5", b"6"]
        assert [one.payload async for one in reader.messages()] == []

    run(steps())


def test_latest_is_after_the_messages_of_the_ledger_that_is_written() -> None:
    async def steps() -> None:
        topic = await two_ledgers()
        await topic.begin()
        await topic.send(b"old")
        reader = reader_of(topic, LATEST)
        async with aclosing(reader.follow()) as messages:
            coming = asyncio.ensure_future(some(1, messages))
            while reader.next != Position(2, 1):
                await asyncio.sleep(0)
            await topic.send(b"new")
            assert await coming == [b"new"]

    run(steps())


def test_a_follower_gets_what_is_written_and_goes_on_in_the_next_ledger() -> None:
    async def steps() -> None:
        topic = await two_ledgers()
        await topic.begin()
        async with aclosing(reader_of(topic, MessageId(1, 0)).follow()) as messages:
            assert await some(2, messages) == [b"f", b"g"]
            coming = asyncio.ensure_future(some(3, messages))
            await asyncio.sleep(0)
            await topic.send(b"h")
            await topic.close_ledger()
            await asyncio.sleep(0)
            topic.infos[-1] = type(topic.infos[-1])(2, 1, 9, 1)
            await topic.begin()
            await topic.send(b"i", b"j")
            assert await coming == [b"h", b"i", b"j"]

    run(steps())


def test_a_follower_waits_for_a_topic_and_for_its_first_ledger() -> None:
    async def steps() -> None:
        topic = new_topic()
        async with aclosing(reader_of(topic).follow()) as messages:
            coming = asyncio.ensure_future(some(1, messages))
            await asyncio.sleep(0)
            await topic.write_list()
            await asyncio.sleep(0)
            await topic.begin()
            await topic.send(b"first")
            assert await coming == [b"first"]
        with pytest.raises(NoSuchTopic, match="persistent://public/default/other"):
            await payloads(WrittenTopic(topic.ledgers, type(topic.name).parse("other")))

    run(steps())


@pytest.mark.parametrize("start", [LATEST, After(LATEST)])
def test_all_messages_are_new_to_a_reader_that_began_before_there_was_a_topic(start: Start) -> None:
    async def steps() -> None:
        topic = new_topic()
        reader, follower = reader_of(topic, start), reader_of(topic, start)
        with pytest.raises(NoSuchTopic):
            await anext(reader.messages())
        async with aclosing(follower.follow()) as messages:
            coming = asyncio.ensure_future(some(2, messages))
            await asyncio.sleep(0)
            await topic.write([[b"a"], [b"b"]])
            assert await coming == [b"a", b"b"]
        assert [one.payload async for one in reader.messages()] == [b"a", b"b"]

    run(steps())


def test_an_empty_ledger_between_others_is_passed_over() -> None:
    async def steps() -> None:
        topic = new_topic()
        await topic.write([[b"a"]], [], [[b"b"]])
        assert await payloads(topic) == [b"a", b"b"]
        async with aclosing(reader_of(topic).follow()) as messages:
            assert await some(2, messages) == [b"a", b"b"]

    run(steps())


def test_a_ledger_that_a_broker_left_open_before_others_is_read() -> None:
    async def steps() -> None:
        topic = new_topic()
        await topic.begin()
        await topic.send(b"a")
        await topic.begin()
        await topic.send(b"b")
        assert await payloads(topic) == [b"a", b"b"]
        async with aclosing(reader_of(topic).follow()) as messages:
            assert await some(2, messages) == [b"a", b"b"]

    run(steps())


def test_a_ledger_of_the_list_that_is_gone_is_named_and_skipped_only_on_request() -> None:
    async def steps() -> None:
        topic = new_topic()
        await topic.write([[b"a"]], [[b"b"]], [[b"c"]])
        await topic.ledgers.delete(1)
        with pytest.raises(LedgerMissing, match="ledger 1 is in the list") as refused:
            await payloads(topic)
        assert (refused.value.topic, refused.value.ledger_id) == (str(topic.name), 1)
        reader = AsyncTopicReader(topic.ledgers, topic.name, missing=MissingLedgers.SKIP)
        assert [one.payload async for one in reader.messages()] == [b"a", b"c"]
        assert reader.skipped_ledgers == [1]
        follower = AsyncTopicReader(topic.ledgers, topic.name, missing=MissingLedgers.SKIP)
        async with aclosing(follower.follow()) as messages:
            assert await some(2, messages) == [b"a", b"c"]

    run(steps())


def test_a_ledger_that_is_trimmed_while_the_topic_is_read_is_passed_over() -> None:
    async def steps() -> None:
        topic = new_topic()
        await topic.write([[b"a"]], [[b"b"]], [[b"c"]])
        async with aclosing(reader_of(topic).messages()) as messages:
            assert await some(1, messages) == [b"a"]
            del topic.infos[1]
            await topic.write_list()
            await topic.ledgers.delete(1)
            assert await some(1, messages) == [b"c"]

    run(steps())


def test_a_damaged_entry_is_refused_with_its_place_and_can_be_passed() -> None:
    async def steps() -> None:
        topic = new_topic()
        await topic.begin()
        await topic.send(b"a")
        await topic.send_bytes(b"\x0e\x01\0\0\0\0damaged")
        await topic.send_bytes(b"no entry")
        await topic.send(b"b")
        await topic.end()
        reader = reader_of(topic)
        async with aclosing(reader.messages()) as messages:
            assert await some(1, messages) == [b"a"]
            with pytest.raises(EntryChecksumWrong, match="entry 1 of ledger 0") as refused:
                await anext(messages)
        assert refused.value.topic == str(topic.name)
        with pytest.raises(InvalidMessageEntry, match="entry 2 of ledger 0"):
            await payloads(topic, After(MessageId(0, 1)))
        assert await payloads(topic, After(MessageId(0, 2))) == [b"b"]

    run(steps())


def test_a_reader_knows_where_the_ledgers_end() -> None:
    async def steps() -> None:
        topic = await two_ledgers()
        ledger_id = await topic.begin()
        await topic.send(b"h")
        reader = reader_of(topic)
        async with aclosing(reader.follow_entries()) as entries:
            positions = [(await anext(entries)).position for _ in range(6)]
            assert positions[-1] == Position(ledger_id, 0)
            assert reader.extents() == Extents(((0, 3), (1, 2), (ledger_id, 1)), is_last_open=True)
        assert await read_extents(topic.ledgers, topic.name) == reader.extents()
        await topic.end()
        assert await read_extents(topic.ledgers, topic.name) == Extents(((0, 3), (1, 2), (ledger_id, 1)))
        assert isinstance(await topic.ledgers.nodes.create("/x"), Created)

    run(steps())
