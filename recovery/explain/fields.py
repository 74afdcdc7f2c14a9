"""Takes named fields from bytes, one after the other."""

from __future__ import annotations

from dataclasses import dataclass

_SHOWN_MAX = 20
"""An opaque field of at most so many bytes is shown as its value, and a longer one as its size."""


@dataclass(frozen=True, slots=True)
class Field:
    """Adjacent bytes with a name. `offset` counts from the start of the file."""

    offset: int
    size: int
    name: str
    value: int | str = ""
    meaning: str = ""


class FieldReader:
    """Takes fields from the beginning of the bytes. At their end further fields are empty."""

    def __init__(self, data: bytes, offset: int) -> None:
        self.fields: list[Field] = []
        self._data = data
        self._offset = offset
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def peek(self, size: int) -> bytes:
        return self._data[self._at : self._at + size]

    def _add(self, size: int, name: str, value: int | str, meaning: str) -> bytes:
        piece = self.peek(size)
        if len(piece) < size:
            value, meaning = f"{len(piece)} of {size} bytes", "cut off"
        if piece:
            self.fields.append(Field(self._offset + self._at, len(piece), name, value, meaning))
        self._at += len(piece)
        return piece

    def number(self, size: int, name: str, meaning: str = "") -> int:
        """Take a signed number; return 0 if it is cut off."""
        piece = self.peek(size)
        value = int.from_bytes(piece, "big", signed=True)
        self._add(size, name, value, meaning)
        return value if len(piece) == size else 0

    def checksum(self, meaning: str) -> None:
        self._add(4, "crc", self.peek(4).hex(), meaning)

    def magic(self, meaning: str) -> None:
        self._add(4, "magic", text(self.peek(4)), meaning)

    def raw(self, size: int, name: str, meaning: str = "") -> bytes:
        piece = self.peek(size)
        return self._add(size, name, piece.hex() if len(piece) <= _SHOWN_MAX else count(piece), meaning)

    def payload(self) -> None:
        piece = self.peek(self.left)
        self._add(self.left, "payload", count(piece), text(piece))

    def zeros(self, size: int, meaning: str) -> None:
        """Take fill bytes, and say if they are not all zero."""
        piece = self.peek(size)
        self._add(size, "fill", count(piece), meaning if not any(piece) else "not all zero")

    def rest(self, name: str, meaning: str = "") -> None:
        if self.left:
            self.raw(self.left, name, meaning)


def count(piece: bytes) -> str:
    return f"{len(piece)} byte{'' if len(piece) == 1 else 's'}"


def text(piece: bytes) -> str:
    """Return the first bytes as text, if they may be text."""
    glance = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece[:24])
    return f"“{glance}{'…' if len(piece) > 24 else ''}”"
