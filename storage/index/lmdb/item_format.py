"""The items in the leaf pages of LMDB's trees: keys, each with its sorted values of equal width.

    node     size u32 ┼ flags u16 ┼ key size u16 ┼ key ┼ value
    value    a single value
             few: an inner leaf          16: head ┼ values, one after the other
             many: the record of a tree  width u32 ┼ flags u16 ┼ depth u16 ┼ pages u64 × 3 ┼ count u64 ┼ root

Only for pages that `storage.index.lmdb.page_format` has decoded without damage; it describes the rest.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from storage.entry.read_result import Damaged, Flaw
from storage.index.lmdb import page_format
from storage.index.lmdb.page_format import HEAD_SIZE, TREE_SIZE, Tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.entry.digest import Buffer

_IS_ELSEWHERE, _IS_TREE, _IS_MANY = 0x01, 0x02, 0x04
_LEAF2 = 0x20
_NODE = struct.Struct("<HHHH")
_HEAD = struct.Struct("<8xHHH")
_COUNT = struct.Struct("<32xQ")


@dataclass(frozen=True, slots=True)
class InlineValues:
    """Values inside the leaf page, one after the other."""

    width: int
    packed: bytes


@dataclass(frozen=True, slots=True)
class ValueTree:
    """Values in a tree of their own; in the main tree, such a tree is a database."""

    tree: Tree
    count: int


class LeafItem(NamedTuple):
    """A key with its values."""

    key: bytes
    values: InlineValues | ValueTree | Damaged


def decode(page: Buffer) -> Iterator[LeafItem]:
    """Yield the items of a leaf page, in the order of their keys."""
    view = memoryview(page)
    _, _, lower = _HEAD.unpack_from(view)
    for at in view[HEAD_SIZE:lower].cast("H"):
        low, high, kind, key_size = _NODE.unpack_from(view, at)
        start = at + _NODE.size + key_size
        value = view[start : start + (low | high << 16)]
        yield LeafItem(bytes(view[at + _NODE.size : start]), _values(value, kind))


def _values(value: memoryview, kind: int) -> InlineValues | ValueTree | Damaged:
    if kind == 0:
        return InlineValues(len(value), bytes(value))
    if kind == _IS_ELSEWHERE:
        return Damaged(0, Flaw.BAD_FIELD, "a value too large for a location")
    if kind & _IS_TREE:
        return _many(value)
    assert kind == _IS_MANY, "the page was decoded without damage"
    return _few(value)


def _few(leaf: memoryview) -> InlineValues | Damaged:
    width, flags, lower = _HEAD.unpack_from(leaf)
    if not flags & _LEAF2:
        return Damaged(0, Flaw.BAD_FIELD, "values of different widths")
    size = (lower - HEAD_SIZE) // 2 * width
    return InlineValues(width, bytes(leaf[HEAD_SIZE : HEAD_SIZE + size]))


def _many(record: memoryview) -> ValueTree | Damaged:
    tree = page_format.decode_tree(record[:TREE_SIZE])
    (count,) = _COUNT.unpack_from(record)
    return tree if isinstance(tree, Damaged) else ValueTree(tree, count)
