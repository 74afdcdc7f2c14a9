"""The network side of a bookie: the listener, the limits of all connections together, and an orderly stop.

One event loop serves all connections, which are in `served_connection`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from storage.cluster.bookie.access import AccessPolicy, Channels
from storage.cluster.bookie.adds import Adds
from storage.cluster.bookie.connection import ConnectionLimits
from storage.cluster.bookie.reads import Reads, is_missing
from storage.cluster.bookie.requests import Requests
from storage.cluster.bookie.served_connection import BookieConnection
from storage.cluster.bookie.traffic import Traffic
from storage.cluster.tls import TlsContexts, use_small_buffers
from storage.cluster.wire.messages import AddRun, BatchRead, LongPoll, ReadEntry, ReadRun

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from storage.aio.bookie import AsyncBookie
    from storage.cluster.bookie.adds import FirstAddCheck
    from storage.cluster.bookie.connection import Arrived
    from storage.cluster.wire.messages import Answer, Incoming

_LOG = logging.getLogger("ledgerstore.bookie")

CONNECTIONS_MAX = 20_000

CALLS_MAX = 16
"""Calls with large answers that are under way at once: as many as the store has threads for them."""

TLS_SHUTDOWN_S = 5.0
"""How long the end of a connection waits for the peer to take its answers and to confirm the end."""

READ_SIZE = 256 << 10
"""The most bytes that the loop reads from a connection in one pass."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """How much the connections may hold."""

    connection: ConnectionLimits = field(default_factory=ConnectionLimits)
    unanswered_max: int = 256 << 20
    """Bytes of requests of all connections together that are not answered yet."""
    unsent_max: int = 256 << 20
    """Bytes of answers that clients have not taken. With more, the client with the most is disconnected."""
    connections_max: int = CONNECTIONS_MAX
    incomplete_max: int = 256 << 20
    """Bytes of requests of all connections together that have not arrived completely."""
    polls_max: int = 10_000
    """Long polls that wait. One more is answered at once, as if its time were over."""
    batch_size_max: int = 5 << 20
    """The most bytes in the answer to a batch read."""


class ServerLoad(NamedTuple):
    """The load of a bookie's clients at one moment."""

    connections: int
    unanswered: int
    """Bytes of requests that are not answered yet."""
    unsent: int
    """Bytes of answers that slow clients have not taken yet."""


class BookieServer:
    """Serves a store on a listening socket. For one event loop."""

    def __init__(
        self,
        bookie: AsyncBookie,
        path: str,
        throttle_timeout_s: float,
        check_first: FirstAddCheck,
        limits: ServerLimits | None = None,
        policy: AccessPolicy = AccessPolicy(),  # noqa: B008 - immutable
        tls: TlsContexts | None = None,
    ) -> None:
        """`check_first` says whether the first add to a ledger may be taken.

        `tls` has the bookie's certificate, unless the policy is plain text only.
        """
        assert (tls is None) == (policy.channels is Channels.PLAIN_ONLY)
        self.policy = policy
        self._tls = tls
        if tls is not None:
            use_small_buffers()
        self.limits = ServerLimits() if limits is None else limits
        self.loop = asyncio.get_running_loop()
        self._path = path
        self._clients: set[BookieConnection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._unanswered = 0
        self._answered_all = asyncio.Event()
        """Set each time when no request is left unanswered."""
        self._waiting: dict[BookieConnection, None] = {}
        """Connections that are not read because the bookie is full, the one that waits longest first."""
        self._is_resuming = False
        """Whether the next pass of the loop lets some of them be read again."""
        self._incomplete = 0
        self._polls: set[asyncio.Task[None]] = set()
        """The waits of all long polls."""
        self._is_stopping = False
        self._all_lost = asyncio.Event()
        """Set each time when no connection is left."""
        call_soon = self.loop.call_soon
        self.traffic = Traffic(time.monotonic)
        self.adds = Adds(bookie, call_soon, self.run, check_first, throttle_timeout_s, self.traffic)
        self._turns = asyncio.Semaphore(CALLS_MAX)
        self._unsent = 0
        self._reads = Reads(bookie, call_soon, self.run, self._turns, self.traffic, self._waits_for_adds)
        self._requests = Requests(
            bookie,
            self.disk_space,
            time.time,
            self.limits.batch_size_max,
            self.limits.connection.frame_size_max,
        )
        self._listener: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> int:
        """Begin to accept connections; return the port, which the system chooses if it was 0."""
        self._listener = await self.loop.create_server(
            lambda: BookieConnection(self), host, port, backlog=1024, family=socket.AF_INET
        )
        address = self._listener.sockets[0].getsockname()
        return int(address[1])

    async def stop(self, patience_s: float = 5.0) -> None:
        """Accept nothing more, answer what was taken, and close all connections."""
        if self._listener is not None:
            self._listener.close()
        self._is_stopping = True
        for poll in list(self._polls):
            poll.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                if self._unanswered:
                    await self._answered_all.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                for client in list(self._clients):
                    client.close("the bookie stops")
                # A connection is lost when its peer has taken all answers.
                if self._clients:
                    await self._all_lost.wait()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in list(self._clients):
            client.abort()

    # ── called by the clients ────────────────────────────────────────────────────────────────────────

    @property
    def load(self) -> ServerLoad:
        """The load of the clients now."""
        return ServerLoad(len(self._clients), self._unanswered, self._unsent)

    @property
    def is_full(self) -> bool:
        """Whether no connection may be read until more requests are answered."""
        return self._unanswered >= self.limits.unanswered_max

    def take(self, client: BookieConnection, incoming: Arrived) -> None:
        """Take a request; it is answered later, or at once."""
        if isinstance(incoming, AddRun):
            self.adds.take(client, incoming)
            return
        if isinstance(incoming, ReadRun):
            self._reads.take_run(client, incoming)
            return
        request = incoming.request
        if type(request) is ReadEntry and not request.fences:
            self._reads.take(client, incoming, request)
        elif type(request) is LongPoll and request.timeout_ms is not None:
            now = incoming._replace(request=request._replace(timeout_ms=None))
            if self._is_stopping or len(self._polls) >= self.limits.polls_max:
                self.loop.call_soon(client.begin_again, now)
            else:
                poll = self.run(self._requests.wait(request))
                self._polls.add(poll)
                poll.add_done_callback(self._polls.discard)
                client.begin_after(poll, now)
        else:
            self.run(self._answer(client, incoming))

    async def start_tls(
        self, transport: asyncio.Transport, client: BookieConnection
    ) -> asyncio.Transport | None:
        """Return the transport for what is decrypted; `None` or an `OSError` if the client is gone."""
        assert self._tls is not None, "the state of a connection refuses START_TLS without it"
        return await self.loop.start_tls(
            transport,
            client,
            self._tls.current(),
            server_side=True,
            ssl_handshake_timeout=self.limits.connection.refused_s,
            ssl_shutdown_timeout=TLS_SHUTDOWN_S,
        )

    async def _answer(self, client: BookieConnection, incoming: Incoming) -> None:
        since = self.traffic.clock()
        answer = await self._answer_to(client, incoming)
        if answer is None:
            client.postpone(incoming)
        elif not (is_missing(incoming.request, answer) and self._waits_for_adds(client, incoming, since)):
            self._give(client, incoming, answer, since)

    def _waits_for_adds(self, client: BookieConnection, incoming: Incoming, since: float) -> bool:
        """Have a read that found nothing done once more after the adds that its client has sent before it.

        Return False if there are none. It is done only once more: as long as its client adds, it would
        otherwise find adds to wait for.
        """
        request = incoming.request
        assert isinstance(request, ReadEntry | BatchRead)

        def answer() -> None:
            self.run(self._answer_after_adds(client, incoming, since))

        return client.call_after_adds(request.ledger_id, answer)

    async def _answer_after_adds(self, client: BookieConnection, incoming: Incoming, since: float) -> None:
        answer = await self._answer_to(client, incoming)
        if answer is None:
            client.postpone(incoming)
        else:
            self._give(client, incoming, answer, since)

    async def _answer_to(self, client: BookieConnection, incoming: Incoming) -> Answer | None:
        """Return the answer to a request; `None` if its client does not take other answers now."""
        async with self._turns:
            return await self._requests.answer_to(incoming) if client.takes_answers else None

    def _give(self, client: BookieConnection, incoming: Incoming, answer: Answer, since: float) -> None:
        self.traffic.note_answer(incoming.request, answer, since)
        client.answer(incoming, answer)

    def note_connected(self, client: BookieConnection) -> None:
        if len(self._clients) >= self.limits.connections_max:
            client.abort()
        self._clients.add(client)
        self._all_lost.clear()

    def note_lost(self, client: BookieConnection, unanswered: int) -> None:
        self._clients.discard(client)
        self._waiting.pop(client, None)
        if not self._clients:
            self._all_lost.set()
        self.note_answered(unanswered)

    def note_unsent(self, client: BookieConnection, size: int) -> None:
        self._unsent += size - client.unsent
        client.unsent = size
        if size and self._unsent > self.limits.unsent_max:
            max(self._clients, key=lambda one: one.unsent).abort()

    @property
    def holds_too_many_parts(self) -> bool:
        """Whether the incomplete requests of all connections take more memory than they may."""
        return self._incomplete > self.limits.incomplete_max

    def note_incomplete(self, size: int) -> None:
        self._incomplete += size

    def note_taken(self, size: int) -> None:
        self._unanswered += size
        self._answered_all.clear()

    def note_answered(self, size: int) -> None:
        self._unanswered -= size
        if not self._unanswered:
            self._answered_all.set()
        if self._waiting and not self._is_resuming:
            self._is_resuming = True
            self.loop.call_soon(self._resume_waiting)

    def note_waiting(self, client: BookieConnection) -> None:
        """Note that a connection is not read because the bookie is full."""
        self._waiting.setdefault(client)

    def _resume_waiting(self) -> None:
        """Read waiting connections again: as many as there is room for if each brings `READ_SIZE`.

        The others wait for the next pass of the loop, which knows how much the first ones have brought.
        """
        room = self.limits.unanswered_max - self._unanswered
        while self._waiting and room > 0:
            client = next(iter(self._waiting))
            del self._waiting[client]
            client.regulate()
            room -= READ_SIZE
        self._is_resuming = bool(self._waiting) and not self.is_full
        if self._is_resuming:
            self.loop.call_soon(self._resume_waiting)

    # ── tasks ────────────────────────────────────────────────────────────────────────────────────────

    def run(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end_of_task)
        return task

    def _end_of_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _LOG.error("a request failed unexpectedly", exc_info=error)

    def disk_space(self) -> tuple[int, int]:
        """Return the size of the disk and its free bytes."""
        found = os.statvfs(self._path)
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
