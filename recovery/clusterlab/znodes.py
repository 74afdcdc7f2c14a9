"""Sessions of processes with an ensemble of metadata servers: the port that production code uses.

A session has one server at a time, and its calls arrive there in the order in which they were made.
Before a client gets the answer to a write or a `sync`, its server shows everything that was written until
then. The faults, each by chance:

    a call is lost         a read fails. A write has taken place, takes place later, never does, or was
                           certainly not sent. The session may go on at another server, which shows at least
                           what the session has seen
    a follower lags        reads without a `sync`, and watches, show the past
    a session expires      its ephemeral nodes go. The client learns of it later, and does until then what
                           needs no metadata

A write that is late takes place before the next write or `sync` of its session does, or never, because the
server of a new connection orders them after it.
"""

from __future__ import annotations

import asyncio
import enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from recovery.clusterlab.tree_session import TreeSession, children_at, node_at
from recovery.clusterlab.world import EventKind
from storage.cluster.errors import MetadataUnavailable, SessionExpired
from storage.cluster.metadata.znodes import ChildNames, Gone, Node, Unchanged, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.clusterlab.clients import Process
    from recovery.clusterlab.metadata_ensemble import EnsembleServer, MetadataEnsemble
    from storage.cluster.zookeeper.records import OpCode
    from storage.cluster.zookeeper.tree import ZnodeTree


_T = TypeVar("_T")
_State = TypeVar("_State", bound=Node | ChildNames | Gone)

_LATE_UNITS = 60.0
_SESSION_UNITS = 40.0
"""The time-out of a session: so much later its ephemeral nodes go when its client was killed."""


class LostCall(enum.Enum):
    """The ends of a call without an answer."""

    NOT_SENT = "there is no connection"
    UNANSWERED = "the connection was lost"
    EXPIRED = "the session has expired before the answer"
    NO_SESSION = "the session has expired"

    @property
    def error(self) -> MetadataUnavailable:
        """The error that a read raises, or a write that was certainly not sent."""
        is_over = self in (LostCall.EXPIRED, LostCall.NO_SESSION)
        return (SessionExpired if is_over else MetadataUnavailable)(self.value)


class _PendingCall:
    """One call of a session that has not ended."""

    __slots__ = ("ended",)

    def __init__(self, ended: Callable[[Any], None]) -> None:
        self.ended = ended


class ZnodeSession(TreeSession):
    """A session of one process. It is the port to the metadata that production code uses."""

    def __init__(self, ensemble: MetadataEnsemble, process: Process) -> None:
        self._ensemble = ensemble
        self._world = process.world
        self._process = process
        self.server = ensemble.some_server()
        self._id = ensemble.new_session_id()
        self._is_over = False
        """Whether the servers have ended it."""
        self._is_told = False
        """Whether the client knows."""
        self._calls: dict[_PendingCall, None] = {}
        self._late: list[tuple[OpCode, Any]] = []
        """Writes whose connection was lost, and that have not taken place."""
        self._last_arrival = self._last_answer = 0.0
        self._seen = 0
        """The last transaction that the session was shown."""
        self._watches: dict[_ModelWatch[Any], None] = {}

    @property
    def session_id(self) -> int:
        return self._id

    @property
    def is_told(self) -> bool:
        """Whether the client knows that the session is over."""
        return self._is_told

    # ── the end of a session ──────────────────────────────────────────────────────────────────────────

    def expire(self, told_after: float) -> None:
        """Let the session expire at the servers. Its client learns of it so much later."""
        if self._is_over:
            return
        self._world.note(EventKind.FAULT, self._process.name, "the session with the metadata expires")
        self._end()
        self._world.after(told_after, self._process.deliver, self.tell_over)

    def kill(self) -> None:
        """Let the client make no more calls. The servers notice after the time-out."""
        self.tell_over()
        self._world.after(_SESSION_UNITS, self._end)

    def close(self) -> None:
        """End the session as its client wants."""
        self._end()
        self.tell_over()

    def _end(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._late.clear()
            self._ensemble.end_session(self._id)

    def tell_over(self) -> None:
        if self._is_told:
            return
        self._is_told = True
        calls, self._calls = list(self._calls), {}
        for call in calls:
            call.ended(LostCall.EXPIRED)
        for watch in list(self._watches):
            watch.wake()

    # ── calls ─────────────────────────────────────────────────────────────────────────────────────────

    def write(self, opcode: OpCode, request: Any, ended: Callable[[Any], None]) -> None:
        """Write, and call with the error code and the response, or a `LostCall`."""
        if self._is_told:
            ended(LostCall.NO_SESSION)
            return
        call = _PendingCall(ended)
        self._calls[call] = None
        choices, delay = self._world.choices, self._arrival()
        if not choices.happens(self._ensemble.loss):
            self._world.after(delay, self._write_and_answer, call, opcode, request)
            return
        match choices.pick(4):
            case 0:
                self._lose(call, LostCall.NOT_SENT)
                return
            case 1:
                self._world.after(delay, self._write, opcode, request)
            case 2:
                self._late.append((opcode, request))
                self._world.after(_LATE_UNITS, self._write_late)
        self._world.after(_LATE_UNITS / 2, self._lose, call, LostCall.UNANSWERED)

    def read(self, look: Callable[[ZnodeTree], _T], ended: Callable[[_T | LostCall], None]) -> None:
        """Read at the server, and call with what it shows, or a `LostCall`."""
        self._begin_read(self._read, look, ended)

    def read_synced(self, look: Callable[[ZnodeTree], _T], ended: Callable[[_T | LostCall], None]) -> None:
        """Let the server catch up before it is read."""
        self._begin_read(self._sync_and_read, look, ended)

    def _begin_read(
        self,
        read: Callable[[_PendingCall, Callable[[ZnodeTree], Any]], None],
        look: Callable[[ZnodeTree], _T],
        ended: Callable[[_T | LostCall], None],
    ) -> None:
        if self._is_told:
            ended(LostCall.NO_SESSION)
            return
        call = _PendingCall(ended)
        self._calls[call] = None
        if self._world.choices.happens(self._ensemble.loss / 4):
            self._world.after(self._arrival(), self._lose, call, LostCall.UNANSWERED)
        else:
            self._world.after(self._arrival(), read, call, look)

    def _arrival(self) -> float:
        """Return how long the next call takes. It does not arrive before those that were made earlier."""
        at = self._last_arrival = max(self._world.now + self._ensemble.delay(), self._last_arrival)
        return at - self._world.now

    def _write_and_answer(self, call: _PendingCall, opcode: OpCode, request: Any) -> None:
        if not self._is_over and call in self._calls:
            answer = self._write(opcode, request)
            self._answer(call, answer)

    def _write(self, opcode: OpCode, request: Any) -> tuple[int, Any] | None:
        if self._is_over:
            return None
        self._end_late()
        answer = self._ensemble.commit(self._process.name, self._id, opcode, request)
        self._ensemble.catch_up(self.server)
        return answer

    def _write_late(self) -> None:
        """Let the writes that are late take place, if nothing has overtaken them."""
        late, self._late = self._late, []
        for opcode, request in late:
            self._ensemble.commit(self._process.name, self._id, opcode, request)

    def _end_late(self) -> None:
        if self._late and self._world.choices.pick(2):
            self._write_late()
        self._late.clear()

    def _sync_and_read(self, call: _PendingCall, look: Callable[[ZnodeTree], Any]) -> None:
        if not self._is_over:
            self._end_late()
            self._ensemble.catch_up(self.server)
            self._read(call, look)

    def _read(self, call: _PendingCall, look: Callable[[ZnodeTree], Any]) -> None:
        if not self._is_over and call in self._calls:
            self._answer(call, look(self.server.tree))

    def _answer(self, call: _PendingCall, answer: Any) -> None:
        self._seen = max(self._seen, self.server.tree.zxid)
        at = self._last_answer = max(self._world.now + self._ensemble.delay(), self._last_answer)
        self._world.after(at - self._world.now, self._process.deliver, self._finish, call, answer)

    def _lose(self, call: _PendingCall, end: LostCall) -> None:
        """End a call without an answer, and go on at another server perhaps."""
        if call in self._calls and not self._is_over:
            if len(self._ensemble.servers) > 1 and self._world.choices.pick(3) == 0:
                self._move_to(self._ensemble.some_server())
            self._process.deliver(self._finish, call, end)

    def _move_to(self, server: EnsembleServer) -> None:
        self._ensemble.catch_up(server, self._seen)
        for watch in self._watches:
            watch.move(self.server, server)
        self.server = server

    def _finish(self, call: _PendingCall, answer: Any) -> None:
        if self._calls.pop(call, call) is None:
            call.ended(answer)

    # ── the port ──────────────────────────────────────────────────────────────────────────────────────

    async def sync(self, path: str) -> None:  # noqa: ARG002 - the whole server catches up
        done: asyncio.Future[LostCall | None] = asyncio.get_running_loop().create_future()
        self.read_synced(lambda _: None, _settling(done))
        _answer_of(await done)

    def watch(self, path: str) -> _ModelWatch[Node | Gone]:
        return self._new_watch(path, lambda tree: node_at(tree, path))

    def watch_children(self, path: str) -> _ModelWatch[ChildNames | Gone]:
        return self._new_watch(path, lambda tree: children_at(tree, path))

    def _new_watch(self, path: str, look: Callable[[ZnodeTree], _State]) -> _ModelWatch[_State]:
        watch = _ModelWatch(self, path, look)
        self._watches[watch] = None
        watch.move(None, self.server)
        return watch

    async def _written(self, opcode: OpCode, request: Any) -> tuple[int, Any] | Unknown:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.write(opcode, request, _settling(done))
        answer = await done
        if answer in (LostCall.UNANSWERED, LostCall.EXPIRED):
            return Unknown(answer.value)
        done_with: tuple[int, Any] = _answer_of(answer)
        return done_with

    async def _looked(self, look: Callable[[ZnodeTree], _T]) -> _T:
        done: asyncio.Future[_T | LostCall] = asyncio.get_running_loop().create_future()
        self.read(look, _settling(done))
        return _answer_of(await done)

    async def look_for_watch(self, look: Callable[[ZnodeTree], _T]) -> _T:
        """Read for a watch, which is set again when the connection was lost."""
        while True:
            try:
                return await self._looked(look)
            except SessionExpired:
                raise
            except MetadataUnavailable:
                continue

    def forget(self, watch: _ModelWatch[Any]) -> None:
        if self._watches.pop(watch, watch) is None:
            watch.move(self.server, None)


class _ModelWatch(Generic[_State]):
    """The state of one node, again and again."""

    def __init__(self, session: ZnodeSession, path: str, look: Callable[[ZnodeTree], _State]) -> None:
        self._session = session
        self._path = path
        self._look = look
        self._last: _State | None = None
        self._changed = asyncio.Event()

    def move(self, before: EnsembleServer | None, after: EnsembleServer | None) -> None:
        """Look at the node at another server, or at none."""
        if before is not None:
            before.watches.get(self._path, {}).pop(self, None)
        if after is not None:
            after.watches.setdefault(self._path, {})[self] = None
            self.wake()

    def wake(self) -> None:
        self._changed.set()

    async def next(self, timeout_s: float | None = None) -> _State | Unchanged:
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    self._changed.clear()
                    state = await self._session.look_for_watch(self._look)
                    if state != self._last:
                        self._last = state
                        return state
                    await self._changed.wait()
        except TimeoutError:
            return Unchanged()

    def close(self) -> None:
        self._session.forget(self)


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────


def _answer_of(answer: _T | LostCall) -> _T:
    if isinstance(answer, LostCall):
        raise answer.error
    return answer


def _settling(future: asyncio.Future[Any]) -> Callable[[Any], None]:
    def settle(answer: Any) -> None:
        if not future.done():
            future.set_result(answer)

    return settle
