"""Subscriptions: delivery, acknowledgements that last, redelivery, seeking, and one consumer at a time."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from memory_topics import MemoryAppender, MemoryLedgers, MemoryReader, WrittenTopic, new_topic
from memory_znodes import Loss

from storage.cluster.errors import MetadataUnavailable, NotEnoughBookies, SessionExpired
from storage.cluster.topics.cursor import Cursor, Extents
from storage.cluster.topics.cursor_store import (
    CursorStore,
    delete_subscription,
    read_cursor,
    read_node,
    subscriptions_of,
)
from storage.cluster.topics.errors import (
    EntryChecksumWrong,
    NoSuchSubscription,
    NotInTopic,
    SubscriptionBusy,
    SubscriptionFenced,
    TopicClosed,
)
from storage.cluster.topics.managed_ledger import NO_LEDGER, ManagedCursorInfo, Position, encode_cursor
from storage.cluster.topics.message_id import EARLIEST, LATEST, MessageId
from storage.cluster.topics.reader import AtTime, read_extents
from storage.cluster.topics.subscription import (
    CONSUMERS,
    AsyncSubscription,
    SubscriptionMode,
    open_subscription,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from storage.cluster.metadata.znodes import Gone, Node, SetAnswer
    from storage.cluster.topics.message import ReceivedMessage
    from storage.cluster.topics.reader import Start

NEVER_S = 1e6
"""So late that acknowledgements are saved by `save` and `close` only."""


def run(steps: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 30))


async def subscribed(
    topic: WrittenTopic,
    start: Start = EARLIEST,
    mode: SubscriptionMode = SubscriptionMode.EXCLUSIVE,
    ledgers: MemoryLedgers | None = None,
) -> AsyncSubscription:
    return await open_subscription(ledgers or topic.ledgers, topic.name, "s", mode, start, NEVER_S)


async def received(subscription: AsyncSubscription, count: int) -> list[ReceivedMessage]:
    return [await subscription.receive() for _ in range(count)]


def texts(messages: list[ReceivedMessage]) -> bytes:
    return b"".join(one.payload for one in messages)


async def cursors_ledger(topic: WrittenTopic) -> int:
    node = await read_node(topic.ledgers, topic.name, "s")
    assert node is not None
    return node[0].cursors_ledger_id


async def two_ledgers() -> WrittenTopic:
    topic = new_topic()
    await topic.write([[b"a"], [b"b", b"c", b"d"], [b"e"]], [[b"f"], [b"g"]])
    return topic


def test_what_is_not_acknowledged_is_delivered_to_the_next_consumer() -> None:
    async def steps() -> None:
        topic = await two_ledgers()
        async with await subscribed(topic) as subscription:
            messages = await received(subscription, 7)
            assert texts(messages) == b"abcdefg"
            for number in (0, 4, 5):
                await subscription.ack(messages[number])
        async with await subscribed(topic) as subscription:
            assert texts(await received(subscription, 4)) == b"bcdg"

    run(steps())


def test_acknowledgements_inside_a_batch_last_in_a_ledger_of_the_cursor() -> None:
    async def steps() -> None:
        topic = await two_ledgers()
        async with await subscribed(topic) as subscription:
            messages = await received(subscription, 3)
            await subscription.ack(messages[0])
            await subscription.ack(messages[2].id)
        ledger_id = await cursors_ledger(topic)
        assert topic.ledgers.ledgers[ledger_id].cursor == "s"
        async with await subscribed(topic) as subscription:
            messages = await received(subscription, 2)
            assert texts(messages) == b"bd"
            await subscription.ack_through(messages[1])
        assert await cursors_ledger(topic) == NO_LEDGER
        assert [one.cursor for one in topic.ledgers.ledgers.values()] == [None, None]
        async with await subscribed(topic) as subscription:
            assert texts(await received(subscription, 3)) == b"efg"

    run(steps())


def test_acknowledging_through_a_message_in_a_batch_leaves_the_later_ones() -> None:
    async def steps() -> None:
        topic = await two_ledgers()
        async with await subscribed(topic) as subscription:
            await subscription.ack_through((await received(subscription, 3))[2])
        async with await subscribed(topic) as subscription:
            assert texts(await received(subscription, 4)) == b"defg"
            await subscription.ack_through(MessageId(1, 0))
        async with await subscribed(topic) as subscription:
            assert texts(await received(subscription, 1)) == b"g"

    run(steps())


def test_a_message_that_was_acknowledged_before_it_was_received_is_not_delivered() -> None:
    async def steps() -> None:
        topic = await two_ledgers()
        async with await subscribed(topic) as subscription:
            first = await subscription.receive()
            await subscription.ack(MessageId(0, 1, -1, 0))
            await subscription.ack(MessageId(0, 2))
            assert texts(await received(subscription, 1)) == b"c"
            await subscription.redeliver(first)
            await subscription.ack(first)
            assert texts(await received(subscription, 1)) == b"d"
            await subscription.ack_through(MessageId(1, 0))
            assert texts(await received(subscription, 1)) == b"g"

    run(steps())


def test_many_ranges_are_kept_in_a_ledger_of_which_the_last_entry_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("storage.cluster.topics.cursor.RANGES_IN_NODE_MAX", 5)

    async def steps() -> None:
        topic = new_topic()
        count = 16
        await topic.write([[b"%d " % number] for number in range(count)])
        async with await subscribed(topic) as subscription:
            for number in range(1, count, 2):
                await subscription.ack(MessageId(0, number))
            await subscription.save()
            ledger_id = await cursors_ledger(topic)
            await subscription.ack(MessageId(0, 0))
            await subscription.save()
            assert len(topic.ledgers.ledgers[ledger_id].payloads) == 2
            extents = await read_extents(topic.ledgers, topic.name)
            cursor = await read_cursor(topic.ledgers, topic.name, "s", extents)
            assert (cursor.mark_delete, cursor.backlog(extents)) == (Position(0, 1), count // 2 - 1)
        async with await subscribed(topic) as subscription:
            assert texts(await received(subscription, 2)) == b"2 4 "

    run(steps())


def test_a_state_whose_ledger_is_lost_begins_at_the_older_one_of_the_node() -> None:
    async def steps() -> None:
        topic = await two_ledgers()
        async with await subscribed(topic) as subscription:
            messages = await received(subscription, 2)
            await subscription.ack(messages[0])
            await subscription.ack(messages[1])
        await topic.ledgers.delete(await cursors_ledger(topic))
        extents = await read_extents(topic.ledgers, topic.name)
        assert (await read_cursor(topic.ledgers, topic.name, "s", extents)).mark_delete == Position(0, 0)
        async with await subscribed(topic) as subscription:
            assert texts(await received(subscription, 2)) == b"bc"

    run(steps())


def test_acknowledgements_are_saved_after_a_while() -> None:
    async def steps() -> None:
        topic = await two_ledgers()
        subscription = await open_subscription(
            topic.ledgers, topic.name, "s", start=EARLIEST, save_after_s=0.0
        )
        await subscription.ack(await subscription.receive())
        while not (node := await read_node(topic.ledgers, topic.name, "s")) or node[1].version == 0:
            await asyncio.sleep(0)
        assert node[0].mark_delete == Position(0, 0)
        await subscription.close()

    run(steps())


def test_a_killed_consumer_leaves_what_was_saved() -> None:
    async def steps() -> None:
        topic = await two_ledgers()
        killed = topic.ledgers.other()
        subscription = await subscribed(topic, ledgers=killed)
        messages = await received(subscription, 7)
        await subscription.ack(messages[0])
        await subscription.save()
        await subscription.ack_through(messages[6])
        killed.nodes.expire()
        async with await subscribed(topic) as after:
            assert texts(await received(after, 1)) == b"b"
        with pytest.raises(SessionExpired):
            await subscription.close()

    run(steps())


def test_redelivery_counts_and_comes_in_order_without_what_is_acknowledged() -> None:
    async def steps() -> None:
        async with await subscribed(await two_ledgers()) as subscription:
            messages = await received(subscription, 5)
            await subscription.ack(messages[2])
            await subscription.redeliver(messages[3])
            (again,) = await received(subscription, 1)
            assert (again.payload, again.redelivery_count) == (b"d", 1)
            await subscription.redeliver_all()
            rest = await received(subscription, 6)
            assert texts(rest) == b"abdefg"
            assert [one.redelivery_count for one in rest] == [1, 1, 2, 1, 0, 0]
            await subscription.ack(rest[0])
            await subscription.redeliver(rest[0])
            assert await subscription.receive_within(0.0) is None

    run(steps())


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (EARLIEST, b"abcdefg"),
        (LATEST, b""),
        (MessageId(0, 1, -1, 2), b"defg"),
        (AtTime(1_030), b"fg"),
    ],
    ids=str,
)
def test_a_new_subscription_and_a_seek_begin_where_they_are_told_to(start: Start, expected: bytes) -> None:
    async def steps() -> None:
        topic = await two_ledgers()
        async with await subscribed(topic, start) as subscription:
            assert texts(await received(subscription, len(expected))) == expected
            assert await subscription.receive_within(0.0) is None
            await subscription.seek(EARLIEST)
            await subscription.ack_through((await received(subscription, 7))[6])
            await subscription.seek(start)
        async with await subscribed(topic) as subscription:
            assert texts(await received(subscription, len(expected))) == expected
            assert await subscription.receive_within(0.0) is None

    run(steps())


def test_a_seek_back_is_seen_at_once_also_where_the_last_entry_is_seen_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    confirmed = MemoryReader.read_last_add_confirmed

    async def confirmed_by_the_next_entry(reader: MemoryReader) -> int:
        return await confirmed(reader) - 1

    async def steps() -> None:
        topic = await two_ledgers()
        async with await subscribed(topic) as subscription:
            messages = await received(subscription, 7)
            await subscription.ack_through(messages[5])
            await subscription.seek(messages[1].id)
            await subscription.ack(messages[2])
            await subscription.save()
            assert await cursors_ledger(topic) != NO_LEDGER
            await subscription.ack_through(messages[6])
            await subscription.save()
            await subscription.seek(EARLIEST)
            monkeypatch.setattr(MemoryReader, "read_last_add_confirmed", confirmed_by_the_next_entry)
            seen = await read_cursor(topic.ledgers, topic.name, "s", Extents())
            assert seen.mark_delete == subscription.cursor.mark_delete == Position(-1, -1)

    run(steps())


def test_messages_that_are_written_later_are_delivered_also_over_a_roll_over() -> None:
    async def steps() -> None:
        topic = new_topic()
        async with await subscribed(topic, LATEST) as subscription:
            await topic.begin()
            await topic.send(b"a", b"b")
            messages = await received(subscription, 2)
            await subscription.ack(messages[0])
            await subscription.ack(messages[1])
            await topic.end()
            await topic.begin()
            await topic.send(b"c")
            (message,) = await received(subscription, 1)
            assert message.payload == b"c"
            await subscription.ack(message)
            assert subscription.cursor.mark_delete == Position(message.id.ledger_id, 0)
            assert subscription.cursor.ranges_count == 0

    run(steps())


def test_an_exclusive_subscription_refuses_a_second_consumer() -> None:
    async def steps() -> None:
        topic = await two_ledgers()
        async with await subscribed(topic):
            for ledgers in (topic.ledgers, topic.ledgers.other()):
                with pytest.raises(SubscriptionBusy, match=r"'s' of persistent.*session 0x"):
                    await subscribed(topic, ledgers=ledgers)
        async with await subscribed(topic) as subscription:
            assert texts(await received(subscription, 1)) == b"a"
        children = await topic.ledgers.nodes.children(CONSUMERS)
        assert getattr(children, "names", None) == ()

    run(steps())


def test_with_failover_the_next_consumer_goes_on() -> None:
    async def steps() -> None:
        topic = await two_ledgers()
        first = await subscribed(topic, mode=SubscriptionMode.FAILOVER)
        opening = asyncio.ensure_future(
            subscribed(topic, mode=SubscriptionMode.FAILOVER, ledgers=topic.ledgers.other())
        )
        for message in await received(first, 4):
            await first.ack(message)
        assert not opening.done()
        await first.close()
        async with await opening as second:
            assert texts(await received(second, 3)) == b"efg"

    run(steps())


def test_a_consumer_that_was_taken_for_dead_learns_that_it_is_fenced() -> None:
    async def steps() -> None:
        topic = await two_ledgers()
        first = await subscribed(topic)
        path = (await topic.ledgers.nodes.children(CONSUMERS)).names[0]  # type: ignore[union-attr]
        await topic.ledgers.nodes.delete(f"{CONSUMERS}/{path}")
        second = await subscribed(topic, ledgers=topic.ledgers.other())
        messages = await received(first, 3)
        await first.ack(messages[0])
        with pytest.raises(SubscriptionFenced):
            await first.save()
        await first.ack(messages[1])
        with pytest.raises(SubscriptionFenced):
            await first.save()
        with pytest.raises(SubscriptionFenced):
            await first.close()
        with pytest.raises(SubscriptionBusy):
            await subscribed(topic)
        assert texts(await received(second, 2)) == b"ab"
        await second.close()
        assert {one.cursor for one in topic.ledgers.ledgers.values()} == {None}
        with pytest.raises(SubscriptionBusy):
            async with await subscribed(topic):
                await subscribed(topic)

    run(steps())


def test_a_cursor_that_moves_on_while_it_is_taken_over_is_not_moved_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def steps() -> None:
        topic = await two_ledgers()
        killed, after = topic.ledgers.other(), topic.ledgers.other()
        first = await subscribed(topic, ledgers=killed)
        path = (await topic.ledgers.nodes.children(CONSUMERS)).names[0]  # type: ignore[union-attr]
        await topic.ledgers.nodes.delete(f"{CONSUMERS}/{path}")
        get = after.nodes.get

        async def get_after_the_other_has_gone_on(path: str) -> Node | Gone:
            if path == topic.name.cursor_path("s"):
                monkeypatch.undo()
                await topic.write([[b"h"]])
                await first.ack_through((await received(first, 8))[7])
                await first.save()
            return await get(path)

        monkeypatch.setattr(after.nodes, "get", get_after_the_other_has_gone_on)
        async with await subscribed(topic, ledgers=after) as second:
            assert second.cursor.mark_delete == Position(2, 0)
            assert await second.receive_within(0.0) is None
        first.abandon()

    run(steps())


def test_a_fenced_consumer_cannot_add_to_its_ledger() -> None:
    async def steps() -> None:
        topic = await two_ledgers()
        first = await subscribed(topic)
        messages = await received(first, 3)
        await first.ack(messages[1])
        await first.save()
        path = (await topic.ledgers.nodes.children(CONSUMERS)).names[0]  # type: ignore[union-attr]
        await topic.ledgers.nodes.delete(f"{CONSUMERS}/{path}")
        second = await subscribed(topic, ledgers=topic.ledgers.other())
        await first.ack(messages[2])
        with pytest.raises(SubscriptionFenced):
            await first.save()
        assert texts(await received(second, 2)) == b"ac"
        await second.close()
        with pytest.raises(SubscriptionFenced):
            await first.close()

    run(steps())


def test_a_ledger_that_takes_no_more_is_replaced_by_the_next_save(monkeypatch: pytest.MonkeyPatch) -> None:
    submit = MemoryAppender.submit
    broken: set[int] = set()

    def submit_unless_broken(appender: MemoryAppender, payload: bytes) -> asyncio.Future[int]:
        if appender.id in broken:
            raise NotEnoughBookies(3, 2, {})
        return submit(appender, payload)

    async def steps() -> None:
        topic = await two_ledgers()
        killed = topic.ledgers.other()
        subscription = await subscribed(topic, ledgers=killed)
        messages = await received(subscription, 3)
        await subscription.ack(messages[1])
        await subscription.save()
        first = await cursors_ledger(topic)
        monkeypatch.setattr(MemoryAppender, "submit", submit_unless_broken)
        broken.update(range(first, first + 10))
        await subscription.ack(messages[2])
        with pytest.raises(NotEnoughBookies):
            await subscription.save()
        assert [number for number, one in topic.ledgers.ledgers.items() if one.cursor == "s"] == [first]
        broken.intersection_update({first})
        await subscription.save()
        subscription.abandon()
        killed.nodes.expire()
        async with await subscribed(topic) as subscription:
            assert texts(await received(subscription, 2)) == b"ad"

    run(steps())


@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize("after", range(4))
def test_lost_answers_of_the_metadata_change_nothing(loss: Loss, after: int) -> None:
    async def steps() -> None:
        topic = await two_ledgers()
        await topic.ledgers.nodes.create(CONSUMERS)
        topic.ledgers.nodes.lose(loss, after)
        async with await subscribed(topic) as subscription:
            for message in await received(subscription, 3):
                await subscription.ack(message)
            await subscription.save()
        async with await subscribed(topic) as subscription:
            assert texts(await received(subscription, 4)) == b"defg"

    run(steps())


@pytest.mark.parametrize("is_batch", [False, True], ids=["in the node", "in a ledger"])
def test_a_save_that_did_not_learn_its_outcome_is_followed_by_another(is_batch: bool) -> None:
    async def steps() -> None:
        topic = await two_ledgers()
        async with await subscribed(topic) as subscription:
            messages = await received(subscription, 7)
            await subscription.ack(messages[1 if is_batch else 0])
            nodes = topic.ledgers.nodes
            nodes.lose(Loss.DONE)
            nodes.lose_reads(1, after=1)  # the one that asks what became of the write
            with pytest.raises(MetadataUnavailable):
                await subscription.save()
            await subscription.ack_through(messages[2])
            await subscription.save()
            assert await cursors_ledger(topic) != NO_LEDGER
            assert [one.cursor for one in topic.ledgers.ledgers.values()].count("s") == 1
        async with await subscribed(topic) as subscription:
            assert texts(await received(subscription, 4)) == b"defg"

    run(steps())


def test_a_save_that_was_cancelled_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    async def steps() -> None:
        topic = await two_ledgers()
        async with await subscribed(topic) as subscription:
            messages = await received(subscription, 7)
            await subscription.ack(messages[0])
            write = topic.ledgers.nodes.set

            async def write_without_an_answer(*change: Any) -> SetAnswer:
                await write(*change)
                await asyncio.Event().wait()
                raise AssertionError("cancelled before")

            monkeypatch.setattr(topic.ledgers.nodes, "set", write_without_an_answer)
            saving = asyncio.ensure_future(subscription.save())
            while (node := await read_node(topic.ledgers, topic.name, "s")) is None or node[1].version == 0:
                await asyncio.sleep(0)
            saving.cancel()
            await asyncio.gather(saving, return_exceptions=True)
            monkeypatch.setattr(topic.ledgers.nodes, "set", write)
            await subscription.ack_through(messages[4])
        async with await subscribed(topic) as subscription:
            assert texts(await received(subscription, 2)) == b"fg"

    run(steps())


def test_a_damaged_entry_ends_the_delivery_until_a_seek_passes_it() -> None:
    async def steps() -> None:
        topic = new_topic()
        await topic.begin()
        await topic.send(b"a")
        await topic.send_bytes(b"\x0e\x01\0\0\0\0damaged")
        await topic.send(b"b")
        async with await subscribed(topic) as subscription:
            await received(subscription, 1)
            for _ in range(2):
                with pytest.raises(EntryChecksumWrong, match="entry 1 of ledger 0"):
                    await subscription.receive()
            await subscription.seek(MessageId(0, 2))
            assert texts(await received(subscription, 1)) == b"b"

    run(steps())


def test_an_acknowledgement_of_another_topic_is_refused() -> None:
    async def steps() -> None:
        async with await subscribed(await two_ledgers()) as subscription:
            await received(subscription, 1)
            for wrong in (MessageId(9, 0), MessageId(0, 7), MessageId(0, 0, 3), MessageId(0, 1, -1, 3)):
                with pytest.raises(NotInTopic):
                    await subscription.ack(wrong)

    run(steps())


def test_subscriptions_are_listed_and_deleted_with_their_ledger() -> None:
    async def steps() -> None:
        topic = await two_ledgers()
        subscription = await subscribed(topic)
        await subscription.ack((await received(subscription, 2))[1])
        await subscription.save()
        assert await subscriptions_of(topic.ledgers, topic.name) == ["s"]
        await delete_subscription(topic.ledgers, topic.name, "s")
        assert await subscriptions_of(topic.ledgers, topic.name) == []
        assert {one.cursor for one in topic.ledgers.ledgers.values()} == {None}
        with pytest.raises(NoSuchSubscription, match="has no subscription 's'"):
            await delete_subscription(topic.ledgers, topic.name, "s")
        await subscription.ack(MessageId(0, 0))
        with pytest.raises((NoSuchSubscription, SubscriptionFenced)):
            await subscription.close()
        with pytest.raises(TopicClosed, match="subscription 's'"):
            await subscription.receive()

    run(steps())


def test_a_message_that_waits_for_its_redelivery_is_not_delivered_twice() -> None:
    async def steps() -> None:
        topic = await two_ledgers()
        async with await subscribed(topic) as subscription:
            first, _ = await received(subscription, 2)
            await subscription.redeliver(first)
            await subscription.redeliver(first)
            assert texts(await received(subscription, 3)) == b"acd"
            again = await subscription.receive()
            await subscription.redeliver(again)
            assert (await subscription.receive()).redelivery_count == 1

    run(steps())


def test_a_cursor_that_was_moved_into_the_topic_is_saved_at_once() -> None:
    """Otherwise messages would be passed over that are written later at the places before the cursor."""

    async def steps() -> None:
        topic = new_topic()
        await topic.begin()
        await topic.send(b"a")
        await topic.end()
        path = topic.name.cursor_path("s")
        await topic.ledgers.nodes.create(path, encode_cursor(ManagedCursorInfo(NO_LEDGER, Position(0, 7))))
        consumer = topic.ledgers.other()
        await subscribed(topic, ledgers=consumer)
        node = await read_node(topic.ledgers, topic.name, "s")
        assert node is not None
        assert node[0].mark_delete == Position(0, 0)

    run(steps())


def test_a_consumer_does_not_write_the_cursor_of_a_subscription_that_was_made_again() -> None:
    async def steps() -> None:
        topic = await two_ledgers()
        extents = await read_extents(topic.ledgers, topic.name)
        former, later = (CursorStore(topic.ledgers, topic.name, "s", token) for token in (b"1", b"2"))
        await former.create(Cursor(str(topic.name), Position(0, -1)))
        await former.save()
        await delete_subscription(topic.ledgers, topic.name, "s")
        await later.create(Cursor(str(topic.name), Position(0, -1)))
        await later.save()
        before = await read_node(topic.ledgers, topic.name, "s")
        former.cursor.acknowledge(MessageId(0, 0), 0, extents)
        with pytest.raises(SubscriptionFenced):
            await former.save()
        assert await read_node(topic.ledgers, topic.name, "s") == before
        await later.save()

    run(steps())


def test_a_consumer_takes_no_write_of_another_one_for_its_own() -> None:
    """One that opens a subscription writes the state that it has found. The other one gets no answer."""

    async def steps() -> None:
        topic = await two_ledgers()
        extents, other = await read_extents(topic.ledgers, topic.name), topic.ledgers.other()
        first = CursorStore(other, topic.name, "s", b"1")
        second = CursorStore(topic.ledgers, topic.name, "s", b"2")
        await first.create(Cursor(str(topic.name), Position(0, -1)))
        other.nodes.before_write = partial(second.open, extents)
        other.nodes.lose(Loss.NOT_DONE)
        with pytest.raises(SubscriptionFenced):
            await first.save()
        second.cursor.acknowledge(MessageId(0, 0), 0, extents)
        await second.save()

    run(steps())
