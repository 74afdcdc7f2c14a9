"""The network side of a bookie: the listener, its connections, and an orderly stop.

One event loop serves all connections. Answers of one pass of the loop leave with one write for each
connection. A connection is not read while it holds too many unanswered requests, while its peer does not take
answers, or while all connections together hold too much.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from storage.cluster.bookie.access import AccessPolicy, Channels
from storage.cluster.bookie.adds import Adds
from storage.cluster.bookie.connection import (
    REQUEST_SIZE,
    ConnectionLimits,
    ConnectionState,
    TlsStage,
    size_of,
    weight_of,
)
from storage.cluster.bookie.reads import Reads, is_missing
from storage.cluster.bookie.requests import Requests
from storage.cluster.bookie.traffic import RequestKind, Traffic
from storage.cluster.tls import TlsContexts, use_small_buffers
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import (
    AddRun,
    BatchRead,
    CodeAnswer,
    Incoming,
    LongPoll,
    ReadEntry,
    ReadRun,
    StartTls,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from storage.aio.bookie import AsyncBookie
    from storage.cluster.bookie.adds import FirstAddCheck
    from storage.cluster.bookie.connection import Arrived
    from storage.cluster.wire.messages import Answer

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
    """What the clients of a bookie hold at one moment."""

    connections: int
    unanswered: int
    """Bytes of requests that are not answered yet."""
    unsent: int
    """Bytes of answers that slow clients have not taken yet."""


class BookieConnection(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, server: BookieServer) -> None:
        self._server = server
        self._connection = ConnectionState(server.limits.connection, server.policy)
        self._transport: asyncio.Transport | None = None
        self._peer = "?"
        self._todo: deque[Arrived] = deque()
        """Requests that have arrived and are not begun, because earlier answers are not taken yet."""
        self._reading = 0
        """The weight of the requests that are begun and may have a large answer."""
        self._waits: set[asyncio.Task[None]] = set()
        """The waits of its long polls."""
        self._out: list[bytes] = []
        self._out_size = 0
        self._flaw: str | None = None
        """Why the connection is closed as soon as all requests before are begun."""
        self._is_unsent = False
        """Whether the peer is behind with taking its answers."""
        self.unsent = 0
        """The bytes of answers that wait because the peer is behind."""
        self._silence: asyncio.TimerHandle | None = None
        self._end_of_refusals: asyncio.TimerHandle | None = None
        """Closes the connection if its requests are still not served then."""

    # ── called by the loop ───────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport, self._peer = transport, str(transport.get_extra_info("peername"))
        transport.set_write_buffer_limits(high=self._connection.limits.unsent_max)
        # Otherwise the connection of a client whose machine has lost its power would stay for ever.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if not self._connection.is_served:
            self._end_of_refusals = self._server.loop.call_later(
                self._connection.limits.refused_s, self.close, "it was not authorized in time"
            )
        self._server.note_connected(self)

    def connection_lost(self, _: Exception | None) -> None:
        if self._transport is None:
            return  # a handshake has failed, which the loop reports in some cases too
        self._transport = None
        self._todo.clear()
        self._connection.adds.forget_calls()
        for wait in list(self._waits):
            wait.cancel()
        self._stop_timer()
        if self._end_of_refusals is not None:
            self._end_of_refusals.cancel()
        self._server.note_incomplete(-self._connection.incomplete)
        self._server.note_unsent(self, 0)
        self._server.note_lost(self, self._connection.unanswered)

    def data_received(self, data: bytes) -> None:
        before, incomplete = self._connection.unanswered, self._connection.incomplete
        stage = self._connection.stage
        requests, flaw = self._connection.receive(data)
        if stage is TlsStage.PLAIN and self._connection.stage is TlsStage.UPGRADING:
            # Now, because START_TLS may have to wait until the peer takes answers. Plain text that came
            # meanwhile would be taken for the client's after the handshake.
            assert self._transport is not None
            self._transport.pause_reading()
        self._server.note_taken(self._connection.unanswered - before)
        self._server.note_incomplete(self._connection.incomplete - incomplete)
        if self._connection.incomplete and self._server.holds_too_many_parts:
            flaw = flaw or "too many connections have sent only the beginning of a request"
        self._todo.extend(requests)
        self._flaw = flaw
        self._proceed()

    def _proceed(self) -> None:
        """Begin requests in their order, as long as the peer takes its answers."""
        limits, todo = self._connection.limits, self._todo
        while todo and self.takes_answers:
            weight = weight_of(todo[0])
            if weight and self._reading >= limits.reads_max:
                break
            self._reading += weight
            incoming = todo.popleft()
            if self._connection.is_served and self._connection.stage is not TlsStage.UPGRADING:
                self._server.take(self, incoming)
            elif self._connection.stage is TlsStage.UPGRADING:
                self._begin_tls(incoming)
            else:
                self._refuse(incoming)
        if self._transport is None:
            return
        if self._flaw is not None and not todo:
            self.close(self._flaw)
        else:
            self.regulate()

    def _refuse(self, incoming: Arrived) -> None:
        """Answer a request of a client that is not served."""
        now = self._server.traffic.clock()
        if isinstance(incoming, AddRun):
            self._server.traffic.note(RequestKind.ADD, Code.UNAUTHORIZED, now, len(incoming.entries))
            self.refuse_adds(incoming, Code.UNAUTHORIZED)
            return
        for one in [one for one, _ in incoming.requests()] if isinstance(incoming, ReadRun) else [incoming]:
            is_upgrade = type(one.request) is StartTls
            refusal = CodeAnswer(Code.BAD_REQUEST if is_upgrade else Code.UNAUTHORIZED)
            self._server.traffic.note_answer(one.request, refusal, now)
            self.answer(one, refusal)

    def _begin_tls(self, incoming: Arrived) -> None:
        """Answer START_TLS, the last message in plain text, and begin the handshake."""
        assert self._transport is not None
        assert isinstance(incoming, Incoming)
        self.answer(incoming, CodeAnswer(Code.OK))
        self._write()
        self._server.run(self._shake_hands(self._transport))

    async def _shake_hands(self, transport: asyncio.Transport) -> None:
        secured: asyncio.Transport | None = None
        try:
            secured = await self._server.start_tls(transport, self)
        except OSError as error:
            _LOG.info("connection of %s closed: no TLS: %s", self._peer, error)
        finally:
            # It is `None` also if the client is gone. The loop does not report every such end.
            if secured is None:
                self.connection_lost(None)
        if secured is None or self._transport is None:
            return
        self._transport = secured
        secured.set_write_buffer_limits(high=self._connection.limits.unsent_max)
        certificate = secured.get_extra_info("peercert")
        refusal = self._connection.secure(certificate["subject"] if certificate else None)
        if refusal is not None:
            _LOG.info("requests of %s are refused: %s", self._peer, refusal)
        elif self._end_of_refusals is not None:
            self._end_of_refusals.cancel()
        self.data_received(b"")

    @property
    def takes_answers(self) -> bool:
        """Whether more answers may be made, because the client takes them."""
        return not self._is_unsent and self._out_size < self._connection.limits.unsent_max

    def pause_writing(self) -> None:
        self._is_unsent = True
        self._silence = self._server.loop.call_later(self._connection.limits.silence_s, self._give_up)
        self.regulate()

    def _give_up(self) -> None:
        _LOG.info("connection of %s closed: it takes no answers", self._peer)
        # Not `close`, which would wait until the peer has taken what is ready.
        self.abort()

    def resume_writing(self) -> None:
        self._is_unsent = False
        self._server.note_unsent(self, 0)
        self._stop_timer()
        self._proceed()

    def _stop_timer(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None

    # ── answers ──────────────────────────────────────────────────────────────────────────────────────

    def begin_after(self, wait: asyncio.Task[None], incoming: Incoming) -> None:
        """Begin a request when its wait is over, however that ends."""
        self._waits.add(wait)
        wait.add_done_callback(self._waits.discard)
        wait.add_done_callback(lambda _: self.begin_again(incoming))

    def begin_again(self, incoming: Incoming) -> None:
        """Begin a request that has waited, as soon as the peer takes its answer."""
        if self._transport is not None and not self._transport.is_closing():
            self._todo.append(incoming)
            self._proceed()

    def call_after_adds(self, ledger_id: int, call: Callable[[], None]) -> bool:
        """Have a call made when the adds to a ledger that the client has sent by now are answered.

        Return False, and call nothing, if there are none. Nothing is called when the client is gone.
        """
        return self._connection.adds.call_after(ledger_id, call)

    def postpone(self, incoming: Arrived) -> None:
        """Begin a request once more, before all that are not begun, when the peer takes its answer."""
        self._reading -= weight_of(incoming)
        if self._transport is not None:
            self._todo.appendleft(incoming)
            self._server.loop.call_soon(self._proceed)

    def answer(self, incoming: Incoming, answer: Answer) -> None:
        """Answer a request, in the write of this pass of the loop."""
        self._reading -= weight_of(incoming)
        frame = self._connection.answer(incoming, answer)
        self._server.note_answered(size_of(incoming) if self._transport is not None else 0)
        if self._transport is None:
            return  # the client is gone
        if frame is None:
            self.close("it asked for something unknown")
            return
        self._send(frame)

    def refuse_adds(self, run: AddRun, code: Code) -> None:
        """Answer all adds of a run with the same code, in the write of this pass of the loop."""
        if not self._out:
            self._server.loop.call_soon(self.flush)
        self.answer_adds(run, code)

    def answer_adds(self, run: AddRun, code: Code) -> None:
        """Answer all adds of a run with the same code. The caller flushes, before it returns to the loop."""
        answers = self._connection.answer_adds(run, code)
        self._server.note_answered(size_of(run) if self._transport is not None else 0)
        if self._transport is not None:
            self._out.append(answers)
            self._out_size += len(answers)

    def answer_reads(self, run: ReadRun, entries: Sequence[bytes], lac: int) -> None:
        """Answer the first reads of a run, and begin the others once more."""
        self._reading -= len(entries)
        answers = self._connection.answer_reads(run, entries, lac)
        self._server.note_answered(REQUEST_SIZE * len(entries) if self._transport is not None else 0)
        if self._transport is not None:
            self._send(answers)
            self._write()  # at once, so that the client begins with them while the others are looked up
        if len(entries) < len(run.headers):
            self.postpone(run.after(len(entries)))

    def _send(self, frame: bytes) -> None:
        if not self._out:
            self._server.loop.call_soon(self.flush)
        self._out.append(frame)
        self._out_size += len(frame)

    def flush(self) -> None:
        """Send the answers that are ready, and begin requests that have waited for that."""
        self._write()
        self._proceed()

    def _write(self) -> None:
        out, self._out, self._out_size = self._out, [], 0
        if self._transport is not None and out:
            self._transport.write(b"".join(out))
            if self._is_unsent:
                self._server.note_unsent(self, self._transport.get_write_buffer_size())

    # ── flow ─────────────────────────────────────────────────────────────────────────────────────────

    def regulate(self) -> None:
        """Read the connection, or do not, as the limits say."""
        if (
            self._transport is None
            or self._transport.is_closing()
            or self._connection.stage is TlsStage.UPGRADING
        ):
            return
        is_behind = self._is_unsent or bool(self._todo)
        may_read = not (is_behind or self._connection.is_full or self._server.is_full)
        if self._server.is_full:
            self._server.note_waiting(self)
        if may_read != self._transport.is_reading():
            if may_read:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def close(self, reason: str) -> None:
        """Close the connection, after the answers that are ready."""
        if self._transport is not None and not self._transport.is_closing():
            _LOG.info("connection of %s closed: %s", self._peer, reason)
            self._write()
            self._transport.close()

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()


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
        """What the clients hold now."""
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
        """Let as many connections be read as there is room for what they may bring before the next pass."""
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
