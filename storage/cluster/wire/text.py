"""Protobuf's text form, from the same tables as the binary form (`protobuf.py`).

    quorumSize: 3                   a number, or the name of an enumeration's constant
    password: "pwd\\000"             text and bytes: printable ASCII, everything else escaped
    segment {                       a message
      ensembleMember: "bk1"
    }

Fields that the table does not know are kept as they were written, in lines after the known ones. BookKeeper
itself drops them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from storage.cluster.wire.protobuf import FieldKind, Malformed, ProtobufMessage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.cluster.wire.protobuf import MessageField, MessageTable, Value

_INDENT = "  "
_DEPTH_MAX = 32

# ── encoding ──────────────────────────────────────────────────────────────────────────────────────────────

_ESCAPES = {0x0A: r"\n", 0x0D: r"\r", 0x09: r"\t", 0x22: r"\"", 0x27: r"\'", 0x5C: r"\\"}


def encode(table: MessageTable, message: ProtobufMessage) -> bytes:
    """Encode a message, one line for each field, in the order of the table."""
    return "".join(f"{line}\n" for line in _lines(table, message)).encode(errors="surrogateescape")


def _lines(table: MessageTable, message: ProtobufMessage) -> Iterator[str]:
    for one in table.fields:
        value = message.values.get(one.name, ())
        for each in value if isinstance(value, tuple) else (value,):
            yield from _field_lines(one, each)
    if message.unknown:
        yield from message.unknown.decode(errors="surrogateescape").split("\n")


def _field_lines(one: MessageField, value: object) -> Iterator[str]:
    if one.kind is FieldKind.MESSAGE:
        assert one.table is not None
        assert isinstance(value, ProtobufMessage)
        yield f"{one.name} {{"
        yield from (_INDENT + line for line in _lines(one.table, value))
        yield "}"
    else:
        yield f"{one.name}: {_scalar(one, value)}"


def _scalar(one: MessageField, value: object) -> str:
    if isinstance(value, str):
        value = value.encode(errors="surrogateescape")
    if isinstance(value, bytes):
        return '"' + "".join(map(_escape, value)) + '"'
    assert isinstance(value, int)
    return one.names.get(value, str(value))


def _escape(byte: int) -> str:
    if byte in _ESCAPES:
        return _ESCAPES[byte]
    return chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}"


# ── decoding ──────────────────────────────────────────────────────────────────────────────────────────────

_TOKEN = re.compile(
    r"""(?:\s|\#[^\n]*)*                                  # white space and comments
        (?: (?P<name>[A-Za-z_][\w.]*)
          | (?P<number>[+-]?[0-9][\w.]*)
          | (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
          | (?P<mark>[:{}<>;,])
          | (?P<end>\Z) )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED = re.compile(
    rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
_NAMED_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
_CLOSING = {"{": "}", "<": ">"}
_RANGES = {FieldKind.INTEGER: range(-(1 << 63), 1 << 63), FieldKind.UNSIGNED: range(1 << 64)}


class _MalformedText(Exception):
    """Ends a decoding that has met malformed text. `decode` returns it as a value."""


def decode(table: MessageTable, data: bytes) -> ProtobufMessage | Malformed:
    """Return the message in this text, or what is wrong with it."""
    try:
        return _Parser(data.decode(errors="surrogateescape")).message(table, "end", 0)
    except _MalformedText as flaw:
        return Malformed(f"{table.name}: {flaw}")


class _TextToken(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


class _Parser:
    """Reads one text, token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._next = self._scan(0)

    def message(self, table: MessageTable, closing: str, depth: int) -> ProtobufMessage:
        """Read fields up to the closing mark, or to the end if `closing` is "end"."""
        values: dict[str, Value] = {}
        unknown: list[str] = []
        while not self._ends(closing):
            name = self._take("name")
            one = table.by_name.get(name.text)
            if one is None:
                end = self._skip_value(depth)
                unknown.append(self._without_indent(name.start, end, depth))
            else:
                self._add(values, one, depth)
            if self._next.text in (";", ","):
                self._advance()
        for one in table.fields:
            if one.is_required and one.name not in values:
                raise _MalformedText(f"{one.name} is missing")
        return ProtobufMessage(values, "\n".join(unknown).encode(errors="surrogateescape"))

    def _ends(self, closing: str) -> bool:
        if self._next.kind == "end" and closing != "end":
            raise _MalformedText(f"cut off before {closing}")
        if self._next.kind == "end" or (self._next.kind == "mark" and self._next.text == closing):
            self._advance()
            return True
        return False

    def _add(self, values: dict[str, Value], one: MessageField, depth: int) -> None:
        value = self._nested(one, depth) if one.kind is FieldKind.MESSAGE else self._value(one)
        if one.is_repeated:
            before = values.get(one.name, ())
            assert isinstance(before, tuple)
            values[one.name] = (*before, value)
        elif one.name in values:
            raise _MalformedText(f"{one.name} twice, the second before byte {self._next.start}")
        else:
            values[one.name] = value

    def _nested(self, one: MessageField, depth: int) -> ProtobufMessage:
        assert one.table is not None
        if self._next.text == ":":
            self._advance()
        return self.message(one.table, self._opened(), self._deeper(depth))

    def _opened(self) -> str:
        token = self._take("mark")
        if token.text not in _CLOSING:
            raise _MalformedText(f"{token.text!r} at byte {token.start}")
        return _CLOSING[token.text]

    def _value(self, one: MessageField) -> int | bytes | str:
        if self._take("mark").text != ":":
            raise _MalformedText(f"no colon after {one.name}")
        if one.kind in (FieldKind.TEXT, FieldKind.BYTES):
            found = self._strings()
            return found.decode(errors="surrogateescape") if one.kind is FieldKind.TEXT else found
        token = self._advance()
        number = _number_of(one, token)
        if number is None:
            raise _MalformedText(f"{one.name} is {token.text!r}")
        return number

    def _strings(self) -> bytes:
        found = [self._take("text")]
        while self._next.kind == "text":
            found.append(self._advance())
        return b"".join(_unescape(token.text[1:-1]) for token in found)

    def _skip_value(self, depth: int) -> int:
        """Pass over the value of an unknown field. Return where it ends."""
        if self._next.text == ":":
            self._advance()
        if self._next.text not in _CLOSING:
            token = self._advance()
            while token.kind == "text" and self._next.kind == "text":
                token = self._advance()
            if token.kind in ("mark", "end"):
                raise _MalformedText(f"no value at byte {token.start}")
            return token.end
        closing = self._opened()
        depth = self._deeper(depth)
        while self._next.text != closing or self._next.kind != "mark":
            self._take("name")
            self._skip_value(depth)
            if self._next.text in (";", ","):
                self._advance()
        return self._advance().end

    @staticmethod
    def _deeper(depth: int) -> int:
        if depth >= _DEPTH_MAX:
            raise _MalformedText(f"more than {_DEPTH_MAX} messages inside of each other")
        return depth + 1

    def _without_indent(self, start: int, end: int, depth: int) -> str:
        return self._text[start:end].replace("\n" + _INDENT * depth, "\n")

    def _take(self, kind: str) -> _TextToken:
        token = self._advance()
        if token.kind != kind:
            raise _MalformedText(f"{token.text!r} at byte {token.start}, where a {kind} should be")
        return token

    def _advance(self) -> _TextToken:
        token = self._next
        if token.kind != "end":
            self._next = self._scan(token.end)
        return token

    def _scan(self, offset: int) -> _TextToken:
        match = _TOKEN.match(self._text, offset)
        if match is None:
            raise _MalformedText(f"unexpected text after byte {offset}: {self._text[offset : offset + 20]!r}")
        kind = match.lastgroup or "end"
        return _TextToken(kind, match[kind], match.start(kind), match.end(kind))


def _number_of(one: MessageField, token: _TextToken) -> int | None:
    if token.kind == "name":
        return next((number for number, name in one.names.items() if name == token.text), None)
    try:
        number = int(token.text, 0) if token.kind == "number" else None
    except ValueError:
        return None
    return number if number is not None and number in _RANGES[one.kind] else None


def _unescape(text: str) -> bytes:
    return _ESCAPED.sub(_unescape_one, text.encode(errors="surrogateescape"))


def _unescape_one(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, short, long, character = match.groups()
    if octal:
        return bytes([int(octal, 8) & 0xFF])
    if hexadecimal:
        return bytes([int(hexadecimal, 16)])
    if short or long:
        code = int(short or long, 16)
        if code > 0x10FFFF:
            raise _MalformedText(f"no character has the number {code:#x}")
        return chr(code).encode(errors="surrogatepass")
    return _NAMED_ESCAPES.get(character, character)
