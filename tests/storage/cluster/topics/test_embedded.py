"""Topics in one local store: what is there when the store is opened again, also after a kill."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

import ledgerstore
from storage.cluster.errors import MetadataUnavailable
from storage.cluster.metadata.znodes import (
    Conflict,
    Created,
    CreateMode,
    Deleted,
    Exists,
    Gone,
    Node,
    NoParent,
    NotEmpty,
    Unchanged,
    Written,
)
from storage.cluster.topics import embedded_nodes
from storage.cluster.topics.embedded_ledgers import NODES_LEDGER, EmbeddedLedgers
from storage.cluster.topics.errors import (
    LedgerMissing,
    MessageTooLarge,
    TopicClosed,
    TopicFenced,
    TopicsInUse,
)
from storage.cluster.topics.format import decode_entry
from storage.cluster.topics.managed_ledger import TopicName
from storage.cluster.topics.policies import Retention, RollOver
from storage.cluster.topics.producer import Batching
from storage.errors import Unauthorized

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from storage.aio.store import AsyncStore
    from storage.store import Store


def with_store(path: Path, steps: Callable[[AsyncStore], Coroutine[Any, Any, object]]) -> None:
    async def run() -> None:
        async with ledgerstore.open_async(path) as store:
            await asyncio.wait_for(steps(store), 60)

    asyncio.run(run())


def messages_of(store: Store, name: str) -> list[bytes]:
    """Return the payloads of a topic, read from the ledgers of its list."""
    found = []
    for info in store.topic(name).ledgers():
        ledger = store.ledger(info.ledger_id)
        if ledger.last_entry_id is not None:
            for payload in ledger.payloads():
                found += [message.payload for message in decode_entry(payload).messages]
    return found


# ── topics for threads ────────────────────────────────────────────────────────────────────────────────────


def test_messages_of_a_topic_are_there_when_the_store_is_opened_again(tmp_path: Path) -> None:
    with ledgerstore.open(tmp_path) as store:
        topic = store.topic("orders", roll_over=RollOver(entries=2))
        ids = [topic.send(b"%d" % number) for number in range(3)]
        assert ids == sorted(ids)
        assert ids[0].ledger_id > NODES_LEDGER
        assert ids[0].ledger_id == ids[1].ledger_id != ids[2].ledger_id
    with ledgerstore.open(tmp_path) as store:
        assert messages_of(store, "orders") == [b"0", b"1", b"2"]
        later = store.topic("orders").send(b"3")
        assert later > ids[-1]
        assert messages_of(store, "orders") == [b"0", b"1", b"2", b"3"]


def test_a_store_has_ledgers_of_its_own_beside_its_topics(tmp_path: Path) -> None:
    with ledgerstore.open(tmp_path) as store:
        store.ledger(1).append(b"mine")
        sent = store.topic("orders").send(b"one")
        assert store.ledger(1).read(0).payload == b"mine"
        with pytest.raises(Unauthorized):
            store.ledger(sent.ledger_id).append(b"a mistake")


def test_a_producer_for_threads_batches_what_is_submitted(tmp_path: Path) -> None:
    with ledgerstore.open(tmp_path) as store, store.topic("orders") as topic:
        with topic.producer("p", Batching(count=10, delay_s=3600)) as producer:
            sent = [producer.submit(b"%d" % number) for number in range(25)]
            assert producer.name == "p"
        found = [one.result() for one in sent]
        assert [one.batch_index for one in found if one is not None] == [*range(10), *range(10), *range(5)]
        assert len(topic.send_many([b"%d" % number for number in range(30)], Batching(count=10))) == 30
        assert topic.stats().entries == 6


def test_threads_that_share_a_producer_lose_nothing(tmp_path: Path) -> None:
    with ledgerstore.open(tmp_path) as store, store.topic("orders") as topic:
        with topic.producer(batch=Batching(count=50)) as producer, ThreadPoolExecutor(4) as threads:
            parts = [threads.submit(lambda: [producer.submit(b"x") for _ in range(100)]) for _ in range(4)]
        ids = [sent.result() for part in parts for sent in part.result()]
        assert len(set(ids)) == 400


def test_a_message_that_is_no_bytes_is_refused_where_its_result_is_asked(tmp_path: Path) -> None:
    with ledgerstore.open(tmp_path) as store, store.topic("orders") as topic:
        with pytest.raises(TypeError):
            topic.send("text")  # type: ignore[arg-type]
        with pytest.raises(MessageTooLarge, match="6000000 bytes"):
            topic.send(bytes(6_000_000))
        topic.send(b"the next one")


def test_a_second_owner_in_the_same_process_fences_the_first(tmp_path: Path) -> None:
    with ledgerstore.open(tmp_path) as store:
        first, second = store.topic("orders"), store.topic("orders")
        first.send(b"one")
        second.send(b"two")
        with pytest.raises((TopicFenced, ledgerstore.StoreError)):
            first.send(b"lost")
        with pytest.raises(TopicFenced):
            first.roll_over()
        assert messages_of(store, "orders") == [b"one", b"two"]


def test_threads_and_coroutines_do_not_have_topics_of_one_store(tmp_path: Path) -> None:
    async def steps(store: AsyncStore) -> None:
        topic = store.topic("orders")
        await topic.send(b"one")
        with pytest.raises(TopicsInUse, match="either from coroutines or from threads"):
            await asyncio.to_thread(store.blocking.topic, "orders")
        assert "ledgerstore-client" not in [one.name for one in threading.enumerate()]
        await topic.roll_over()
        await topic.send(b"two")

    with_store(tmp_path, steps)
    with ledgerstore.open(tmp_path) as store:
        assert messages_of(store, "orders") == [b"one", b"two"]


def test_a_trim_gives_ledgers_up_and_their_ids_are_not_used_again(tmp_path: Path) -> None:
    with ledgerstore.open(tmp_path) as store:
        topic = store.topic("orders", roll_over=RollOver(entries=1), retention=Retention(0, 0))
        first = topic.send(b"one")
        topic.roll_over()
        assert topic.trim() == (first.ledger_id,)
        assert first.ledger_id not in store.ledgers()
        assert topic.send(b"two").ledger_id > first.ledger_id


def test_a_closed_topic_takes_no_more(tmp_path: Path) -> None:
    with ledgerstore.open(tmp_path) as store:
        topic = store.topic("orders")
        topic.send(b"one")
        topic.close()
        with pytest.raises(TopicClosed):
            topic.send(b"two")


def test_a_ledger_that_a_program_has_deleted_is_named(tmp_path: Path) -> None:
    with ledgerstore.open(tmp_path) as store:
        sent = store.topic("orders").send(b"one")
    with ledgerstore.open(tmp_path) as store:
        store.delete([sent.ledger_id], b"ledgerstore topics")
        with pytest.raises(LedgerMissing, match=f"ledger {sent.ledger_id} "):
            store.topic("orders").send(b"two")


def test_a_ledger_that_no_topic_names_is_deleted_when_the_topics_are_opened(tmp_path: Path) -> None:
    async def leave_one(store: AsyncStore) -> None:
        appender = await EmbeddedLedgers(store, 1 << 20).create("public/default/persistent/orders")
        await appender.submit(b"leaked")

    with_store(tmp_path, leave_one)
    with ledgerstore.open(tmp_path) as store:
        assert NODES_LEDGER + 1 in store.ledgers()
        kept = store.topic("orders").send(b"one").ledger_id
        assert store.ledgers() == [NODES_LEDGER, kept]


PROGRAM = """
import sys, ledgerstore
from storage.cluster.topics.policies import RollOver
from storage.cluster.topics.producer import Batching
store = ledgerstore.open(sys.argv[1])
topic = store.topic("orders", roll_over=RollOver(entries=3))
producer = topic.producer("p", Batching(count=4))
number = int(sys.argv[2])
while True:
    sent = [producer.submit(b"%d" % (number + one)) for one in range(8)]
    for one in sent:
        one.result()
    number += 8
    print(number, flush=True)
"""


@pytest.mark.slow
def test_a_process_that_is_killed_again_and_again_loses_no_acknowledged_message(tmp_path: Path) -> None:
    number = 0
    for attempt in range(4):
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / "store"), str(number)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for _ in range(5 + 7 * attempt):
                number = int(process.stdout.readline())
            process.kill()
            # A last line may be cut short.
            number = max([number, *(int(one) for one in process.stdout if one.endswith(b"\n"))])
        with ledgerstore.open(tmp_path / "store") as store:
            found = [int(one) for one in messages_of(store, "orders")]
            assert found == sorted(found)
            assert set(range(number)) <= set(found)
            number = found[-1] + 1


# ── the nodes ─────────────────────────────────────────────────────────────────────────────────────────────


def test_nodes_behave_as_those_of_zookeeper(tmp_path: Path) -> None:
    async def steps(store: AsyncStore) -> None:
        nodes = EmbeddedLedgers(store, 1 << 20).nodes
        assert await nodes.create("/a/b") == NoParent()
        assert await nodes.create("/a") == Created("/a")
        assert await nodes.create("/a") == Exists()
        assert await nodes.create("/a/b", b"data") == Created("/a/b")
        assert await nodes.set("/a/b", b"new", 0) == Written(1)
        assert await nodes.set("/a/b", b"newer", 0) == Conflict()
        assert await nodes.set("/a/b", b"newer") == Written(2)
        assert await nodes.set("/c", b"") == Gone()
        assert await nodes.delete("/a") == NotEmpty()
        assert await nodes.delete("/a/b", 0) == Conflict()
        children = await nodes.children("/a")
        assert not isinstance(children, Gone)
        assert children.names == ("b",)
        found, missing = await nodes.get_all(["/a/b", "/c"])
        assert isinstance(found, Node)
        assert (found.data, found.stat.version, missing) == (b"newer", 2, Gone())
        assert await nodes.delete("/a/b") == Deleted()
        assert await nodes.delete("/a/b") == Gone()
        assert await nodes.children("/a/b") == Gone()

    with_store(tmp_path, steps)


def test_of_two_changes_at_once_one_wins(tmp_path: Path) -> None:
    async def steps(store: AsyncStore) -> None:
        nodes = EmbeddedLedgers(store, 1 << 20).nodes
        assert sorted(map(repr, await asyncio.gather(nodes.create("/a"), nodes.create("/a")))) == [
            "Created(path='/a')",
            "Exists()",
        ]
        answers = await asyncio.gather(*(nodes.set("/a", b"%d" % one, 0) for one in range(3)))
        assert answers == [Written(1), Conflict(), Conflict()]
        both = await asyncio.gather(nodes.create("/a/b"), nodes.delete("/a"))
        assert list(both) == [Created("/a/b"), NotEmpty()]

    with_store(tmp_path, steps)


def test_a_change_that_is_too_large_fails_alone(tmp_path: Path) -> None:
    async def steps(store: AsyncStore) -> None:
        nodes = EmbeddedLedgers(store, 1 << 20).nodes
        await nodes.create("/a")
        large = bytes(1 << 20)
        answers = await asyncio.gather(
            nodes.create("/b"),
            nodes.set("/a", large, 0),
            nodes.set("/a", b"small", 0),
            nodes.create("/c", mode=CreateMode.EPHEMERAL),
            nodes.announce("topic", None),
            return_exceptions=True,
        )
        assert answers[0] == Created("/b")
        assert isinstance(answers[1], MetadataUnavailable)
        assert repr(answers[2:4]) == repr([Written(1), Created("/c")])
        assert isinstance(answers[4], int)
        found = await nodes.get("/a")
        assert isinstance(found, Node)
        assert found.data == b"small"

    with_store(tmp_path, steps)


def test_a_node_that_was_made_again_has_another_number(tmp_path: Path) -> None:
    async def steps(store: AsyncStore) -> None:
        nodes = EmbeddedLedgers(store, 1 << 20).nodes
        numbers = []
        for _ in range(3):
            await nodes.create("/a")
            await nodes.set("/a", b"changed")
            node = await nodes.get("/a")
            assert isinstance(node, Node)
            numbers.append(node.stat.created_zxid)
            await nodes.delete("/a")
        assert numbers == sorted(set(numbers))

    with_store(tmp_path, steps)


def test_an_ephemeral_node_is_gone_when_the_store_is_opened_again(tmp_path: Path) -> None:
    async def make(store: AsyncStore) -> None:
        nodes = EmbeddedLedgers(store, 1 << 20).nodes
        await nodes.create("/a")
        assert await nodes.create("/a/mine", b"x", CreateMode.EPHEMERAL) == Created("/a/mine")
        assert await nodes.create("/a/mine", b"x", CreateMode.EPHEMERAL) == Exists()
        watch = nodes.watch("/a/mine")
        assert isinstance(await watch.next(), Node)
        waiting = asyncio.ensure_future(watch.next())
        assert await nodes.delete("/a/mine") == Deleted()
        assert await waiting == Gone()
        watch.close()
        await nodes.create("/a/mine", b"x", CreateMode.EPHEMERAL)

    async def look(store: AsyncStore) -> None:
        nodes = EmbeddedLedgers(store, 1 << 20).nodes
        assert isinstance(await nodes.get("/a"), Node)
        assert await nodes.get("/a/mine") == Gone()

    with_store(tmp_path, make)
    with_store(tmp_path, look)


def test_a_watch_tells_nothing_when_nothing_changes(tmp_path: Path) -> None:
    async def steps(store: AsyncStore) -> None:
        watch = EmbeddedLedgers(store, 1 << 20).nodes.watch("/a")
        assert await watch.next() == Gone()
        assert await watch.next(timeout_s=0.001) == Unchanged()

    with_store(tmp_path, steps)


def test_a_log_that_is_mostly_out_of_date_is_written_anew_and_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_nodes, "_REWRITE_SIZE_MIN", 1000)

    async def change(store: AsyncStore) -> None:
        nodes = EmbeddedLedgers(store, 1 << 20).nodes
        for name in ("/kept", "/gone"):
            await nodes.create(name)
        for number in range(100):
            await nodes.set("/kept", b"%d" % number)
        await nodes.delete("/gone")
        await nodes.close()
        assert store.ledger(NODES_LEDGER).first_entry_id > 50
        assert await nodes.set("/kept", b"last", 100) == Written(101)

    async def look(store: AsyncStore) -> None:
        nodes = EmbeddedLedgers(store, 1 << 20).nodes
        node = await nodes.get("/kept")
        assert isinstance(node, Node)
        assert (node.data, node.stat.version) == (b"last", 101)
        assert await nodes.get("/gone") == Gone()

    with_store(tmp_path, change)
    with_store(tmp_path, look)


def test_the_name_of_a_topic_is_that_of_a_broker(tmp_path: Path) -> None:
    with ledgerstore.open(tmp_path) as store:
        assert store.topic("orders").name == TopicName("public", "default", "orders")
        assert store.topic("t/n/orders").name == TopicName("t", "n", "orders")
