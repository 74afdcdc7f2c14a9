"""One damage to one file: what it is, and the tree behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as field_of
from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Hashable

Tree: TypeAlias = Mapping[str, bytes]

_SHORT = 16


class What(StrEnum):
    """What has happened to a file."""

    FLIP = "flip"
    ZEROED = "zeroed block"
    MISDIRECTED = "misdirected block"
    STALE_BLOCK = "stale block"
    STALE_FILE = "stale file"
    TRUNCATED = "truncated"
    EMPTY = "empty"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing that has happened to one file."""

    path: str
    kind: str
    """The kind of file."""
    what: What
    offset: int = 0
    """Where it begins; for a truncated file, where it ends."""
    size: int = 0
    """How many bytes it is about."""
    label: str = ""
    """For people: which bit, which block from where."""
    field: str = ""
    bit: int = 0
    put: bytes = field_of(default=b"", repr=False)
    """What stands there instead."""

    def apply(self, tree: Tree) -> dict[str, bytes]:
        """The tree with this damage; the one given stays as it is."""
        damaged = dict(tree)
        if self.what is What.MISSING:
            damaged.pop(self.path, None)
        else:
            damaged[self.path] = self.content(tree[self.path])
        return damaged

    def content(self, data: bytes) -> bytes:
        """The file with this damage."""
        if self.what is What.STALE_FILE:
            return self.put
        if self.what in (What.TRUNCATED, What.EMPTY):
            return data[: self.offset]
        if self.what is What.FLIP:
            return _put(data, self.offset, bytes([data[self.offset] ^ 1 << self.bit]))
        return _put(data, self.offset, self.put)

    def __str__(self) -> str:
        where = f" in {self.field}" if self.field else ""
        return f"{self.path}: {self.what}" + (f", {self.label}" if self.label else "") + where


def change_of(data: bytes, damage: Damage) -> Hashable:
    """What the damage comes to, whatever it is called; None if to nothing."""
    match damage.what:
        case What.MISSING:
            return What.MISSING
        case What.FLIP:
            return damage.offset, damage.offset + 1, bytes([data[damage.offset] ^ 1 << damage.bit])
        case What.TRUNCATED | What.EMPTY:
            return (damage.offset, len(data), b"") if damage.offset < len(data) else None
        case What.STALE_FILE:
            return _difference(0, data, damage.put)
    return _difference(damage.offset, data[damage.offset : damage.offset + damage.size], damage.put)


def _difference(at: int, old: bytes, new: bytes) -> Hashable:
    """From where to where the bytes differ, and what is there now."""
    if old == new:
        return None
    head = _common(old, new)
    old, new = old[head:], new[head:]
    tail = _common(old[::-1], new[::-1])
    put = new[: len(new) - tail]
    return at + head, at + head + len(old) - tail, put if len(put) <= _SHORT else blake2b(put).digest()


def _common(a: bytes, b: bytes) -> int:
    """How many bytes both begin with."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _put(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]
