"""The decisions of a ZooKeeper server: requests of clients in, replies, events and log records out.

`Service` has the tree, the sessions and the watches, and no connection, file, clock or random number: its
caller says what time it is and which password a new session gets. The caller also keeps the one promise that
is not made here. A change is applied at once, so that the next request sees it. Therefore nothing that was
answered since may leave the server before the record of the change is durable.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from storage.cluster.zookeeper import log_format
from storage.cluster.zookeeper.jute import (
    REQUEST_HEADER,
    JuteReader,
    MalformedRecord,
    encode,
    encode_frame,
    encode_multi,
    encode_notification,
    encode_reply,
)
from storage.cluster.zookeeper.records import (
    ADMIN_PERMISSION,
    AUTH_XID,
    CONNECTED_STATE,
    NODE_CHANGES,
    PASSWORD_SIZE,
    PING_XID,
    READ_PERMISSION,
    AclAndStat,
    Auth,
    Children,
    ChildrenAndStat,
    ClientInfos,
    ConnectRequest,
    ConnectResponse,
    CreateSession,
    DataAndStat,
    ErrorCode,
    ErrorOnly,
    EventType,
    Multi,
    Number,
    OpCode,
    PathAndMode,
    PathAndWatch,
    PathOnly,
    SetWatches,
    StatOnly,
    WatcherEvent,
)
from storage.cluster.zookeeper.sessions import Sessions, TimeoutRange, is_password_of
from storage.cluster.zookeeper.tree import NOTHING, NodeEvent, is_permitted
from storage.cluster.zookeeper.watches import Watches, WatchKind, WatchMode

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.cluster.zookeeper.tree import Record, Znode, ZnodeTree

PASSWORD_OF_NO_SESSION = bytes(PASSWORD_SIZE)

MULTI_READ_SIZE_MAX = 16 << 20
"""Bytes of data and names in the answer to a multiRead. Its request may name one large node a hundred
thousand times, and clients take no answer of this size: ZooKeeper's own limit is 1 MiB."""

WRITES = NODE_CHANGES | {OpCode.SET_ACL, OpCode.CHECK, OpCode.MULTI}
"""The opcodes that `ZnodeTree.apply` takes from clients; closing a session has its own order."""


class AfterAnswer(enum.Enum):
    """The fate of the connection after an answer."""

    STAY = "it stays open"
    CLOSE = "it is closed when the answer was sent"


@dataclass(eq=False, slots=True)
class Client:
    """One connection, as the service sees it."""

    address: str
    """The host of the peer."""
    session_id: int = 0
    """0 until its session is begun."""
    identities: list[tuple[str, str]] = field(default_factory=list)
    """Pairs of an authentication scheme and a user."""

    def __post_init__(self) -> None:
        self.identities.append(("ip", self.address))


class Answer(NamedTuple):
    """The results of a request. The events are sent before the reply, as ZooKeeper does."""

    reply: bytes = b""
    """A whole frame, or nothing."""
    record: bytes = b""
    """The change for the log, or nothing. Then neither the reply nor the events may leave before it is
    durable."""
    events: list[tuple[Client, bytes]] = []  # noqa: RUF012 - never changed
    then: AfterAnswer = AfterAnswer.STAY
    detached: Client | None = None
    """Another connection, which has lost its session to this one and is closed."""


class _RequestFailed(Exception):
    """The request is answered with this error."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code)
        self.code = code


class Service:
    """The tree, the sessions and the watches of one server."""

    def __init__(self, tree: ZnodeTree, sessions: Sessions, timeouts: TimeoutRange) -> None:
        self.tree = tree
        self.sessions = sessions
        self.watches: Watches[Client] = Watches()
        self._timeouts = timeouts
        self._clients: dict[int, Client] = {}
        """By session: the connection that it belongs to."""
        self._reads: dict[int, Callable[[Client, Record], bytes]] = {
            OpCode.EXISTS: self._exists,
            OpCode.GET_DATA: self._get_data,
            OpCode.GET_CHILDREN: self._get_children,
            OpCode.GET_CHILDREN2: self._get_children2,
            OpCode.GET_ACL: self._get_acl,
            OpCode.SYNC: self._sync,
            OpCode.GET_EPHEMERALS: self._get_ephemerals,
            OpCode.GET_ALL_CHILDREN_NUMBER: self._get_all_children_number,
            OpCode.MULTI_READ: self._multi_read,
            OpCode.ADD_WATCH: self._add_watch,
            OpCode.REMOVE_WATCHES: self._remove_watches,
            OpCode.CHECK_WATCHES: self._check_watches,
            OpCode.WHO_AM_I: self._who_am_i,
        }

    # ── connections and sessions ──────────────────────────────────────────────────────────────────────

    def connect(self, client: Client, frame: bytes, now_ms: int, wall_ms: int, password: bytes) -> Answer:
        """Answer the first frame of a connection. `password` is used if it begins a session.

        `MalformedRecord` if the frame is no request to connect: then the connection is closed.
        """
        reader = JuteReader(frame)
        request = reader.record(ConnectRequest)
        # The field for a read-only mode came with version 3.4; it is answered only to a client that sends it.
        tail = b"\x00" if reader.rest else b""
        if request.last_zxid_seen > self.tree.zxid:
            # The client has seen more than this server knows: with it, the client would go back in time.
            return Answer(then=AfterAnswer.CLOSE)
        timeout_ms = self._timeouts.granted(request.timeout_ms)
        if request.session_id == 0:
            session_id = self.sessions.new_id()
            change = CreateSession(timeout_ms, password)
            record = self._apply(wall_ms, session_id, OpCode.CREATE_SESSION, change, encode(change))
            detached = None
        else:
            session_id, record = request.session_id, b""
            session = self.tree.sessions.get(session_id)
            if session is None or not is_password_of(session, request.password):
                refusal = encode(ConnectResponse(0, 0, 0, PASSWORD_OF_NO_SESSION))
                return Answer(encode_frame(refusal + tail), then=AfterAnswer.CLOSE)
            password = session.password
            detached = self._clients.get(session_id)
            if detached is not None:
                self.disconnect(detached)
        self.sessions.begin(session_id, timeout_ms, now_ms)
        client.session_id = session_id
        self._clients[session_id] = client
        response = encode(ConnectResponse(0, timeout_ms, session_id, password))
        return Answer(encode_frame(response + tail), record, detached=detached)

    def disconnect(self, client: Client) -> None:
        """Forget a connection that is closed. Its session goes on."""
        if self._clients.get(client.session_id) is client:
            del self._clients[client.session_id]
        self.watches.remove_client(client)

    def expire(self, now_ms: int, wall_ms: int) -> list[tuple[Client | None, Answer]]:
        """End the sessions that have expired; return an answer for each, and its connection if it has one."""
        ended = []
        for session_id in self.sessions.expired(now_ms):
            client = self._clients.get(session_id)
            ended.append((client, self._end(session_id, wall_ms)))
            if client is not None:
                self.disconnect(client)
        return ended

    def _end(self, session_id: int, wall_ms: int) -> Answer:
        self.sessions.end(session_id)
        outcome = self.tree.apply(self.tree.zxid + 1, wall_ms, session_id, OpCode.CLOSE_SESSION, NOTHING)
        record = log_format.encode_change(self.tree.zxid, wall_ms, session_id, OpCode.CLOSE_SESSION, b"")
        return Answer(record=record, events=self._notifications(outcome.events), then=AfterAnswer.CLOSE)

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────

    def answer(self, client: Client, frame: bytes, wall_ms: int) -> Answer:
        """Answer a frame after the first one. `MalformedRecord` if it has no header."""
        if len(frame) < REQUEST_HEADER.size:
            raise MalformedRecord("a frame without a header")
        xid, opcode = REQUEST_HEADER.unpack_from(frame)
        read = self._reads.get(opcode)
        try:
            if read is not None:
                record = JuteReader(frame, REQUEST_HEADER.size).request(opcode)
                return Answer(encode_reply(xid, self.tree.zxid, 0, read(client, record)))
            if opcode in WRITES:
                return self._write(client, xid, opcode, frame, wall_ms)
            return self._special(client, xid, opcode, frame, wall_ms)
        except _RequestFailed as failed:
            return Answer(encode_reply(xid, self.tree.zxid, failed.code))
        except MalformedRecord:
            return Answer(encode_reply(xid, self.tree.zxid, ErrorCode.MARSHALLING_ERROR))

    def _write(self, client: Client, xid: int, opcode: int, frame: bytes, wall_ms: int) -> Answer:
        request = JuteReader(frame, REQUEST_HEADER.size).request(opcode)
        tree = self.tree
        outcome = tree.apply(tree.zxid + 1, wall_ms, client.session_id, opcode, request)
        if outcome.error:
            return Answer(encode_reply(xid, tree.zxid, outcome.error))
        response = outcome.response
        body = encode_multi(response) if isinstance(response, Multi) else encode(response)
        reply = encode_reply(xid, tree.zxid, 0, body)
        if not outcome.is_applied:
            return Answer(reply)
        body = frame[REQUEST_HEADER.size :]
        record = log_format.encode_change(tree.zxid, wall_ms, client.session_id, opcode, body)
        return Answer(reply, record, self._notifications(outcome.events))

    def _special(self, client: Client, xid: int, opcode: int, frame: bytes, wall_ms: int) -> Answer:
        if opcode == OpCode.PING:
            return Answer(encode_reply(PING_XID, self.tree.zxid, 0))
        if opcode == OpCode.CLOSE_SESSION:
            ended = self._end(client.session_id, wall_ms)
            return ended._replace(reply=encode_reply(xid, self.tree.zxid, 0))
        if opcode == OpCode.AUTH:
            return self._authenticate(client, JuteReader(frame, REQUEST_HEADER.size).record(Auth))
        if opcode in (OpCode.SET_WATCHES, OpCode.SET_WATCHES2):
            record = JuteReader(frame, REQUEST_HEADER.size).request(opcode)
            return self._set_watches(client, xid, record)
        if opcode == OpCode.RECONFIG:
            return Answer(encode_reply(xid, self.tree.zxid, ErrorCode.UNIMPLEMENTED))
        # ZooKeeper answers an opcode that it does not know, and closes the connection.
        return Answer(encode_reply(xid, 0, ErrorCode.UNIMPLEMENTED), then=AfterAnswer.CLOSE)

    def _apply(self, wall_ms: int, session_id: int, opcode: int, request: Record, body: bytes) -> bytes:
        """Make a change that cannot be refused; return its record."""
        outcome = self.tree.apply(self.tree.zxid + 1, wall_ms, session_id, opcode, request)
        assert outcome.is_applied
        return log_format.encode_change(self.tree.zxid, wall_ms, session_id, opcode, body)

    def _notifications(self, events: list[NodeEvent]) -> list[tuple[Client, bytes]]:
        notifications = []
        for event in events:
            clients = self.watches.trigger(event)
            if clients and event.is_shown:
                frame = _notification(event, self.tree.zxid)
                notifications += [(client, frame) for client in clients]
        return notifications

    def _authenticate(self, client: Client, request: Auth) -> Answer:
        if request.scheme not in ("digest", "ip"):
            return Answer(encode_reply(AUTH_XID, 0, ErrorCode.AUTH_FAILED), then=AfterAnswer.CLOSE)
        if request.scheme == "digest":
            user = (request.auth or b"").partition(b":")[0].decode(errors="replace")
            if ("digest", user) not in client.identities:
                client.identities.append(("digest", user))
        return Answer(encode_reply(AUTH_XID, 0, 0))

    def _set_watches(self, client: Client, xid: int, request: Record) -> Answer:
        """Set the watches of a client again, and tell it at once of what has happened since."""
        assert isinstance(request, SetWatches)
        since, watches = request.relative_zxid, self.watches
        missed = [
            *(self._missed(path, client, since, EventType.DATA_CHANGED) for path in request.data),
            *(self._missed(path, client, since, EventType.CREATED) for path in request.exist),
            *(self._missed(path, client, since, EventType.CHILDREN_CHANGED) for path in request.child),
        ]
        events = [event for event in missed if event is not None]
        for path in request.persistent:
            watches.add(path, client, WatchMode.PERSISTENT)
        for path in request.recursive:
            watches.add(path, client, WatchMode.PERSISTENT_RECURSIVE)
        notifications = [(client, _notification(event, -1)) for event in events]
        return Answer(encode_reply(xid, self.tree.zxid, 0), events=notifications)

    def _missed(self, path: str, client: Client, since: int, awaited: EventType) -> NodeEvent | None:
        """Return what has happened to the node since that zxid; set the watch if it was nothing."""
        node = self.tree.nodes.get(path)
        if awaited is EventType.CREATED:
            if node is not None:
                return NodeEvent(awaited, path)
        elif node is None:
            return NodeEvent(EventType.DELETED, path)
        elif (node.pzxid if awaited is EventType.CHILDREN_CHANGED else node.mzxid) > since:
            return NodeEvent(awaited, path)
        if awaited is EventType.CHILDREN_CHANGED:
            self.watches.watch_children(path, client)
        else:
            self.watches.watch_data(path, client)
        return None

    # ── reads ─────────────────────────────────────────────────────────────────────────────────────────

    def _readable(self, path: str) -> Znode:
        node = self.tree.nodes.get(path)
        if node is None:
            raise _RequestFailed(ErrorCode.NO_NODE)
        if not is_permitted(node, READ_PERMISSION):
            raise _RequestFailed(ErrorCode.NO_AUTH)
        return node

    def _exists(self, client: Client, request: Record) -> bytes:
        assert isinstance(request, PathAndWatch)
        path = request.path
        if "\0" in path:
            raise _RequestFailed(ErrorCode.BAD_ARGUMENTS)
        node = self.tree.nodes.get(path)
        if node is not None and not is_permitted(node, READ_PERMISSION):
            raise _RequestFailed(ErrorCode.NO_AUTH)
        if request.watch:
            self.watches.watch_data(path, client)  # also of a node that is not there, to hear of its creation
        if node is None:
            raise _RequestFailed(ErrorCode.NO_NODE)
        return encode(StatOnly(self.tree.stat(path, node)))

    def _get_data(self, client: Client, request: Record) -> bytes:
        return encode(self._data_and_stat(client, request))

    def _data_and_stat(self, client: Client, request: Record) -> DataAndStat:
        assert isinstance(request, PathAndWatch)
        node = self._readable(request.path)
        if request.watch:
            self.watches.watch_data(request.path, client)
        return DataAndStat(node.data, self.tree.stat(request.path, node))

    def _get_children(self, client: Client, request: Record) -> bytes:
        return encode(self._children(client, request))

    def _children(self, client: Client, request: Record) -> Children:
        assert isinstance(request, PathAndWatch)
        self._readable(request.path)
        if request.watch:
            self.watches.watch_children(request.path, client)
        return Children(self.tree.children(request.path))

    def _get_children2(self, client: Client, request: Record) -> bytes:
        children = self._children(client, request).children
        path = request[0]
        return encode(ChildrenAndStat(children, self.tree.stat(path, self.tree.nodes[path])))

    def _get_acl(self, _: Client, request: Record) -> bytes:
        assert isinstance(request, PathOnly)
        node = self.tree.nodes.get(request.path)
        if node is None:
            raise _RequestFailed(ErrorCode.NO_NODE)
        if not is_permitted(node, READ_PERMISSION | ADMIN_PERMISSION):
            raise _RequestFailed(ErrorCode.NO_AUTH)
        return encode(AclAndStat(node.acl, self.tree.stat(request.path, node)))

    def _sync(self, _: Client, request: Record) -> bytes:
        assert isinstance(request, PathOnly)
        return encode(request)

    def _get_ephemerals(self, client: Client, request: Record) -> bytes:
        assert isinstance(request, PathOnly)
        prefix = "" if request.path.strip() in ("", "/") else request.path
        owned = self.tree.ephemerals(client.session_id)
        return encode(Children(tuple(path for path in owned if path.startswith(prefix))))

    def _get_all_children_number(self, _: Client, request: Record) -> bytes:
        assert isinstance(request, PathOnly)
        self._readable(request.path)
        return encode(Number(self.tree.descendants(request.path)))

    def _multi_read(self, client: Client, request: Record) -> bytes:
        assert isinstance(request, Multi)
        results: list[tuple[int, tuple[Any, ...]]] = []
        size = 0
        for opcode, part in request.parts:
            read = self._data_and_stat if opcode == OpCode.GET_DATA else self._children
            try:
                result = read(client, part)
            except _RequestFailed as failed:
                results.append((OpCode.ERROR, ErrorOnly(failed.code)))
                continue
            names = result.children if isinstance(result, Children) else (result.data or b"",)
            size += sum(map(len, names))
            if size > MULTI_READ_SIZE_MAX:
                raise _RequestFailed(ErrorCode.MARSHALLING_ERROR)
            results.append((opcode, result))
        return encode_multi(Multi(tuple(results)))

    def _add_watch(self, client: Client, request: Record) -> bytes:
        assert isinstance(request, PathAndMode)
        if request.mode not in list(WatchMode):
            raise _RequestFailed(ErrorCode.MARSHALLING_ERROR)
        self.watches.add(request.path, client, WatchMode(request.mode))
        return encode(ErrorOnly(0))

    def _remove_watches(self, client: Client, request: Record) -> bytes:
        if not self.watches.remove(request[0], client, _watch_kind(request)):
            raise _RequestFailed(ErrorCode.NO_WATCHER)
        return b""

    def _check_watches(self, client: Client, request: Record) -> bytes:
        if not self.watches.has(request[0], client, _watch_kind(request)):
            raise _RequestFailed(ErrorCode.NO_WATCHER)
        return b""

    def _who_am_i(self, client: Client, _: Record) -> bytes:
        return encode(ClientInfos(tuple(client.identities)))


def _watch_kind(request: Record) -> WatchKind:
    assert isinstance(request, PathAndMode)
    if request.mode not in list(WatchKind):
        raise _RequestFailed(ErrorCode.MARSHALLING_ERROR)
    return WatchKind(request.mode)


def _notification(event: NodeEvent, zxid: int) -> bytes:
    return encode_notification(WatcherEvent(event.type, CONNECTED_STATE, event.path), zxid)
