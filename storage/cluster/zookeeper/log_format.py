"""The bytes of the server's log and of its snapshots: each is the payload of an entry of a ledger.

A change, in a ledger of changes:

     0   zxid          i64   one more than that of the change before
     8   time          i64   wall clock, milliseconds
    16   session       i64   which made it; in the creation and the end of a session: that session
    24   opcode        i32   ZooKeeper's
    28   request       the bytes of the request's record as the client has sent them

The change is logged as it was asked for, not as it was carried out. To apply it again gives the same result,
because the tree depends on nothing else; and a multi is one entry, so that no half of it can survive.

A snapshot is a ledger of several entries. The first byte of each says what it has:

    `N`   nodes: for each, path (string), data (buffer), the permissions of its access control list (vector of
          i32; a null vector is the usual list), 2 × i64 zxid, 2 × i64 time, 3 × i32 version, children created
          and version of the list, i64 owner, i64 zxid of the children
    `S`   sessions: for each, i64 id, i32 time-out, password (buffer)
    `E`   the end: i64 zxid, i64 number of nodes, i64 number of sessions. A snapshot without it is not whole
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from storage.cluster.zookeeper.jute import JuteReader, MalformedRecord
from storage.cluster.zookeeper.records import NODE_CHANGES, OPEN_ACL, Acl, OpCode
from storage.cluster.zookeeper.tree import DurableSession, Znode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from storage.cluster.zookeeper.tree import Record

CHANGE_HEADER = struct.Struct(">qqqi")
_NODE_STAT = struct.Struct(">qqqqiiiqq")
_SESSION = struct.Struct(">qi")
_END = struct.Struct(">qqq")
_SIZE = struct.Struct(">i")

NODES, SESSIONS, END = b"N", b"S", b"E"


class TreeChange(NamedTuple):
    """One change of the tree, with everything that it depends on."""

    zxid: int
    time_ms: int
    session_id: int
    opcode: int
    request: Record


class SnapshotEnd(NamedTuple):
    """The last entry of a snapshot, with the counts of all nodes and sessions before it."""

    zxid: int
    nodes: int
    sessions: int


def encode_change(zxid: int, time_ms: int, session_id: int, opcode: int, request: bytes) -> bytes:
    """Return the entry of a change. `request` are the bytes of its record."""
    return CHANGE_HEADER.pack(zxid, time_ms, session_id, opcode) + request


def decode_change(entry: bytes) -> TreeChange:
    """Return the change. `MalformedRecord` if the entry is none."""
    if len(entry) < CHANGE_HEADER.size:
        raise MalformedRecord("an entry of the log without a header")
    zxid, time_ms, session_id, opcode = CHANGE_HEADER.unpack_from(entry)
    if opcode not in _CHANGES:
        raise MalformedRecord(f"an entry of the log with the opcode {opcode}")
    request = JuteReader(entry, CHANGE_HEADER.size).request(opcode)
    return TreeChange(zxid, time_ms, session_id, opcode, request)


_CHANGES = NODE_CHANGES | {OpCode.SET_ACL, OpCode.MULTI, OpCode.CREATE_SESSION, OpCode.CLOSE_SESSION}


def encode_nodes(nodes: Iterable[tuple[str, Znode]]) -> bytes:
    """Return an entry of these nodes and their paths."""
    parts = [NODES]
    for path, node in nodes:
        name, acl = path.encode(), b"\xff\xff\xff\xff" if node.acl is OPEN_ACL else _encode_acl(node)
        data = b"\xff\xff\xff\xff" if node.data is None else _SIZE.pack(len(node.data)) + node.data
        parts += (_SIZE.pack(len(name)), name, data, acl, _NODE_STAT.pack(*node[2:]))
    return b"".join(parts)


def _encode_acl(node: Znode) -> bytes:
    return _SIZE.pack(len(node.acl)) + b"".join(_SIZE.pack(one.permissions) for one in node.acl)


def encode_sessions(sessions: Iterable[tuple[int, DurableSession]]) -> bytes:
    """Return an entry of these sessions and their ids."""
    parts = [SESSIONS]
    for session_id, (timeout_ms, password) in sessions:
        parts += (_SESSION.pack(session_id, timeout_ms), _SIZE.pack(len(password)), password)
    return b"".join(parts)


def encode_end(end: SnapshotEnd) -> bytes:
    """Return the last entry of a snapshot."""
    return END + _END.pack(*end)


def decode_nodes(entry: bytes) -> Iterator[tuple[str, Znode]]:
    """Yield the nodes of an entry that begins with `N`."""
    reader = JuteReader(entry, 1)
    while reader.rest:
        path, data, count = reader.string(), reader.buffer(), reader.integer()
        acl: tuple[Acl, ...] = OPEN_ACL
        if count != -1:
            acl = tuple([Acl(reader.integer(), "world", "anyone") for _ in range(count)])
        yield path, Znode(data, acl, *reader.unpack(_NODE_STAT))


def decode_sessions(entry: bytes) -> Iterator[tuple[int, DurableSession]]:
    """Yield the sessions of an entry that begins with `S`."""
    reader = JuteReader(entry, 1)
    while reader.rest:
        session_id, timeout_ms = reader.long(), reader.integer()
        yield session_id, DurableSession(timeout_ms, reader.buffer() or b"")


def decode_end(entry: bytes) -> SnapshotEnd:
    """Return what an entry that begins with `E` tells."""
    if len(entry) != 1 + _END.size:
        raise MalformedRecord("the end of a snapshot has another size")
    return SnapshotEnd._make(_END.unpack_from(entry, 1))
