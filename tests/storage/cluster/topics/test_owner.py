"""The owner of a topic: what its callers see of changes of the list that are under way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from memory_topics import MemoryLedgers

from storage.cluster.metadata.znodes import ANY_VERSION
from storage.cluster.topics.managed_ledger import TopicName
from storage.cluster.topics.owner import TopicOwner
from storage.cluster.topics.policies import Retention, RollOver

if TYPE_CHECKING:
    import pytest

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
        sweeping = asyncio.ensure_future(owner.sweep())
        writes.release()  # that of the trim
        for _ in range(50):
            await asyncio.sleep(0)
        assert not sweeping.done()
        writes.release()
        assert await sweeping == [0, 1]
        writes.release()
        await owner.close()

    asyncio.run(asyncio.wait_for(steps(), 30))
