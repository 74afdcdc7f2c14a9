"""The owner of a topic: what its callers see of changes of the list that are under way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from memory_topics import MemoryLedgers

from storage.cluster.metadata.znodes import ANY_VERSION, Node
from storage.cluster.topics.administration import delete_topic
from storage.cluster.topics.errors import TopicFenced
from storage.cluster.topics.managed_ledger import TopicName, decode_managed_ledger
from storage.cluster.topics.owner import TopicOwner
from storage.cluster.topics.policies import Retention, RollOver

if TYPE_CHECKING:
    from storage.cluster.metadata.znodes import SetAnswer


def test_a_sweep_waits_for_its_own_write_also_after_a_trim_that_was_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def steps() -> None:
        ledgers = MemoryLedgers()
        owner = TopicOwner(ledgers, TopicName.parse("orders"), RollOver(entries=1))
        await owner.open()
        for payload in (b"a", b"b"):
            owner.add(payload, lambda _: None)
        await owner.drain()
        await owner.roll_over()
        writes = asyncio.Semaphore(0)
        write = ledgers.nodes.set

        async def write_later(path: str, data: bytes, version: int = ANY_VERSION) -> SetAnswer:
            await writes.acquire()
            return await write(path, data, version)

        monkeypatch.setattr(ledgers.nodes, "set", write_later)
        trimming = asyncio.ensure_future(owner.trim([], Retention(0, 0)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        trimming.cancel()
        await asyncio.gather(trimming, return_exceptions=True)
        sweeping = asyncio.ensure_future(owner.sweep([0, 1]))
        writes.release()  # that of the trim
        for _ in range(50):
            await asyncio.sleep(0)
        assert not sweeping.done()
        writes.release()
        assert await sweeping == [0, 1]
        writes.release()
        await owner.close()

    asyncio.run(asyncio.wait_for(steps(), 30))


def test_an_owner_does_not_write_the_list_of_a_topic_that_was_made_again() -> None:
    """Its version is the same, but its ledgers are others."""

    async def steps() -> None:
        name, ledgers = TopicName.parse("orders"), MemoryLedgers()
        former, later = (TopicOwner(ledgers, name, RollOver(entries=2)) for _ in range(2))
        await former.open()
        await delete_topic(ledgers, name)
        await later.open()
        assert await listed(ledgers, name) == (later.series.current, 0)
        with pytest.raises(TopicFenced):
            await former.sweep([])
        assert await listed(ledgers, name) == (later.series.current, 0)
        await later.close()

    asyncio.run(asyncio.wait_for(steps(), 30))


async def listed(ledgers: MemoryLedgers, name: TopicName) -> tuple[int, int]:
    """Return the last ledger of the topic, and the version of its list."""
    node = await ledgers.nodes.get(name.path)
    assert isinstance(node, Node)
    return decode_managed_ledger(name.path, node.data).ledgers[-1].ledger_id, node.stat.version
