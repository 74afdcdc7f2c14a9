"""Named producers: a message that is sent again is written once, also after a crash and elsewhere."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from cluster_loops import collected
from memory_topics import MemoryLedgers
from memory_znodes import Loss

import ledgerstore
from storage.cluster.metadata.znodes import Node
from storage.cluster.topics import sequences as sequences_module
from storage.cluster.topics.embedded_ledgers import EmbeddedLedgers
from storage.cluster.topics.format import decode_entry
from storage.cluster.topics.managed_ledger import (
    NO_LEDGER,
    ManagedCursorInfo,
    Position,
    PositionInfo,
    TopicName,
    decode_cursor,
    encode_cursor,
    encode_position_info,
)
from storage.cluster.topics.owner import create_with_parents
from storage.cluster.topics.policies import Retention, RollOver
from storage.cluster.topics.producer import Batching
from storage.cluster.topics.sequences import CURSOR, ProducerSequences
from storage.cluster.topics.topic import AsyncTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path
    from typing import Any

    from storage.cluster.topics.ledgers_port import TopicLedgers

NAME = TopicName.parse("orders")


def run(path: Path, steps: Callable[[TopicLedgers], Coroutine[Any, Any, object]]) -> None:
    async def main() -> None:
        async with ledgerstore.open_async(path) as store:
            await asyncio.wait_for(steps(EmbeddedLedgers(store, 1 << 20)), 60)

    asyncio.run(main())


async def payloads_of(ledgers: TopicLedgers) -> list[bytes]:
    found: list[bytes] = []
    for one in await AsyncTopic(ledgers, NAME).ledgers():
        for batch in await collected((await ledgers.view(one.ledger_id)).entry_batches()):
            for entry in batch:
                found += decode_entry(entry.payload).payloads
    return found


async def cursor_of(ledgers: TopicLedgers) -> ManagedCursorInfo:
    node = await ledgers.nodes.get(NAME.cursor_path(CURSOR))
    assert isinstance(node, Node)
    return decode_cursor("", node.data)


@pytest.mark.parametrize("batch", [None, Batching(count=2)])
def test_a_producer_goes_on_where_it_ended_in_a_process_that_was_killed(
    tmp_path: Path, batch: Batching | None
) -> None:
    async def steps(ledgers: TopicLedgers) -> None:
        killed = AsyncTopic(ledgers, NAME, roll_over=RollOver(entries=2))
        producer = await killed.producer("p", batch)
        sent = [await producer.submit(b"%d" % number) for number in range(5)]
        await producer.flush()
        assert producer.last_sequence_id == 4
        assert all(one.done() for one in sent)
        async with AsyncTopic(ledgers, NAME) as topic:
            again = await topic.producer("p", batch)
            assert again.last_sequence_id == 4
            assert await again.send(b"3", sequence_id=3) is None
            assert await again.send(b"4", sequence_id=4) is None
            assert await again.send(b"5", sequence_id=5) is not None
            assert await again.send(b"6") is not None
            assert again.last_sequence_id == 6
            assert (await topic.producer("another")).last_sequence_id == -1
        assert await payloads_of(ledgers) == [b"%d" % number for number in range(7)]

    run(tmp_path, steps)


def test_a_producer_of_a_name_waits_for_the_messages_of_the_one_before_it(tmp_path: Path) -> None:
    async def steps(ledgers: TopicLedgers) -> None:
        async with AsyncTopic(ledgers, NAME) as topic:
            producer = await topic.producer("p")
            await producer.submit(b"1", sequence_id=1)
            producer.abandon()
            async with await topic.producer("p") as again:
                assert again.last_sequence_id == 1
                assert await again.send(b"1", sequence_id=1) is None
        assert await payloads_of(ledgers) == [b"1"]

    run(tmp_path, steps)


def test_a_closed_topic_leaves_the_sequence_ids_where_a_broker_looks_for_them(tmp_path: Path) -> None:
    async def steps(ledgers: TopicLedgers) -> None:
        async with AsyncTopic(ledgers, NAME) as topic:
            await (await topic.producer("p")).send(b"one", sequence_id=7)
            last = await topic.send(b"of no name")
        cursor = await cursor_of(ledgers)
        assert cursor.cursors_ledger_id == NO_LEDGER
        assert cursor.mark_delete == Position(last.ledger_id, last.entry_id)
        assert cursor.properties == (("p", 7),)

    run(tmp_path, steps)


def test_the_state_that_a_broker_keeps_in_a_ledger_is_taken_over(tmp_path: Path) -> None:
    async def steps(ledgers: TopicLedgers) -> None:
        async with AsyncTopic(ledgers, NAME) as topic:
            sent = await topic.send(b"one")
            await topic.producer("p")
        kept = await ledgers.create("public/default/persistent/orders", CURSOR)
        state = PositionInfo(Position(sent.ledger_id, sent.entry_id), properties=(("p", 41),))
        await kept.submit(encode_position_info(state))
        path = NAME.cursor_path(CURSOR)
        await ledgers.nodes.set(path, encode_cursor(ManagedCursorInfo(kept.id, Position(sent.ledger_id, -1))))
        async with AsyncTopic(ledgers, NAME) as topic:
            assert (await topic.producer("p")).last_sequence_id == 41
        assert (await cursor_of(ledgers)).cursors_ledger_id == NO_LEDGER
        assert not isinstance((await ledgers.states([kept.id]))[0], PositionInfo)

    run(tmp_path, steps)


def test_the_cursor_is_written_after_so_many_entries_and_covers_no_entry_that_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.cluster.topics.topic.MESSAGES_MAX", 3)

    async def steps(ledgers: TopicLedgers) -> None:
        topic = AsyncTopic(ledgers, NAME)
        producer = await topic.producer("p")
        ids, saved = [], -1
        for number in range(20):
            ids.append(await producer.send(b"%d" % number))
            cursor = await cursor_of(ledgers)
            saved = dict(cursor.properties).get("p", -1)
            position = cursor.mark_delete
            assert position is not None
            covered = [one for one in ids if one is not None and (one.ledger_id, one.entry_id) <= position]
            assert len(covered) - 1 <= saved <= number
        assert saved > 10

    run(tmp_path, steps)


def test_the_cursor_is_written_again_after_an_answer_that_was_lost() -> None:
    async def steps() -> None:
        ledgers = MemoryLedgers()
        async with AsyncTopic(ledgers, NAME) as topic, await topic.producer("p") as producer:
            await producer.send(b"one")
            sequences = ProducerSequences(ledgers, NAME)
            await sequences.open((), -1, Position(0, 0))
            sequences.note("p", 0)
            ledgers.nodes.lose(Loss.DONE)
            ledgers.nodes.lose_reads(1, after=1)  # the one that asks what became of the write
            await sequences.save(Position(0, 0))
            sequences.note("p", 1)
            await sequences.save(Position(0, 1))
            assert (await cursor_of(ledgers)).mark_delete == Position(0, 1)
            assert sequences.unsaved == 0

    asyncio.run(asyncio.wait_for(steps(), 30))


def test_the_cursor_does_not_hold_up_a_trim(tmp_path: Path) -> None:
    async def steps(ledgers: TopicLedgers) -> None:
        options = {"roll_over": RollOver(entries=1), "retention": Retention(0, 0)}
        async with AsyncTopic(ledgers, NAME) as topic:
            await (await topic.producer("p")).send(b"one")
        async with AsyncTopic(ledgers, NAME, **options) as topic:  # type: ignore[arg-type]
            await topic.send(b"two")
            await topic.roll_over()
            assert len(await topic.trim()) == 2
            assert (await topic.producer("p")).last_sequence_id == 0

    run(tmp_path, steps)


def test_only_the_producers_that_have_written_last_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequences_module, "PRODUCERS_MAX", 2)

    async def steps(ledgers: TopicLedgers) -> None:
        known = ProducerSequences(ledgers, NAME)
        for producer, number in (("a", 1), ("b", 1), ("a", 2), ("c", 1), ("a", 0)):
            known.note(producer, number)
        assert [known.last_of(one) for one in "abc"] == [2, -1, 1]

    run(tmp_path, steps)


def test_the_sequence_ids_of_a_topic_that_was_deleted_are_not_those_of_the_next_one() -> None:
    async def steps() -> None:
        ledgers = MemoryLedgers()
        await create_with_parents(ledgers.nodes, NAME.path, b"")
        former, later = (ProducerSequences(ledgers, NAME) for _ in range(2))
        await former.open((), -1, Position(0, -1))
        await former.save(Position(0, -1))
        await ledgers.nodes.delete(NAME.cursor_path(CURSOR))
        await later.open((), -1, Position(7, -1))
        await later.save(Position(7, -1))
        former.note("p", 9)
        await former.save(Position(0, 0))
        assert (await cursor_of(ledgers)).properties == ()

    asyncio.run(asyncio.wait_for(steps(), 30))
