"""The records of ZooKeeper's client protocol as values: requests, responses, opcodes and errors.

`jute` knows the bytes of each.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

NOTIFICATION_XID = -1
PING_XID = -2
AUTH_XID = -4
SET_WATCHES_XID = -8

PASSWORD_SIZE = 16


class OpCode(enum.IntEnum):
    """The operation of a request, with its number in the protocol."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    RECONFIG = 16
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CREATE_SESSION = -10
    CLOSE_SESSION = -11
    ERROR = -1


NODE_CHANGES = frozenset(
    (
        OpCode.CREATE,
        OpCode.CREATE2,
        OpCode.CREATE_CONTAINER,
        OpCode.CREATE_TTL,
        OpCode.DELETE,
        OpCode.SET_DATA,
    )
)
"""The opcodes that change one node, alone or in a multi."""


class ErrorCode(enum.IntEnum):
    """The errors that a reply can have, with ZooKeeper's numbers and names."""

    OK = 0
    RUNTIME_INCONSISTENCY = -2
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115
    NO_WATCHER = -121


class EventType(enum.IntEnum):
    """The kind of an event of a watched node, with its number in the protocol."""

    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


CONNECTED_STATE = 3
"""`KeeperState.SyncConnected`: the state that each notification reports."""


class Acl(NamedTuple):
    permissions: int
    scheme: str
    id: str


ALL_PERMISSIONS = 31
READ_PERMISSION, WRITE_PERMISSION, CREATE_PERMISSION, DELETE_PERMISSION, ADMIN_PERMISSION = 1, 2, 4, 8, 16
OPEN_ACL = (Acl(ALL_PERMISSIONS, "world", "anyone"),)


class Stat(NamedTuple):
    """The stat of a node in a reply, field by field as in ZooKeeper."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


class ConnectRequest(NamedTuple):
    protocol_version: int
    last_zxid_seen: int
    timeout_ms: int
    session_id: int
    password: bytes | None


class ConnectResponse(NamedTuple):
    protocol_version: int
    timeout_ms: int
    session_id: int
    password: bytes | None


class Create(NamedTuple):
    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    flags: int = 0


class CreateTtl(NamedTuple):
    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    flags: int
    ttl_ms: int


class PathAndVersion(NamedTuple):
    """The request of delete and of check."""

    path: str
    version: int


class SetData(NamedTuple):
    path: str
    data: bytes | None
    version: int


class SetAcl(NamedTuple):
    path: str
    acl: tuple[Acl, ...]
    version: int


class CreateSession(NamedTuple):
    """A session is begun. No client sends it: it is a record of the server's log."""

    timeout_ms: int
    password: bytes


class PathOnly(NamedTuple):
    """The request of sync, getACL, getEphemerals and getAllChildrenNumber; a response with a path alone."""

    path: str


class PathAndWatch(NamedTuple):
    """The request of exists, getData and getChildren."""

    path: str
    watch: bool


class PathAndMode(NamedTuple):
    """The request of addWatch, removeWatches and checkWatches: a mode or a type of watch."""

    path: str
    mode: int


class SetWatches(NamedTuple):
    """The watches of a client that has connected again, and the last zxid that it knows."""

    relative_zxid: int
    data: tuple[str, ...]
    exist: tuple[str, ...]
    child: tuple[str, ...]
    persistent: tuple[str, ...] = ()
    recursive: tuple[str, ...] = ()


class Auth(NamedTuple):
    kind: int
    scheme: str
    auth: bytes | None


class Nothing(NamedTuple):
    """A request or response without fields."""


class WatcherEvent(NamedTuple):
    type: int
    state: int
    path: str


class PathAndStat(NamedTuple):
    path: str
    stat: Stat


class StatOnly(NamedTuple):
    stat: Stat


class DataAndStat(NamedTuple):
    data: bytes | None
    stat: Stat


class Children(NamedTuple):
    children: tuple[str, ...]


class ChildrenAndStat(NamedTuple):
    children: tuple[str, ...]
    stat: Stat


class AclAndStat(NamedTuple):
    acl: tuple[Acl, ...]
    stat: Stat


class ErrorOnly(NamedTuple):
    error: int


class Number(NamedTuple):
    number: int


class ClientInfos(NamedTuple):
    """Pairs of an authentication scheme and a user."""

    infos: tuple[tuple[str, str], ...]


class Multi(NamedTuple):
    """Several requests or several results, each with its opcode; results of failed requests are `ERROR`."""

    parts: tuple[tuple[int, tuple[Any, ...]], ...]
