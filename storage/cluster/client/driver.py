"""Drives one state machine on an event loop."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from storage.cluster.client.effects import ReadMetadata, Send, SendAdds, Wait, WriteMetadata
from storage.cluster.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from storage.cluster.client.cluster import AsyncCluster
    from storage.cluster.client.effects import BookieAnswer, Effect, LedgerMachine, Sending, Token
    from storage.cluster.metadata.ledger import ClusterLedgerMetadata
    from storage.cluster.metadata.update import Versioned

_T = TypeVar("_T")


class MachineDriver:
    """Performs the effects of one machine, and tells it what comes of them."""

    def __init__(self, cluster: AsyncCluster, ledger_id: int, machine: LedgerMachine) -> None:
        self._cluster = cluster
        self._ledger_id = ledger_id
        self._machine = machine
        self._loop = asyncio.get_running_loop()
        self.report: Callable[[Effect], None] = _ignore
        """Called with each report of the machine."""
        self.performed: Callable[[], None] = _nothing
        """Called after each event."""
        self.before_write: Callable[[ClusterLedgerMetadata], Awaitable[None]] = _allow
        """Awaited before each write of the metadata, with what is to be written. If it raises a
        `ClusterError`, nothing is written, and the machine waits for ever."""
        self.refused: Callable[[ClusterError], None] = _ignore
        """Called with that error."""
        self._timers: set[asyncio.TimerHandle] = set()

    def future(self) -> asyncio.Future[Versioned[ClusterLedgerMetadata]]:
        return self._loop.create_future()

    def perform(self, effects: Sequence[Effect]) -> None:
        """Do what the machine asks for, in its order."""
        for effect in effects:
            match effect:
                case Send(_, _, token):
                    self._cluster.call(effect, partial(self._answered, token))
                case SendAdds(copies):
                    self._cluster.send_adds(copies, self._added)
                case WriteMetadata():
                    self._cluster.run(self._write(effect))
                case ReadMetadata():
                    self._cluster.run(self._read())
                case Wait(seconds):
                    self._wait(seconds)
                case report:
                    self.report(report)
        self.performed()

    def _answered(self, token: Token, answer: BookieAnswer) -> None:
        self.perform(self._machine.answered(token, answer))

    def _wait(self, seconds: float) -> None:
        def end() -> None:
            self._timers.remove(timer)
            self.perform(self._machine.waited())

        timer = self._loop.call_later(seconds, end)
        self._timers.add(timer)

    def stop(self) -> None:
        """End the waits of a machine that was stopped, which asks for no more of them."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _added(self, sending: Sending, entry_ids: Sequence[int], answer: BookieAnswer) -> None:
        self.perform(self._machine.added(sending, entry_ids, answer))

    async def _write(self, write: WriteMetadata) -> None:
        try:
            await self.before_write(write.metadata)
        except ClusterError as error:
            self.refused(error)
            return
        answer = await self._cluster.write_metadata(self._ledger_id, write)
        self.perform(self._machine.metadata_written(answer))

    async def _read(self) -> None:
        answer = await self._cluster.read_metadata(self._ledger_id)
        self.perform(self._machine.metadata_read(answer))


def settle(future: asyncio.Future[_T], value: _T) -> None:
    """Give a future its value, unless its caller has cancelled it."""
    if not future.done():
        future.set_result(value)


def refuse(future: asyncio.Future[_T], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def mark_retrieved(future: asyncio.Future[_T]) -> None:
    """Note that an error may be ignored: the writer's close raises what has ended it."""
    if not future.cancelled():
        future.exception()


def _ignore(_: object) -> None:
    """Drop a report that has no reader."""


async def _allow(_: ClusterLedgerMetadata) -> None:
    """Default callback before a write of the metadata: does nothing, so that the write goes on."""


def _nothing() -> None:
    """Do nothing after an event."""
