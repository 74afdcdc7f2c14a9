"""The tree of znodes: `ZnodeTree.apply` makes one change, or refuses it with ZooKeeper's error.

The tree has three uses: the server keeps its data in one, the simulator of a cluster its metadata, and tests
compare with it. Therefore it is pure. The zxid, the time, ids and passwords of sessions come from outside, so
that a log of changes that is applied again makes the same tree.

Nodes are immutable, and a change replaces the nodes that it touches. So a copy of the dictionary is a
snapshot, which can be written while changes go on.

The differences from ZooKeeper are that nodes with a time to live and containers are never deleted by
themselves, and an access control list may only name `world:anyone`. Its permissions are enforced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from storage.cluster.zookeeper.paths import is_valid, parent_of
from storage.cluster.zookeeper.records import (
    ADMIN_PERMISSION,
    ALL_PERMISSIONS,
    CREATE_PERMISSION,
    DELETE_PERMISSION,
    OPEN_ACL,
    READ_PERMISSION,
    WRITE_PERMISSION,
    Acl,
    Create,
    CreateSession,
    CreateTtl,
    ErrorCode,
    ErrorOnly,
    EventType,
    Multi,
    Nothing,
    OpCode,
    PathAndStat,
    PathAndVersion,
    PathOnly,
    SetAcl,
    SetData,
    Stat,
    StatOnly,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Record = tuple[Any, ...]

ANY_VERSION = -1

EPHEMERAL, SEQUENTIAL = 1, 2
"""The flags of a request to create a node are these bits, up to 3."""

TTL_FLAG, SEQUENTIAL_TTL_FLAG = 5, 6
"""Flags of nodes with a time to live; 4 is that of a container."""

TTL_MAX_MS = (1 << 40) - 1

_PROTECTED = frozenset(("/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"))


class Znode(NamedTuple):
    """One znode. `created` counts all children ever created, from which ZooKeeper's cversion follows."""

    data: bytes | None
    acl: tuple[Acl, ...]
    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    created: int
    aversion: int
    owner: int
    pzxid: int

    @property
    def is_ephemeral(self) -> bool:
        """Whether the node goes with a session."""
        return self.owner != 0


class DurableSession(NamedTuple):
    """The durable facts about a session."""

    timeout_ms: int
    password: bytes


class NodeEvent(NamedTuple):
    """An event for watches. If the node may not be read, its watches end, and no client is told."""

    type: EventType
    path: str
    is_shown: bool = True


class Outcome(NamedTuple):
    """The result of a change. A change that was refused has changed nothing, and has no events."""

    error: int
    response: Record
    events: list[NodeEvent]
    is_applied: bool


class _RequestRefused(Exception):
    """A request is refused with this error."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code)
        self.code = code


NOTHING = Nothing()


class ZnodeTree:
    """All nodes and sessions. Empty at first: `new_tree` or a snapshot puts in the nodes of a server."""

    def __init__(self) -> None:
        self.zxid = 0
        """That of the last change."""
        self.nodes: dict[str, Znode] = {}
        self.sessions: dict[int, DurableSession] = {}
        self._children: dict[str, dict[str, None]] = {}
        """By path: the names of the children, in the order of their creation. Only of nodes that had any."""
        self._ephemerals: dict[int, dict[str, None]] = {}
        """By session: the paths of its nodes."""
        self.data_size = 0
        """The bytes of all paths and data."""
        self._undo: list[tuple[str, Znode | None]] | None = None
        """While a multi is applied: each path that it has changed, and the node before."""
        self._handlers: dict[int, Callable[[_ChangeContext, int, Record], Record]] = {
            OpCode.CREATE: self._create,
            OpCode.CREATE2: self._create,
            OpCode.CREATE_CONTAINER: self._create,
            OpCode.CREATE_TTL: self._create,
            OpCode.DELETE: self._delete,
            OpCode.SET_DATA: self._set_data,
            OpCode.SET_ACL: self._set_acl,
            OpCode.CHECK: self._check,
            OpCode.CREATE_SESSION: self._create_session,
            OpCode.CLOSE_SESSION: self._close_session,
        }

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────

    def stat(self, path: str, node: Znode) -> Stat:
        """Return the stat of the node, as a reply has it."""
        children = len(self._children.get(path, ()))
        # Each child was created, and all but those that are there were deleted: both are changes.
        cversion = _int32(2 * node.created - children)
        size = 0 if node.data is None else len(node.data)
        return Stat(
            node.czxid,
            node.mzxid,
            node.ctime,
            node.mtime,
            node.version,
            cversion,
            node.aversion,
            node.owner,
            size,
            children,
            node.pzxid,
        )

    def children(self, path: str) -> tuple[str, ...]:
        """Return the names of the node's children, in the order of their creation."""
        return tuple(self._children.get(path, ()))

    def ephemerals(self, session_id: int) -> tuple[str, ...]:
        """Return the paths of the session's nodes, in the order of their creation."""
        return tuple(self._ephemerals.get(session_id, ()))

    @property
    def ephemeral_count(self) -> int:
        return sum(map(len, self._ephemerals.values()))

    def descendants(self, path: str) -> int:
        """Return how many nodes are below the path. It goes through all nodes, as ZooKeeper does."""
        prefix = "/" if path == "/" else f"{path}/"
        return sum(1 for other in self.nodes if other.startswith(prefix) and other != "/")

    # ── restoring ─────────────────────────────────────────────────────────────────────────────────────

    def restore_node(self, path: str, node: Znode) -> None:
        """Put a node in as a snapshot has it."""
        self.nodes[path] = node
        self.data_size += _size(path, node)
        if path != "/":
            parent, _, name = path.rpartition("/")
            self._children.setdefault(parent or "/", {})[name] = None
        if node.is_ephemeral:
            self._ephemerals.setdefault(node.owner, {})[path] = None

    # ── changing ──────────────────────────────────────────────────────────────────────────────────────

    def apply(self, zxid: int, time_ms: int, session_id: int, opcode: int, request: Record) -> Outcome:
        """Make the change, or refuse it. `request` is the record that belongs to the opcode."""
        events: list[NodeEvent] = []
        try:
            if opcode == OpCode.MULTI:
                assert isinstance(request, Multi)
                return self._multi(_ChangeContext(zxid, time_ms, session_id, events), request)
            response = self._handlers[opcode](
                _ChangeContext(zxid, time_ms, session_id, events), opcode, request
            )
        except _RequestRefused as refused:
            return Outcome(refused.code, NOTHING, [], is_applied=False)
        if opcode == OpCode.CHECK:
            return Outcome(0, response, [], is_applied=False)
        self.zxid = zxid
        return Outcome(0, response, events, is_applied=True)

    def _multi(self, change: _ChangeContext, multi: Multi) -> Outcome:
        results: list[tuple[int, Record]] = []
        self._undo = []
        try:
            for opcode, request in multi.parts:
                response = self._handlers[opcode](change, opcode, request)
                results.append((_RESULT_OPCODES.get(opcode, opcode), response))
        except _RequestRefused as refused:
            self._take_back(self._undo)
            # As ZooKeeper answers: those before it would have been right, those after it were not tried.
            done, left = len(results), len(multi.parts) - len(results) - 1
            codes = [ErrorCode.OK] * done + [refused.code] + [ErrorCode.RUNTIME_INCONSISTENCY] * left
            failed = Multi(tuple((OpCode.ERROR, ErrorOnly(code)) for code in codes))
            return Outcome(0, failed, [], is_applied=False)
        finally:
            self._undo = None
        self.zxid = change.zxid
        return Outcome(0, Multi(tuple(results)), change.events, is_applied=True)

    def _take_back(self, undo: list[tuple[str, Znode | None]]) -> None:
        self._undo = None
        for path, before in reversed(undo):
            if before is None:
                self._remove(path)
            elif path in self.nodes:
                self._replace(path, before)
            else:
                self.restore_node(path, before)

    # ── the three ways in which a node changes ────────────────────────────────────────────────────────

    def _insert(self, path: str, node: Znode) -> None:
        if self._undo is not None:
            self._undo.append((path, None))
        self.restore_node(path, node)

    def _replace(self, path: str, node: Znode) -> None:
        before = self.nodes[path]
        if self._undo is not None:
            self._undo.append((path, before))
        if before.data is not node.data:
            self.data_size += _size(path, node) - _size(path, before)
        self.nodes[path] = node

    def _remove(self, path: str) -> None:
        node = self.nodes.pop(path)
        if self._undo is not None:
            self._undo.append((path, node))
        self.data_size -= _size(path, node)
        parent, _, name = path.rpartition("/")
        siblings = self._children[parent or "/"]
        del siblings[name]
        if not siblings:
            del self._children[parent or "/"]
        if node.is_ephemeral:
            owned = self._ephemerals[node.owner]
            del owned[path]
            if not owned:
                del self._ephemerals[node.owner]

    # ── the changes ───────────────────────────────────────────────────────────────────────────────────

    def _create(self, change: _ChangeContext, opcode: int, request: Record) -> Record:
        assert isinstance(request, Create | CreateTtl)
        path, data, flags = request.path, request.data, request.flags
        # The checks are in ZooKeeper's order, because a request may be wrong in several ways.
        owner = _owner(request, change.session_id)
        at = path.rfind("/")
        if at == -1 or "\0" in path:
            raise _RequestRefused(ErrorCode.BAD_ARGUMENTS)
        acl = _checked_acl(request.acl)
        parent_path = path[:at] or "/"
        parent = self._found(parent_path)
        _check_permission(parent, CREATE_PERMISSION)
        if flags in _SEQUENTIAL_FLAGS:
            path = f"{path}{parent.created:010d}"
        if not is_valid(path):
            raise _RequestRefused(ErrorCode.BAD_ARGUMENTS)
        if path in self.nodes:
            raise _RequestRefused(ErrorCode.NODE_EXISTS)
        if parent.is_ephemeral:
            raise _RequestRefused(ErrorCode.NO_CHILDREN_FOR_EPHEMERALS)
        zxid, time_ms = change.zxid, change.time_ms
        node = Znode(data, acl, zxid, zxid, time_ms, time_ms, 0, 0, 0, owner, zxid)
        self._insert(path, node)
        self._replace(parent_path, _with_child(parent, _int32(parent.created + 1), zxid))
        change.events.append(NodeEvent(EventType.CREATED, path, is_permitted(node, READ_PERMISSION)))
        change.events.append(_children_changed(parent_path, parent))
        return PathOnly(path) if opcode == OpCode.CREATE else PathAndStat(path, self.stat(path, node))

    def _delete(self, change: _ChangeContext, _: int, request: Record) -> Record:
        assert isinstance(request, PathAndVersion)
        path = request.path
        if "/" not in path or "\0" in path or path in _PROTECTED:
            raise _RequestRefused(ErrorCode.BAD_ARGUMENTS)
        parent = self._found(parent_of(path))
        _check_permission(parent, DELETE_PERMISSION)
        node = self._found(path)
        _check_version(node.version, request.version)
        if path in self._children:
            raise _RequestRefused(ErrorCode.NOT_EMPTY)
        self._delete_node(change, path)
        return NOTHING

    def _delete_node(self, change: _ChangeContext, path: str) -> None:
        parent_path = parent_of(path)
        node, parent = self.nodes[path], self.nodes[parent_path]
        self._remove(path)
        self._replace(parent_path, _with_child(parent, parent.created, change.zxid))
        change.events.append(NodeEvent(EventType.DELETED, path, is_permitted(node, READ_PERMISSION)))
        change.events.append(_children_changed(parent_path, parent))

    def _set_data(self, change: _ChangeContext, _: int, request: Record) -> Record:
        assert isinstance(request, SetData)
        path = request.path
        node = self._named(path)
        _check_permission(node, WRITE_PERMISSION)
        version = _next_version(node.version, request.version)
        changed = Znode(
            request.data,
            node.acl,
            node.czxid,
            change.zxid,
            node.ctime,
            change.time_ms,
            version,
            node.created,
            node.aversion,
            node.owner,
            node.pzxid,
        )
        self._replace(path, changed)
        change.events.append(NodeEvent(EventType.DATA_CHANGED, path, is_permitted(node, READ_PERMISSION)))
        return StatOnly(self.stat(path, changed))

    def _set_acl(self, _change: _ChangeContext, _: int, request: Record) -> Record:
        assert isinstance(request, SetAcl)
        path = request.path
        if not is_valid(path):
            raise _RequestRefused(ErrorCode.BAD_ARGUMENTS)
        acl = _checked_acl(request.acl)
        node = self._found(path)
        _check_permission(node, ADMIN_PERMISSION)
        changed = node._replace(acl=acl, aversion=_next_version(node.aversion, request.version))
        self._replace(path, changed)
        return StatOnly(self.stat(path, changed))

    def _check(self, _change: _ChangeContext, _: int, request: Record) -> Record:
        assert isinstance(request, PathAndVersion)
        node = self._named(request.path)
        _check_permission(node, READ_PERMISSION)
        _check_version(node.version, request.version)
        return NOTHING

    def _create_session(self, change: _ChangeContext, _: int, request: Record) -> Record:
        assert isinstance(request, CreateSession)
        self.sessions[change.session_id] = DurableSession(request.timeout_ms, request.password)
        return NOTHING

    def _close_session(self, change: _ChangeContext, _: int, _request: Record) -> Record:
        self.sessions.pop(change.session_id, None)
        for path in self.ephemerals(change.session_id):
            self._delete_node(change, path)
        return NOTHING

    # ── checks ────────────────────────────────────────────────────────────────────────────────────────

    def _found(self, path: str) -> Znode:
        node = self.nodes.get(path)
        if node is None:
            raise _RequestRefused(ErrorCode.NO_NODE)
        return node

    def _named(self, path: str) -> Znode:
        """Return the node of a path that must also be valid."""
        node = self.nodes.get(path)
        if node is None:
            raise _RequestRefused(ErrorCode.NO_NODE if is_valid(path) else ErrorCode.BAD_ARGUMENTS)
        return node


def new_tree() -> ZnodeTree:
    """Return the tree of a new server, which has ZooKeeper's own nodes."""
    tree = ZnodeTree()
    for path in ("/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"):
        acl = (Acl(READ_PERMISSION, "world", "anyone"),) if path == "/zookeeper/config" else OPEN_ACL
        tree.restore_node(path, Znode(b"", acl, 0, 0, 0, 0, 0, 0, 0, 0, 0))
    return tree


class _ChangeContext(NamedTuple):
    """The values that all parts of one change share."""

    zxid: int
    time_ms: int
    session_id: int
    events: list[NodeEvent]


_SEQUENTIAL_FLAGS = frozenset((SEQUENTIAL, EPHEMERAL | SEQUENTIAL, SEQUENTIAL_TTL_FLAG))
_EPHEMERAL_FLAGS = frozenset((EPHEMERAL, EPHEMERAL | SEQUENTIAL))
_TTL_FLAGS = frozenset((TTL_FLAG, SEQUENTIAL_TTL_FLAG))


def _owner(request: Create | CreateTtl, session_id: int) -> int:
    """Return the session with which the new node goes, or 0. Checks the flags and the time to live.

    Containers and nodes with a time to live have no owner, as ZooKeeper shows them too.
    """
    flags, ttl_ms = request.flags, request.ttl_ms if isinstance(request, CreateTtl) else -1
    if not 0 <= flags <= SEQUENTIAL_TTL_FLAG:
        raise _RequestRefused(ErrorCode.BAD_ARGUMENTS)
    if flags in _TTL_FLAGS:
        if not 0 < ttl_ms <= TTL_MAX_MS:
            raise _RequestRefused(ErrorCode.BAD_ARGUMENTS)
        return 0
    if ttl_ms >= 0:
        raise _RequestRefused(ErrorCode.BAD_ARGUMENTS)
    return session_id if flags in _EPHEMERAL_FLAGS else 0


def _checked_acl(acl: tuple[Acl, ...]) -> tuple[Acl, ...]:
    if acl == OPEN_ACL:
        return OPEN_ACL  # one object for nearly all nodes
    unique = tuple(dict.fromkeys(acl))
    if not unique or any((one.scheme, one.id) != ("world", "anyone") for one in unique):
        raise _RequestRefused(ErrorCode.INVALID_ACL)
    return unique


def is_permitted(node: Znode, permission: int) -> bool:
    """Return whether the node's list gives everyone the permission."""
    return node.acl is OPEN_ACL or any(one.permissions & permission for one in node.acl)


def _children_changed(path: str, node: Znode) -> NodeEvent:
    return NodeEvent(EventType.CHILDREN_CHANGED, path, is_permitted(node, READ_PERMISSION))


def _check_permission(node: Znode, permission: int) -> None:
    if not is_permitted(node, permission):
        raise _RequestRefused(ErrorCode.NO_AUTH)


def _check_version(version: int, expected: int) -> None:
    if expected not in (ANY_VERSION, version):
        raise _RequestRefused(ErrorCode.BAD_VERSION)


def _next_version(version: int, expected: int) -> int:
    """Return the version after a change. Never -1, because a client could not ask for that one."""
    _check_version(version, expected)
    following = _int32(version + 1)
    return 0 if following == ANY_VERSION else following


def _with_child(parent: Znode, created: int, zxid: int) -> Znode:
    """Return the node after a child was created or deleted."""
    return Znode(
        parent.data,
        parent.acl,
        parent.czxid,
        parent.mzxid,
        parent.ctime,
        parent.mtime,
        parent.version,
        created,
        parent.aversion,
        parent.owner,
        zxid,
    )


def _int32(number: int) -> int:
    """Return the number as a signed integer of 32 bits holds it, because ZooKeeper's counts wrap around."""
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)


def _size(path: str, node: Znode) -> int:
    return len(path) + (0 if node.data is None else len(node.data))


_RESULT_OPCODES: Mapping[int, int] = {
    OpCode.CREATE_CONTAINER: OpCode.CREATE2,
    OpCode.CREATE_TTL: OpCode.CREATE2,
}
"""By the opcode of a request: the opcode with which a multi answers it."""

assert ALL_PERMISSIONS == (
    READ_PERMISSION | WRITE_PERMISSION | CREATE_PERMISSION | DELETE_PERMISSION | ADMIN_PERMISSION
)
