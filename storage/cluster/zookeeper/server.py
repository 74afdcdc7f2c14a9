"""The server: the order in which changes become durable and answers leave, and the expiry of sessions.

A change is applied when its frame is read. It joins the group that gathers, and so does every answer from
then on, to whichever client, because it may tell of a change that is not durable yet. When the group before
is durable, the gathering group is appended to the log as one commit, and then its answers leave. While
nothing gathers and nothing is under way, an answer leaves at once.

If the log fails, every connection is cut off without an answer, because the tree is then ahead of the log.
The next start reads the log, and the clients connect again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from storage.cluster.zookeeper.connection import Connection
from storage.cluster.zookeeper.jute import encode_reply
from storage.cluster.zookeeper.log import DurableLog, LogLimits
from storage.cluster.zookeeper.records import PING_XID
from storage.cluster.zookeeper.service import AfterAnswer, Client, Service
from storage.cluster.zookeeper.sessions import Sessions, TimeoutRange, first_session_id
from storage.errors import InvalidConfig

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from storage.aio.store import AsyncStore
    from storage.cluster.zookeeper.service import Answer

FRAME_SIZE_MIN = 4 << 10
FRAME_SIZE_LIMIT = 4_900_000
"""A change is one entry of a store, which takes 5 MiB, and a piece of a snapshot has a little beside it."""

_LOG = logging.getLogger("ledgerstore.zookeeper")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The settings of a server. Sizes are in bytes."""

    host: str = "127.0.0.1"
    port: int = 2181
    """0 for any free port."""
    tls: ssl.SSLContext | None = None
    timeouts: TimeoutRange = field(default_factory=TimeoutRange)
    """The session time-outs that are granted."""
    tick_s: float = 0.5
    """How often the server looks for sessions that have expired and peers that are stuck."""
    frame_size_max: int = 4 << 20
    """A longer frame closes its connection. ZooKeeper's own limit is 1 MiB."""
    connections_max: int = 10_000
    connections_per_peer_max: int = 500
    """More connections from one address are closed at once."""
    unsent_per_connection_max: int = 1 << 20
    """With more unsent bytes of answers, no more requests of that connection are read."""
    buffered_size_max: int = 48 << 20
    """With more unread or unsent bytes of all connections together, the largest of them is cut off."""
    handshake_s: float = 10.0
    """How long a connection may take to send its first frame."""
    stalled_s: float = 30.0
    """A peer that takes none of its answers for so long is cut off."""
    log: LogLimits = field(default_factory=LogLimits)

    def __post_init__(self) -> None:
        if not FRAME_SIZE_MIN <= self.frame_size_max <= FRAME_SIZE_LIMIT:
            reason = f"{self.frame_size_max} is not between {FRAME_SIZE_MIN} and {FRAME_SIZE_LIMIT}"
            raise InvalidConfig("frame_size_max", reason)


class _CommitGroup:
    """Changes that become durable together, and the answers that wait for that."""

    __slots__ = ("answers", "changes", "closing", "size")

    def __init__(self) -> None:
        self.changes: list[bytes] = []
        self.answers: dict[Connection, list[bytes]] = {}
        self.closing: list[Connection] = []
        self.size = 0


class Server:
    """Serves the tree of a store to ZooKeeper's clients, until `stop` or until the log fails."""

    def __init__(
        self,
        store: AsyncStore,
        config: ServerConfig,
        wall_clock_s: Callable[[], float],
        new_password: Callable[[], bytes],
    ) -> None:
        self.config = config
        self.new_password = new_password
        self.connections: dict[Client, Connection] = {}
        self.peers: Counter[str] = Counter()
        self.stopped_reading: dict[Connection, None] = {}
        """Connections with requests that were received and wait until a group is durable."""
        self._store = store
        self._wall_clock_s = wall_clock_s
        self._gathering: _CommitGroup | None = None
        self._committing: _CommitGroup | None = None
        self._durable_zxid = 0
        self._has_work = asyncio.Event()
        self._is_stopping = False
        self._failure: BaseException | None = None
        self._ended = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    # ── beginning and end ─────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Read the log, and listen."""
        loop = self._loop = asyncio.get_running_loop()
        self._log = await DurableLog.open(self._store, self.config.log)
        tree = self._log.tree
        self._durable_zxid = tree.zxid
        sessions = Sessions(tree.sessions, self.now_ms(), first_session_id(self.wall_ms()))
        self.service = Service(tree, sessions, self.config.timeouts)
        self._tasks = [loop.create_task(self._commit()), loop.create_task(self._watch_clock())]
        self._listener = await loop.create_server(
            lambda: Connection(self), self.config.host, self.config.port, ssl=self.config.tls, backlog=1024
        )

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return cast("int", self._listener.sockets[0].getsockname()[1])

    async def serve(self) -> None:
        """Return when the server was stopped; raise if its log has failed."""
        await self._ended.wait()
        if self._failure is not None:
            raise self._failure

    async def stop(self) -> None:
        """Answer what was taken, and close every connection. Sessions go on when the server starts again."""
        self._listener.close()
        self._is_stopping = True
        for connection in self.connections.values():
            connection.stop_reading()
        self._has_work.set()
        committing, clock = self._tasks
        clock.cancel()
        await asyncio.wait([committing, clock])
        for connection in tuple(self.connections.values()):
            connection.close()
        if self._failure is None:
            await self._log.close()
        self._ended.set()

    def fail(self, error: BaseException) -> None:
        """Cut off every connection, and let `serve` raise: the tree is perhaps ahead of the log."""
        if self._failure is None:
            _LOG.error("the server stops: %s", error)
            self._failure = error
        self._listener.close()
        self._gathering = None
        for connection in tuple(self.connections.values()):
            connection.abort()
        self._ended.set()

    @property
    def takes_requests(self) -> bool:
        return not self._is_stopping and self._failure is None

    def now_ms(self) -> int:
        """Milliseconds of a clock that is never set."""
        return int(self._loop.time() * 1000)

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as stats show them."""
        return int(self._wall_clock_s() * 1000)

    # ── the order of a commit ─────────────────────────────────────────────────────────────────────────

    def take(self, connection: Connection | None, answer: Answer) -> None:
        """Log the change of an answer, and send the answer as soon as it may leave."""
        reply, record, events, then, detached = answer
        if detached is not None:
            self.connections[detached].abort()
        if record:
            group = self._gathering
            if group is None:
                group = self._gathering = _CommitGroup()
                self._has_work.set()
            group.changes.append(record)
            group.size += len(record)
        else:
            group = self._gathering or self._committing
        for client, frame in events:
            if (watcher := self.connections.get(client)) is not None:
                _hand(group, watcher, frame)
        if connection is None:
            return
        if reply:
            _hand(group, connection, reply)
        if then is AfterAnswer.CLOSE:
            connection.stop_reading()
            if group is None:
                connection.close()
            else:
                group.closing.append(connection)

    def answer_ping(self, connection: Connection) -> None:
        """Answer a ping at once, because a client whose disk is slow must not lose its session by that."""
        connection.write([encode_reply(PING_XID, self._durable_zxid, 0)])

    @property
    def has_room(self) -> bool:
        """Whether more requests may be answered before a group is durable."""
        size = sum(group.size for group in (self._gathering, self._committing) if group is not None)
        return size <= self.config.buffered_size_max

    async def _commit(self) -> None:
        try:
            while True:
                await self._has_work.wait()
                self._has_work.clear()
                group, self._gathering = self._gathering, None
                if group is None:
                    if self._is_stopping:
                        return
                    continue
                self._committing, zxid = group, self.service.tree.zxid
                await self._log.append(group.changes)
                self._committing, self._durable_zxid = None, zxid
                self._release(group)
                if self._is_stopping or self._gathering is not None:
                    self._has_work.set()
        except Exception as error:  # the store has failed: no answer may leave any more
            self.fail(error)

    def _release(self, group: _CommitGroup) -> None:
        for connection, frames in group.answers.items():
            connection.held -= sum(map(len, frames))
            connection.write(frames)
        for connection in group.closing:
            connection.close()
        waiting, self.stopped_reading = self.stopped_reading, {}
        for connection in waiting:
            connection.proceed()

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────

    async def _watch_clock(self) -> None:
        try:
            while True:
                await asyncio.sleep(self.config.tick_s)
                self.expire(self.now_ms())
        except Exception as error:
            self.fail(error)

    def expire(self, now_ms: int) -> None:
        """End the sessions whose clients are silent, and cut off the peers that are stuck."""
        for client, answer in self.service.expire(now_ms, self.wall_ms()):
            self.take(None if client is None else self.connections.get(client), answer)
        for connection in tuple(self.connections.values()):
            if connection.is_stuck(now_ms):
                connection.abort()

    # ── memory ────────────────────────────────────────────────────────────────────────────────────────

    def check_buffers(self) -> None:
        """Cut off the connection with the most buffered bytes if all together have too many."""
        sizes = {one: one.buffered for one in self.connections.values()}
        if sum(sizes.values()) > self.config.buffered_size_max:
            max(sizes, key=sizes.__getitem__).abort()


def _hand(group: _CommitGroup | None, connection: Connection, frame: bytes) -> None:
    """Send a frame when the group is durable; without a group, with what the connection sends next."""
    if group is None:
        connection.queue(frame)
        return
    size = len(frame)
    group.answers.setdefault(connection, []).append(frame)
    group.size += size
    connection.held += size
