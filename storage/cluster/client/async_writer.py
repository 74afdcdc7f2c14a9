"""The writer of a ledger, for coroutines."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from storage.cluster.client.deferred_writer import DeferredLedgerWriter
from storage.cluster.client.driver import MachineDriver, mark_retrieved, refuse, settle
from storage.cluster.client.effects import (
    AddsAcknowledged,
    AddsFailed,
    EntriesForced,
    ForceFailed,
    UnderReplicated,
    WriterClosed,
    WriterLost,
)
from storage.cluster.client.writer import WriterState
from storage.cluster.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from storage.cluster.client.cluster import AsyncCluster
    from storage.cluster.client.effects import Effect
    from storage.cluster.client.placement import Candidates
    from storage.cluster.client.writer import LedgerWriter, WriterLimits
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
        self._adds: deque[asyncio.Future[int]] = deque()
        """The adds under way, in the order of their ids."""
        self._unsent: list[tuple[bytes, asyncio.Future[int]]] = []
        """The payloads that are sent together at the end of this pass of the loop, and their adds."""
        self._unsent_size = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        """Callers that wait for room, or for the adds under way."""
        self._closed: asyncio.Future[Versioned[ClusterLedgerMetadata]] = self._driver.future()
        self._closed.add_done_callback(mark_retrieved)
        self._forces: deque[tuple[int, asyncio.Future[None]]] = deque()
        """Callers that wait until the entries up to one are forced, in the order of these entries."""
        self._timer: asyncio.TimerHandle | None = None
        self._told_at = self._loop.time()
        self._tick_s = _tick_of(machine.limits)
        self._tick()

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of ledger {self.id}: {self._machine.state.name.lower()}, "
            f"confirmed up to {self.last_add_confirmed}, {len(self._adds)} adds under way>"
        )

    @property
    def metadata(self) -> ClusterLedgerMetadata:
        """The newest metadata that the writer has written or read."""
        return self._machine.metadata.value

    @property
    def last_add_confirmed(self) -> int:
        """The id of the last acknowledged entry, with deferred syncs of the last forced one; -1 for none."""
        return self._machine.last_confirmed

    @property
    def length(self) -> int:
        """The length of all payloads up to `last_add_confirmed`."""
        return self._machine.length_confirmed

    async def append(self, payload: bytes) -> int:
        """Add an entry, and return its id when Qa bookies have it durably."""
        return await (await self.submit(payload))

    async def append_many(self, payloads: Sequence[bytes]) -> list[int]:
        """Add entries, and return their ids when all of them are acknowledged."""
        return [await add for add in [await self.submit(payload) for payload in payloads]]

    async def submit(self, payload: bytes) -> asyncio.Future[int]:
        """Add an entry, and return a future of its id. Wait only while too much is in flight."""
        if type(payload) is not bytes:
            # Raises if it is no buffer. A buffer is copied, because it is sent later, when it may be reused.
            payload = bytes(memoryview(payload))
        while not self._machine.has_room(len(self._unsent), self._unsent_size):
            await self._wait()
        return self.submit_now(payload)

    def submit_now(self, payload: bytes) -> asyncio.Future[int]:
        """Do the same without waiting. The caller bounds what is in flight."""
        self._machine.check(payload)
        if not self._unsent:
            self._cluster.write_soon(self._send)
        added: asyncio.Future[int] = self._loop.create_future()
        self._unsent.append((payload, added))
        self._unsent_size += len(payload)
        return added

    def _send(self) -> None:
        """Send what was submitted in this pass of the loop."""
        unsent, self._unsent, self._unsent_size = self._unsent, [], 0
        adds = [add for _, add in unsent]
        try:
            effects = self._machine.add([payload for payload, _ in unsent])
        except ClusterError as error:
            self._refuse(adds, error)
        else:
            self._adds += adds
            self._driver.perform(effects)

    def _refuse(self, adds: Iterable[asyncio.Future[int]], error: ClusterError) -> None:
        for add in adds:
            # Each caller gets an error of its own, because a raised error keeps its traceback.
            refuse(add, type(error)(*error.args))
            mark_retrieved(add)
        self._wake()

    async def force(self) -> int:
        """Make durable what is acknowledged now, and return the last add confirmed.

        Without deferred syncs every acknowledged entry is durable already. Raise `ForceIncomplete` if a
        bookie of the ensemble does not answer; the force may be tried again then.
        """
        machine = self._machine
        if isinstance(machine, DeferredLedgerWriter) and machine.last_acknowledged > machine.last_confirmed:
            effects = machine.force()
            forced: asyncio.Future[None] = self._loop.create_future()
            self._forces.append((machine.last_acknowledged, forced))
            self._driver.perform(effects)
            await forced
        return machine.last_confirmed

    async def close(self) -> ClusterLedgerMetadata:
        """Wait for the adds under way, then close the ledger after the last acknowledged entry.

        Raise if another client has taken the ledger over.
        """
        while (self._adds or self._unsent) and self._machine.state in (
            WriterState.OPEN,
            WriterState.CHANGING,
        ):
            await self._wait()
        self._driver.perform(self._machine.close())
        return (await asyncio.shield(self._closed)).value

    async def __aenter__(self) -> AsyncLedgerWriter:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            await self.close()
        else:
            # The ledger is closed all the same. The error that the block has raised is more useful than one
            # from here.
            with suppress(ClusterError):
                await self.close()

    def abandon(self) -> None:
        """Fail all calls, because the client is closed."""
        self._driver.perform(self._machine.abandon())
        self._send()

    def connection_lost(self, bookie: str) -> None:
        """Note that a bookie may have been restarted."""
        self._driver.perform(self._machine.connection_lost(bookie))

    def _tick(self) -> None:
        """Let the machine do what is due, as long as it writes."""
        if self._tick_s is None or self._closed.done():
            return
        now = self._loop.time()
        effects = self._machine.check_time(now)
        interval_s = self._machine.limits.explicit_lac_interval_s
        if interval_s is not None and now - self._told_at >= interval_s:
            self._told_at = now
            effects += self._machine.tell_confirmed()
        self._driver.perform(effects)
        self._timer = self._loop.call_later(self._tick_s, self._tick)

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _end_forces(self, last_entry: int, error: ClusterError | None) -> None:
        """Tell the callers that wait for entries up to this one."""
        while self._forces and self._forces[0][0] <= last_entry:
            _, forced = self._forces.popleft()
            if error is None:
                settle(forced, None)
            else:
                refuse(forced, type(error)(*error.args))

    def use(self, candidates: Candidates) -> None:
        """Let these bookies be those that may replace others."""
        self._machine.candidates = candidates

    async def _wait(self) -> None:
        """Wait until some adds are reported."""
        waiting = self._loop.create_future()
        self._waiting.append(waiting)
        await waiting

    def _wake(self) -> None:
        while self._waiting:
            settle(self._waiting.popleft(), None)

    def _wake_for_room(self) -> None:
        if self._waiting and self._machine.has_room(len(self._unsent), self._unsent_size):
            self._wake()

    def _report(self, effect: Effect) -> None:
        match effect:
            case AddsAcknowledged(first, last):
                for entry_id in range(first, last + 1):
                    add = self._adds.popleft()
                    if not add.done():  # its caller may have cancelled it
                        add.set_result(entry_id)
                self._wake()
            case AddsFailed(first, last, error):
                self._refuse([self._adds.popleft() for _ in range(first, last + 1)], error)
            case EntriesForced(last):
                self._end_forces(last, None)
            case ForceFailed(last, error):
                self._end_forces(last, error)
            case WriterClosed(metadata):
                self._cluster.forget(self)
                self._end_timer()
                settle(self._closed, metadata)
            case WriterLost(error):
                self._cluster.forget(self)
                self._end_timer()
                self._end_forces(self._machine.last_pushed, error)
                refuse(self._closed, error)
                self._wake()
            case UnderReplicated(bookies):
                self._cluster.mark(self.id, bookies)


def _tick_of(limits: WriterLimits) -> float | None:
    """Return how often a writer looks at the time; `None` for never."""
    quorum_s, lac_s = limits.add_quorum_timeout_s, limits.explicit_lac_interval_s
    times = [lac_s] if lac_s is not None else []
    # So that an add ends less than a second after its time, also if it was added just after a look.
    times += [min(quorum_s / 4, 0.4)] if quorum_s is not None else []
    return min(times, default=None)
