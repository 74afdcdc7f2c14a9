"""The client of ZooKeeper: kazoo behind the port `metadata/znodes.py`.

kazoo has threads of its own, one for the connection and two for callbacks. Calls are made from the event
loop and do not wait; their answers come in a callback thread, are collected, and wake the loop once for as
many as there are. So thousands of requests can be under way.

kazoo connects again by itself while the session lives. This module does the rest:

* kazoo's retries of requests are off. A request whose answer is lost ends as `Unknown` or
  `MetadataUnavailable`.
* kazoo forgets watches when the connection is lost. `ZookeeperWatch` reads again and so sets them again.
* After an expired session kazoo would go on with a new one, and the caller would not know that its ephemeral
  nodes are gone. Here a client ends with its session.
* A request that is made while the connection is lost would wait in kazoo's queue, perhaps for ever. Here it
  ends when the session must have expired.
"""

from __future__ import annotations

import asyncio
import enum
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from storage.cluster.errors import MetadataUnavailable, SessionExpired
from storage.cluster.metadata.znodes import (
    ANY_VERSION,
    ChildNames,
    Conflict,
    Created,
    CreateMode,
    Deleted,
    Exists,
    Gone,
    MultiCheck,
    MultiCreate,
    MultiDelete,
    MultiSet,
    Node,
    NodeStat,
    NoParent,
    NotEmpty,
    Written,
)
from storage.cluster.zookeeper.kazoo_answers import (
    CREATE_FLAGS,
    lost_answer,
    multi_answer,
    node_stat,
    unavailable,
)
from storage.cluster.zookeeper.kazoo_connection import OncePerOutage, TlsHandler, kazoo_client
from storage.cluster.zookeeper.kazoo_names import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    KazooState,
    KeeperState,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from storage.cluster.zookeeper.node_watch import ZookeeperWatch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence

    from storage.cluster.metadata.znodes import (
        CreateAnswer,
        DeleteAnswer,
        MultiAnswer,
        NodeWatch,
        Operation,
        SetAnswer,
        Znodes,
    )
    from storage.cluster.tls import ClientTls

_T = TypeVar("_T")

_PIPELINED_MAX = 1000
"""Requests of one listing that are under way at the same time."""


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """The settings of a session."""

    hosts: tuple[str, ...]
    session_timeout_s: float = 10.0
    """The server may negotiate another one."""
    connect_timeout_s: float = 15.0
    reconnect_delay_s: float = 0.05
    """The pause after the first failed attempt to connect again. It doubles up to a second."""
    chroot: str = ""
    """A path that is put before every path."""
    tls: ClientTls | None = None
    """The files of a connection by TLS; `None` for plain text."""
    sasl: Mapping[str, str] | None = None
    """kazoo's `sasl_options`, such as mechanism, username and password. Needs pure-sasl."""


class _ConnectionPhase(enum.Enum):
    CONNECTED = "connected"
    LOST = "lost"
    """Connecting again; the session may live."""
    SILENT = "silent"
    """Lost for longer than the session's time-out. Connecting again; calls do not wait for it."""
    EXPIRED = "expired"
    CLOSED = "closed"


@asynccontextmanager
async def connect(config: ClientConfig) -> AsyncIterator[ZookeeperClient]:
    """Open a session, and close it at the end of the block."""
    client = ZookeeperClient(config)
    try:
        await client.start()
        yield client
    finally:
        await client.close()


def run(config: ClientConfig, work: Callable[[Znodes], Coroutine[Any, Any, _T]]) -> _T:
    """Run a coroutine with a session, and close the session afterwards. For callers without an event loop."""

    async def connected() -> _T:
        async with connect(config) as client:
            return await work(client)

    return asyncio.run(connected())


class ZookeeperClient:
    """One session with ZooKeeper. It belongs to the event loop that has started it."""

    # Only the loop's thread uses the fields, except `_completed` and `_is_woken`.

    def __init__(self, config: ClientConfig) -> None:
        """Raise `InvalidConfig` if the files of TLS cannot be used."""
        self._config = config
        self._log = OncePerOutage()
        self._tls = None if config.tls is None else TlsHandler(config.tls)
        self._kazoo = kazoo_client(config, self._log, self._tls)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection = _ConnectionPhase.LOST
        self._reason = "not connected yet"
        self._connected = asyncio.Event()
        """Set while connected, and when the session is over: then a waiter has to look why."""
        self._silence: asyncio.TimerHandle | None = None
        self._outstanding: set[asyncio.Future[Any]] = set()
        self._completed: deque[tuple[asyncio.Future[Any], Any]] = deque()
        """Appended by kazoo's threads, emptied by the loop."""
        self._is_woken = False
        """Whether the loop was woken for answers. Written by both; a needless wake-up does no harm."""

    @property
    def session_id(self) -> int:
        identity = self._kazoo.client_id
        return 0 if identity is None else int(identity[0])

    # ── the session ───────────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Connect. Raise `MetadataUnavailable` if there is no session within `connect_timeout_s`."""
        self._loop = asyncio.get_running_loop()
        self._kazoo.add_listener(self._on_state)
        self._kazoo.start_async()
        try:
            async with asyncio.timeout(self._config.connect_timeout_s):
                await self.connected()
        except TimeoutError:
            hosts = ", ".join(self._config.hosts)
            reason = f"no connection to {hosts} within {self._config.connect_timeout_s:g} s"
            if self._tls is not None and self._tls.failure is not None:
                reason += f": {self._tls.failure}"
            raise MetadataUnavailable(reason) from None

    async def connected(self) -> None:
        """Wait until there is a connection. Raise `SessionExpired` if the session is over."""
        await self._connected.wait()
        self._check_session()

    async def close(self) -> None:
        """End the session, so that its ephemeral nodes are deleted. Calls that are under way end."""
        if self._connection is not _ConnectionPhase.CLOSED:
            was_expired = self._connection is _ConnectionPhase.EXPIRED
            self._end(_ConnectionPhase.CLOSED, "the client was closed")
            if not was_expired:
                await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        """Stop kazoo's threads. Blocks until the server has confirmed it, or does not answer."""
        self._kazoo.stop()
        self._kazoo.close()

    def _on_state(self, state: str) -> None:
        """Pass the state to the loop. Called in kazoo's connection thread."""
        assert self._loop is not None
        is_refused = self._kazoo.client_state == KeeperState.AUTH_FAILED
        self._call_loop(self._change_state, state, is_refused)

    def _change_state(self, state: str, is_refused: object) -> None:
        if self._connection in (_ConnectionPhase.EXPIRED, _ConnectionPhase.CLOSED):
            return
        if self._silence is not None:
            self._silence.cancel()
        if state == KazooState.CONNECTED:
            self._connection = _ConnectionPhase.CONNECTED
            self._connected.set()
            self._log.forget()
        elif state == KazooState.SUSPENDED:
            self._connection, self._reason = _ConnectionPhase.LOST, "the connection was lost"
            self._connected.clear()
            assert self._loop is not None
            self._silence = self._loop.call_later(self._config.session_timeout_s, self._fall_silent)
        else:
            reason = "the server has refused the authentication" if is_refused else "the server has ended it"
            self._end(_ConnectionPhase.EXPIRED, reason)
            # kazoo would begin a new session. Its own thread must not stop it, because it would wait for
            # itself.
            self._call_later_in_thread(self._stop)

    def _fall_silent(self) -> None:
        self._connection = _ConnectionPhase.SILENT
        self._reason = f"no connection for {self._config.session_timeout_s:g} s"
        self._end_outstanding()

    def _end(self, connection: _ConnectionPhase, reason: str) -> None:
        self._connection, self._reason = connection, reason
        if self._silence is not None:
            self._silence.cancel()
        self._connected.set()
        self._end_outstanding()

    def _end_outstanding(self) -> None:
        for future in [*self._outstanding]:
            _finish(future, ConnectionLoss(self._reason))

    def _check_session(self) -> None:
        match self._connection:
            case _ConnectionPhase.EXPIRED:
                raise SessionExpired(self._reason)
            case _ConnectionPhase.CLOSED | _ConnectionPhase.SILENT:
                raise MetadataUnavailable(self._reason)

    # ── from kazoo's threads to the loop ──────────────────────────────────────────────────────────────────

    async def _ask(self, request: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Make a request of kazoo and return its answer, or raise kazoo's exception."""
        self._check_session()
        assert self._loop is not None
        future: asyncio.Future[Any] = self._loop.create_future()
        self._outstanding.add(future)
        future.add_done_callback(self._outstanding.discard)
        try:
            result = request(*arguments, **options)
        except BaseException:
            future.cancel()
            raise
        result.rawlink(lambda answered: self._complete(future, answered))
        return await future

    def _complete(self, future: asyncio.Future[Any], answered: Any) -> None:
        """Pass an answer to the loop. Called in a thread of kazoo."""
        error = answered.exception
        self._completed.append((future, answered.value if error is None else error))
        if not self._is_woken:
            self._is_woken = True
            self._call_loop(self._take_completed)

    def _take_completed(self) -> None:
        # Cleared first: an answer that is appended from now on wakes the loop again.
        self._is_woken = False
        while self._completed:
            _finish(*self._completed.popleft())

    def _call_loop(self, function: Callable[..., None], *arguments: object) -> None:
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)

    def _call_later_in_thread(self, function: Callable[[], None]) -> None:
        assert self._loop is not None
        self._loop.run_in_executor(None, function)

    # ── writes ────────────────────────────────────────────────────────────────────────────────────────────

    async def create(
        self, path: str, data: bytes = b"", mode: CreateMode = CreateMode.PERSISTENT
    ) -> CreateAnswer:
        try:
            made = await self._ask(self._kazoo.create_async, path, data, **CREATE_FLAGS[mode])
        except NodeExistsError:
            return Exists()
        except (NoNodeError, NoChildrenForEphemeralsError):
            return NoParent()
        except KazooException as error:
            return lost_answer(error, path)
        return Created(made)

    async def delete(self, path: str, version: int = ANY_VERSION) -> DeleteAnswer:
        try:
            await self._ask(self._kazoo.delete_async, path, version)
        except NoNodeError:
            return Gone()
        except BadVersionError:
            return Conflict()
        except NotEmptyError:
            return NotEmpty()
        except KazooException as error:
            return lost_answer(error, path)
        return Deleted()

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> SetAnswer:
        try:
            stat = await self._ask(self._kazoo.set_async, path, data, version)
        except NoNodeError:
            return Gone()
        except BadVersionError:
            return Conflict()
        except KazooException as error:
            return lost_answer(error, path)
        return Written(stat.version)

    async def multi(self, operations: Sequence[Operation]) -> MultiAnswer:
        transaction = self._kazoo.transaction()
        for one in operations:
            match one:
                case MultiCreate(path, data, mode):
                    transaction.create(path, data, **CREATE_FLAGS[mode])
                case MultiDelete(path, version):
                    transaction.delete(path, version)
                case MultiSet(path, data, version):
                    transaction.set_data(path, data, version)
                case MultiCheck(path, version):
                    transaction.check(path, version)
        try:
            results = await self._ask(transaction.commit_async)
        except KazooException as error:
            return lost_answer(error, operations[0].path)
        return multi_answer(operations, results)

    # ── reads ─────────────────────────────────────────────────────────────────────────────────────────────

    async def get(self, path: str) -> Node | Gone:
        try:
            data, stat = await self._ask(self._kazoo.get_async, path)
        except NoNodeError:
            return Gone()
        except KazooException as error:
            raise unavailable(error, path) from error
        return Node(data, node_stat(stat))

    async def exists(self, path: str) -> NodeStat | Gone:
        stat = await self._exists(path, None)
        return Gone() if stat is None else node_stat(stat)

    async def children(self, path: str) -> ChildNames | Gone:
        return await self._children(path, None)

    async def get_all(self, paths: Sequence[str]) -> Sequence[Node | Gone]:
        return await _pipelined(self.get, paths)

    async def children_of_all(self, paths: Sequence[str]) -> Sequence[ChildNames | Gone]:
        return await _pipelined(self.children, paths)

    async def sync(self, path: str) -> None:
        try:
            await self._ask(self._kazoo.sync_async, path)
        except KazooException as error:
            raise unavailable(error, path) from error

    def watch(self, path: str) -> NodeWatch[Node | Gone]:
        async def read(fire: Callable[[object], None]) -> Node | Gone:
            # `exists` sets a watch also where there is no node. Its events are those of `get`.
            while await self._exists(path, fire) is not None:
                node = await self.get(path)
                if isinstance(node, Node):
                    return node
            return Gone()

        return ZookeeperWatch(self, read)

    def watch_children(self, path: str) -> NodeWatch[ChildNames | Gone]:
        async def read(fire: Callable[[object], None]) -> ChildNames | Gone:
            while True:
                children = await self._children(path, fire)
                # Without a node only `exists` sets a watch.
                if isinstance(children, ChildNames) or await self._exists(path, fire) is None:
                    return children

        return ZookeeperWatch(self, read)

    async def _exists(self, path: str, watch: Callable[[object], None] | None) -> Any:
        try:
            return await self._ask(self._kazoo.exists_async, path, watch)
        except KazooException as error:
            raise unavailable(error, path) from error

    async def _children(self, path: str, watch: Callable[[object], None] | None) -> ChildNames | Gone:
        try:
            names, stat = await self._ask(self._kazoo.get_children_async, path, watch, include_data=True)
        except NoNodeError:
            return Gone()
        except KazooException as error:
            raise unavailable(error, path) from error
        return ChildNames(tuple(sorted(names)), node_stat(stat))

    def connects_again(self, error: MetadataUnavailable) -> bool:
        """Return whether a read failed only because there is no connection now, and may be one later."""
        is_lost = self._connection in (_ConnectionPhase.LOST, _ConnectionPhase.SILENT)
        return is_lost or isinstance(error.__cause__, ConnectionLoss)

    def in_loop(self, function: Callable[[], None]) -> Callable[[object], None]:
        """Return a callback for kazoo's threads that calls the function in the loop."""
        return lambda _: self._call_loop(function)


def _finish(future: asyncio.Future[Any], outcome: object) -> None:
    """End a call, unless it has ended: kazoo may answer a request twice when its socket breaks."""
    if future.done():
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


async def _pipelined(ask: Callable[[str], Coroutine[Any, Any, _T]], paths: Sequence[str]) -> list[_T]:
    found: list[_T] = []
    for first in range(0, len(paths), _PIPELINED_MAX):
        found += await asyncio.gather(*map(ask, paths[first : first + _PIPELINED_MAX]))
    return found
