"""The bytes of ZooKeeper's client protocol.

Jute is ZooKeeper's encoding: integers are big-endian, a string or a buffer has its length before it, and a
vector its count; a length of -1 is a null. A connection is a sequence of frames, each with its length before
it. The first frame of each side is a `ConnectRequest` or `ConnectResponse`; all others begin with a header:

    request   | xid i32 | opcode i32 |               then the request's record
    reply     | xid i32 | zxid i64   | error i32 |   then the response's record, if the error is 0

A record is a named tuple, and `LAYOUTS` has one letter for each of its fields, so that reading and writing
are one loop each. This module knows bytes only: neither what a request does, nor whether a path is valid.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, TypeVar

from storage.cluster.zookeeper.records import (
    NODE_CHANGES,
    NOTIFICATION_XID,
    Acl,
    AclAndStat,
    Auth,
    Children,
    ChildrenAndStat,
    ClientInfos,
    ConnectRequest,
    ConnectResponse,
    Create,
    CreateSession,
    CreateTtl,
    DataAndStat,
    ErrorOnly,
    Multi,
    Nothing,
    Number,
    OpCode,
    PathAndMode,
    PathAndStat,
    PathAndVersion,
    PathAndWatch,
    PathOnly,
    SetAcl,
    SetData,
    SetWatches,
    Stat,
    StatOnly,
    WatcherEvent,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container

R = TypeVar("R", bound="tuple[Any, ...]")

FRAME_LENGTH = struct.Struct(">i")
REQUEST_HEADER = struct.Struct(">ii")
REPLY_HEADER = struct.Struct(">iqi")
STAT = struct.Struct(">qqqqiiiqiiq")

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_MULTI_HEADER = struct.Struct(">i?i")


class MalformedRecord(ValueError):
    """Bytes that are no record of the expected kind."""


# ── which record belongs to what ────────────────────────────────────────────────────────────────────────────

_SET_WATCHES = "lPPP"

LAYOUTS: dict[type[tuple[Any, ...]], str] = {
    ConnectRequest: "ililb",
    ConnectResponse: "iilb",
    Create: "sbAi",
    CreateTtl: "sbAil",
    PathAndVersion: "si",
    SetData: "sbi",
    SetAcl: "sAi",
    CreateSession: "ib",
    PathOnly: "s",
    PathAndWatch: "s?",
    PathAndMode: "si",
    SetWatches: _SET_WATCHES + "PP",
    Auth: "isb",
    Nothing: "",
    WatcherEvent: "iis",
    PathAndStat: "sT",
    StatOnly: "T",
    DataAndStat: "bT",
    Children: "P",
    ChildrenAndStat: "PT",
    AclAndStat: "AT",
    ErrorOnly: "i",
    Number: "i",
    ClientInfos: "C",
}
"""By record: a letter for each field. `s` string, `b` buffer, `i` and `l` integers of 4 and 8 bytes, `?` a
byte that is 0 or 1, `P` strings, `A` access control lists, `T` a `Stat`, `C` pairs of strings."""

REQUESTS: dict[int, type[tuple[Any, ...]]] = {
    OpCode.CREATE: Create,
    OpCode.CREATE2: Create,
    OpCode.CREATE_CONTAINER: Create,
    OpCode.CREATE_TTL: CreateTtl,
    OpCode.DELETE: PathAndVersion,
    OpCode.CHECK: PathAndVersion,
    OpCode.SET_DATA: SetData,
    OpCode.SET_ACL: SetAcl,
    OpCode.EXISTS: PathAndWatch,
    OpCode.GET_DATA: PathAndWatch,
    OpCode.GET_CHILDREN: PathAndWatch,
    OpCode.GET_CHILDREN2: PathAndWatch,
    OpCode.GET_ACL: PathOnly,
    OpCode.SYNC: PathOnly,
    OpCode.GET_EPHEMERALS: PathOnly,
    OpCode.GET_ALL_CHILDREN_NUMBER: PathOnly,
    OpCode.ADD_WATCH: PathAndMode,
    OpCode.REMOVE_WATCHES: PathAndMode,
    OpCode.CHECK_WATCHES: PathAndMode,
    OpCode.SET_WATCHES2: SetWatches,
    OpCode.AUTH: Auth,
    OpCode.PING: Nothing,
    OpCode.WHO_AM_I: Nothing,
    OpCode.CLOSE_SESSION: Nothing,
    OpCode.CREATE_SESSION: CreateSession,
}
"""By opcode: the record of the request. Those of multi, multiRead and setWatches have functions below."""

RESPONSES: dict[int, type[tuple[Any, ...]]] = {
    OpCode.CREATE: PathOnly,
    OpCode.CREATE2: PathAndStat,
    OpCode.CREATE_CONTAINER: PathAndStat,
    OpCode.CREATE_TTL: PathAndStat,
    OpCode.DELETE: Nothing,
    OpCode.CHECK: Nothing,
    OpCode.SET_DATA: StatOnly,
    OpCode.SET_ACL: StatOnly,
    OpCode.EXISTS: StatOnly,
    OpCode.GET_DATA: DataAndStat,
    OpCode.GET_CHILDREN: Children,
    OpCode.GET_CHILDREN2: ChildrenAndStat,
    OpCode.GET_ACL: AclAndStat,
    OpCode.SYNC: PathOnly,
    OpCode.GET_EPHEMERALS: Children,
    OpCode.GET_ALL_CHILDREN_NUMBER: Number,
    OpCode.ADD_WATCH: ErrorOnly,
    OpCode.REMOVE_WATCHES: Nothing,
    OpCode.CHECK_WATCHES: Nothing,
    OpCode.SET_WATCHES: Nothing,
    OpCode.SET_WATCHES2: Nothing,
    OpCode.AUTH: Nothing,
    OpCode.PING: Nothing,
    OpCode.WHO_AM_I: ClientInfos,
    OpCode.CLOSE_SESSION: Nothing,
    OpCode.ERROR: ErrorOnly,
}

_MULTI_PARTS = {
    OpCode.MULTI: NODE_CHANGES | {OpCode.CHECK},
    OpCode.MULTI_READ: frozenset((OpCode.GET_CHILDREN, OpCode.GET_DATA)),
}


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────


class JuteReader:
    """Reads fields one after another. `MalformedRecord` if the bytes end too early or make no sense."""

    __slots__ = ("_at", "_data", "_end")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at
        self._end = len(data)

    @property
    def rest(self) -> int:
        """The number of bytes that were not read."""
        return self._end - self._at

    def integer(self) -> int:
        at = self._at
        if at + 4 > self._end:
            raise MalformedRecord("it ends within an integer")
        self._at = at + 4
        return int.from_bytes(self._data[at : at + 4], "big", signed=True)

    def long(self) -> int:
        at = self._at
        if at + 8 > self._end:
            raise MalformedRecord("it ends within a long integer")
        self._at = at + 8
        return int.from_bytes(self._data[at : at + 8], "big", signed=True)

    def boolean(self) -> bool:
        at = self._at
        if at >= self._end:
            raise MalformedRecord("it ends before a boolean")
        self._at = at + 1
        return self._data[at] == 1

    def buffer(self) -> bytes | None:
        size = self.integer()
        if size == -1:
            return None
        at = self._at
        if size < 0 or at + size > self._end:
            raise MalformedRecord(f"a length of {size} where {self._end - at} bytes are left")
        self._at = at + size
        return self._data[at : at + size]

    def string(self) -> str:
        data = self.buffer()
        if data is None:
            # No request of ZooKeeper means anything with a null string.
            raise MalformedRecord("a string is null")
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise MalformedRecord("a string is not UTF-8") from None

    def _count(self, size_min: int) -> int:
        """Read the count of a vector: no more elements than the rest can hold, so that no count allocates."""
        count = self.integer()
        if count < -1 or count * size_min > self._end - self._at:
            raise MalformedRecord(f"a vector of {count} elements where {self._end - self._at} bytes are left")
        return max(0, count)

    def strings(self) -> tuple[str, ...]:
        return tuple([self.string() for _ in range(self._count(4))])

    def acls(self) -> tuple[Acl, ...]:
        return tuple(
            [Acl(self.integer(), self.string(), self.string()) for _ in range(self._count(12))],
        )

    def pairs(self) -> tuple[tuple[str, str], ...]:
        return tuple([(self.string(), self.string()) for _ in range(self._count(8))])

    def unpack(self, fields: struct.Struct) -> tuple[Any, ...]:
        """Read fields of a fixed size."""
        at = self._at
        if at + fields.size > self._end:
            raise MalformedRecord("it ends within fields of a fixed size")
        self._at = at + fields.size
        return fields.unpack_from(self._data, at)

    def stat(self) -> Stat:
        return Stat._make(self.unpack(STAT))

    def record(self, kind: type[R]) -> R:
        """Read a record."""
        return self._record(kind, LAYOUTS[kind])

    def _record(self, kind: type[R], layout: str) -> R:
        fields: list[Any] = [_READERS[letter](self) for letter in layout]
        return kind(*fields)

    def request(self, opcode: int) -> tuple[Any, ...]:
        """Read the record of a request with this opcode, which is one of `OpCode`."""
        if opcode in _MULTI_PARTS:
            return self._multi(REQUESTS, _MULTI_PARTS[OpCode(opcode)])
        if opcode == OpCode.SET_WATCHES:
            return self._record(SetWatches, _SET_WATCHES)
        return self.record(REQUESTS[opcode])

    def response(self, opcode: int) -> tuple[Any, ...]:
        """Read the record of a response to a request with this opcode."""
        if opcode in _MULTI_PARTS:
            return self._multi(RESPONSES, RESPONSES)
        return self.record(RESPONSES[opcode])

    def _multi(self, kinds: dict[int, type[tuple[Any, ...]]], allowed: Container[int]) -> Multi:
        parts: list[tuple[int, tuple[Any, ...]]] = []
        is_response = kinds is RESPONSES
        while True:
            opcode, is_done, _ = self.integer(), self.boolean(), self.integer()
            if is_done:
                return Multi(tuple(parts))
            if opcode not in allowed:
                raise MalformedRecord(f"no part of a multi has the opcode {opcode}")
            if opcode in (OpCode.GET_DATA, OpCode.GET_CHILDREN) and not is_response:
                parts.append((opcode, PathAndWatch(self.string(), self.boolean())))
            else:
                parts.append((opcode, self.record(kinds[opcode])))


_READERS: dict[str, Callable[[JuteReader], object]] = {
    "i": JuteReader.integer,
    "l": JuteReader.long,
    "?": JuteReader.boolean,
    "b": JuteReader.buffer,
    "s": JuteReader.string,
    "P": JuteReader.strings,
    "A": JuteReader.acls,
    "C": JuteReader.pairs,
    "T": JuteReader.stat,
}


# ── writing ───────────────────────────────────────────────────────────────────────────────────────────────


def _buffer(data: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if data is None else _INT.pack(len(data)) + data


def _string(text: str) -> bytes:
    data = text.encode()
    return _INT.pack(len(data)) + data


def _strings(texts: tuple[str, ...]) -> bytes:
    return _INT.pack(len(texts)) + b"".join(map(_string, texts))


def _acls(acls: tuple[Acl, ...]) -> bytes:
    parts = [_INT.pack(acl.permissions) + _string(acl.scheme) + _string(acl.id) for acl in acls]
    return _INT.pack(len(acls)) + b"".join(parts)


def _pairs(pairs: tuple[tuple[str, str], ...]) -> bytes:
    return _INT.pack(len(pairs)) + b"".join(_string(one) + _string(other) for one, other in pairs)


def _boolean(value: object) -> bytes:
    return b"\x01" if value else b"\x00"


def _stat(stat: Stat) -> bytes:
    return STAT.pack(*stat)


_WRITERS: dict[str, Callable[[Any], bytes]] = {
    "i": _INT.pack,
    "l": _LONG.pack,
    "?": _boolean,
    "b": _buffer,
    "s": _string,
    "P": _strings,
    "A": _acls,
    "C": _pairs,
    "T": _stat,
}


def encode(record: tuple[Any, ...]) -> bytes:
    """Return the bytes of a record."""
    layout = LAYOUTS[type(record)]
    return b"".join([_WRITERS[letter](value) for letter, value in zip(layout, record, strict=True)])


def encode_request(opcode: int, record: tuple[Any, ...]) -> bytes:
    """Return the bytes of a request without its header."""
    if isinstance(record, Multi):
        return encode_multi(record)
    data = encode(record)
    if opcode == OpCode.SET_WATCHES:
        assert isinstance(record, SetWatches)
        return data[: -2 * _INT.size]  # without the two vectors that only setWatches2 has, which are empty
    return data


def encode_multi(multi: Multi) -> bytes:
    """Return the bytes of a multi, or of the response to one."""
    parts = []
    for opcode, record in multi.parts:
        error = record[0] if opcode == OpCode.ERROR else 0
        parts.append(_MULTI_HEADER.pack(opcode, False, error) + encode(record))  # noqa: FBT003 - a field
    parts.append(_MULTI_HEADER.pack(-1, True, -1))  # noqa: FBT003
    return b"".join(parts)


def encode_reply(xid: int, zxid: int, error: int, body: bytes = b"") -> bytes:
    """Return a whole frame with a reply."""
    return FRAME_LENGTH.pack(REPLY_HEADER.size + len(body)) + REPLY_HEADER.pack(xid, zxid, error) + body


def encode_notification(event: WatcherEvent, zxid: int = -1) -> bytes:
    """Return a whole frame that tells a client of an event."""
    return encode_reply(NOTIFICATION_XID, zxid, 0, encode(event))


def encode_frame(body: bytes) -> bytes:
    """Return the body with its length before it."""
    return FRAME_LENGTH.pack(len(body)) + body
