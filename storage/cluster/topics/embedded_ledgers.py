"""The ledgers and nodes of topics in one local store.

The ids of these ledgers begin at 2^62, so that a program may have ledgers of its own in the same store. They
have a password, so that it does not append to one of them by mistake; reading needs none.

    2^62             the log of the nodes: the lists of ledgers, and the subscriptions
    2^62 + 1 + n     a ledger that the entry n of the log has announced

A ledger is closed by a fence, after which the store takes no entry for it. It ends with its last entry.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from storage.cluster.topics import managed_ledger
from storage.cluster.topics.embedded_nodes import EmbeddedNodes
from storage.cluster.topics.ledgers_port import ClosedLedger, OpenLedger
from storage.entry.model import DigestType
from storage.errors import LedgerFenced, NoSuchLedger, StoreError
from storage.validation import overhead

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from storage.aio.ledger import AsyncLedger
    from storage.aio.store import AsyncStore
    from storage.cluster.topics.ledgers_port import LedgerState
    from storage.entry.model import Entry

NODES_LEDGER = 1 << 62
_FIRST_LEDGER = NODES_LEDGER + 1
_PASSWORD = b"ledgerstore topics"


class EmbeddedLedgers:
    """The ledgers and nodes of the topics of one store. For the coroutines of its loop."""

    def __init__(self, store: AsyncStore, entry_size_max: int) -> None:
        """`entry_size_max` is that of the store's settings."""
        self._store = store
        self.entry_size_max = entry_size_max - overhead(DigestType.CRC32C)
        log = self._ledger(NODES_LEDGER)
        self.nodes = EmbeddedNodes(log, self._delete_leftovers, self.entry_size_max)
        self._made: dict[int, tuple[str, str | None]] = {}
        """By ledger that was made since the store was opened: its topic, and the cursor that it is for."""

    async def _delete_leftovers(self) -> None:
        """Delete ledgers that a crash has left, and that no node names.

        Nothing uses the topics of the store before this, so that every such ledger is a leftover.
        """
        made = [one for one in await self._store.ledgers() if one >= _FIRST_LEDGER]
        leaked = set(made).difference(self._named()) if made else set()
        if leaked:
            await self._store.delete(sorted(leaked), _PASSWORD)

    def _named(self) -> set[int]:
        """Return the ledgers that a topic or a subscription names."""
        named: set[int] = set()
        for path, data in self.nodes.content():
            if not path.startswith(f"{managed_ledger.ROOT}/"):
                continue
            depth = path.count("/")
            if depth == _TOPIC_DEPTH:
                named.update(
                    one.ledger_id for one in managed_ledger.decode_managed_ledger(path, data).ledgers
                )
            elif depth > _TOPIC_DEPTH:
                named.add(managed_ledger.decode_cursor(path, data).cursors_ledger_id)
        return named

    async def create(self, topic: str, cursor: str | None = None) -> EmbeddedAppender:
        ledger_id = _FIRST_LEDGER + await self.nodes.announce(topic, cursor)
        self._made[ledger_id] = topic, cursor
        return EmbeddedAppender(self._ledger(ledger_id))

    async def take_over(self, ledger_id: int) -> ClosedLedger:
        return await close_ledger(self._ledger(ledger_id))

    async def view(self, ledger_id: int) -> EmbeddedReader:
        return EmbeddedReader(self._ledger(ledger_id))

    async def states(self, ledger_ids: Sequence[int]) -> list[LedgerState]:
        """Return the state of each. A ledger without entries is not in the store, and counts as open."""
        return [await _state_of(self._ledger(one)) for one in ledger_ids]

    async def delete(self, ledger_id: int) -> None:
        with suppress(NoSuchLedger):
            await self._ledger(ledger_id).delete()
        self._made.pop(ledger_id, None)

    async def ledgers_of(self, topic: str) -> dict[int, str | None]:
        return {ledger_id: cursor for ledger_id, (owner, cursor) in self._made.items() if owner == topic}

    def _ledger(self, ledger_id: int) -> AsyncLedger:
        return self._store.ledger(ledger_id, password=_PASSWORD)


_TOPIC_DEPTH = 5
"""The slashes in /managed-ledgers/tenant/namespace/persistent/topic."""


class EmbeddedAppender:
    """Writes a ledger of the store. Entries that come while a commit is under way share the next one."""

    def __init__(self, ledger: AsyncLedger) -> None:
        self.id = ledger.id
        self._ledger = ledger
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[bytes, asyncio.Future[int]]] = []
        self._writer: asyncio.Task[None] | None = None
        self._failure: StoreError | None = None

    def submit(self, payload: bytes) -> asyncio.Future[int]:
        if self._failure is not None:
            raise type(self._failure)(*self._failure.args)
        added: asyncio.Future[int] = self._loop.create_future()
        self._waiting.append((payload, added))
        if self._writer is None:
            self._writer = self._loop.create_task(self._write())
        return added

    async def _write(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting, []
            if self._failure is None:
                try:
                    ids = await self._ledger.append_many([payload for payload, _ in group])
                except StoreError as error:
                    self._failure = error
                else:
                    for entry_id, (_, added) in zip(ids, group, strict=True):
                        if not added.done():
                            added.set_result(entry_id)
                    continue
            for _, added in group:
                if not added.done():
                    added.set_exception(type(self._failure)(*self._failure.args))
        self._writer = None

    async def close(self) -> ClosedLedger:
        while self._writer is not None:
            await asyncio.wait([self._writer])
        if isinstance(self._failure, LedgerFenced):
            raise type(self._failure)(*self._failure.args)
        return await close_ledger(self._ledger)


class EmbeddedReader:
    """Reads a ledger of the store. Each entry that can be read is acknowledged."""

    def __init__(self, ledger: AsyncLedger) -> None:
        self.id = ledger.id
        self._ledger = ledger

    async def read_last_add_confirmed(self) -> int:
        last = await self._ledger.last_entry_id()
        return -1 if last is None else last

    async def read(self, entry_id: int) -> Entry:
        return await self._ledger.read(entry_id)

    async def read_batch(self, first: int, count_max: int = 256, size_max: int = 1 << 20) -> list[Entry]:
        async with aclosing(self.entry_batches(first, first + count_max - 1, size_max)) as batches:
            async for batch in batches:
                return batch
        return [await self.read(first)]

    async def entry_batches(
        self, first: int = 0, last: int | None = None, size_max: int = 1 << 20
    ) -> AsyncGenerator[list[Entry], None]:
        end = await self.read_last_add_confirmed()
        end = end if last is None else min(last, end)
        if first > end:
            return
        found: list[Entry] = []
        size = 0
        async with aclosing(self._ledger.entries(first, end)) as entries:
            async for entry in entries:
                found.append(entry)
                size += len(entry.payload)
                if size >= size_max:
                    yield found
                    found, size = [], 0
        if found:
            yield found

    async def follow(self, first: int = 0) -> AsyncGenerator[Entry, None]:
        while True:
            end = await self._ledger.wait_for_last_add_confirmed(first - 1)
            if end < first:
                return  # nothing comes any more: it was closed or deleted
            async with aclosing(self.entry_batches(first, end)) as batches:
                async for batch in batches:
                    for entry in batch:
                        yield entry
            first = end + 1


async def close_ledger(ledger: AsyncLedger) -> ClosedLedger:
    """Close a ledger to entries for ever, and return where it ends. This creates one without entries."""
    last = await ledger.fence()
    return ClosedLedger(0, 0) if last is None else ClosedLedger(last + 1, (await ledger.read(last)).length)


async def _state_of(ledger: AsyncLedger) -> LedgerState:
    if not await ledger.exists() or not ledger.is_fenced:
        return OpenLedger()
    last = await ledger.last_entry_id()
    if last is None:
        return ClosedLedger(0, 0)
    return ClosedLedger(last + 1, (await ledger.read(last)).length)
