"""The metadata of one ledger, as an ensemble of metadata servers shows them.

Writes are linearizable: each takes place at the leader if the node still has the version that it names. Every
client has a session at one server. A follower shows writes later than the leader, and never goes back. Before
a client gets the answer to a write, or to a `sync`, its server shows everything that was written until then.

The faults, each by chance:

    an answer is lost      the write has taken place, takes place later, or never does
    a follower lags        reads without a `sync`, and watches, show the past
    a session expires      calls under way end without an answer, and watches are set again in a new session,
                           perhaps at a server that lags more
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.clusterlab.world import EventKind
from storage.cluster.metadata.ledger import encode
from storage.cluster.metadata.update import Versioned
from storage.cluster.metadata.znodes import Conflict, Node, NodeStat, Unknown, Written

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.clusterlab.clients import ClientProcess
    from recovery.clusterlab.oracles import Oracles
    from recovery.clusterlab.world import World
    from storage.cluster.client.effects import MetadataRead, MetadataWritten
    from storage.cluster.metadata.ledger import ClusterLedgerMetadata

    Watch = Callable[[Versioned[ClusterLedgerMetadata]], None]

_LATE_S = 60.0

FOLLOWERS = 2

METADATA = "metadata"
"""The name of the metadata in a trace."""


class MetadataServer:
    """One server: the leader, or a follower that shows each write some time later."""

    def __init__(self, created: Versioned[ClusterLedgerMetadata], lag: float) -> None:
        self.shown = created
        self.lag = lag
        self._watches: list[Watch] = []

    def apply(self, node: Versioned[ClusterLedgerMetadata]) -> None:
        """Show a write, unless a later one is shown already."""
        if node.version > self.shown.version:
            self.shown = node
            for watch in list(self._watches):
                watch(node)

    def watch(self, changed: Watch) -> None:
        self._watches.append(changed)

    def forget(self, changed: Watch) -> None:
        if changed in self._watches:
            self._watches.remove(changed)


class MetadataSession:
    """The state of a client at the servers: outstanding calls and watches."""

    def __init__(self, server: MetadataServer) -> None:
        self.server = server
        self.watches: list[Watch] = []
        self.calls: dict[int, Callable[[Unknown], None]] = {}
        """The calls under way, and how each learns that there is no answer."""
        self.is_connected = True


class ModelMetadata:
    """The node of the ledger, at a leader and its followers."""

    def __init__(self, world: World, oracles: Oracles, created: ClusterLedgerMetadata) -> None:
        self._world = world
        self._oracles = oracles
        self.node = Versioned(created, 0)
        """The metadata at the leader."""
        self.loss = 0.0
        """The probability that an answer is lost."""
        self._servers = [MetadataServer(self.node, 0.0)]
        self._sessions: dict[str, MetadataSession] = {}
        self._calls = 0

    def add_follower(self, lag: float) -> None:
        """Add a server that shows each write so much later."""
        self._servers.append(MetadataServer(self.node, lag))

    # ── sessions ──────────────────────────────────────────────────────────────────────────────────────

    def _session(self, name: str) -> MetadataSession:
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = MetadataSession(self._servers[self._some_server()])
        return session

    def _some_server(self) -> int:
        return self._world.choices.pick(len(self._servers)) if len(self._servers) > 1 else 0

    def expire(self, name: str, lasts: float) -> None:
        """End the session of a client. It gets a new one after a while."""
        session = self._session(name)
        session.is_connected = False
        self._world.note(EventKind.FAULT, name, "the session with the metadata expires")
        for watch in session.watches:
            session.server.forget(watch)
        calls, session.calls = session.calls, {}
        for unanswered in calls.values():
            unanswered(Unknown("the session has expired"))
        self._world.after(lasts, self._reconnect, name, session)

    def _reconnect(self, name: str, session: MetadataSession) -> None:
        session.is_connected = True
        self._world.note(EventKind.MENDED, name, "there is a new session with the metadata")
        session.server = self._servers[self._some_server()]
        for watch in session.watches:
            self._watch_in(session, watch)

    def _watch_in(self, session: MetadataSession, changed: Watch) -> None:
        session.server.watch(changed)
        changed(session.server.shown)

    def _begin(self, session: MetadataSession, unanswered: Callable[[Unknown], None]) -> int:
        self._calls += 1
        session.calls[self._calls] = unanswered
        return self._calls

    # ── writes ────────────────────────────────────────────────────────────────────────────────────────

    def write(
        self,
        process: ClientProcess,
        metadata: ClusterLedgerMetadata,
        version: int,
        answered: Callable[[MetadataWritten], None],
    ) -> None:
        """Write for a process, which gets the answer, or `Unknown` if that is lost."""
        world, choices = self._world, self._world.choices
        session = self._session(process.name)
        if not session.is_connected:
            world.after(world.delay(), process.deliver, answered, Unknown("there is no session"))
            return
        call = self._begin(session, lambda unknown: process.deliver(answered, unknown))
        if not choices.happens(self.loss):
            world.after(
                world.delay(), self._write_and_answer, process, session, call, metadata, version, answered
            )
            return
        kind = choices.pick(3)
        if kind:  # the write takes place, before the client gives up or after
            world.after(world.delay() + (kind - 1) * _LATE_S, self._write, process, metadata, version)
        world.after(
            _LATE_S / 2, self._end, process, session, call, answered, Unknown("the connection was lost")
        )

    def _write_and_answer(
        self,
        process: ClientProcess,
        session: MetadataSession,
        call: int,
        metadata: ClusterLedgerMetadata,
        version: int,
        answered: Callable[[MetadataWritten], None],
    ) -> None:
        answer = self._write(process, metadata, version)
        session.server.apply(self.node)
        self._world.after(self._world.delay(), self._end, process, session, call, answered, answer)

    def _write(
        self, process: ClientProcess, metadata: ClusterLedgerMetadata, version: int
    ) -> Written | Conflict:
        if version != self.node.version:
            return Conflict()
        if self._world.trace is not None:
            self._world.note(EventKind.REQUEST, process.name, shown(metadata), METADATA)
        self._oracles.metadata_written(process.name, self.node.value, metadata)
        self.node = Versioned(metadata, version + 1)
        for server in self._servers:
            if server.lag:
                self._world.after(server.lag, server.apply, self.node)
            else:
                server.apply(self.node)
        return Written(version + 1)

    def _end(
        self,
        process: ClientProcess,
        session: MetadataSession,
        call: int,
        answered: Callable[..., None],
        answer: MetadataWritten | MetadataRead,
    ) -> None:
        """Give a call its answer, unless the session has expired since."""
        if session.calls.pop(call, None) is not None:
            if self._world.trace is not None:
                self._note_answer(process.name, answer)
            process.deliver(answered, answer)

    def _note_answer(self, name: str, answer: MetadataWritten | MetadataRead) -> None:
        kind = EventKind.NO_ANSWER if isinstance(answer, Unknown) else EventKind.ANSWER
        text = shown(answer.value) if isinstance(answer, Versioned) else str(answer)
        self._world.note(kind, METADATA, text, name)

    # ── reads ─────────────────────────────────────────────────────────────────────────────────────────

    def read(self, process: ClientProcess, answered: Callable[[MetadataRead], None]) -> None:
        """Let the server of a process catch up, and read there."""
        world, session = self._world, self._session(process.name)
        if not session.is_connected:
            world.after(world.delay(), process.deliver, answered, Unknown("there is no session"))
            return
        call = self._begin(session, lambda unknown: process.deliver(answered, unknown))
        world.after(world.delay(), self._read, process, session, call, answered)

    def _read(
        self,
        process: ClientProcess,
        session: MetadataSession,
        call: int,
        answered: Callable[[MetadataRead], None],
    ) -> None:
        self.catch_up(session.server)
        answer: MetadataRead = session.server.shown
        if self._world.choices.happens(self.loss / 4):
            answer = Unknown("the connection was lost")
        self._world.after(self._world.delay(), self._end, process, session, call, answered, answer)

    def shown_to(self, name: str) -> Versioned[ClusterLedgerMetadata]:
        """Return what the server of a client shows, which may be old."""
        return self._session(name).server.shown

    def znodes_of(self, name: str) -> SessionZnodes:
        """Return the nodes as a bookie sees them in its session."""
        return SessionZnodes(self._session(name).server, self)

    def catch_up(self, server: MetadataServer) -> None:
        """Let a server show everything that was written until now."""
        server.apply(self.node)

    # ── watches ───────────────────────────────────────────────────────────────────────────────────────

    def watch(self, name: str, changed: Watch) -> None:
        """Call with what the server of a client shows, now and after each change, some time later."""

        def later(node: Versioned[ClusterLedgerMetadata]) -> None:
            self._world.after(self._world.delay(), changed, node)

        session = self._session(name)
        session.watches.append(later)
        if session.is_connected:
            self._watch_in(session, later)


class SessionZnodes:
    """The node of the ledger at the server of one session, for code that reads it through the port."""

    def __init__(self, server: MetadataServer, metadata: ModelMetadata) -> None:
        self._server = server
        self._metadata = metadata

    async def sync(self, _path: str) -> None:
        self._metadata.catch_up(self._server)

    async def get(self, _path: str) -> Node:
        version = self._server.shown.version
        data = encode(self._server.shown.value)
        return Node(data, NodeStat(0, version, 0, 0, version, 0, 0, 0, len(data), 0, 0))


def shown(metadata: ClusterLedgerMetadata) -> str:
    """Return metadata as a line of a trace."""
    segments = " ".join(f"{one.first_entry}:{','.join(one.bookies)}" for one in metadata.segments)
    end = f" last {metadata.last_entry} length {metadata.length}" if metadata.is_closed else ""
    return f"{metadata.state.name} {segments}{end}"
