"""What the leaves of LMDB's trees hold, read by hand: keys, each with its sorted values of equal width.

    node     size u32 ┼ flags u16 ┼ key size u16 ┼ key ┼ value
    value    one value, as it is
             few: a little leaf          16: head ┼ values, one behind the other
             many: the record of a tree  width u32 ┼ flags u16 ┼ depth u16 ┼ pages u64 × 3 ┼ count u64 ┼ root

For pages of which `storage.codec.lmdb_page` has found that they make sense; see there for the rest.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from storage.codec import lmdb_page
from storage.codec.lmdb_page import HEAD_SIZE, TREE_SIZE, Tree
from storage.outcome import Damaged, Flaw

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.codec.digest import Buffer

_IS_ELSEWHERE, _IS_TREE, _IS_MANY = 0x01, 0x02, 0x04
_LEAF2 = 0x20
_NODE = struct.Struct("<HHHH")
_HEAD = struct.Struct("<8xHHH")
_COUNT = struct.Struct("<32xQ")


@dataclass(frozen=True, slots=True)
class Few:
    """Values that stand in the leaf itself, one behind the other."""

    width: int
    packed: bytes


@dataclass(frozen=True, slots=True)
class Many:
    """Values in a tree of their own; or, in the first of all trees, a database."""

    tree: Tree
    count: int


class Item(NamedTuple):
    """A key, and what it has."""

    key: bytes
    values: Few | Many | Damaged


def decode(page: Buffer) -> Iterator[Item]:
    """The items of a leaf, in the order of their keys."""
    view = memoryview(page)
    _, _, lower = _HEAD.unpack_from(view)
    for at in view[HEAD_SIZE:lower].cast("H"):
        low, high, kind, key_size = _NODE.unpack_from(view, at)
        start = at + _NODE.size + key_size
        value = view[start : start + (low | high << 16)]
        yield Item(bytes(view[at + _NODE.size : start]), _values(value, kind))


def _values(value: memoryview, kind: int) -> Few | Many | Damaged:
    if kind == 0:
        return Few(len(value), bytes(value))
    if kind == _IS_ELSEWHERE:
        return Damaged(0, Flaw.BAD_FIELD, "a value too large for a place")
    if kind & _IS_TREE:
        return _many(value)
    assert kind == _IS_MANY, "the page makes sense"
    return _few(value)


def _few(leaf: memoryview) -> Few | Damaged:
    width, flags, lower = _HEAD.unpack_from(leaf)
    if not flags & _LEAF2:
        return Damaged(0, Flaw.BAD_FIELD, "values of any width")
    size = (lower - HEAD_SIZE) // 2 * width
    return Few(width, bytes(leaf[HEAD_SIZE : HEAD_SIZE + size]))


def _many(record: memoryview) -> Many | Damaged:
    tree = lmdb_page.decode_tree(record[:TREE_SIZE])
    (count,) = _COUNT.unpack_from(record)
    return tree if isinstance(tree, Damaged) else Many(tree, count)
