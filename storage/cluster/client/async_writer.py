"""The writer of a ledger, for coroutines."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from storage.cluster.client.driver import MachineDriver, mark_retrieved, refuse, settle
from storage.cluster.client.effects import (
    AddsAcknowledged,
    AddsFailed,
    UnderReplicated,
    WriterClosed,
    WriterLost,
)
from storage.cluster.client.writer import WriterState
from storage.cluster.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.cluster.client.cluster import AsyncCluster
    from storage.cluster.client.effects import Effect
    from storage.cluster.client.placement import Candidates
    from storage.cluster.client.writer import LedgerWriter
    from storage.cluster.metadata.ledger import ClusterLedgerMetadata
    from storage.cluster.metadata.update import Versioned


class AsyncLedgerWriter:
    """Writes one ledger that this client has created. Leaving its block closes the ledger."""

    def __init__(self, cluster: AsyncCluster, machine: LedgerWriter, ledger_id: int) -> None:
        self.id = ledger_id
        self._cluster = cluster
        self._machine = machine
        self._driver = MachineDriver(cluster, ledger_id, machine)
        self._driver.report = self._report
        self._driver.performed = self._wake_for_room
        self._loop = asyncio.get_running_loop()
        self._adds: dict[int, asyncio.Future[int]] = {}
        """By entry id: the adds that are not reported yet."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        """Callers that wait for room, or for the adds under way."""
        self._closed: asyncio.Future[Versioned[ClusterLedgerMetadata]] = self._driver.future()
        self._closed.add_done_callback(mark_retrieved)

    @property
    def metadata(self) -> ClusterLedgerMetadata:
        """The newest metadata that the writer has written or read."""
        return self._machine.metadata.value

    @property
    def last_add_confirmed(self) -> int:
        """The id of the last acknowledged entry; -1 without any."""
        return self._machine.last_confirmed

    @property
    def length(self) -> int:
        """The length of all acknowledged payloads."""
        return self._machine.length_confirmed

    async def append(self, payload: bytes) -> int:
        """Add an entry, and return its id when Qa bookies have it durably."""
        return await (await self.submit(payload))

    async def append_many(self, payloads: Sequence[bytes]) -> list[int]:
        """Add entries, and return their ids when all of them are acknowledged."""
        return [await add for add in [await self.submit(payload) for payload in payloads]]

    async def submit(self, payload: bytes) -> asyncio.Future[int]:
        """Add an entry, and return a future of its id. Wait only while too much is in flight."""
        while not self._machine.has_room():
            await self._wait()
        effects = self._machine.add([payload])
        entry_id = self._machine.last_pushed
        added = self._adds[entry_id] = self._loop.create_future()
        added.add_done_callback(mark_retrieved)
        self._driver.perform(effects)
        return added

    async def close(self) -> ClusterLedgerMetadata:
        """Wait for the adds under way, then close the ledger after the last acknowledged entry.

        Raise if another client has taken the ledger over.
        """
        while self._adds and self._machine.state in (WriterState.OPEN, WriterState.CHANGING):
            await self._wait()
        self._driver.perform(self._machine.close())
        return (await asyncio.shield(self._closed)).value

    async def __aenter__(self) -> AsyncLedgerWriter:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            await self.close()
        else:
            # The ledger is closed all the same. What the block has raised is more useful than an error here.
            with suppress(ClusterError):
                await self.close()

    def abandon(self) -> None:
        """Fail all calls, because the client is closed."""
        self._driver.perform(self._machine.abandon())

    def use(self, candidates: Candidates) -> None:
        """Let these bookies be those that may replace others."""
        self._machine.candidates = candidates

    async def _wait(self) -> None:
        """Wait until some adds are reported."""
        waiting = self._loop.create_future()
        self._waiting.append(waiting)
        await waiting

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            settle(one, None)

    def _wake_for_room(self) -> None:
        if self._waiting and self._machine.has_room():
            self._wake()

    def _report(self, effect: Effect) -> None:
        match effect:
            case AddsAcknowledged(first, last):
                for entry_id in range(first, last + 1):
                    settle(self._adds.pop(entry_id), entry_id)
                self._wake()
            case AddsFailed(first, last, error):
                for entry_id in range(first, last + 1):
                    # Each caller gets an error of its own, because a raised error keeps its traceback.
                    refuse(self._adds.pop(entry_id), type(error)(*error.args))
                self._wake()
            case WriterClosed(metadata):
                self._cluster.forget(self)
                settle(self._closed, metadata)
            case WriterLost(error):
                self._cluster.forget(self)
                refuse(self._closed, error)
                self._wake()
            case UnderReplicated(bookies):
                self._cluster.mark(self.id, bookies)
