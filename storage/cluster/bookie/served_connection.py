"""The bookie's side of a connection: requests in order, and all answers of a pass of the loop in one write.

A connection is not read while it holds too many unanswered requests, while its peer does not take answers, or
while all connections together hold too much.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from typing import TYPE_CHECKING

from storage.cluster.bookie.connection import REQUEST_SIZE, ConnectionState, TlsStage, size_of, weight_of
from storage.cluster.bookie.traffic import RequestKind
from storage.cluster.wire.codes import Code
from storage.cluster.wire.messages import AddRun, CodeAnswer, Incoming, ReadRun, StartTls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from storage.cluster.bookie.connection import Arrived
    from storage.cluster.bookie.server import BookieServer
    from storage.cluster.wire.messages import Answer

_LOG = logging.getLogger("ledgerstore.bookie")


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
            # Reading stops at once, because START_TLS may have to wait until the peer takes answers. Plain
            # text that came meanwhile would be taken for the client's after the handshake.
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
        # The connection is aborted, because `close` would wait until the peer has taken what is ready.
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
