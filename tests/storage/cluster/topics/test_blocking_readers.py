"""Readers and subscriptions for threads, and what a second client sees of a topic that is written."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from cluster_in_a_thread import cluster_in_a_thread

import ledgerstore
from storage.cluster import connect
from storage.cluster.client.distribution import Quorums
from storage.cluster.topics.blocking import Topic
from storage.cluster.topics.blocking_readers import Subscription, TopicReader
from storage.cluster.topics.errors import SubscriptionBusy
from storage.cluster.topics.message_id import EARLIEST, MessageId
from storage.cluster.topics.reader import After, AsyncTopicReader
from storage.cluster.topics.subscription import AsyncSubscription, SubscriptionMode
from storage.cluster.topics.topic import AsyncTopic

if TYPE_CHECKING:
    from pathlib import Path

OF_THE_LOOP = {
    "abandon",
    "close_quietly",
    "entries",
    "extents",
    "follow_entries",
    "is_closed",
    "move_to",
    "open",
    "read_extents",
    "rewind",
}
"""What the parts of topics call on each other."""


@pytest.mark.parametrize(
    ("coroutines", "threads"),
    [(AsyncTopic, Topic), (AsyncTopicReader, TopicReader), (AsyncSubscription, Subscription)],
)
def test_the_object_for_threads_has_the_same_methods(coroutines: type, threads: type) -> None:
    public = {name for name in vars(coroutines) if not name.startswith("_")} - OF_THE_LOOP
    assert {name for name in vars(threads) if not name.startswith("_")} == public - {"name"} | (
        {"name"} & vars(threads).keys()
    )


def test_threads_read_acknowledge_seek_and_get_messages_again(tmp_path: Path) -> None:
    with ledgerstore.open(tmp_path / "store") as store, store.topic("orders") as topic:
        ids = [topic.send(payload) for payload in (b"a", b"b", b"c")]
        reader = topic.reader(After(ids[0]))
        assert [one.payload for one in reader.messages()] == [b"b", b"c"]
        assert list(reader.messages()) == []
        with topic.subscription("s", start=EARLIEST) as subscription:
            first, second = subscription.receive(), subscription.receive()
            subscription.ack(first)
            subscription.redeliver(second)
            assert subscription.receive().redelivery_count == 1
            subscription.redeliver_all()
            assert [subscription.receive().payload for _ in range(2)] == [b"b", b"c"]
            assert subscription.receive_within(0.0) is None
            subscription.ack_through(ids[1])
            subscription.save()
            with pytest.raises(SubscriptionBusy):
                topic.subscription("s", SubscriptionMode.EXCLUSIVE)
            assert "'s' of persistent://public/default/orders" in repr(subscription)
            assert subscription.cursor.mark_delete == (ids[1].ledger_id, ids[1].entry_id)
            subscription.seek(ids[1])
        with topic.subscription("s") as subscription:
            assert subscription.receive().payload == b"b"
        assert topic.subscriptions() == ["s"]
        topic.delete_subscription("s")
        assert topic.subscriptions() == []


def test_a_thread_follows_what_another_one_writes(tmp_path: Path) -> None:
    with ledgerstore.open(tmp_path / "store") as store, store.topic("orders") as topic:
        topic.send(b"a")
        messages = topic.reader().follow()
        assert next(messages).payload == b"a"
        writer = threading.Thread(target=lambda: topic.send(b"b"))
        writer.start()
        assert next(messages).payload == b"b"
        writer.join()


def test_a_second_client_sees_the_last_message_of_a_producer_that_pauses(tmp_path: Path) -> None:
    with (
        cluster_in_a_thread(tmp_path, 1) as address,
        connect(address) as first,
        connect(address) as second,
        first.topic("orders", Quorums(1, 1, 1)) as topic,
    ):
        sent = [topic.send(b"a"), topic.send(b"b")]
        assert [one.payload for one in topic.reader().messages()] == [b"a", b"b"]
        messages = second.topic("orders").reader().follow()
        assert [next(messages).id for _ in range(2)] == sent
        messages.close()  # type: ignore[attr-defined]
        assert isinstance(sent[1], MessageId)
