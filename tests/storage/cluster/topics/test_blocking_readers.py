"""Readers and subscriptions for threads, and what a second client sees of a topic that is written."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from cluster_in_a_thread import cluster_in_a_thread

import ledgerstore
from storage.cluster import connect
from storage.cluster.client.distribution import Quorums
from storage.cluster.client.loop_thread import LoopThread
from storage.cluster.topics.blocking import PartitionedTopic, Topic
from storage.cluster.topics.blocking_readers import (
    PartitionedReader,
    PartitionedSubscription,
    Subscription,
    TopicReader,
)
from storage.cluster.topics.errors import LedgerMissing, SubscriptionBusy
from storage.cluster.topics.message_id import EARLIEST, MessageId
from storage.cluster.topics.partitioned import (
    AsyncPartitionedReader,
    AsyncPartitionedSubscription,
    AsyncPartitionedTopic,
)
from storage.cluster.topics.policies import RollOver
from storage.cluster.topics.producer import Batching
from storage.cluster.topics.reader import After, AsyncTopicReader
from storage.cluster.topics.subscription import AsyncSubscription, SubscriptionMode
from storage.cluster.topics.topic import AsyncTopic

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable
    from pathlib import Path

    from storage.cluster.topics.message import ReceivedMessage

ONE = RollOver(entries=1)

OF_THE_LOOP = {
    "abandon",
    "close_quietly",
    "entries",
    "extents",
    "follow_batches",
    "follow_entries",
    "go_back_to",
    "go_on_after",
    "is_closed",
    "move_to",
    "open",
    "read_extents",
    "received",
    "rewind",
    "take",
}
"""What the parts of topics call on each other."""


@pytest.mark.parametrize(
    ("coroutines", "threads"),
    [
        (AsyncTopic, Topic),
        (AsyncTopicReader, TopicReader),
        (AsyncSubscription, Subscription),
        (AsyncPartitionedTopic, PartitionedTopic),
        (AsyncPartitionedReader, PartitionedReader),
        (AsyncPartitionedSubscription, PartitionedSubscription),
    ],
)
def test_the_object_for_threads_has_the_same_methods(coroutines: type, threads: type) -> None:
    public = {name for name in vars(coroutines) if not name.startswith("_")} - OF_THE_LOOP
    assert {name for name in dir(threads) if not name.startswith("_")} - {"name"} == public - {"name"}


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


def test_a_reader_goes_on_where_its_loop_was_left(tmp_path: Path) -> None:
    with ledgerstore.open(tmp_path / "store") as store, store.topic("orders") as topic:
        topic.send(b"a")
        topic.send_many([b"b", b"c", b"d"])
        topic.send(b"e")
        reader = topic.reader()
        found = []
        for _ in range(3):
            for message in reader.messages():
                found.append(message.payload)
                if len(found) in (1, 3):
                    break
        assert b"".join(found) == b"abcde"


def test_the_messages_of_an_entry_are_given_together_and_once(tmp_path: Path) -> None:
    with ledgerstore.open(tmp_path / "store") as store, store.topic("orders") as topic:
        topic.send(b"a")
        topic.send_many([b"b", b"c", b"d"])
        topic.send(b"e")
        reader = topic.reader()
        for batch in reader.batches():
            if len(batch) == 3:
                assert [one.id.batch_index for one in batch] == [0, 1, 2]
                break
        assert [[one.payload for one in batch] for batch in reader.batches()] == [[b"e"]]
        assert [[one.payload for one in batch] for batch in topic.reader().batches()] == [
            [b"a"],
            [b"b", b"c", b"d"],
            [b"e"],
        ]


def test_messages_before_an_error_are_given_before_it(tmp_path: Path) -> None:
    with ledgerstore.open(tmp_path / "store") as store, store.topic("orders", roll_over=ONE) as topic:
        ids = [topic.send(payload) for payload in (b"a", b"b", b"c")]
        topic.roll_over()  # returns when the ledger of the last message is closed
        store.ledger(ids[2].ledger_id, password=b"ledgerstore topics").delete()
        found: list[bytes] = []

        def take(messages: Iterable[ReceivedMessage]) -> None:
            for message in messages:
                found.append(message.payload)  # noqa: PERF401 - the error comes after some of them

        with pytest.raises(LedgerMissing):
            take(topic.reader().messages())
        assert found == [b"a", b"b"]


def test_a_thread_follows_what_another_one_writes(tmp_path: Path) -> None:
    with ledgerstore.open(tmp_path / "store") as store, store.topic("orders") as topic:
        topic.send(b"a")
        messages = topic.reader().follow()
        assert next(messages).payload == b"a"
        writer = threading.Thread(target=lambda: topic.send(b"b"))
        writer.start()
        assert next(messages).payload == b"b"
        writer.join()


def test_a_thread_gets_the_messages_of_a_batch_in_one_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[object] = []
    run = LoopThread.run

    def counted(thread: LoopThread, work: Coroutine[object, object, object]) -> object:
        calls.append(work)
        return run(thread, work)

    with ledgerstore.open(tmp_path / "store") as store, store.topic("orders") as topic:
        topic.send_many([b"%d" % number for number in range(40)], Batching(count=20))
        monkeypatch.setattr(LoopThread, "run", counted)
        following = topic.reader().follow()
        assert [next(following).payload for _ in range(40)] == [b"%d" % number for number in range(40)]
        assert len(calls) == 2
        reader = topic.reader()
        calls.clear()
        assert len(list(reader.messages())) == 40
        assert len(calls) == 3  # the second one finds the end, and the third one closes the iteration


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
