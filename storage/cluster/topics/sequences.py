"""The last sequence id of each named producer of a topic, so that a message is not written twice.

They are kept as brokers keep them when they drop duplicates: in a cursor `pulsar.dedup`, whose properties are
the sequence ids by producer, and whose position says up to which entry they count. Opening reads the entries
after the position. So the position may be old, and a crash between an entry and the cursor does no harm. The
cursor keeps these entries from being trimmed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from storage.cluster.errors import MetadataConflict, NoSuchLedgerExistsOnMetadataServer, OutcomeUnknown
from storage.cluster.metadata.znodes import Created, Gone, Node, Unknown, Written
from storage.cluster.topics.format import decode_entry
from storage.cluster.topics.managed_ledger import (
    NO_LEDGER,
    ManagedCursorInfo,
    Position,
    decode_cursor,
    decode_position_info,
    encode_cursor,
)
from storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.cluster.topics.ledgers_port import TopicLedgers
    from storage.cluster.topics.managed_ledger import LedgerInfo, TopicName

_LOG = logging.getLogger("ledgerstore.topics")

CURSOR = "pulsar.dedup"

PRODUCERS_MAX = 10_000
"""The most producers that are kept: those that have written last. It is the limit of a broker."""

MESSAGES_MAX = 1_000
"""The cursor is written again after this number of entries, so that an opening has little to read."""


class ProducerSequences:
    """The sequence ids of one topic, for the process that writes it. For one coroutine at a time."""

    def __init__(self, ledgers: TopicLedgers, name: TopicName) -> None:
        self._ledgers = ledgers
        self._name = name
        self._path = name.cursor_path(CURSOR)
        self._version = -1
        self._created_zxid = -1
        """When the node of the cursor was created."""
        self._unanswered: set[bytes] = set()
        """What was written to the cursor without an answer."""
        self._last: dict[str, int] = {}
        """By producer. Those that have written last are at the end."""
        self._saving = asyncio.Lock()
        self.unsaved = 0
        """Entries since the cursor was written."""

    def last_of(self, producer: str) -> int:
        """Return the last sequence id of a producer in the topic; -1 if it has none."""
        return self._last.get(producer, -1)

    def note(self, producer: str, sequence_id: int) -> None:
        """Note an entry that is durable, by the last sequence id in it."""
        last = max(sequence_id, self._last.pop(producer, -1))
        self._last[producer] = last
        self.unsaved += 1
        if len(self._last) > PRODUCERS_MAX:
            del self._last[next(iter(self._last))]

    async def open(self, ledgers: Iterable[LedgerInfo], current: int, last: Position) -> None:
        """Read the cursor and the entries after it, or make it after the last entry.

        `ledgers` are those of the topic. The current one has no message of a named producer yet.
        """
        node = await self._ledgers.nodes.get(self._path)
        if isinstance(node, Gone):
            answer = await self._ledgers.nodes.create(self._path, self._encoded(last))
            if isinstance(answer, Unknown):
                raise OutcomeUnknown(self._path, answer.reason)
            if not isinstance(answer, Created):
                raise MetadataConflict(self._path, "another process has created it at this moment")
            made = await self._ledgers.nodes.get(self._path)
            if isinstance(made, Gone):
                raise MetadataConflict(self._path, "another process has deleted it at this moment")
            self._version, self._created_zxid = 0, made.stat.created_zxid
            return
        info = decode_cursor(self._path, node.data)
        position = info.mark_delete or Position(-1, -1)
        properties = info.properties
        if info.cursors_ledger_id != NO_LEDGER:
            position, properties = await self._from_ledger(info.cursors_ledger_id, position, properties)
        self._last = dict(properties)
        self._version, self._created_zxid = node.stat.version, node.stat.created_zxid
        for one in ledgers:
            if one.ledger_id >= position.ledger_id and one.ledger_id != current:
                first = position.entry_id + 1 if one.ledger_id == position.ledger_id else 0
                await self._read(one.ledger_id, first)
        await self.save(last)
        if info.cursors_ledger_id != NO_LEDGER:
            await self._ledgers.delete(info.cursors_ledger_id)

    async def _from_ledger(
        self, ledger_id: int, position: Position, properties: tuple[tuple[str, int], ...]
    ) -> tuple[Position, tuple[tuple[str, int], ...]]:
        """Return the state in the ledger of a cursor, or that in its node if the ledger has none."""
        try:
            end = await self._ledgers.take_over(ledger_id)
        except NoSuchLedgerExistsOnMetadataServer:
            return position, properties
        if not end.entries:
            return position, properties
        entry = await (await self._ledgers.view(ledger_id)).read(end.entries - 1)
        found = decode_position_info(f"entry {entry.entry_id} of ledger {ledger_id}", entry.payload)
        return found.mark_delete, found.properties

    async def _read(self, ledger_id: int, first: int) -> None:
        reader = await self._ledgers.view(ledger_id)
        async for batch in reader.entry_batches(first):
            for entry in batch:
                decoded = decode_entry(entry.payload, str(self._name), ledger_id, entry.entry_id)
                for message in decoded.messages:
                    self.note(message.producer_name, message.sequence_id)

    async def save(self, last: Position) -> None:
        """Write the cursor. `last` is the last entry that was acknowledged.

        If that fails, the next opening reads more entries. A conflict means that another process has the
        topic, which is told to the callers of the next messages.
        """
        try:
            async with self._saving:
                await self._save(last)
        except StoreError as error:
            _LOG.warning("%s: the sequence ids of its producers are not saved: %s", self._name, error)

    async def _save(self, last: Position) -> None:
        data, unsaved = self._encoded(last), self.unsaved
        node = await self._ledgers.nodes.get(self._path)
        if isinstance(node, Node) and node.stat.created_zxid > self._created_zxid:
            return  # the node is that of a topic which was made after this one was deleted
        self._unanswered.add(data)
        answer = await self._ledgers.nodes.set(self._path, data, self._version)
        if isinstance(answer, Written):
            self._version = answer.version
            self._unanswered.clear()
            self.unsaved -= unsaved
            return
        # It may be this write, or one before it, whose answer was lost.
        await self._ledgers.nodes.sync(self._path)
        node = await self._ledgers.nodes.get(self._path)
        if (
            isinstance(node, Node)
            and node.stat.version == self._version + 1
            and node.data in self._unanswered
        ):
            self._version = node.stat.version
            self._unanswered.clear()
            if node.data == data:
                self.unsaved -= unsaved
            else:
                await self._save(last)

    def _encoded(self, position: Position) -> bytes:
        return encode_cursor(ManagedCursorInfo(NO_LEDGER, position, properties=tuple(self._last.items())))
