"""The ledgers and nodes of topics in a cluster: on its bookies, and in its ZooKeeper."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from storage.cluster.client.distribution import Quorums
from storage.cluster.client.writer import WriterLimits
from storage.cluster.errors import NoSuchLedgerExistsOnMetadataServer
from storage.cluster.metadata.ledger import CustomField
from storage.cluster.metadata.znodes import Gone
from storage.cluster.topics.ledgers_port import ClosedLedger, MissingLedger, OpenLedger
from storage.cluster.topics.managed_ledger import TopicName
from storage.cluster.topics.topic import AsyncTopic
from storage.cluster.wire.frames import FRAME_SIZE_MAX

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from storage.cluster.client.async_reader import AsyncLedgerReader
    from storage.cluster.client.async_writer import AsyncLedgerWriter
    from storage.cluster.client.cluster import AsyncCluster
    from storage.cluster.metadata.ledger import ClusterLedgerMetadata
    from storage.cluster.metadata.znodes import Znodes
    from storage.cluster.topics.ledgers_port import LedgerState
    from storage.cluster.topics.policies import TopicOptions

_FRAME_OVERHEAD = 512
"""An upper bound for what the protocol, the head and the digest of an entry add to its payload."""

_OWNER_KEY = "pulsar/managed-ledger"
_CURSOR_KEY = "pulsar/cursor"
_LOOKED_AT_ONCE = 500

_LIMITS = WriterLimits(explicit_lac_interval_s=1.0)
"""Writers publish the confirmed end, so that a reader elsewhere sees the last message before a pause."""
_QUORUMS = Quorums(3, 3, 2)


def cluster_topic(
    cluster: AsyncCluster, name: str, quorums: Quorums | None, options: TopicOptions
) -> AsyncTopic:
    """Return a topic in a cluster."""
    return AsyncTopic(ClusterLedgers(cluster, quorums or _QUORUMS), TopicName.parse(name), **options)


class ClusterLedgers:
    """The ledgers and nodes of the topics of one cluster. For the coroutines of its loop."""

    entry_size_max = FRAME_SIZE_MAX - _FRAME_OVERHEAD

    def __init__(self, cluster: AsyncCluster, quorums: Quorums, password: bytes = b"") -> None:
        self._cluster = cluster
        self._quorums = quorums
        self._password = password

    @property
    def nodes(self) -> Znodes:
        return self._cluster.znodes

    async def create(self, topic: str, cursor: str | None = None) -> ClusterAppender:
        """Create a ledger, and note in its metadata what it is for, as a broker does."""
        values = {"component": "managed-ledger", _OWNER_KEY: topic, "application": "pulsar"}
        if cursor is not None:
            values[_CURSOR_KEY] = cursor
        custom = [CustomField(key, value.encode()) for key, value in values.items()]
        writer = await self._cluster.create(self._quorums, self._password, limits=_LIMITS, custom=custom)
        return ClusterAppender(writer)

    async def take_over(self, ledger_id: int) -> ClosedLedger:
        return _end_of((await self._cluster.take_over(ledger_id, self._password)).metadata)

    async def view(self, ledger_id: int) -> AsyncLedgerReader:
        return await self._cluster.view(ledger_id, self._password)

    async def states(self, ledger_ids: Sequence[int]) -> list[LedgerState]:
        return [_state_of(one) for one in await self._cluster.metadata_of_all(ledger_ids)]

    async def delete(self, ledger_id: int) -> None:
        with suppress(NoSuchLedgerExistsOnMetadataServer):
            await self._cluster.delete_open(ledger_id)

    async def ledgers_of(self, topic: str) -> dict[int, str | None]:
        """Look at the metadata of every ledger of the cluster."""
        found: dict[int, str | None] = {}
        some: list[int] = []
        async for ledger_id in self._cluster.ledgers():
            some.append(ledger_id)
            if len(some) == _LOOKED_AT_ONCE:
                found |= await self._made_for(topic, some)
                some = []
        return found | await self._made_for(topic, some)

    async def _made_for(self, topic: str, ledger_ids: Sequence[int]) -> dict[int, str | None]:
        found: dict[int, str | None] = {}
        known = zip(ledger_ids, await self._cluster.metadata_of_all(ledger_ids), strict=True)
        for ledger_id, metadata in known:
            if not isinstance(metadata, Gone):
                values = {one.key: one.value for one in metadata.custom}
                if values.get(_OWNER_KEY) == topic.encode():
                    cursor = values.get(_CURSOR_KEY)
                    found[ledger_id] = None if cursor is None else cursor.decode(errors="replace")
        return found


class ClusterAppender:
    """Writes a ledger on several bookies."""

    def __init__(self, writer: AsyncLedgerWriter) -> None:
        self.id = writer.id
        self._writer = writer

    def submit(self, payload: bytes) -> asyncio.Future[int]:
        return self._writer.submit_now(payload)

    async def close(self) -> ClosedLedger:
        return _end_of(await self._writer.close())


def _state_of(metadata: ClusterLedgerMetadata | Gone) -> LedgerState:
    if isinstance(metadata, Gone):
        return MissingLedger()
    return _end_of(metadata) if metadata.is_closed else OpenLedger()


def _end_of(metadata: ClusterLedgerMetadata) -> ClosedLedger:
    assert metadata.last_entry is not None
    return ClosedLedger(metadata.last_entry + 1, metadata.length)
