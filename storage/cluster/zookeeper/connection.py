"""One connection of the server: frames in, answers out, and what bounds its memory.

A frame is no longer than `frame_size_max`; before the first one, than a request to connect can be. While more
than `unsent_per_connection_max` bytes of answers wait, for the log or for the peer, no more frames are read.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, cast

from storage.cluster.zookeeper.jute import FRAME_LENGTH, REQUEST_HEADER, MalformedRecord
from storage.cluster.zookeeper.records import PING_XID, OpCode
from storage.cluster.zookeeper.service import Client

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.cluster.zookeeper.server import Server

_LOG = logging.getLogger("ledgerstore.zookeeper")

FIRST_FRAME_SIZE_MAX = 4 << 10

ARE_YOU_OK, I_AM_OK = b"ruok", b"imok"
"""The one command of four letters that is known: `ruok` instead of a first frame is answered with `imok`."""

_PING = REQUEST_HEADER.pack(PING_XID, OpCode.PING)

_FLUSH_SIZE = 64 << 10
"""The most bytes of answers that are written together, so that the server notices a slow peer in time."""

_CHECK_SIZE = 256 << 10
"""A connection that buffers less does not make the server look at all of them."""


class Connection(asyncio.Protocol):
    """The server's side of a connection. All its methods run on the server's loop."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._config = server.config
        self._received = bytearray()
        self._queued: list[bytes] = []
        self._queued_size = 0
        self._is_reading = True
        self._is_blocked = False
        """Whether the peer takes less than it is sent."""
        self._waits_since_ms = server.now_ms()
        """Since when the first frame is awaited, or the peer takes nothing."""
        self.held = 0
        """The bytes of answers that wait until a group is durable."""
        self.client: Client | None = None

    # ── beginning and end ─────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        server, config = self._server, self._config
        address = (transport.get_extra_info("peername") or ("",))[0]
        is_full = len(server.connections) >= config.connections_max
        if is_full or server.peers[address] >= config.connections_per_peer_max or not server.takes_requests:
            _LOG.warning("%s: too many connections; this one is closed", address)
            self._is_reading = False
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=config.unsent_per_connection_max)
        self.client = Client(address)
        server.connections[self.client] = self
        server.peers[address] += 1

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._is_reading = False
        server, client = self._server, self.client
        server.stopped_reading.pop(self, None)
        if client is None or server.connections.pop(client, None) is None:
            return
        server.peers[client.address] -= 1
        if not server.peers[client.address]:
            del server.peers[client.address]
        server.service.disconnect(client)
        self._received.clear()

    def close(self) -> None:
        """Close the connection once everything was sent."""
        self._is_reading = False
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Cut the peer off. Nothing more is sent."""
        self._is_reading = False
        self._transport.abort()
        # Not later, because another connection may take over the session at once.
        self.connection_lost(None)

    def is_stuck(self, now_ms: int) -> bool:
        """Return whether its first frame, or a sign that the peer takes its answers, is overdue."""
        assert self.client is not None
        waited_s = (now_ms - self._waits_since_ms) / 1000
        if self._is_blocked:
            return waited_s > self._config.stalled_s
        return not self.client.session_id and waited_s > self._config.handshake_s

    @property
    def buffered(self) -> int:
        """The bytes that it has received and not read, or not sent yet."""
        return len(self._received) + self._transport.get_write_buffer_size()

    # ── frames in ─────────────────────────────────────────────────────────────────────────────────────

    def data_received(self, data: bytes) -> None:
        if not self._is_reading:
            return
        self._received += data
        try:
            self._read_frames()
        except Exception as error:  # a bug, which may have left a change without its record
            self._server.fail(error)
            raise
        if len(self._received) > _CHECK_SIZE:
            self._server.check_buffers()

    def stop_reading(self) -> None:
        """Ignore what the peer still sends: its session is over."""
        self._is_reading = False
        self._received.clear()

    def proceed(self) -> None:
        """Go on with the frames that were received, after answers have left."""
        if self._is_reading and not self._is_blocked:
            self._transport.resume_reading()
            self.data_received(b"")

    def _read_frames(self) -> None:
        received, at, server = self._received, 0, self._server
        client = self.client
        assert client is not None
        if not client.session_id and received[:4] == ARE_YOU_OK:
            self.queue(I_AM_OK)
            self.close()
            return
        if client.session_id:
            server.service.sessions.hear(client.session_id, server.now_ms())
        while self._is_reading and at + FRAME_LENGTH.size <= len(received):
            if not self._may_answer():
                break
            (size,) = FRAME_LENGTH.unpack_from(received, at)
            size_max = self._config.frame_size_max if client.session_id else FIRST_FRAME_SIZE_MAX
            if not 0 <= size <= size_max:
                self._refuse(f"a frame of {size} bytes")
                return
            start = at + FRAME_LENGTH.size
            at = start + size
            if at > len(received):
                at = start - FRAME_LENGTH.size
                break
            self._read_frame(client, bytes(received[start:at]))
        if self._is_reading:
            del received[:at]
        self._flush()

    def _may_answer(self) -> bool:
        """Return whether there is room for one more answer; if not, stop reading until there is."""
        if self._is_blocked:
            self._transport.pause_reading()
            return False
        if self.held > self._config.unsent_per_connection_max or not self._server.has_room:
            self._transport.pause_reading()
            self._server.stopped_reading[self] = None
            return False
        return True

    def _read_frame(self, client: Client, frame: bytes) -> None:
        server = self._server
        try:
            if not client.session_id:
                now_ms, wall_ms = server.now_ms(), server.wall_ms()
                answer = server.service.connect(client, frame, now_ms, wall_ms, server.new_password())
            elif frame == _PING:
                server.answer_ping(self)
                return
            else:
                answer = server.service.answer(client, frame, server.wall_ms())
        except MalformedRecord as error:
            self._refuse(str(error))
            return
        server.take(self, answer)

    def _refuse(self, reason: str) -> None:
        assert self.client is not None
        _LOG.warning("%s: closed because of %s", self.client.address, reason)
        self.close()

    # ── answers out ───────────────────────────────────────────────────────────────────────────────────

    def queue(self, frame: bytes) -> None:
        """Send the frame with those that follow it in this turn."""
        self._queued.append(frame)
        self._queued_size += len(frame)
        if self._queued_size > _FLUSH_SIZE:
            self._flush()

    def _flush(self) -> None:
        if self._queued:
            frames, self._queued, self._queued_size = self._queued, [], 0
            self.write(frames)

    def write(self, frames: Sequence[bytes]) -> None:
        """Send the frames now."""
        self._transport.write(b"".join(frames))
        if self._is_blocked:
            self._server.check_buffers()

    def pause_writing(self) -> None:
        self._is_blocked = True
        self._waits_since_ms = self._server.now_ms()

    def resume_writing(self) -> None:
        self._is_blocked = False
        self.proceed()
