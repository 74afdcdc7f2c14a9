"""Protocol buffers by tables: `decode` and `encode` follow a `MessageTable`, which lists the fields.

    field   = key varint, value          key = field number << 3 | wire type
    varint  = 7 bits a byte, the lowest first; the top bit says that another byte follows (10 bytes at most)
    bytes   = length varint, the bytes   (also text and messages)

Fields that the table does not name are kept as they came, and are written after the others, so that a message
of a later version survives being rewritten. No runtime of protocol buffers is used, because importing one
takes longer than importing this whole package, and decoding an add with it takes twice as long.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Value: TypeAlias = "int | bytes | str | ProtobufMessage | Sequence[int | bytes | str | ProtobufMessage]"

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_VARINT_SIZE_MAX = 10
_MASK = (1 << 64) - 1
_DEPTH_MAX = 16
"""Messages inside messages. A message of ours has three; without a limit a peer could exhaust the stack."""
FIELDS_MAX = 1 << 17
"""Fields of a message and of all inside it: more than a ledger's metadata in a node of 1 MiB can have."""


class FieldKind(enum.Enum):
    """The type of a field's value."""

    INTEGER = enum.auto()
    """int32, int64 and enumerations: a negative number is ten bytes long."""
    UNSIGNED = enum.auto()
    """uint32 and uint64."""
    BYTES = enum.auto()
    TEXT = enum.auto()
    MESSAGE = enum.auto()


@dataclass(frozen=True, slots=True)
class MessageField:
    """One field of a message."""

    number: int
    name: str
    kind: FieldKind
    table: MessageTable | None = None
    """The table of the message that the field holds."""
    is_repeated: bool = False
    is_required: bool = False
    names: Mapping[int, str] = field(default_factory=dict)
    """The constants of an enumeration, which the text form has by name."""


class MessageTable:
    """The fields of a message, in the order in which they are written."""

    def __init__(self, name: str, *fields: MessageField) -> None:
        self.name = name
        self.fields = fields
        self.required = tuple(one for one in fields if one.is_required)
        self.by_number: Mapping[int, MessageField] = {one.number: one for one in fields}
        self.by_name: Mapping[str, MessageField] = {one.name: one for one in fields}


@dataclass(frozen=True, slots=True)
class ProtobufMessage:
    """A decoded message: its fields by name. Repeated fields are tuples, and absent ones have no item."""

    values: Mapping[str, Value]
    unknown: bytes = b""
    """The fields that the table does not name, as they came."""

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def integer(self, name: str, default: int = 0) -> int:
        """Return a number, or the default if the field is absent."""
        value = self.values.get(name, default)
        assert isinstance(value, int), name
        return value

    def data(self, name: str, default: bytes = b"") -> bytes:
        """Return the bytes of a field, or the default if it is absent."""
        value = self.values.get(name, default)
        assert isinstance(value, bytes), name
        return value

    def text(self, name: str, default: str = "") -> str:
        """Return the text of a field, or the default if it is absent."""
        value = self.values.get(name, default)
        assert isinstance(value, str), name
        return value

    def message(self, name: str) -> ProtobufMessage | None:
        """Return the message in a field; `None` if it is absent."""
        value = self.values.get(name)
        assert value is None or isinstance(value, ProtobufMessage), name
        return value

    def messages(self, name: str) -> tuple[ProtobufMessage, ...]:
        """Return the messages of a repeated field."""
        value = self.values.get(name, ())
        assert isinstance(value, tuple), name
        return tuple(one for one in value if isinstance(one, ProtobufMessage))

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the texts of a repeated field."""
        value = self.values.get(name, ())
        assert isinstance(value, tuple), name
        return tuple(one for one in value if isinstance(one, str))


@dataclass(frozen=True, slots=True)
class Malformed:
    """Bytes that are no such message."""

    reason: str
    offset: int = field(default=0, compare=False)


class _MalformedBytes(Exception):
    """Ends a decoding that has met malformed bytes. `decode` returns it as a value."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.reason, self.offset = reason, offset


# ── varints ──────────────────────────────────────────────────────────────────────────────────────────────


def encode_varint(value: int) -> bytes:
    """Return the varint of a number; a negative one is taken modulo 2^64, which makes ten bytes."""
    if 0 <= value < 0x80:
        return value.to_bytes()
    if 0 < value < 1 << 21:
        # Most numbers are as small as this, and a loop takes three times as long.
        low, middle, high = value & 0x7F | 0x80, value >> 7 & 0x7F, value >> 14
        return bytes((low, middle | 0x80, high)) if high else bytes((low, middle))
    value &= _MASK
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_varint(raw: bytes) -> int:
    """Return the number of a whole varint, modulo 2^64."""
    if len(raw) == 1:
        return raw[0]
    if len(raw) == 2:
        return raw[0] & 0x7F | raw[1] << 7
    if len(raw) == 3:
        return raw[0] & 0x7F | (raw[1] & 0x7F) << 7 | raw[2] << 14
    value = 0
    for byte in reversed(raw):
        value = value << 7 | byte & 0x7F
    return value & _MASK


def signed(value: int) -> int:
    """Return the signed number that an unsigned one of 64 bits stands for."""
    return value - (1 << 64) if value >> 63 else value


_NUMBERS = FieldKind.INTEGER, FieldKind.UNSIGNED
_SIGN = 1 << 63
_CONTINUED = 0x80
"""A byte of a varint from here on is not its last one."""


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    for here in range(at, min(at + _VARINT_SIZE_MAX, end)):
        byte = data[here]
        value |= (byte & 0x7F) << shift
        if byte < _CONTINUED:
            return value & _MASK, here + 1
        shift += 7
    raise _MalformedBytes(
        "a varint of more than ten bytes" if end - at >= _VARINT_SIZE_MAX else "it ends early", at
    )


# ── decoding ─────────────────────────────────────────────────────────────────────────────────────────────


def decode(table: MessageTable, data: bytes, fields_max: int = FIELDS_MAX) -> ProtobufMessage | Malformed:
    """Return the message in these bytes, or what is wrong with them.

    `fields_max` bounds time and memory, because a field of two bytes takes a hundred times as much of them.
    """
    try:
        return _message(table, data, 0, len(data), _DEPTH_MAX, iter(range(fields_max)))
    except _MalformedBytes as flaw:
        return Malformed(f"{table.name}: {flaw.reason}", flaw.offset)


def _message(  # noqa: C901 - one branch for each wire type
    table: MessageTable, data: bytes, at: int, end: int, depth: int, left: Iterator[int]
) -> ProtobufMessage:
    """`left` has an item for each field that may still follow."""
    if not depth:
        raise _MalformedBytes("too many messages inside each other", at)
    values: dict[str, Value] = {}
    repeated: dict[str, list[int | bytes | str | ProtobufMessage]] = {}
    unknown = []
    while at < end:
        if next(left, None) is None:
            raise _MalformedBytes("too many fields", at)
        begin = at
        # Nearly all keys and lengths are one byte, and a call takes as long as the rest of a field.
        if (key := data[at]) < _CONTINUED:
            at += 1
        else:
            key, at = _varint(data, at, end)
        known, wire = table.by_number.get(key >> 3), key & 7
        value: int | bytes | str | ProtobufMessage = 0
        if wire == _VARINT:
            if at < end and (number := data[at]) < _CONTINUED:
                at += 1
            else:
                number, at = _varint(data, at, end)
            if known is not None and known.kind in _NUMBERS:
                is_negative = number >= _SIGN and known.kind is FieldKind.INTEGER
                value = signed(number) if is_negative else number
            else:
                known = None
        elif wire == _BYTES:
            if at < end and (size := data[at]) < _CONTINUED:
                at += 1
            else:
                size, at = _varint(data, at, end)
            if size > end - at:
                raise _MalformedBytes("a field ends after its message", begin)
            begin_of_value, at = at, at + size
            if known is None or known.kind in _NUMBERS:
                known = None
            else:
                value = _value(known, data, begin_of_value, at, depth, left)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
            if size > end - at:
                raise _MalformedBytes("a field ends after its message", begin)
            known, at = None, at + size
        else:
            raise _MalformedBytes(f"wire type {wire}", begin)
        if not key >> 3:
            raise _MalformedBytes("field number 0", begin)
        if known is None:
            unknown.append(data[begin:at])
        elif known.is_repeated:
            repeated.setdefault(known.name, []).append(value)
        else:
            values[known.name] = value
    for name, items in repeated.items():
        values[name] = tuple(items)
    for one in table.required:
        if one.name not in values:
            raise _MalformedBytes(f"{one.name} is missing", end)
    return ProtobufMessage(values, b"".join(unknown))


def _value(
    one: MessageField, data: bytes, at: int, end: int, depth: int, left: Iterator[int]
) -> bytes | str | ProtobufMessage:
    if one.kind is FieldKind.MESSAGE:
        assert one.table is not None, one.name
        return _message(one.table, data, at, end, depth - 1, left)
    raw = data[at:end]
    if one.kind is FieldKind.BYTES:
        return raw
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise _MalformedBytes(f"{one.name} is not UTF-8", at) from error


# ── encoding ─────────────────────────────────────────────────────────────────────────────────────────────


def encode(table: MessageTable, message: ProtobufMessage) -> bytes:
    """Return the bytes of a message: its fields in the order of the table, and then the unknown ones."""
    out = bytearray()
    for one in table.fields:
        value = message.values.get(one.name)
        if value is None:
            continue
        for item in value if isinstance(value, tuple) else (value,):
            _append(out, one, item)
    return bytes(out + message.unknown)


def _append(out: bytearray, one: MessageField, value: object) -> None:
    if one.kind in (FieldKind.INTEGER, FieldKind.UNSIGNED):
        assert isinstance(value, int), one.name
        out += encode_varint(one.number << 3 | _VARINT) + encode_varint(value)
        return
    if one.kind is FieldKind.MESSAGE:
        assert isinstance(value, ProtobufMessage), one.name
        assert one.table is not None, one.name
        raw = encode(one.table, value)
    elif one.kind is FieldKind.TEXT:
        assert isinstance(value, str), one.name
        raw = value.encode()
    else:
        assert isinstance(value, bytes | bytearray | memoryview), one.name
        raw = bytes(value)
    out += encode_varint(one.number << 3 | _BYTES) + encode_varint(len(raw)) + raw
