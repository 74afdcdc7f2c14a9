"""Connections to bookies. Each call ends exactly once: with the bookie's answer, or with `NoAnswer`.

A bookie has one connection, which is opened by the first call to it. Frames of one pass of the loop are
written together. Some calls need a connection of their own (`LinkKind`). A call ends without an answer

* when its time is over; the answer, if it still comes, is dropped;
* when the connection is lost, or the peer sends what is no answer;
* when there is no connection and the last attempt to open one was a short time ago.

A bookie that has failed in one of these ways is avoided for a while when bookies are chosen.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import socket
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from storage.cluster.client.add_calls import AddBatch, AddCalls, queues_of, tell
from storage.cluster.client.effects import NoAnswer
from storage.cluster.client.opening import TlsFailed, open_plain, open_secure
from storage.cluster.client.v2_calls import V2Calls, is_in_v2
from storage.cluster.wire import frames, v3
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import BatchRead, LongPoll, OperationCode, Protocol
from storage.cluster.wire.protobuf import Malformed

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Sequence

    from storage.cluster.client.add_calls import AddsAnswered, CopyQueue
    from storage.cluster.client.effects import BookieAnswer, Sending
    from storage.cluster.metadata.registration import Endpoint
    from storage.cluster.wire.messages import AddEntry, Request

_LOG = logging.getLogger("ledgerstore.client")

_FAILURES = frozenset({Code.IO_ERROR, Code.READ_ONLY, Code.TOO_MANY_REQUESTS, Code.UNKNOWN_LEDGER_STATE})
"""The answers of a bookie that should be avoided for a while."""

_CLOSED = "the client is closed"

_WRITE_SIZE = 64 << 10
"""Bytes of small frames that are written together, and bytes that may wait in a transport."""

_ENDED_V2_CALLS_MAX = 10_000
"""The most calls of version 2 that may end without an answer before their connection is given up."""


class LinkKind(enum.IntEnum):
    """The kinds of connections that a client may have to one bookie."""

    V3 = 0
    V2 = 1
    BATCH = 2
    """For batch reads, because a bookie that does not know them closes the connection."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Time-outs of the connections to bookies."""

    call_timeout_s: float = 5.0
    """A long poll has this time beyond the time that it asks for."""
    connect_timeout_s: float = 5.0
    reconnect_delay_s: float = 1.0
    """After a failed attempt to connect, calls fail at once for this time."""
    quarantine_s: float = 30.0
    """How long a bookie that has failed is avoided if there are others."""
    frame_size_max: int = frames.FRAME_SIZE_MAX


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """How a client speaks with bookies."""

    protocol: Protocol = Protocol.V3
    """With version 2, requests that it has no message for go over a connection of version 3."""
    tls: ssl.SSLContext | None = None
    limits: CallLimits = CallLimits()


class _BookieCall(NamedTuple):
    """One call that has not ended."""

    answered: Callable[[BookieAnswer], None]
    deadline: float


class BookieLink(asyncio.Protocol):
    """The connection to one bookie."""

    def __init__(self, connections: Connections, bookie: str, kind: LinkKind) -> None:
        self._connections = connections
        self._kind = kind
        self._v2 = None if kind is LinkKind.V3 else V2Calls()
        self._loop = connections.loop
        self._limits = connections.limits
        self.bookie = bookie
        self._transport: asyncio.Transport | None = None
        self._opening: asyncio.Task[None] | None = None
        self._no_attempt_before = 0.0
        self._has_room = True
        """Whether the transport takes more."""
        self._out: list[bytes] = []
        """Frames that are not written yet."""
        self._received = b""
        self._is_silent = True
        """Whether nothing has come on this connection."""
        self._adds = AddCalls()
        self._calls: dict[int, _BookieCall] = {}
        """By the transaction id: the other calls that have not ended."""
        self._timer: asyncio.TimerHandle | None = None

    # ── calls ─────────────────────────────────────────────────────────────────────────────────────────

    def call(self, request: Request, number: int, answered: Callable[[BookieAnswer], None]) -> None:
        """Send a request. `answered` is called once, and never before this returns."""
        if not self._begin():
            self._loop.call_soon(answered, NoAnswer("no connection"))
            return
        wait_s = (request.timeout_ms or 0) / 1000 if isinstance(request, LongPoll) else 0.0
        self._calls[number] = _BookieCall(answered, self._loop.time() + wait_s + self._limits.call_timeout_s)
        v2 = self._v2
        self._out.append(v3.encode_request(request, number) if v2 is None else v2.encode(request, number))

    def has_ids_of(self, request: Request) -> bool:
        """Return whether the answer to this request could be taken for that of another call."""
        return self._v2 is not None and self._v2.has_ids_of(request)

    def add(self, queue: CopyQueue) -> None:
        """Send copies of entries. Each has one answer, and never before this returns."""
        if not self._begin():
            self._loop.call_soon(tell, queue.calls.values(), NoAnswer("no connection"))
            return
        self._adds.begin(queue.calls)
        self._out += queue.frames

    def _begin(self) -> bool:
        """Prepare to write a frame with a time-out. Return False if there is no connection."""
        if self._transport is None:
            if self._opening is None:
                if self._loop.time() < self._no_attempt_before:
                    return False
                self._opening = self._loop.create_task(self._open())
        elif not self._out:
            self._connections.write_soon(self.flush)
        if self._timer is None:
            self._timer = self._check_later()
        return True

    def flush(self) -> None:
        """Write what is not written yet, as far as the socket takes it.

        Small frames are written together, which saves calls of the system. A large one is written as it is,
        which saves a copy. What the socket does not take waits here, because the transport would copy it.
        """
        out, at = self._out, 0
        while self._transport is not None and self._has_room and at < len(out):
            begin, size = at, 0
            while at < len(out) and size < _WRITE_SIZE:
                size += len(out[at])
                at += 1
            self._transport.write(out[begin] if at == begin + 1 else b"".join(out[begin:at]))
        del out[:at]

    def pause_writing(self) -> None:
        self._has_room = False

    def resume_writing(self) -> None:
        self._has_room = True
        self.flush()

    def _end(self, number: int, answer: BookieAnswer) -> None:
        call = self._calls.pop(number, None)
        if call is not None:
            call.answered(answer)

    def _check_deadlines(self) -> None:
        now, timed_out = self._loop.time(), NoAnswer("timed out")
        late = [number for number, call in self._calls.items() if call.deadline <= now]
        for number in late:
            self._end(number, timed_out)
        if self._adds.end_late(now, timed_out) or late:
            self._connections.note_failure(self.bookie)
        is_open = self._transport is not None
        if is_open and self._v2 is not None and len(self._v2) - len(self._calls) > _ENDED_V2_CALLS_MAX:
            self._refuse("it leaves too many requests without an answer")
        self._timer = self._check_later() if self._calls or self._adds else None

    def _check_later(self) -> asyncio.TimerHandle:
        return self._loop.call_later(min(1.0, self._limits.call_timeout_s / 4), self._check_deadlines)

    # ── the connection ────────────────────────────────────────────────────────────────────────────────

    async def _open(self) -> None:
        try:
            async with asyncio.timeout(self._limits.connect_timeout_s):
                endpoint = await self._connections.resolve(self.bookie)
                if self._connections.tls is None:
                    await open_plain(self, endpoint)
                else:
                    await open_secure(self, endpoint, self._connections.tls)
        except Exception as error:  # whatever it is, the calls have to end
            level = logging.WARNING if isinstance(error, TlsFailed) else logging.INFO
            _LOG.log(level, "no connection to bookie %s: %s", self.bookie, error)
            self._no_attempt_before = self._loop.time() + self._limits.reconnect_delay_s
            self._opening = None
            self._fail(f"no connection: {error}")
        else:
            self._opening = None
            self.flush()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        transport.set_write_buffer_limits(high=_WRITE_SIZE, low=_WRITE_SIZE // 4)
        self._has_room = True
        self._received = b""
        self._is_silent = True

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._kind is LinkKind.V3:
            self._connections.lost(self.bookie)
        reason = "the connection was lost" if error is None else f"the connection was lost: {error}"
        if self._is_silent and self._connections.tls is not None:
            # A server of TLS 1.3 refuses a client's certificate after the client's part of the handshake.
            reason += ", after the handshake (does the client have the certificate that the bookie requires?)"
            _LOG.warning("bookie %s: %s", self.bookie, reason)
        self._fail(reason)

    def data_received(self, data: bytes) -> None:
        self._is_silent = False
        data = self._received + data if self._received else data
        found = frames.split(data, self._limits.frame_size_max)
        self._received = data[found.consumed :]
        for body in self._adds.end_stored(found.bodies):
            answer = v3.decode_answer(body) if self._v2 is None else self._v2.decode(body)
            if isinstance(answer, Malformed):
                self._refuse(answer.reason)
                return
            if answer.code in _FAILURES:
                self._connections.note_failure(self.bookie)
            is_add = answer.operation == OperationCode.ADD_ENTRY
            if not (is_add and self._adds.end(answer.number, answer.answer)):
                self._end(answer.number, answer.answer)
        if found.flaw is not None:
            self._refuse(found.flaw)

    def _refuse(self, reason: str) -> None:
        """Close the connection to a peer that does not speak the protocol."""
        _LOG.warning("bookie %s is disconnected: %s", self.bookie, reason)
        assert self._transport is not None
        self._transport.abort()

    def _fail(self, reason: str) -> None:
        """End all calls."""
        if self._v2 is not None:
            self._v2.clear()
        self._out.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        calls, adds, no_answer = self._calls, self._adds, NoAnswer(reason)
        # The end of a call may bring another one, which does not end with these.
        self._calls, self._adds = {}, AddCalls()
        # Bookies that do not know batch reads close the connection. They are good for everything else.
        if (calls or adds) and self._kind is not LinkKind.BATCH:
            self._connections.note_failure(self.bookie)
        for call in calls.values():
            call.answered(no_answer)
        adds.end_all(no_answer)

    async def close(self) -> None:
        """Close the connection and end all calls."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
            self._opening = None
        if self._transport is not None:
            self._transport.abort()
        self._fail(_CLOSED)


def _ignore_lost(bookie: str) -> None:
    """Do nothing about a lost connection."""


class Connections:
    """The connections of one client, at most one to each bookie. They belong to the running event loop."""

    def __init__(
        self,
        resolve: Callable[[str], Awaitable[Endpoint]],
        failed: Callable[[], None],
        options: ConnectionOptions,
        lost: Callable[[str], None] = _ignore_lost,
    ) -> None:
        """`resolve` returns the address of a bookie, or raises. `failed` is called after each failure.

        `lost` is called with a bookie whose connection of version 3 is lost, before its calls end.
        """
        self.resolve = resolve
        self._failed = failed
        self.lost = lost
        self.limits = options.limits
        self.tls = options.tls
        self._protocol = options.protocol
        self.loop = asyncio.get_running_loop()
        self._links: tuple[dict[str, BookieLink], ...] = tuple({} for _ in LinkKind)
        """By kind and bookie."""
        self._to_write: list[Callable[[], None]] = []
        """Called at the end of this pass of the loop: writers send, and then connections are written."""
        self._number = 0
        """The transaction id of the last request to any bookie."""
        self._failures: dict[str, float] = {}
        """By bookie: when it has failed last."""
        self._is_closed = False

    def call(self, bookie: str, request: Request, answered: Callable[[BookieAnswer], None]) -> None:
        """Send a request to a bookie. `answered` is called once, and never before this returns."""
        if self._is_closed:
            # The end of a call may bring another one, as when a read asks the next bookie.
            self.loop.call_soon(answered, NoAnswer(_CLOSED))
            return
        self._number += 1
        kind = self._kind_of(request)
        link = self._link(bookie, kind)
        if kind is LinkKind.V2 and link.has_ids_of(request):
            link = self._link(bookie, LinkKind.V3)
        link.call(request, self._number, answered)

    def add(self, copies: Sequence[tuple[AddEntry, Sequence[Sending]]], answered: AddsAnswered) -> None:
        """Send copies of entries. Each of them is answered once, and never before this returns."""
        if self._protocol is Protocol.V2:
            for request, sendings in copies:
                for sending in sendings:
                    self.call(sending.bookie, request, partial(answered, sending, (request.entry_id,)))
            return
        batch = AddBatch(answered, self.loop.time() + self.limits.call_timeout_s)
        queues = queues_of(copies, batch, self._number + 1)
        self._number += len(copies)
        for sending, queue in queues.items():
            if self._is_closed:
                self.loop.call_soon(tell, queue.calls.values(), NoAnswer(_CLOSED))
            else:
                self._link(sending.bookie, LinkKind.V3).add(queue)

    def write_soon(self, write: Callable[[], None]) -> None:
        """Call `write` at the end of this pass of the loop, after those that were passed before."""
        if not self._to_write:
            self.loop.call_soon(self._write)
        self._to_write.append(write)

    def _write(self) -> None:
        # A writer adds the connections that it has used to the list, which are then written.
        called = 0
        try:
            for write in self._to_write:
                called += 1
                write()
        finally:
            del self._to_write[:called]
            if self._to_write:
                # The error of one writer must not keep those of the others: they are not passed again.
                self.loop.call_soon(self._write)

    def _kind_of(self, request: Request) -> LinkKind:
        if type(request) is BatchRead:
            return LinkKind.BATCH
        return LinkKind.V2 if self._protocol is Protocol.V2 and is_in_v2(request) else LinkKind.V3

    def _link(self, bookie: str, kind: LinkKind) -> BookieLink:
        link = self._links[kind].get(bookie)
        if link is None:
            link = self._links[kind][bookie] = BookieLink(self, bookie, kind)
        return link

    def note_failure(self, bookie: str) -> None:
        """Avoid a bookie for a while."""
        self._failures[bookie] = self.loop.time()
        self._failed()

    def failed_lately(self) -> frozenset[str]:
        """Return the bookies that are avoided."""
        if not self._failures:
            return frozenset()
        since = self.loop.time() - self.limits.quarantine_s
        return frozenset(bookie for bookie, when in self._failures.items() if when >= since)

    async def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        for links in self._links:
            for link in links.values():
                await link.close()
