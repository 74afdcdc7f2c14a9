"""Connections to bookies. Each call ends exactly once: with the bookie's answer, or with `NoAnswer`.

A bookie has one connection, which is opened by the first call to it. Frames of one pass of the loop are
written together. A call ends without an answer

* when its time is over; the answer, if it still comes, is dropped;
* when the connection is lost, or the peer sends what is no answer;
* when there is no connection and the last attempt to open one was a short time ago.

A bookie that has failed in one of these ways is avoided for a while when bookies are chosen.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from storage.cluster.client.effects import NoAnswer
from storage.cluster.wire import frames, v3
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import LongPoll
from storage.cluster.wire.protobuf import Malformed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from storage.cluster.client.effects import BookieAnswer
    from storage.cluster.metadata.registration import Endpoint
    from storage.cluster.wire.messages import Request

_LOG = logging.getLogger("ledgerstore.client")

_FAILURES = frozenset({Code.IO_ERROR, Code.READ_ONLY, Code.TOO_MANY_REQUESTS, Code.UNKNOWN_LEDGER_STATE})
"""The answers of a bookie that should be avoided for a while."""

_CLOSED = "the client is closed"


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Time-outs of the connections to bookies."""

    call_timeout_s: float = 5.0
    """A long poll has this time beyond the time that it asks for."""
    connect_timeout_s: float = 5.0
    reconnect_delay_s: float = 1.0
    """After a failed attempt to connect, calls fail at once for this time."""
    quarantine_s: float = 30.0
    """So long a bookie that has failed is avoided if there are others."""
    frame_size_max: int = frames.FRAME_SIZE_MAX


class _BookieCall(NamedTuple):
    """One call that has not ended."""

    answered: Callable[[BookieAnswer], None]
    deadline: float


class BookieLink(asyncio.Protocol):
    """The connection to one bookie."""

    def __init__(self, connections: Connections, bookie: str) -> None:
        self._connections = connections
        self._loop = connections.loop
        self._limits = connections.limits
        self.bookie = bookie
        self._transport: asyncio.Transport | None = None
        self._opening: asyncio.Task[None] | None = None
        self._no_attempt_before = 0.0
        self._out: list[bytes] = []
        """Frames that are not written yet."""
        self._is_flush_planned = False
        self._received = b""
        self._number = 0
        self._calls: dict[int, _BookieCall] = {}
        """By the transaction id: the calls that have not ended."""
        self._due: deque[int] = deque()
        """The ids of calls with the usual time-out, in the order of their deadlines."""
        self._polls: set[int] = set()
        """The ids of long polls, which have deadlines of their own."""
        self._timer: asyncio.TimerHandle | None = None

    # ── calls ─────────────────────────────────────────────────────────────────────────────────────────

    def call(self, request: Request, answered: Callable[[BookieAnswer], None]) -> None:
        """Send a request. `answered` is called once, and never before this returns."""
        now = self._loop.time()
        if self._transport is None and self._opening is None:
            if now < self._no_attempt_before:
                self._loop.call_soon(answered, NoAnswer("no connection"))
                return
            self._opening = self._loop.create_task(self._open())
        self._number += 1
        wait_s = (request.timeout_ms or 0) / 1000 if isinstance(request, LongPoll) else 0.0
        self._calls[self._number] = _BookieCall(answered, now + wait_s + self._limits.call_timeout_s)
        if wait_s:
            self._polls.add(self._number)
        else:
            self._due.append(self._number)
        self._out.append(v3.encode_request(request, self._number))
        if not self._is_flush_planned and self._transport is not None:
            self._is_flush_planned = True
            self._loop.call_soon(self._flush)
        if self._timer is None:
            self._timer = self._loop.call_later(self._limits.call_timeout_s / 4, self._check_deadlines)

    def _flush(self) -> None:
        self._is_flush_planned = False
        if self._transport is not None and self._out:
            self._transport.write(b"".join(self._out))
            self._out.clear()

    def _end(self, number: int, answer: BookieAnswer) -> None:
        call = self._calls.pop(number, None)
        if call is not None:
            self._polls.discard(number)
            call.answered(answer)

    def _check_deadlines(self) -> None:
        self._timer = None
        now, late = self._loop.time(), []
        while self._due and ((call := self._calls.get(self._due[0])) is None or call.deadline <= now):
            late.append(self._due.popleft())
        late += [number for number in self._polls if self._calls[number].deadline <= now]
        for number in late:
            if number in self._calls:
                self._connections.note_failure(self.bookie)
            self._end(number, NoAnswer("timed out"))
        if self._calls:
            self._timer = self._loop.call_later(self._limits.call_timeout_s / 4, self._check_deadlines)

    # ── the connection ────────────────────────────────────────────────────────────────────────────────

    async def _open(self) -> None:
        try:
            async with asyncio.timeout(self._limits.connect_timeout_s):
                endpoint = await self._connections.resolve(self.bookie)
                await self._loop.create_connection(lambda: self, endpoint.host, endpoint.port)
        except Exception as error:  # whatever it is, the calls have to end
            _LOG.info("no connection to bookie %s: %s", self.bookie, error)
            self._no_attempt_before = self._loop.time() + self._limits.reconnect_delay_s
            self._opening = None
            self._fail(f"no connection: {error}")
        else:
            self._opening = None
            self._flush()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._received = b""

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._fail("the connection was lost" if error is None else f"the connection was lost: {error}")

    def data_received(self, data: bytes) -> None:
        data = self._received + data if self._received else data
        found = frames.split(data, self._limits.frame_size_max)
        self._received = data[found.consumed :]
        for body in found.bodies:
            answer = v3.decode_answer(body)
            if isinstance(answer, Malformed):
                self._refuse(answer.reason)
                return
            if answer.code in _FAILURES:
                self._connections.note_failure(self.bookie)
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
        self._out.clear()
        self._due.clear()
        if self._calls:
            self._connections.note_failure(self.bookie)
        for number in list(self._calls):
            self._end(number, NoAnswer(reason))

    async def close(self) -> None:
        """Close the connection and end all calls."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
            self._opening = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()
        self._fail(_CLOSED)


class Connections:
    """The connections of one client, at most one to each bookie. They belong to the running event loop."""

    def __init__(
        self,
        resolve: Callable[[str], Awaitable[Endpoint]],
        failed: Callable[[], None],
        limits: CallLimits,
    ) -> None:
        """`resolve` returns the address of a bookie, or raises. `failed` is called after each failure."""
        self.resolve = resolve
        self._failed = failed
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self._links: dict[str, BookieLink] = {}
        self._failures: dict[str, float] = {}
        """By bookie: when it has failed last."""
        self._is_closed = False

    def call(self, bookie: str, request: Request, answered: Callable[[BookieAnswer], None]) -> None:
        """Send a request to a bookie. `answered` is called once, and never before this returns."""
        if self._is_closed:
            # The end of a call may bring another one, as when a read asks the next bookie.
            self.loop.call_soon(answered, NoAnswer(_CLOSED))
            return
        link = self._links.get(bookie)
        if link is None:
            link = self._links[bookie] = BookieLink(self, bookie)
        link.call(request, answered)

    def note_failure(self, bookie: str) -> None:
        """Avoid a bookie for a while."""
        self._failures[bookie] = self.loop.time()
        self._failed()

    def failed_lately(self) -> frozenset[str]:
        """Return the bookies that are avoided."""
        since = self.loop.time() - self.limits.quarantine_s
        return frozenset(bookie for bookie, when in self._failures.items() if when >= since)

    async def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        for link in self._links.values():
            await link.close()
