"""The port to ZooKeeper in memory: sessions over one tree, whose answers a test can lose."""

from __future__ import annotations

import asyncio
import enum
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from recovery.clusterlab.tree_session import TreeSession, children_at, node_at
from storage.cluster.errors import MetadataUnavailable, SessionExpired
from storage.cluster.metadata.znodes import ChildNames, Gone, Node, Unchanged, Unknown
from storage.cluster.zookeeper.records import Nothing, OpCode
from storage.cluster.zookeeper.tree import new_tree

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from storage.cluster.zookeeper.tree import ZnodeTree

_T = TypeVar("_T")
_State = TypeVar("_State", bound=Node | ChildNames | Gone)


class Loss(enum.Enum):
    """The moment at which the connection of a call is lost."""

    NOT_DONE = "the connection is lost before the server gets the request"
    DONE = "the connection is lost after the server has done it"


class MemoryServer:
    """One tree, and the sessions that use it."""

    def __init__(self) -> None:
        self.tree = new_tree()
        self._next_session = 1
        self._changed: list[asyncio.Event] = []

    def session(self) -> MemoryZnodes:
        """Open a session."""
        self._next_session += 1
        return MemoryZnodes(self, self._next_session)

    def apply(self, session_id: int, opcode: OpCode, request: Any) -> tuple[int, Any]:
        """Make a change. Return the error code and the response."""
        zxid = self.tree.zxid + 1
        done = self.tree.apply(zxid, 1_700_000_000_000 + zxid, session_id, opcode, request)
        if done.is_applied:
            for event in self._changed:
                event.set()
        return done.error, done.response

    def changes(self) -> asyncio.Event:
        """Return an event that every change sets."""
        event = asyncio.Event()
        self._changed.append(event)
        return event

    def paths(self) -> dict[str, bytes]:
        """Return the data of all nodes but those of the server itself."""
        return {
            path: node.data or b""
            for path, node in sorted(self.tree.nodes.items())
            if path != "/" and not path.startswith("/zookeeper")
        }


class MemoryZnodes(TreeSession):
    """A session. Tests decide which of its next writes lose their answers."""

    def __init__(self, server: MemoryServer, session_id: int) -> None:
        self._server = server
        self._session_id = session_id
        self._is_expired = False
        self._losses: dict[int, Loss] = {}
        self._reads = 0
        self._reads_lost = range(0)
        self._shown: ZnodeTree | None = None
        """What a server that lags shows."""
        self.writes = 0
        """The number of writes that were asked."""
        self.before_write: Callable[[], Awaitable[object]] | None = None
        """Called once before the next write, for the change of another client at this moment."""
        self.before_call: Callable[[], Awaitable[object]] | None = None
        """Called before each call but those of watches."""

    def lose(self, loss: Loss, after: int = 0) -> None:
        """Let the answer of the write after so many others be lost."""
        self._losses[self.writes + after] = loss

    def lose_reads(self, count: int, after: int = 0) -> None:
        """Let reads fail: the next ones, or those after so many others."""
        self._reads_lost = range(self._reads + after, self._reads + after + count)

    def lag(self) -> None:
        """Let the session's server show the present until it has answered a write or a `sync`."""
        self._shown = deepcopy(self._server.tree)

    @property
    def _tree(self) -> ZnodeTree:
        return self._server.tree if self._shown is None else self._shown

    def expire(self) -> None:
        """End the session, as the server does."""
        self._is_expired = True
        self._server.apply(self._session_id, OpCode.CLOSE_SESSION, Nothing())

    @property
    def session_id(self) -> int:
        return self._session_id

    async def _written(self, opcode: OpCode, request: Any) -> tuple[int, Any] | Unknown:
        await self._arrive()
        if self.before_write is not None:
            other, self.before_write = self.before_write, None
            await other()
        loss = self._losses.pop(self.writes, None)
        self.writes += 1
        if loss is Loss.NOT_DONE:
            return Unknown("lost")
        answer = self._server.apply(self._session_id, opcode, request)
        if loss is not None:
            return Unknown("lost")
        self._shown = None
        return answer

    async def _looked(self, look: Callable[[ZnodeTree], _T]) -> _T:
        await self._read()
        return look(self._tree)

    async def sync(self, path: str) -> None:
        await self._read()
        self._shown = None

    def watch(self, path: str) -> _MemoryWatch[Node | Gone]:
        return _MemoryWatch(self, lambda tree: node_at(tree, path), self._server.changes())

    def watch_children(self, path: str) -> _MemoryWatch[ChildNames | Gone]:
        return _MemoryWatch(self, lambda tree: children_at(tree, path), self._server.changes())

    async def _arrive(self) -> None:
        if self.before_call is not None:
            await self.before_call()
        self._check_session()
        await asyncio.sleep(0)

    async def _read(self) -> None:
        await self._arrive()
        self._reads += 1
        if self._reads - 1 in self._reads_lost:
            raise MetadataUnavailable("lost")

    def look(self, look: Callable[[ZnodeTree], _State]) -> _State:
        """Return what the tree shows, for a watch, which never loses its connection."""
        self._check_session()
        return look(self._tree)

    def _check_session(self) -> None:
        if self._is_expired:
            raise SessionExpired("the test has ended it")


class _MemoryWatch(Generic[_State]):
    def __init__(
        self, session: MemoryZnodes, look: Callable[[ZnodeTree], _State], changed: asyncio.Event
    ) -> None:
        self._session = session
        self._look = look
        self._changed = changed
        self._last: _State | None = None

    async def next(self, timeout_s: float | None = None) -> _State | Unchanged:
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    self._changed.clear()
                    state = self._session.look(self._look)
                    if state != self._last:
                        self._last = state
                        return state
                    await self._changed.wait()
        except TimeoutError:
            return Unchanged()

    def close(self) -> None:
        self._last = None
