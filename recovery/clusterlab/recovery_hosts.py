"""Processes of a cluster that is repaired: auto-recovery, administrators, and clients of one ledger.

Auto-recovery and administrators run the coroutines of production on the virtual loop. Only the ends are
models: their calls to bookies go over the links of the laboratory, and their session is a `ZnodeSession`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from recovery.autorecovery.service import AutoRecovery
from recovery.clusterlab.clients import Process
from recovery.clusterlab.tree_session import node_at, set_answer
from recovery.clusterlab.virtual_loop import UNITS_PER_SECOND
from recovery.clusterlab.world import EventKind
from recovery.clusterlab.znodes import LostCall, ZnodeSession
from storage.cluster.client.cluster import AsyncCluster, open_cluster
from storage.cluster.client.effects import NoAnswer
from storage.cluster.errors import ClusterError
from storage.cluster.metadata.ledger import encode
from storage.cluster.metadata.paths import LedgerPaths, LedgerTree
from storage.cluster.metadata.update import Versioned, decode_ledger
from storage.cluster.metadata.znodes import ANY_VERSION, Gone, Unknown
from storage.cluster.zookeeper.records import OpCode, SetData

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Sequence
    from contextlib import AbstractAsyncContextManager
    from contextvars import Context

    from recovery.autorecovery.config import AutoRecoveryConfig
    from recovery.clusterlab.clients import ClientProcess
    from recovery.clusterlab.metadata import Watch
    from recovery.clusterlab.metadata_ensemble import MetadataEnsemble
    from recovery.clusterlab.network import Network
    from recovery.clusterlab.virtual_loop import VirtualLoop
    from recovery.clusterlab.world import World
    from storage.cluster.client.add_calls import AddsAnswered
    from storage.cluster.client.connections import ConnectionOptions
    from storage.cluster.client.effects import (
        BookieAnswer,
        MetadataRead,
        MetadataWritten,
        Send,
        Sending,
    )
    from storage.cluster.client.placement import ZoneRules
    from storage.cluster.metadata.ledger import ClusterLedgerMetadata
    from storage.cluster.metadata.znodes import ChildNames, Node, SetAnswer, Znodes
    from storage.cluster.wire.messages import AddEntry
    from storage.cluster.zookeeper.tree import ZnodeTree

ROOT = "/ledgers"
PATHS = LedgerPaths(ROOT, LedgerTree.HIERARCHICAL)

_AVAILABLE = f"{ROOT}/available"

LOOKED_AT: ContextVar[float] = ContextVar("LOOKED_AT", default=0.0)
"""When the present task, or the one that has begun it, has last begun to ask which bookies are registered."""

_LAST_CALL: ContextVar[str] = ContextVar("_LAST_CALL", default="")
"""The last call of the task. A list of bookies is several calls, of which the first one counts."""


Command = Callable[[ZnodeSession, AsyncCluster], Coroutine[object, object, None]]
"""The work of a command of an administrator."""


class RecoverySession(ZnodeSession):
    """A session that remembers when a task has asked which bookies are registered."""

    async def sync(self, path: str) -> None:
        if path == _AVAILABLE:
            LOOKED_AT.set(self._world.now)
        _LAST_CALL.set("sync")
        await super().sync(path)

    async def children(self, path: str) -> ChildNames | Gone:
        if path == _AVAILABLE and _LAST_CALL.get() not in ("sync", f"{_AVAILABLE}/readonly"):
            LOOKED_AT.set(self._world.now)
        _LAST_CALL.set(path)
        return await super().children(path)

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> SetAnswer:
        self._ensemble.looked_at[self._id, path] = LOOKED_AT.get()
        return await super().set(path, data, version)


class LaboratoryCluster(AsyncCluster):
    """The client of production, whose calls to bookies go over the laboratory's links."""

    def __init__(
        self,
        process: Process,
        loop: VirtualLoop,
        znodes: Znodes,
        paths: LedgerPaths,
        options: ConnectionOptions,
        rules: ZoneRules,
    ) -> None:
        super().__init__(znodes, paths, options, rules)
        self._process = process
        self._virtual_loop = loop

    def call(self, send: Send, answered: Callable[[BookieAnswer], None]) -> None:
        soon = partial(self._soon, answered, copy_context())
        if self._process.network.has(send.bookie):
            self._process.network.call(self._process, send.bookie, send.request, soon)
        else:
            unknown = NoAnswer("not registered")
            self._process.world.after(1.0, self._process.deliver, soon, unknown)

    def send_adds(self, copies: Sequence[tuple[AddEntry, Sequence[Sending]]], answered: AddsAnswered) -> None:
        for add, sendings in copies:
            for sending in sendings:
                soon = partial(self._soon, partial(answered, sending, (add.entry_id,)), copy_context())
                self._process.network.call(self._process, sending.bookie, add, soon)

    def _soon(self, answered: Callable[[BookieAnswer], None], context: Context, answer: BookieAnswer) -> None:
        """Let the loop deliver an answer, because coroutines may be begun by it."""
        self._virtual_loop.call_soon(answered, answer, context=context)


class Host:
    """A process that runs coroutines, until it is killed."""

    def __init__(
        self,
        name: str,
        loop: VirtualLoop,
        world: World,
        network: Network,
        ensemble: MetadataEnsemble,
    ) -> None:
        self.name = name
        self._loop = loop
        self._world = world
        self._network = network
        self._ensemble = ensemble
        self.process = Process(name, world, network)
        self.sessions: list[ZnodeSession] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    def start(self, main: Coroutine[object, object, None]) -> None:
        """Start the process with this work."""
        self.process = Process(self.name, self._world, self._network)
        self._task = self._loop.create_task(main)
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            # A program that raises what it should not is a bug: the loop passes this on.
            task.result()

    def kill(self) -> None:
        """End the process. Nothing that its coroutines still do has an effect."""
        self._world.note(EventKind.FAULT, self.name, "is killed")
        self.process.is_alive = False
        self.stop()

    def stop(self) -> None:
        for session in self.sessions:
            session.kill()
        self.sessions.clear()
        if self._task is not None:
            self._task.cancel()

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[ZnodeSession]:
        """Open a session for a block."""
        session = RecoverySession(self._ensemble, self.process)
        self.sessions.append(session)
        try:
            yield session
        finally:
            session.close()
            with suppress(ValueError):
                self.sessions.remove(session)

    def open_client(
        self,
        znodes: Znodes,
        root: str,
        tree: LedgerTree | None = None,
        options: ConnectionOptions | None = None,
    ) -> AbstractAsyncContextManager[AsyncCluster]:
        """Open the client of production over the laboratory's links."""
        make = partial(LaboratoryCluster, self.process, self._loop)
        return open_cluster(znodes, root, tree, options, make=make)

    def clock(self) -> float:
        """Return the time of day."""
        return 1_000.0 + self._world.now / UNITS_PER_SECOND

    # ── what processes do ─────────────────────────────────────────────────────────────────────────────

    def start_recovery(self, config: AutoRecoveryConfig) -> None:
        """Start auto-recovery: a candidate for auditor, and a worker."""
        self.start(self._recover(config))

    async def _recover(self, config: AutoRecoveryConfig) -> None:
        service = AutoRecovery(
            self.connect, ROOT, PATHS.tree, self.name, config, None, self.open_client, self.clock
        )
        await service.run()

    def start_command(self, command: Command) -> None:
        """Start a command of an administrator, which ends with its first error."""
        self.start(self._command(command))

    async def _command(self, command: Command) -> None:
        with suppress(ClusterError):
            async with self.connect() as session, self.open_client(session, ROOT, PATHS.tree) as cluster:
                await command(session, cluster)


class LedgerNodeInTree:
    """The node of one ledger in the tree, for processes that drive a state machine."""

    def __init__(self, ledger_id: int, ensemble: MetadataEnsemble, created: ClusterLedgerMetadata) -> None:
        self.path = PATHS.path_of(ledger_id)
        self._ensemble = ensemble
        self._sessions: dict[str, ZnodeSession] = {}
        self.node = Versioned(created, 0)
        """The metadata at the leader, or the last ones if the ledger was deleted."""

    def changed(self, metadata: ClusterLedgerMetadata) -> None:
        """Note a write that has taken place."""
        self.node = Versioned(metadata, self.node.version + 1)

    def write_at_once(self, metadata: ClusterLedgerMetadata) -> None:
        """Write without a client, at the beginning of a schedule."""
        self._ensemble.commit("", 0, OpCode.SET_DATA, SetData(self.path, encode(metadata), -1))

    def session_of(self, process: ClientProcess) -> ZnodeSession:
        """Return the session of a process, which gets a new one after its last one has ended."""
        session = self._sessions.get(process.name)
        if session is None or session.is_told:
            session = self._sessions[process.name] = ZnodeSession(self._ensemble, process)
        return session

    def write(
        self,
        process: ClientProcess,
        metadata: ClusterLedgerMetadata,
        version: int,
        answered: Callable[[MetadataWritten], None],
    ) -> None:
        """Write for a process, which gets the answer, or `Unknown` if that is lost."""

        def ended(answer: Any) -> None:
            answered(Unknown(answer.value) if isinstance(answer, LostCall) else set_answer(answer))

        request = SetData(self.path, encode(metadata), version)
        self.session_of(process).write(OpCode.SET_DATA, request, ended)

    def read(self, process: ClientProcess, answered: Callable[[MetadataRead], None]) -> None:
        """Let the server of a process catch up, and read there."""

        def ended(answer: Node | Gone | LostCall) -> None:
            if isinstance(answer, LostCall):
                answered(Unknown(answer.value))
            else:
                answered(answer if isinstance(answer, Gone) else decode_ledger(self.path, answer))

        def look(tree: ZnodeTree) -> Node | Gone:
            return node_at(tree, self.path)

        self.session_of(process).read_synced(look, ended)

    def shown_to(self, name: str) -> Versioned[ClusterLedgerMetadata]:
        """Return what the server of a process shows, which may be old."""
        session = self._sessions.get(name)
        tree = self._ensemble.tree if session is None else session.server.tree
        node = node_at(tree, self.path)
        return self.node if isinstance(node, Gone) else decode_ledger(self.path, node)

    def watch(self, name: str, changed: Watch) -> None:
        # The machines here write and recover ledgers. Only readers and tailers watch the metadata.
        raise NotImplementedError(name, changed)


class NodesAtOnce:
    """The nodes at the server of a bookie's session, for code that reads them without waiting."""

    def __init__(self, ensemble: MetadataEnsemble) -> None:
        self._ensemble = ensemble
        self._server = ensemble.some_server()

    def znodes_of(self, name: str) -> NodesAtOnce:  # noqa: ARG002 - each bookie has its own
        return self

    async def sync(self, path: str) -> None:  # noqa: ARG002 - the whole server catches up
        self._ensemble.catch_up(self._server)

    async def get(self, path: str) -> Node | Gone:
        return node_at(self._server.tree, path)

    async def exists(self, path: str) -> object:
        node = node_at(self._server.tree, path)
        return node if isinstance(node, Gone) else node.stat
