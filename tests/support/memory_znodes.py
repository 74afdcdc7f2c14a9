"""The port to ZooKeeper in memory: sessions over one tree, whose answers a test can lose."""

from __future__ import annotations

import asyncio
import enum
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from storage.cluster.errors import MetadataUnavailable, SessionExpired
from storage.cluster.metadata import znodes as port
from storage.cluster.metadata.znodes import (
    ANY_VERSION,
    ChildNames,
    Conflict,
    Created,
    CreateMode,
    Deleted,
    Done,
    Exists,
    Gone,
    MultiCheck,
    Node,
    NodeStat,
    NoParent,
    NotEmpty,
    Rejected,
    Unchanged,
    Unknown,
    Written,
)
from storage.cluster.zookeeper.records import (
    OPEN_ACL,
    Create,
    ErrorCode,
    Multi,
    Nothing,
    OpCode,
    PathAndVersion,
    SetData,
)
from storage.cluster.zookeeper.tree import new_tree

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from storage.cluster.metadata.znodes import (
        CreateAnswer,
        DeleteAnswer,
        MultiAnswer,
        Operation,
        SetAnswer,
    )
    from storage.cluster.zookeeper.tree import ZnodeTree

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


class MemoryZnodes:
    """A session. Tests decide which of its next writes lose their answers."""

    def __init__(self, server: MemoryServer, session_id: int) -> None:
        self._server = server
        self._session_id = session_id
        self._is_expired = False
        self._losses: dict[int, Loss] = {}
        self._reads_lost = 0
        self._shown: ZnodeTree | None = None
        """What a server that lags shows."""
        self.writes = 0
        """The number of writes that were asked."""
        self.before_write: Callable[[], Awaitable[object]] | None = None
        """Called once before the next write, for the change of another client at this moment."""

    def lose(self, loss: Loss, after: int = 0) -> None:
        """Let the answer of the write after so many others be lost."""
        self._losses[self.writes + after] = loss

    def lose_reads(self, count: int) -> None:
        """Let the next reads fail."""
        self._reads_lost = count

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

    # ── writes ────────────────────────────────────────────────────────────────────────────────────────────

    async def create(
        self, path: str, data: bytes = b"", mode: CreateMode = CreateMode.PERSISTENT
    ) -> CreateAnswer:
        code, response = await self._write(OpCode.CREATE, Create(path, data, OPEN_ACL, mode.value))
        if code == ErrorCode.OK:
            return Created(response.path)
        answer = _ANSWERS[code]
        return NoParent() if isinstance(answer, Gone) else answer  # type: ignore[return-value]

    async def delete(self, path: str, version: int = ANY_VERSION) -> DeleteAnswer:
        code, _ = await self._write(OpCode.DELETE, PathAndVersion(path, version))
        return Deleted() if code == ErrorCode.OK else _ANSWERS[code]  # type: ignore[return-value]

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> SetAnswer:
        code, response = await self._write(OpCode.SET_DATA, SetData(path, data, version))
        if code == ErrorCode.OK:
            return Written(response.stat.version)
        return _ANSWERS[code]  # type: ignore[return-value]

    async def multi(self, operations: Sequence[Operation]) -> MultiAnswer:
        parts = tuple(map(_part, operations))
        code, response = await self._write(OpCode.MULTI, Multi(parts))
        if code == _LOST:
            return Unknown("lost")
        for index, (opcode, record) in enumerate(response.parts):
            if opcode == OpCode.ERROR and record.error not in (0, ErrorCode.RUNTIME_INCONSISTENCY):
                reason = _ANSWERS[record.error]
                if isinstance(operations[index], port.MultiCreate) and isinstance(reason, Gone):
                    reason = NoParent()
                return Rejected(index, reason)  # type: ignore[arg-type]
        return Done()

    async def _write(self, opcode: OpCode, request: Any) -> tuple[int, Any]:
        self._check_session()
        await asyncio.sleep(0)
        if self.before_write is not None:
            other, self.before_write = self.before_write, None
            await other()
        loss = self._losses.pop(self.writes, None)
        self.writes += 1
        if loss is Loss.NOT_DONE:
            return _LOST, None
        answer = self._server.apply(self._session_id, opcode, request)
        if loss is not None:
            return _LOST, None
        self._shown = None
        return answer

    # ── reads ─────────────────────────────────────────────────────────────────────────────────────────────

    async def get(self, path: str) -> Node | Gone:
        await self._read()
        return self.node(path)

    async def get_all(self, paths: Sequence[str]) -> Sequence[Node | Gone]:
        return [await self.get(path) for path in paths]

    async def exists(self, path: str) -> NodeStat | Gone:
        node = await self.get(path)
        return node if isinstance(node, Gone) else node.stat

    async def children(self, path: str) -> ChildNames | Gone:
        await self._read()
        return self.child_names(path)

    async def children_of_all(self, paths: Sequence[str]) -> Sequence[ChildNames | Gone]:
        return [await self.children(path) for path in paths]

    async def sync(self, path: str) -> None:
        await self._read()
        self._shown = None

    def watch(self, path: str) -> _MemoryWatch[Node | Gone]:
        return _MemoryWatch(self, lambda: self.node(path), self._server.changes())

    def watch_children(self, path: str) -> _MemoryWatch[ChildNames | Gone]:
        return _MemoryWatch(self, lambda: self.child_names(path), self._server.changes())

    async def _read(self) -> None:
        self._check_session()
        await asyncio.sleep(0)
        if self._reads_lost:
            self._reads_lost -= 1
            raise MetadataUnavailable("lost")

    def node(self, path: str) -> Node | Gone:
        tree = self._tree
        found = tree.nodes.get(path)
        return Gone() if found is None else Node(found.data or b"", NodeStat(*tree.stat(path, found)))

    def child_names(self, path: str) -> ChildNames | Gone:
        node = self.node(path)
        if isinstance(node, Gone):
            return node
        return ChildNames(tuple(sorted(self._tree.children(path))), node.stat)

    def check_session(self) -> None:
        self._check_session()

    def _check_session(self) -> None:
        if self._is_expired:
            raise SessionExpired("the test has ended it")


class _MemoryWatch(Generic[_State]):
    def __init__(self, session: MemoryZnodes, read: Callable[[], _State], changed: asyncio.Event) -> None:
        self._session = session
        self._read = read
        self._changed = changed
        self._last: _State | None = None

    async def next(self, timeout_s: float | None = None) -> _State | Unchanged:
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    self._session.check_session()
                    self._changed.clear()
                    state = self._read()
                    if state != self._last:
                        self._last = state
                        return state
                    await self._changed.wait()
        except TimeoutError:
            return Unchanged()

    def close(self) -> None:
        self._last = None


_LOST = 1
_ANSWERS: dict[int, object] = {
    _LOST: Unknown("lost"),
    ErrorCode.NODE_EXISTS: Exists(),
    ErrorCode.NO_NODE: Gone(),
    ErrorCode.BAD_VERSION: Conflict(),
    ErrorCode.NOT_EMPTY: NotEmpty(),
    ErrorCode.NO_CHILDREN_FOR_EPHEMERALS: NoParent(),
}


def _part(operation: Operation) -> tuple[OpCode, Any]:
    match operation:
        case port.MultiCreate(path, data, mode):
            return OpCode.CREATE, Create(path, data, OPEN_ACL, mode.value)
        case port.MultiDelete(path, version):
            return OpCode.DELETE, PathAndVersion(path, version)
        case port.MultiSet(path, data, version):
            return OpCode.SET_DATA, SetData(path, data, version)
        case MultiCheck(path, version):
            return OpCode.CHECK, PathAndVersion(path, version)
