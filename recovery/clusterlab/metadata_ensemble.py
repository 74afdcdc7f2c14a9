"""The metadata of a cluster at an ensemble of servers, over the pure tree of znodes.

Writes take place at the leader, one after the other. A follower shows them some time later, in the same
order. Clients reach the servers by sessions (`znodes`).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from recovery.clusterlab.world import EventKind
from storage.cluster.metadata.znodes import CreateMode
from storage.cluster.zookeeper.records import OPEN_ACL, Create, ErrorCode, Nothing, OpCode
from storage.cluster.zookeeper.tree import ZnodeTree, new_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from recovery.clusterlab.world import World
    from storage.cluster.zookeeper.tree import NodeEvent

    Committing = Callable[[str, int, OpCode, Any, ZnodeTree], Callable[[], None] | None]

METADATA = "metadata"
"""The name of the metadata in a trace."""


class ServerWatch(Protocol):
    """A watch that a session has set at its server."""

    def wake(self) -> None:
        """Note that the node has changed."""
        ...


class _Transaction(NamedTuple):
    zxid: int
    time_ms: int
    session_id: int
    opcode: OpCode
    request: Any


class EnsembleServer:
    """One server: the leader, or a follower that shows each write some time later."""

    def __init__(self, tree: ZnodeTree, lag: float) -> None:
        self.tree = tree
        self.lag = lag
        self._to_show: deque[_Transaction] = deque()
        self.watches: dict[str, dict[ServerWatch, None]] = {}
        """By path: the watches of the node or its children, in the order in which they were set."""

    def queue(self, transaction: _Transaction) -> None:
        self._to_show.append(transaction)

    def show(self, zxid: int) -> list[str]:
        """Show everything up to this transaction. Return the paths whose watches fire."""
        fired: list[str] = []
        while self._to_show and self._to_show[0].zxid <= zxid:
            done = self.tree.apply(*self._to_show.popleft())
            fired += self.watched(done.events)
        return fired

    def watched(self, events: Sequence[NodeEvent]) -> list[str]:
        return [event.path for event in events if event.path in self.watches]


class MetadataEnsemble:
    """The servers, and the order of all writes."""

    def __init__(self, world: World, committing: Committing) -> None:
        """`committing` is called before each write with its client, session and request.

        It may return what is to be called after the write if that was not refused.
        """
        self._world = world
        self._committing = committing
        self.tree = new_tree()
        self.leader = EnsembleServer(self.tree, 0.0)
        self.servers = [self.leader]
        self.loss = 0.0
        """The probability that a call is lost."""
        self._next_session = 1
        self.looked_at: dict[tuple[int, str], float] = {}
        """By session and path: when the task that writes there last has asked for the registered bookies."""

    def add_follower(self, lag: float) -> None:
        """Add a server that shows each write so much later. It begins with what is there."""
        tree = new_tree()
        for path, node in self.tree.nodes.items():
            if path not in tree.nodes:
                tree.restore_node(path, node)
        tree.zxid = self.tree.zxid
        self.servers.append(EnsembleServer(tree, lag))

    def delay(self) -> float:
        """Return a delay of a call. Most are short, because a repair makes many calls one after the other."""
        chosen = self._world.choices.pick(12)
        return 1.0 if chosen < 9 else 30.0 if chosen == 11 else 5.0

    def new_session_id(self) -> int:
        self._next_session += 1
        return self._next_session

    def some_server(self) -> EnsembleServer:
        choices = self._world.choices
        return self.servers[choices.pick(len(self.servers)) if len(self.servers) > 1 else 0]

    def commit(self, client: str, session_id: int, opcode: OpCode, request: Any) -> tuple[int, Any]:
        """Make a change. Return the error code and the response."""
        after = self._committing(client, session_id, opcode, request, self.tree)
        tree = self.tree
        transaction = _Transaction(
            tree.zxid + 1, 1_000_000 + int(100 * self._world.now), session_id, opcode, request
        )
        done = tree.apply(*transaction)
        if self._world.trace is not None:
            self._note(client, opcode, request, done.error)
        if done.is_applied:
            if after is not None:
                after()
            for server in self.servers:
                if server is self.leader:
                    self._fire(server, server.watched(done.events))
                else:
                    server.queue(transaction)
                    self._world.after(server.lag, self.catch_up, server, transaction.zxid)
        return done.error, done.response

    def _note(self, client: str, opcode: OpCode, request: Any, error: int) -> None:
        path = getattr(request, "path", "its session")
        told = "" if not error else f": {ErrorCode(error).name}"
        self._world.note(EventKind.REQUEST, client, f"{opcode.name.lower()} {path}{told}", METADATA)

    def catch_up(self, server: EnsembleServer, zxid: int | None = None) -> None:
        """Let a server show everything that was written until now, or until this transaction."""
        if server is not self.leader:
            self._fire(server, server.show(self.tree.zxid if zxid is None else zxid))

    def _fire(self, server: EnsembleServer, paths: Sequence[str]) -> None:
        for path in paths:
            for watch in server.watches.get(path, ()):
                self._world.after(self.delay(), watch.wake)

    def put(self, path: str, data: bytes = b"", session_id: int = 0) -> None:
        """Write a node that belongs to the beginning of a schedule, or to a model."""
        flags = CreateMode.EPHEMERAL if session_id else CreateMode.PERSISTENT
        self.commit("", session_id, OpCode.CREATE, Create(path, data, OPEN_ACL, flags.value))

    def end_session(self, session_id: int) -> None:
        """Let a session expire: its ephemeral nodes go."""
        self.commit(METADATA, session_id, OpCode.CLOSE_SESSION, Nothing())


# ── what a tree says ──────────────────────────────────────────────────────────────────────────────────────
