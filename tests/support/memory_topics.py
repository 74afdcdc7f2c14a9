"""The ledgers and nodes of topics in memory, and topics that tests write into them."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING

from memory_znodes import MemoryServer

from storage.cluster.errors import LedgerNotClosed, NoSuchLedgerExistsOnMetadataServer
from storage.cluster.metadata.znodes import Gone
from storage.cluster.topics.format import Framing, encode_entry
from storage.cluster.topics.ledgers_port import ClosedLedger, MissingLedger, OpenLedger
from storage.cluster.topics.managed_ledger import (
    LedgerInfo,
    ManagedLedgerInfo,
    TopicName,
    encode_managed_ledger,
)
from storage.cluster.topics.message import Message
from storage.entry.model import Entry
from storage.errors import LedgerFenced

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

    from memory_znodes import MemoryZnodes

    from storage.cluster.topics.ledgers_port import LedgerState

TENANT_PARENTS = ("/managed-ledgers", "/managed-ledgers/public", "/managed-ledgers/public/default")


class MemoryLedger:
    """Entries, and whether there may be more of them."""

    def __init__(self, topic: str, cursor: str | None) -> None:
        self.topic, self.cursor = topic, cursor
        self.payloads: list[bytes] = []
        self.is_closed = False
        self.changed = asyncio.Event()

    def change(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class MemoryLedgers:
    """The port of topics over memory: one session of a server that several may share."""

    entry_size_max = 1 << 20

    def __init__(
        self,
        server: MemoryServer | None = None,
        ledgers: dict[int, MemoryLedger] | None = None,
        ids: Iterator[int] | None = None,
    ) -> None:
        self.server = server or MemoryServer()
        self.ledgers = {} if ledgers is None else ledgers
        self._ids = count() if ids is None else ids
        """No id is used twice, also not that of a ledger that was deleted."""
        self.nodes: MemoryZnodes = self.server.session()
        self.views: list[int] = []
        """The ledgers that were viewed, in order."""

    def other(self) -> MemoryLedgers:
        """Return the same ledgers as another process sees them."""
        return MemoryLedgers(self.server, self.ledgers, self._ids)

    async def create(self, topic: str, cursor: str | None = None) -> MemoryAppender:
        ledger_id = next(self._ids)
        self.ledgers[ledger_id] = MemoryLedger(topic, cursor)
        return MemoryAppender(self.ledgers, ledger_id)

    async def take_over(self, ledger_id: int) -> ClosedLedger:
        ledger = self._ledger(ledger_id)
        ledger.is_closed = True
        ledger.change()
        return _end_of(ledger)

    async def view(self, ledger_id: int) -> MemoryReader:
        self.views.append(ledger_id)
        return MemoryReader(ledger_id, self._ledger(ledger_id))

    async def states(self, ledger_ids: Sequence[int]) -> list[LedgerState]:
        known = [self.ledgers.get(one) for one in ledger_ids]
        return [
            MissingLedger() if one is None else _end_of(one) if one.is_closed else OpenLedger()
            for one in known
        ]

    async def delete(self, ledger_id: int) -> None:
        self.ledgers.pop(ledger_id, None)

    async def ledgers_of(self, topic: str) -> dict[int, str | None]:
        return {ledger_id: one.cursor for ledger_id, one in self.ledgers.items() if one.topic == topic}

    def _ledger(self, ledger_id: int) -> MemoryLedger:
        if ledger_id not in self.ledgers:
            raise NoSuchLedgerExistsOnMetadataServer(ledger_id)
        return self.ledgers[ledger_id]


class MemoryAppender:
    """Writes one ledger. Its entries are acknowledged at once."""

    def __init__(self, ledgers: dict[int, MemoryLedger], ledger_id: int) -> None:
        self.id = ledger_id
        self._ledgers = ledgers

    def submit(self, payload: bytes) -> asyncio.Future[int]:
        ledger = self._ledgers.get(self.id)
        if ledger is None or ledger.is_closed:
            raise LedgerFenced(self.id)
        ledger.payloads.append(payload)
        ledger.change()
        added: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        added.set_result(len(ledger.payloads) - 1)
        return added

    async def close(self) -> ClosedLedger:
        ledger = self._ledgers.get(self.id)
        if ledger is None or ledger.is_closed:
            raise LedgerFenced(self.id)
        ledger.is_closed = True
        ledger.change()
        return _end_of(ledger)


class MemoryReader:
    """Reads one ledger."""

    def __init__(self, ledger_id: int, ledger: MemoryLedger) -> None:
        self._id = ledger_id
        self._ledger = ledger

    async def read_last_add_confirmed(self) -> int:
        return len(self._ledger.payloads) - 1

    async def read(self, entry_id: int) -> Entry:
        return Entry(self._id, entry_id, entry_id - 1, 0, self._ledger.payloads[entry_id])

    async def read_batch(self, first: int, count_max: int = 3, size_max: int = 1 << 20) -> list[Entry]:
        last = min(first + min(count_max, 3), len(self._ledger.payloads))
        return [await self.read(entry_id) for entry_id in range(first, last)]

    async def entry_batches(
        self, first: int = 0, last: int | None = None
    ) -> AsyncGenerator[list[Entry], None]:
        if not self._ledger.is_closed:
            raise LedgerNotClosed(self._id)
        end = len(self._ledger.payloads) if last is None else last + 1
        for at in range(first, end, 2):
            yield [await self.read(entry_id) for entry_id in range(at, min(at + 2, end))]

    async def follow(self, first: int = 0) -> AsyncGenerator[Entry, None]:
        while True:
            changed = self._ledger.changed
            while first < len(self._ledger.payloads):
                yield await self.read(first)
                first += 1
            if self._ledger.is_closed:
                return
            await changed.wait()


def _end_of(ledger: MemoryLedger) -> ClosedLedger:
    return ClosedLedger(len(ledger.payloads), sum(map(len, ledger.payloads)))


class WrittenTopic:
    """A topic whose ledgers a test writes by hand: each step is one that an owner makes."""

    def __init__(self, ledgers: MemoryLedgers, name: TopicName) -> None:
        self.ledgers, self.name = ledgers, name
        self.infos: list[LedgerInfo] = []
        self.published_ms = 1_000
        """The publish time of the next entry; grows by 10."""
        self._appender: MemoryAppender | None = None

    async def begin(self) -> int:
        """Create the next ledger, and write the list."""
        self._appender = await self.ledgers.create(str(self.name))
        self.infos.append(LedgerInfo(self._appender.id, timestamp_ms=0))
        await self.write_list()
        return self._appender.id

    async def send(self, *payloads: bytes) -> None:
        """Add an entry: a batch if there are several messages."""
        assert self._appender is not None, "begin first"
        entry = encode_entry(
            [Message(one) for one in payloads],
            producer_name="p",
            sequence_ids=range(len(payloads)),
            publish_time_ms=self.published_ms,
            framing=Framing.BY_COUNT,
        )
        self.published_ms += 10
        await self._appender.submit(entry)

    async def send_bytes(self, data: bytes) -> None:
        """Add an entry of these bytes."""
        assert self._appender is not None, "begin first"
        await self._appender.submit(data)

    async def close_ledger(self) -> None:
        """Close the current ledger, as an owner does before it writes the list."""
        assert self._appender is not None, "begin first"
        await self._appender.close()

    async def end(self) -> None:
        """Close the current ledger, and write the list."""
        assert self._appender is not None, "begin first"
        end = await self._appender.close()
        self.infos[-1] = LedgerInfo(self._appender.id, end.entries, end.size, self.published_ms)
        await self.write_list()

    async def write(self, *ledgers: Sequence[Sequence[bytes]]) -> None:
        """Write closed ledgers, given as the payloads of each entry."""
        for entries in ledgers:
            await self.begin()
            for payloads in entries:
                await self.send(*payloads)
            await self.end()

    async def write_list(self) -> None:
        nodes, path = self.ledgers.nodes, self.name.path
        data = encode_managed_ledger(ManagedLedgerInfo(tuple(self.infos)))
        if isinstance(await nodes.get(path), Gone):
            for parent in (*TENANT_PARENTS, path.rpartition("/")[0]):
                await nodes.create(parent)
            await nodes.create(path, data)
        else:
            await nodes.set(path, data)


def new_topic(name: str = "orders") -> WrittenTopic:
    """Return a topic without ledgers in a new memory."""
    return WrittenTopic(MemoryLedgers(), TopicName.parse(name))
