"""Whole topics, for operators: list them, make partitions, delete and copy a topic."""

from __future__ import annotations

import asyncio
import secrets
from bisect import bisect_right
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from storage.cluster.client.driver import mark_retrieved, refuse, settle
from storage.cluster.errors import (
    ClusterError,
    MetadataConflict,
    NoSuchLedgerExistsOnMetadataServer,
    OutcomeUnknown,
)
from storage.cluster.metadata.znodes import Conflict, Created, Deleted, Exists, Gone, NotEmpty
from storage.cluster.topics.cursor import BEFORE_ALL
from storage.cluster.topics.cursor_store import (
    CursorStore,
    delete_subscription,
    read_cursor,
    subscriptions_of,
)
from storage.cluster.topics.errors import NoSuchTopic, TopicExists
from storage.cluster.topics.managed_ledger import (
    ROOT,
    Position,
    TopicName,
    decode_managed_ledger,
    decode_name,
    namespace_path,
)
from storage.cluster.topics.owner import TopicOwner, create_with_parents
from storage.cluster.topics.reader import AsyncTopicReader, read_extents
from storage.cluster.topics.routing import decode_partitions, encode_partitions, partitions_path

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from storage.cluster.metadata.znodes import Node
    from storage.cluster.topics.ledgers_port import TopicLedgers
    from storage.cluster.topics.policies import RollOver

_UNDER_WAY_MAX = 200
"""Entries of a copy that are not acknowledged yet."""

_ATTEMPTS_MAX = 10


async def list_topics(ledgers: TopicLedgers) -> AsyncGenerator[TopicName, None]:
    """Yield the topics of all namespaces in the order of their names, each partition by itself."""
    for tenant in await _children(ledgers, ROOT):
        for namespace in await _children(ledgers, f"{ROOT}/{tenant}"):
            for name in await _children(ledgers, namespace_path(tenant, namespace)):
                yield TopicName(tenant, namespace, decode_name(name))


async def _children(ledgers: TopicLedgers, path: str) -> tuple[str, ...]:
    found = await ledgers.nodes.children(path)
    return () if isinstance(found, Gone) else found.names


# ── partitions ───────────────────────────────────────────────────────────────────────────────────────────


async def read_partitions(ledgers: TopicLedgers, name: TopicName) -> int:
    """Return the number of partitions; 0 if the topic has none."""
    path = partitions_path(name)
    # A server that lags could hide the partitions: then messages would go to a topic that their readers do
    # not read.
    await ledgers.nodes.sync(path)
    node = await ledgers.nodes.get(path)
    return 0 if isinstance(node, Gone) else decode_partitions(path, node.data)


async def create_partitions(ledgers: TopicLedgers, name: TopicName, count: int) -> None:
    """Write how many partitions a topic has. Raise `TopicExists` if it has others, or messages of its own.

    The partitions themselves are topics, which are made by their first message.
    """
    path, data = partitions_path(name), encode_partitions(name, count)
    if await _has_node(ledgers, name):
        raise TopicExists(str(name), "it has messages and no partitions")
    answer = await create_with_parents(ledgers.nodes, path, data)
    if isinstance(answer, Created):
        return
    found = await read_partitions(ledgers, name)
    if found != count:
        if isinstance(answer, Exists):
            raise TopicExists(str(name), f"it has {found} partitions")
        raise OutcomeUnknown(path, str(answer))


async def partition_names(ledgers: TopicLedgers, name: TopicName) -> list[TopicName]:
    """Return the partitions of a topic; the topic itself if it has none."""
    count = await read_partitions(ledgers, name)
    return [name.partition(index) for index in range(count)] or [name]


# ── deleting ─────────────────────────────────────────────────────────────────────────────────────────────


async def delete_topic(ledgers: TopicLedgers, name: TopicName) -> int:
    """Delete a topic with its subscriptions, and return the number of its ledgers. Raise `NoSuchTopic`.

    The node goes before the ledgers, so that no list names a ledger that is gone. It is deleted only if it
    still has the list whose ledgers are fenced, so that a process that writes the topic adds nothing to a
    ledger that is not found here. A sweep finds the ledgers that a crash leaves.
    """
    for _ in range(_ATTEMPTS_MAX):
        node = await _node_of(ledgers, name)
        info = decode_managed_ledger(name.path, node.data)
        for one in info.ledgers:
            if one.entries is None:
                with suppress(NoSuchLedgerExistsOnMetadataServer):  # it is to be deleted anyway
                    await ledgers.take_over(one.ledger_id)
        for subscription in await subscriptions_of(ledgers, name):
            await delete_subscription(ledgers, name, subscription)
        answer = await ledgers.nodes.delete(name.path, node.stat.version)
        if isinstance(answer, Deleted | Gone):
            break
        if not isinstance(answer, Conflict | NotEmpty):
            raise OutcomeUnknown(name.path, str(answer))
    else:
        raise MetadataConflict(name.path, "another process writes the topic again and again")
    for one in info.ledgers:
        await ledgers.delete(one.ledger_id)
    return len(info.ledgers)


async def delete_partitions(ledgers: TopicLedgers, name: TopicName) -> None:
    """Delete the number of partitions. The caller deletes the partitions one by one."""
    await ledgers.nodes.delete(partitions_path(name))


async def _has_node(ledgers: TopicLedgers, name: TopicName) -> bool:
    """Return whether there is a topic of this name, as the newest metadata say."""
    await ledgers.nodes.sync(name.path)
    return not isinstance(await ledgers.nodes.get(name.path), Gone)


async def _node_of(ledgers: TopicLedgers, name: TopicName) -> Node:
    await ledgers.nodes.sync(name.path)
    node = await ledgers.nodes.get(name.path)
    if isinstance(node, Gone):
        raise NoSuchTopic(str(name))
    return node


# ── copying ──────────────────────────────────────────────────────────────────────────────────────────────


class CopiedEntry(NamedTuple):
    """Where an entry was, and where its copy is. The indexes in a batch are the same."""

    source: Position
    target: Position
    messages: int


class Places:
    """The places of entries in a copy: runs of entries that are consecutive in both."""

    def __init__(self) -> None:
        self._sources: list[Position] = []
        self._runs: list[tuple[Position, int]] = []

    def add(self, source: Position, target: Position) -> None:
        """Note an entry; entries come in the order of their sources."""
        if self._sources:
            first, (place, count) = self._sources[-1], self._runs[-1]
            if source == (first.ledger_id, first.entry_id + count) and target == (
                place.ledger_id,
                place.entry_id + count,
            ):
                self._runs[-1] = place, count + 1
                return
        self._sources.append(source)
        self._runs.append((target, 1))

    def of(self, source: Position) -> Position | None:
        """Return the place of an entry's copy; `None` if it was not copied."""
        at = bisect_right(self._sources, source) - 1
        if at < 0:
            return None
        first, (place, count) = self._sources[at], self._runs[at]
        offset = source.entry_id - first.entry_id
        if source.ledger_id != first.ledger_id or offset >= count:
            return None
        return Position(place.ledger_id, place.entry_id + offset)

    def before(self, source: Position) -> Position | None:
        """Return the place of the last copied entry up to and with this one; `None` if there is none."""
        at = bisect_right(self._sources, source) - 1
        if at < 0:
            return None
        first, (place, count) = self._sources[at], self._runs[at]
        last = source.entry_id - first.entry_id if source.ledger_id == first.ledger_id else count - 1
        return Position(place.ledger_id, place.entry_id + min(last, count - 1))


async def copy_topic(
    source: TopicLedgers,
    source_name: TopicName,
    target: TopicLedgers,
    target_name: TopicName,
    roll_over: RollOver,
) -> AsyncGenerator[CopiedEntry, None]:
    """Copy all messages and subscriptions, and yield where each entry is now.

    The entries are copied byte for byte, so producers, sequence ids, times and batches stay what they were.
    Raise `TopicExists` if there is a topic of that name, and `NoSuchTopic` if there is none to be copied.
    """
    await _node_of(source, source_name)
    if await _has_node(target, target_name):
        raise TopicExists(str(target_name), "a copy needs a new one")
    owner = TopicOwner(target, target_name, roll_over)
    await owner.open()
    places = Places()
    under_way: list[tuple[Position, int, asyncio.Future[tuple[int, int]]]] = []
    try:
        reader = AsyncTopicReader(source, source_name)
        async with aclosing(reader.entries()) as entries:
            async for position, decoded, payload in entries:
                await owner.wait_for_room()
                added: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()
                added.add_done_callback(mark_retrieved)
                owner.add(payload, partial(_end, added))
                under_way.append((position, len(decoded.messages), added))
                while len(under_way) >= _UNDER_WAY_MAX:
                    yield await _copied(under_way, places)
        while under_way:
            yield await _copied(under_way, places)
    finally:
        await owner.close()
    await _copy_subscriptions(source, source_name, target, target_name, places)


def _end(added: asyncio.Future[tuple[int, int]], outcome: tuple[int, int] | ClusterError) -> None:
    if isinstance(outcome, ClusterError):
        refuse(added, outcome)
    else:
        settle(added, outcome)


async def _copied(
    under_way: list[tuple[Position, int, asyncio.Future[tuple[int, int]]]], places: Places
) -> CopiedEntry:
    position, messages, added = under_way.pop(0)
    copied = CopiedEntry(position, Position(*await added), messages)
    places.add(position, copied.target)
    return copied


async def _copy_subscriptions(
    source: TopicLedgers,
    source_name: TopicName,
    target: TopicLedgers,
    target_name: TopicName,
    places: Places,
) -> None:
    extents, copied = await read_extents(source, source_name), await read_extents(target, target_name)
    for subscription in await subscriptions_of(source, source_name):
        cursor = await read_cursor(source, source_name, subscription, extents)
        mark_delete = places.before(cursor.mark_delete) or BEFORE_ALL
        made = cursor.mapped(str(target_name), mark_delete, places.of)
        made.settle(copied)
        store = CursorStore(target, target_name, subscription, secrets.token_bytes(8))
        await store.create(made)
        await store.close()
